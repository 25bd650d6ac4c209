"""Speed of codecs: GB/s of float32, encoding and decoding, beside memcpy and, with `compare`, other compressors.

All are called from Python, on one core, between arrays that exist already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from softnic import codecs
from softnic.bench import inputs
from softnic.bench.compressors import COMPRESSORS, Compressor, Prepared, ours
from softnic.codecs.threads import at_most
from softnic.experiments.data import Floats
from softnic.extras import not_installed
from softnic.measure import timing
from softnic.measure.progress import as_measured
from softnic.measure.report import Column, MeasurementReport, Progress, figure, share
from softnic.units import medians_of

PARAMETERS = {"inceptionn": 10, "bounded": 10, "bfp": 7, "truncate": 16, "rht": 4, "exact": 32, "mx": "e2m1"}
"""Default parameter of each codec."""
DATA = ("gaussian:0.01", "zeros")
REAL = "hdc"
"""Data that is measured as well if scikit-learn is installed."""


@dataclass(frozen=True)
class CodecSettings:
    codecs: tuple[str, ...]
    data: tuple[str, ...] = ()
    """Names of `inputs`; empty: all that are available with the installed packages."""
    compare: bool = False
    megabytes: float = 16
    rounds: int = 5
    slice_s: float = 0.05
    """Time per figure and round."""


@dataclass(frozen=True)
class CodecRow:
    codec: str
    data: str
    installed: bool = True
    """If false, `package` is what to install, and there are no figures."""
    package: str = "softnic"
    ratio: float | None = None
    """Bytes before divided by bytes after."""
    memcpy_gb_per_s: float | None = None
    encode_gb_per_s: float | None = None
    encode_of_memcpy: float | None = None
    decode_gb_per_s: float | None = None
    decode_of_memcpy: float | None = None
    removed_gb_per_s: float | None = None
    """Bytes saved per second of encoding; low for a compressor that gives up and copies."""
    max_error: float | None = None
    rms_error: float | None = None
    encode_times: dict[str, float] = field(default_factory=dict)
    """Speed of encoding relative to each exact compressor, for softnic's codecs."""
    decode_times: dict[str, float] = field(default_factory=dict)
    both_times: dict[str, float] = field(default_factory=dict)
    """The same for encoding and decoding one after the other, as for every float that crosses two NICs."""

    @property
    def both_gb_per_s(self) -> float | None:
        if self.encode_gb_per_s is None or self.decode_gb_per_s is None:
            return None
        return 1 / (1 / self.encode_gb_per_s + 1 / self.decode_gb_per_s)


def default_codecs() -> tuple[str, ...]:
    """Return one codec of each kind except `raw`."""
    return tuple(f"{name}:{PARAMETERS[name]}" for name in codecs.names() if name in PARAMETERS)


def _default_data() -> tuple[str, ...]:
    try:
        import sklearn.datasets  # noqa: F401
    except ImportError:
        return DATA
    return (*DATA, REAL)


def run(settings: CodecSettings, progress: Progress = lambda _what: None) -> MeasurementReport[CodecRow]:
    """Measure. Raises ValueError for an unknown codec or data, ImportError for data whose package is missing."""
    rows: list[CodecRow] = []
    for name in settings.data or _default_data():
        words = inputs.floats(name, max(1, round(settings.megabytes * 1e6 / 4)))
        group: list[CodecRow] = []
        for text in settings.codecs:
            progress(f"{text} on {name}")
            with at_most(1):
                row = _measure(CodecRow(text, name), settings, words, ours(codecs.get(text), words))
            group += as_measured([row], _columns(settings), progress)
        if settings.compare:
            made = (_other(each, settings, name, words, progress) for each in COMPRESSORS)
            others = as_measured(made, _columns(settings), progress)
            group = [_with_times(row, others) for row in group] + others
        rows += group
    return MeasurementReport(
        "codec",
        f"GB/s of float32 on one core, {codecs.simd()} kernels; shares are of memcpy in the same rounds",
        _columns(settings),
        rows,
        {
            "megabytes": settings.megabytes,
            "rounds": settings.rounds,
            "slice_s": settings.slice_s,
            "error_bound": _bound(settings) if settings.compare else None,
        },
        _notes(settings, rows),
    )


def _measure(row: CodecRow, settings: CodecSettings, words: Floats, prepared: Prepared) -> CodecRow:
    """Return the row with its figures."""
    copy = np.empty_like(words)
    ratio = words.nbytes / prepared.encode()
    error = np.abs(prepared.decode().astype(np.float64) - words)
    works: dict[str, timing.Work] = {
        "memcpy": lambda: np.copyto(copy, words),
        "encode": prepared.encode,
        "decode": prepared.decode,
    }
    taken = timing.alternate(works, settings.rounds, settings.slice_s, timing.ONE_CORE)
    rates = {name: words.nbytes / timing.median(seconds) / 1e9 for name, seconds in taken.items()}
    return replace(
        row,
        ratio=ratio,
        memcpy_gb_per_s=rates["memcpy"],
        encode_gb_per_s=rates["encode"],
        encode_of_memcpy=timing.ratio(taken["memcpy"], taken["encode"]),
        decode_gb_per_s=rates["decode"],
        decode_of_memcpy=timing.ratio(taken["memcpy"], taken["decode"]),
        removed_gb_per_s=max(0.0, rates["encode"] * (1 - 1 / ratio)),
        max_error=float(error.max()),
        rms_error=float(np.sqrt(np.mean(error * error))),
    )


def _other(compressor: Compressor, settings: CodecSettings, data: str, words: Floats, progress: Progress) -> CodecRow:
    progress(f"{compressor.name} on {data}")
    row = CodecRow(compressor.name, data, package=compressor.package)
    try:
        prepared = compressor.prepare(words, _bound(settings))
    except ImportError:
        return replace(row, installed=False)
    return _measure(row, settings, words, prepared)


def _with_times(row: CodecRow, others: Sequence[CodecRow]) -> CodecRow:
    exact = {each.name for each in COMPRESSORS if each.exact}

    def times(speed: Callable[[CodecRow], float | None]) -> dict[str, float]:
        own = speed(row)
        rivals = {other.codec: speed(other) for other in others if other.codec in exact}
        return {name: own / rival for name, rival in rivals.items() if own and rival}

    return replace(
        row,
        encode_times=times(lambda each: each.encode_gb_per_s),
        decode_times=times(lambda each: each.decode_gb_per_s),
        both_times=times(lambda each: each.both_gb_per_s),
    )


def _bound(settings: CodecSettings) -> float:
    """Return the error bound of SZ3 and zfp: that of the first `bounded` measured, or 2^-10."""
    for text in settings.codecs:
        codec = codecs.get(text)
        if codec.name == "bounded":
            return 2.0**-codec.parameter
    return 2.0**-10


def _columns(settings: CodecSettings) -> list[Column[CodecRow]]:
    columns: list[Column[CodecRow]] = [
        Column("data", lambda row: row.data, left=True),
        Column("codec", lambda row: row.codec, left=True),
        Column("ratio", lambda row: figure(row.ratio) if row.installed else "not installed"),
        Column("encode of memcpy", lambda row: _rate(row.encode_gb_per_s, row.encode_of_memcpy)),
        Column("decode of memcpy", lambda row: _rate(row.decode_gb_per_s, row.decode_of_memcpy)),
        Column("removed", lambda row: figure(row.removed_gb_per_s)),
        Column("max error", lambda row: figure(row.max_error, ".2g")),
        Column("rms error", lambda row: figure(row.rms_error, ".2g")),
    ]
    if settings.compare:
        columns += [_times_column(each.name) for each in COMPRESSORS if each.exact]
    return columns


def _rate(gb_per_s: float | None, of_memcpy: float | None) -> str:
    return f"{figure(gb_per_s)} {share(of_memcpy):>6}".strip()


def _times_column(name: str) -> Column[CodecRow]:
    def text(row: CodecRow) -> str:
        if name not in row.encode_times:
            return ""
        times = (row.encode_times[name], row.decode_times[name], row.both_times[name])
        return " ".join(f"{each:>3.{0 if each >= 9.95 else 1}f}" for each in times)

    return Column(f"x {name}", text)


def _notes(settings: CodecSettings, rows: Sequence[CodecRow]) -> list[str]:
    copied = [row.memcpy_gb_per_s for row in rows if row.memcpy_gb_per_s is not None]
    notes = [
        f"memcpy: {min(copied):.1f} to {max(copied):.1f} GB/s. {medians_of(settings.rounds, 'round').capitalize()}. "
        "removed: GB/s that "
        "encoding saves, encode x (1 - 1 / ratio)."
    ]
    if settings.compare:
        notes.append(
            f"Error bound of SZ3 and zfp: {_bound(settings):.2g}. x NAME: speed relative to NAME at encoding, at "
            "decoding, at both one after the other. Data that NAME cannot compress (ratio 1) may just have been copied."
        )
    if missing := sorted({row.package for row in rows if not row.installed}):
        notes.append(f"Left out: {not_installed(*missing)}")
    return notes
