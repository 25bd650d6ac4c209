"""Rates, times, sizes and probabilities, as they are written and as they are printed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from softnic import units


@pytest.mark.parametrize(
    ("parse", "texts", "value"),
    [
        (units.rate_bps, "1gbit 1Gbit 1GBIT 1gbits 1Gbit/s 1Gbits/s 1gbitps 1G 1g .001tbit 1000m", 1e9),
        (units.rate_bps, "100mbit 100Mbit/s 100M 0.1g 100000kbit 100000k 100000000bit", 1e8),
        (units.rate_bps, "1mibit 1Mibit/s 1024kibit", 2**20),
        (units.rate_bps, "1gibit 1024mibit", 2**30),
        (units.rate_bps, "1tibit 1024gibit", 2**40),
        (units.time_s, "2s 2sec 2secs 2000ms 2000msec 2000msecs 2000000us 2000000usecs", 2.0),
        (units.time_s, "50us 50µs 50μs 50usec 50000ns 0.05ms", 50e-6),
        (units.size_bytes, "1mb 1MB 1000kb 1000000b .001gb", 10**6),
        (units.size_bytes, "1mib 1MiB 1024kib", 2**20),
        (units.size_bytes, "1gib 1024mib", 2**30),
        (units.probability, "0.1% 0.001 .1%", 0.001),
        (units.probability, "100% 1", 1.0),
    ],
)
def test_one_quantity_has_many_spellings(parse: Callable[[str], float], texts: str, value: float) -> None:
    for text in texts.split():
        assert parse(text) == pytest.approx(value, rel=1e-12), text
        number, unit = re.fullmatch(r"([0-9.]+)(.*)", text).groups()  # type: ignore[union-attr]
        assert parse(f" {number} {unit} ") == parse(text)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (units.rate_bps, "1gb", "'1gb' is not a rate: is it bits or bytes? Write 1gbit or 8gbit"),
        (units.rate_bps, "100mbps", "'100mbps' is not a rate: is it bits or bytes? Write 100mbit or 800mbit"),
        (units.rate_bps, "1.5 MB/s", "'1.5 MB/s' is not a rate: is it bits or bytes? Write 1.5mbit or 12mbit"),
        (units.rate_bps, "2GiB/s", "'2GiB/s' is not a rate: is it bits or bytes? Write 2gibit or 16gibit"),
        (units.rate_bps, "7bytes", "'7bytes' is not a rate: is it bits or bytes? Write 7bit or 56bit"),
        (units.rate_bps, "10", "'10' is not a rate: the unit is missing, as in 10mbit"),
        (units.rate_bps, "x", "'x' is not a rate: a number and one of bit, kbit, mbit, gbit, tbit is expected"),
        (units.rate_bps, "1gigabit", "'1gigabit' is not a rate: a number and one of bit, kbit, mbit, gbit, tbit is "),
        (units.rate_bps, "-1gbit", "'-1gbit' is not a rate: a number and one of "),
        (units.rate_bps, "1e3mbit", "'1e3mbit' is not a rate: a number and one of "),
        (units.rate_bps, "9" * 400 + "gbit", f"'{'9' * 20}'... is not a rate: it is too large"),
        (units.time_s, "50", "'50' is not a time: the unit is missing, as in 50ms"),
        (units.time_s, "2m", "'2m' is not a time: write 120s"),
        (units.time_s, "1h", "'1h' is not a time: write 3600s"),
        (units.time_s, "soon", "'soon' is not a time: a number and one of s, ms, us, ns is expected"),
        (units.size_bytes, "256", "'256' is not a size: the unit is missing, as in 256kb"),
        (units.size_bytes, "256K", "'256K' is not a size: write 256kb (decimal) or 256kib (binary)"),
        (units.size_bytes, "256kbit", "'256kbit' is not a size: it is bits: write 32kb"),
        (units.size_bytes, "8mibit", "'8mibit' is not a size: it is bits: write 1mib"),
        (units.size_bytes, "big", "'big' is not a size: a number and one of b, kb, mb, gb, kib, mib, gib is expected"),
        (units.probability, "1/5", "'1/5' is not a probability: a number from 0 to 1 or a percentage is expected"),
        (units.probability, "101%", "'101%' is not a probability: it is more than 100%"),
        (units.probability, "1.5", "'1.5' is not a probability: it is more than 100%"),
    ],
)
def test_what_is_refused_says_what_to_write(parse: Callable[[str], float], text: str, said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        parse(text)


@pytest.mark.parametrize("text", ["1gb", "100mbps", "3 KB/s", "2GiB/s", "7bytes", "10"])
def test_what_is_suggested_for_a_rate_is_understood(text: str) -> None:
    with pytest.raises(ValueError, match="not a rate") as refused:
        units.rate_bps(text)
    bits, *as_bytes = [units.rate_bps(each) for each in re.findall(r"[0-9.]+[kmgi]*bit", str(refused.value))]
    assert all(each == 8 * bits for each in as_bytes)


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (units.text_bytes, 0, "0 B"),
        (units.text_bytes, 999, "999 B"),
        (units.text_bytes, 999.7, "1.0 KB"),
        (units.text_bytes, 1000, "1.0 KB"),
        (units.text_bytes, 737664, "737.7 KB"),
        (units.text_bytes, 999_949, "999.9 KB"),
        (units.text_bytes, 999_950, "1.0 MB"),
        (units.text_bytes, 12.3e12, "12.3 TB"),
        (units.text_bytes, 1e15, "1000.0 TB"),
        (units.text_rate, 0, "0 bit/s"),
        (units.text_rate, 517, "517 bit/s"),
        (units.text_rate, 999_400, "999 kbit/s"),
        (units.text_rate, 999_900_000, "1 Gbit/s"),
        (units.text_rate, 4e14, "400 Tbit/s"),
        (units.text_rate, 1.23456e16, "12346 Tbit/s"),
        (units.text_time, 0, "0 ns"),
        (units.text_time, 50e-6, "50 us"),
        (units.text_time, 0.9996, "1 s"),
        (units.text_time, 0.0124, "12.4 ms"),
        (units.text_time, 86400, "86400 s"),
    ],
)
def test_printed_figures(form: Callable[[float], str], value: float, text: str) -> None:
    assert form(value) == text
    if value:
        assert form(-value) == f"-{text}"


@given(st.floats(1e-9, 1e12, allow_nan=False))
@example(0.0078125)
def test_printed_figures_are_read_back(value: float) -> None:
    assert units.rate_bps(units.text_rate(value)) == pytest.approx(value, rel=0.006, abs=0.01)
    assert units.time_s(units.text_time(value)) == pytest.approx(value, rel=0.006, abs=1e-11)
    number, unit = units.text_bytes(value).split()
    read = f"{1000 * float(number)} GB" if unit == "TB" else f"{number} {unit}"
    assert units.size_bytes(read) == pytest.approx(value, rel=0.06, abs=0.51)
    for text in (units.text_rate(value), units.text_time(value), units.text_bytes(value)):
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)? [a-zA-Z/]+", text), text
        number = text.split()[0]
        assert len(number) <= 6 or not 0.01 <= float(number) < 1e6  # zeros before three digits, or all digits


@pytest.mark.parametrize(
    ("number", "things", "medians"),
    [(0, "0 rounds", "one round"), (1, "1 round", "one round"), (2, "2 rounds", "medians of 2 rounds"),
     (1234, "1,234 rounds", "medians of 1,234 rounds")],
)  # fmt: skip
def test_numbers_of_things(number: int, things: str, medians: str) -> None:
    assert units.counted(number, "round") == things
    assert units.medians_of(number, "round") == medians
