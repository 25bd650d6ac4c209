"""The page of `softnic inspect --html`: its figures, the floats' way; it loads nothing and runs nothing foreign."""

from __future__ import annotations

import os
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from softnic.capture import float_paths, pcapng
from softnic.capture.capture_file import Column
from softnic.capture.float_paths import PATH_WORDS, CodecErrors, FloatPath, bit_owners, follow_floats
from softnic.capture.flows import Analysis
from softnic.capture.page import MOST_FLOWS, CapturePage
from softnic.capture.page_floats import codec_errors
from softnic.capture.reader import parse
from softnic.capture.streams import packet_tags, words_of
from softnic.capture.timeline import INTERVALS, timeline
from softnic.codecs import Codec, get
from softnic.codecs.payload import PayloadHeader
from softnic.commands import main
from softnic.units import text_bytes

from .blocks import ETHERNET, frame, interface, ipv4, option, packet, pcap, section
from .lab import ARP, TOS, Floats, Lab, gradient


def encoded(floats: np.ndarray, codec: str = "bounded:10") -> bytes:
    """A payload."""
    body = get(codec).encode(floats)
    return PayloadHeader(get(codec), floats.nbytes, len(body)).pack() + body


CODECS = ["inceptionn:10", "bounded:10", "bfp:7", "truncate:16", "rht:4", "exact:32", "mx:e5m2", "mx:e2m1"]


class PageText(HTMLParser):
    """Elements of a page, and the text of its table rows and tiles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.tiles: dict[str, str] = {}
        self.text = ""
        self.style = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
        elif tag == "dt":
            self.tiles[""] = ""

    def handle_data(self, data: str) -> None:
        if self._inside in {"td", "th", "code", "button"}:
            self.rows[-1][-1] += data
        elif self._inside == "dt":
            self.tiles[data] = ""
        elif self._inside == "dd":
            self.tiles[list(self.tiles)[-1]] = data
        if self._inside == "style":
            self.style += data
        elif self._inside != "script":
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = "td" if tag in {"code", "button"} else ""

    def row(self, *start: str) -> list[str]:
        """Return the row that starts with these cells."""
        return next(row for row in self.rows if row[: len(start)] == list(start))


def page_of(blocks: bytes, name: str = "job.pcapng") -> PageText:
    return PageText(CapturePage(Analysis(parse(blocks)), name).html())


def analysed(codec: str, *floats: np.ndarray, snaplen: int = 0) -> Analysis:
    """A capture of floats from station 0."""
    lab = Lab(codec=codec, snaplen=snaplen)
    lab.connect()
    for one in floats:
        lab.send(one, tos=TOS)
    return Analysis(parse(lab.file()))


def followed(codec: str, floats: np.ndarray) -> tuple[CodecErrors, FloatPath]:
    errors, paths = follow_floats(analysed(codec, floats))
    (found,) = (one for one in errors if one.codec == codec)
    (path,) = (one for one in paths if one.codec == codec)
    return found, path


# Figures


def test_its_figures_are_those_of_the_capture() -> None:
    sent = np.concatenate([gradient(20_000), np.zeros(3000, np.float32)])
    lab = Lab()
    lab.connect()
    lab.send(b"GET / HTTP/1.1\r\n\r\n")
    lab.send(sent, tos=TOS)
    lab.send(np.full(300, np.pi * 1e30, np.float32), sender=1, tos=TOS)
    blocks = lab.file()
    analysis = Analysis(parse(blocks))
    page = page_of(blocks)
    first, second = (flow.main for flow in analysis.flows)
    assert first.ratio is not None
    assert page.tiles["packets"] == f"{len(analysis.capture):,}"
    assert page.tiles["flows"] == "2"
    assert page.tiles["sent raw"] == f"{second.raw_packets}" != "0"
    row = page.row("1", "10.77.0.1:40000")
    assert row[3:5] == ["node0:wire", f"{first.packets:,}"]
    assert row[5] == text_bytes(first.original_bytes)
    assert row[7:9] == ["bounded:10", text_bytes(first.tagged_original_bytes)]
    assert row[9:11] == [text_bytes(first.tagged_payload_bytes), f"{first.ratio:.2f}"]
    assert page.tiles["stream data"] == text_bytes(first.original_bytes + second.original_bytes)
    packets = [one for one in page.rows if len(one) == 11 and one[4] == "bounded:10"]
    assert sum(int(one[5].replace(",", "")) for one in packets) == 4 * (sent.size + 300)
    assert {one[10] for one in packets} == {"", "sent raw"}


def test_exact_flows_show_their_bytes() -> None:
    """What was not tagged has a size, and no ratio."""
    lab = Lab()
    lab.connect()
    lab.send(gradient(30_000))
    blocks = lab.file()
    page, analysis = page_of(blocks), Analysis(parse(blocks))
    sums = timeline(analysis, analysis.flows, np.zeros((len(analysis.packets), 5), np.int64))
    assert (sums.original.sum(), sums.encoded.sum()) == (0, 0)
    assert sums.wire.any()
    row = page.row("1", "10.77.0.1:40000")
    assert row[5] == "120.0 KB"
    assert row[7:11] == ["-"] * 4
    tiles = ("stream data", "tagged data", "compressed to", "ratio")
    assert [page.tiles[name] for name in tiles] == ["120.0 KB", "-", "-", "-"]


def test_flows_are_listed_in_order_and_those_with_most_bytes() -> None:
    """As `inspect` lists them: the directions of a connection are neighbours, whatever was tagged."""
    frames = [frame(1, bytes(number % 7 * 10), ports=(number + 1, 9)) for number in range(MOST_FLOWS + 40)]
    page = page_of(pcap("<", True, [(number, 0, data) for number, data in enumerate(frames)]))
    listed = [int(row[0]) for row in page.rows if len(row) == 12 and row[0].isdigit()]
    by_size = sorted(range(len(frames)), key=lambda number: -len(frames[number]))
    assert listed == sorted(number + 1 for number in by_size[:MOST_FLOWS])
    assert f"The {MOST_FLOWS} of {len(frames)} with most bytes are listed." in page.text


def test_what_a_hostile_file_names_is_bounded() -> None:
    interfaces = b"".join(interface("<", name=f"eth{number}") for number in range(1000))
    page = page_of(section("<") + interfaces + packet("<", 999, 1, frame(1, b"x")))
    assert "eth39 and 960 more" in page.text
    assert len(page.text) < 3000


def test_intervals_add_up_to_the_flow() -> None:
    analysis = analysed("bounded:10", *(gradient(3000, seed) for seed in range(9)))
    view = analysis.flows[0].main
    words = np.zeros((len(analysis.packets), 5), np.int64)
    words[view.members] = packet_tags(analysis, view.members).words
    sums = timeline(analysis, analysis.flows[:1], words)
    assert sums.original.shape == (INTERVALS,)
    assert np.count_nonzero(sums.original) == 9, "a segment a millisecond"
    ends = timeline(analysis, analysis.flows, words).wire[[0, -1]]
    assert ends.all(), "the first packet is in the first interval, and the last one in the last"
    assert (sums.original.sum(), sums.encoded.sum()) == (view.tagged_original_bytes, view.tagged_payload_bytes)
    assert (sums.wire.sum(), sums.repeated.sum()) == (view.frame_bytes, view.repeated_packets)
    assert (sums.words.sum(), sums.words[1:].sum() > 0) == (9 * 3000, True)


@pytest.mark.parametrize("codec", CODECS)
def test_errors_are_those_of_the_codec(codec: str) -> None:
    sent = gradient(9600)
    errors, path = followed(codec, sent)
    change = np.abs(sent.astype(np.float64) - get(codec).roundtrip(sent))
    if not codec.startswith("rht"):  # its blocks begin anew in each packet
        assert (errors.largest, errors.exact) == (change.max(), (change == 0).sum())
        assert errors.mean == pytest.approx(change.mean())
        assert errors.relative == pytest.approx(np.sqrt((change**2).sum() / (sent.astype(np.float64) ** 2).sum()))
    assert errors.floats == sent.size
    assert errors.bins.sum() == errors.floats - errors.exact
    assert path.delivered is True
    at = int(np.flatnonzero(sent == path.sent[0])[0])
    assert path.sent.tobytes() == sent[at : at + PATH_WORDS].tobytes()


@pytest.mark.parametrize(
    ("error", "place"),
    [
        *((1e-30, 0), (0.99e-10, 0), (1.01e-10, 0), (1.8e-10, 1), (1.01e-9, 4), (0.99, 39), (1.01, 40), (1.8, 41)),
        *((5.5e3, 54), (0.99e4, 55), (1.01e4, 55), (1e30, 55)),
    ],
)
def test_every_error_has_a_step_of_the_histogram(error: float, place: int) -> None:
    """Four a decade, from 10^-10 to 10^4; the first and the last include what is beyond. The page shows its decade."""
    errors = CodecErrors("bounded:10")
    errors.add(np.array([error, 1], np.float32), np.array([0, 1], np.float32))
    assert np.flatnonzero(errors.bins).tolist() == [place]
    assert (len(errors.bins), errors.exact, errors.floats) == (56, 1, 2)
    section_of_page = codec_errors([errors])
    assert section_of_page is not None
    (drawn,) = section_of_page.iter("rect")
    (label,) = (each for each in section_of_page.iter("svg"))
    decade = place // 4 - 10
    assert label.attrib["aria-label"].endswith(f"from 1e{decade} to 1e{decade + 1}")
    assert drawn.attrib["x"] == f"{place % 4 + 0.05}"


@pytest.mark.parametrize("seen_at_wire", [0, 1, 2])
@pytest.mark.parametrize("seen_at_host", [0, 1, 2])
@pytest.mark.parametrize("seq", [5, 2**31 - 64, 2**32 - 128, 2**32 - 64])
def test_sides_are_matched_whatever_each_saw_first(seq: int, seen_at_host: int, seen_at_wire: int) -> None:
    """Sequence numbers of the sides count from different packets, before and after the wrap at 2^32."""
    floats = gradient(64).reshape(4, 16)
    outbound = option("<", pcapng.EPB_FLAGS, struct.pack("<I", 2)) + bytes(4)
    blocks = [section("<"), interface("<", name="n:host"), interface("<", name="n:wire")]
    for number in range(4):
        host, wire = (
            ipv4(seq + 64 * number, one, tos=TOS) for one in (floats[number].tobytes(), encoded(floats[number]))
        )
        blocks += [packet("<", 0, number, ETHERNET + host, outbound)] * (number >= seen_at_host)
        blocks += [packet("<", 1, number, ETHERNET + wire, outbound)] * (number >= seen_at_wire)
    (errors,), (path,) = follow_floats(Analysis(parse(b"".join(blocks))))
    seen = floats[max(seen_at_host, seen_at_wire) :].ravel()
    assert (errors.packets, errors.floats) == (seen.size // 16, seen.size)
    assert errors.total == pytest.approx(np.abs(seen - get("bounded:10").roundtrip(seen)).sum())
    assert path.sent.tobytes() in [each.tobytes() for each in floats]


def test_what_is_not_finite_is_counted_apart() -> None:
    sent = gradient(800)
    sent[::100] = np.nan
    sent[50::100] = np.inf
    errors, _ = followed("bfp:7", sent)
    assert (errors.floats, errors.not_finite) == (800, 16)
    assert np.isfinite(errors.mean)


# The bits of a float


@pytest.mark.parametrize(("codec", "own"), [("truncate:16", 16), ("bfp:7", 8), ("mx:e5m2", 8), ("mx:e2m1", 4)])
def test_codes_of_one_size_have_their_bits_in_order(codec: str, own: int) -> None:
    values = np.linspace(1, 1.9, 64, dtype=np.float32)
    owners, alone = bit_owners(get(codec), get(codec).encode(values), 64)
    first = int(np.flatnonzero(alone)[0])
    assert first == (0 if codec == "truncate:16" else 8), "behind the exponent of the block"
    assert np.log2(owners[alone]).tolist() == np.repeat(np.arange(PATH_WORDS), own).tolist()


@pytest.mark.parametrize("codec", ["inceptionn:10", "bounded:10"])
def test_vectors_have_the_bits_that_their_tags_say(codec: str) -> None:
    values = np.tile(np.array([0.0, 0.02, 0.7, 5e5], np.float32), 40)
    owners, alone = bit_owners(get(codec), get(codec).encode(values), values.size)
    own = [int((alone & (owners == 1 << word)).sum()) for word in range(PATH_WORDS)]
    assert own == [0, 8, 16, 32] * 4
    shared = [int((~alone & (owners >> word & 1 == 1)).sum()) for word in range(PATH_WORDS)]
    assert min(shared) > 0, "each float has a tag at least"


def test_the_work_for_a_page_does_not_grow_with_what_packets_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet stands for up to 256 times its bytes: few of these are compared, and their bits are not shown."""
    decoded: list[int] = []
    bits: list[int] = []

    def counted(original: bytes) -> Floats:
        decoded.append(len(original) // 4)
        return words_of(original)

    def watched(codec: Codec, body: bytes, words: int) -> tuple[Column, Column]:
        bits.append(words)
        return bit_owners(codec, body, words)

    monkeypatch.setattr(float_paths, "words_of", counted)
    monkeypatch.setattr(float_paths, "bit_owners", watched)
    large, small = np.zeros(1 << 19, np.float32), gradient(640)
    outbound = option("<", pcapng.EPB_FLAGS, struct.pack("<I", 2)) + bytes(4)
    host = ETHERNET + ipv4(1, small.tobytes() + bytes(60_000), tos=TOS)
    blocks = [section("<"), interface("<", name="n:host"), interface("<", name="n:wire")]
    blocks += [packet("<", 0, 1, host, outbound)]
    for number in range(40):
        blocks += [packet("<", 1, 2, ETHERNET + ipv4(1, encoded(large if number % 4 else small), tos=TOS), outbound)]
    errors, paths = follow_floats(Analysis(parse(b"".join(blocks))))
    assert sum(decoded) <= 2 * (1 << 22)
    assert bits == [640]
    assert [(one.codec, one.packets) for one in errors] == [("bounded:10", 3)]
    assert len(paths) == 1


def test_bits_of_a_very_large_packet_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its floats would be decoded for every bit; its errors are counted."""
    bits: list[int] = []

    def watched(_codec: Codec, _body: bytes, words: int) -> tuple[Column, Column]:
        bits.append(words)
        return np.zeros(8, np.int64), np.zeros(8, bool)

    monkeypatch.setattr(float_paths, "bit_owners", watched)
    outbound = option("<", pcapng.EPB_FLAGS, struct.pack("<I", 2)) + bytes(4)
    for count in (1 << 14, (1 << 14) + 1):
        floats = gradient(count)
        blocks = [section("<"), interface("<", name="n:host"), interface("<", name="n:wire")]
        for number, data in enumerate((floats.tobytes(), encoded(floats))):
            blocks += [packet("<", number, 1, ETHERNET + ipv4(1, data, total=0, tos=TOS), outbound)]
        (errors,), _ = follow_floats(Analysis(parse(b"".join(blocks))))
        assert errors.floats == count
    assert bits == [1 << 14]


def test_floats_in_very_many_host_packets_are_left_out() -> None:
    outbound = option("<", pcapng.EPB_FLAGS, struct.pack("<I", 2)) + bytes(4)
    found = []
    for pieces in (256, 257):
        floats = gradient(pieces)
        blocks = [section("<"), interface("<", name="n:host"), interface("<", name="n:wire")]
        for at in range(pieces):
            piece = ETHERNET + ipv4(1 + 4 * at, floats[at : at + 1].tobytes(), tos=TOS)
            blocks += [packet("<", 0, 1, piece, outbound)]
        blocks += [packet("<", 1, 2, ETHERNET + ipv4(1, encoded(floats), tos=TOS), outbound)]
        found.append([one.floats for one in follow_floats(Analysis(parse(b"".join(blocks))))[0]])
    assert found == [[256], []]


def test_transformed_floats_have_all_bits_together() -> None:
    values = gradient(256)
    owners, alone = bit_owners(get("rht:4"), get("rht:4").encode(values), 256)
    assert not alone.any()
    assert set(owners[: 8 * 2 + 4 * 128].tolist()) == {2**PATH_WORDS - 1}


# What is missing


def test_without_a_host_side_the_page_says_what_to_record() -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(600), tos=TOS)
    blocks = lab.file()
    text = page_of(blocks.replace(b"node0:host", b"node0:none")).text
    assert "record host and wire" in text
    assert "Errors by codec" not in text
    assert "Errors by codec" in page_of(blocks).text


def test_a_packet_that_was_sent_again_is_marked() -> None:
    payload, packets = encoded(gradient(600)), b""
    for number, seq in enumerate((101, 101 + 2400, 101, 101 + 4800)):
        tagged = bytearray(ipv4(seq, payload))
        tagged[1] = TOS
        packets += packet("<", 0, number, ETHERNET + bytes(tagged))
    page = page_of(section("<") + interface("<") + packets)
    assert page.tiles["sent again"] == "1"
    rows = {row[0]: row[-1] for row in page.rows if len(row) == 11 and row[0].isdigit()}
    assert {number: "sent again" in note for number, note in rows.items()} == {
        "1": False, "2": False, "3": True, "4": False
    }  # fmt: skip


def test_a_snaplen_and_a_capture_without_tcp() -> None:
    page = PageText(CapturePage(analysed("bounded:10", gradient(600), snaplen=90), "x").html())
    assert page.tiles["not decodable"] not in {"", "0"}
    lab = Lab()
    lab.other_frame(ARP)
    head, blocks = lab.head(), lab.file()
    assert page_of(blocks).tiles["flows"] == page_of(head).tiles["packets"] == "0"


def test_a_page_is_bounded() -> None:
    """Rows of packets and flows do not grow with the capture."""
    lab = Lab()
    lab.connect()
    for _ in range(500):
        lab.send(gradient(8), tos=TOS)
    page = page_of(lab.file())
    assert "500 packets with tagged data" in page.text
    assert 250 < sum(len(row) == 11 for row in page.rows) < 310
    assert MOST_FLOWS < 1000


# What a browser does with it


def test_nothing_is_loaded_and_nothing_foreign_is_run() -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(600), tos=TOS)
    evil = "</style></script><img src=x onerror=alert(1)>"
    blocks = lab.file().replace(b"node1:wire", b"<b>:w<br>x")
    page = page_of(blocks, evil)
    names = [tag for tag, _ in page.elements]
    assert (names.count("script"), names.count("style"), names.count("b"), names.count("img")) == (1, 1, 0, 0)
    assert evil in page.text
    given = [(key, value or "") for _, attributes in page.elements for key, value in attributes.items()]
    assert [one for one in given if one[0] in {"src", "href"} or one[0].startswith("on") or "url(" in one[1]] == []
    policy = next(value for tag, value in page.elements if tag == "meta" and "http-equiv" in value)
    assert str(policy["content"]).startswith("default-src 'none'")
    ids = [value for key, value in given if key == "id"]
    assert len(ids) == len(set(ids))


def luminance(color: str) -> float:
    """Relative luminance of #rgb or #rrggbb (WCAG 2.2)."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_the_contrast_of_wcag_in_both_modes() -> None:
    style = page_of(Lab().file()).style
    modes = [dict(re.findall(r"--(\w+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
    assert len(modes) == 2, "light and dark"
    pairs = [("text", "page"), ("text", "card"), ("text", "mark"), ("text", "shared")]
    pairs += [("dim", "page"), ("dim", "card"), ("accent", "card")]
    for colors in modes:
        for text, ground in pairs:
            low, high = sorted(luminance(colors[name]) for name in (text, ground))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground, colors)
    assert re.search(r"\.chosen button \{ color: inherit; \}", style), "accent on mark has too little in dark mode"


def test_a_name_is_no_markup_of_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "a[" / "b].pcap"
    capture.parent.mkdir()
    capture.write_bytes(pcap("<", True, [(1, 2, frame(1, b"x"))]))
    assert main(["inspect", str(capture)]) == 0
    assert capfd.readouterr().err == ""


def test_a_name_that_is_not_utf8_is_shown_without_its_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither the page nor the tables have what a terminal would interpret."""
    capture = tmp_path / os.fsdecode(b"a\xff\x1b[31mb.pcap")
    capture.write_bytes(pcap("<", True, [(1, 2, frame(1, b"x"))]))
    out = tmp_path / "x.html"
    assert main(["inspect", str(capture), "--html", str(out)]) == 0
    assert "<title>a??[31mb.pcap: softnic inspect</title>" in out.read_text(encoding="utf-8")
    for arguments, code in (([], 0), (["--flow", "1"], 0), (["--packet", "1"], 0), (["--flow", "7"], 1)):
        assert main(["inspect", str(capture), *arguments]) == code
    capture.write_bytes(b"no capture, but long enough for a header")
    assert main(["inspect", str(capture)]) == 1
    printed = capfd.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert (printed.out + printed.err).count("a??[31mb.pcap") == 3


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = Lab()
    lab.connect()
    lab.send(gradient(600), tos=TOS)
    capture, out = tmp_path / "x.pcapng", tmp_path / "x.html"
    capture.write_bytes(lab.file())
    assert main(["inspect", str(capture), "--html", str(out)]) == 0
    assert capsys.readouterr().out == ""
    page = PageText(out.read_text())
    assert page.tiles["ratio"] not in {"", "-"}
    assert page.elements[0] == ("html", {"lang": "en"})
    assert main(["inspect", str(capture), "--html", str(tmp_path / "no" / "x.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["inspect", str(capture), "--html", str(out), "--flow", "1"])
