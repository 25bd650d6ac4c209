"""The page of `softnic inspect --html`: its figures, the floats' way; it loads nothing and runs nothing foreign."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from softnic.codecs import get
from tests.facades.capture import (
    INTERVALS,
    MOST_FLOWS,
    PATH_WORDS,
    Analysis,
    CapturePage,
    CodecErrors,
    FloatPath,
    bit_owners,
    follow_floats,
    packet_tags,
    parse,
    timeline,
)
from tests.facades.commands import main

from .lab import ARP, TOS, Lab, gradient

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
    assert (row[6], row[9]) == ("bounded:10", f"{first.ratio:.2f}")
    packets = [one for one in page.rows if len(one) == 11 and one[4] == "bounded:10"]
    assert sum(int(one[5].replace(",", "")) for one in packets) == 4 * (sent.size + 300)
    assert {one[10] for one in packets} == {"", "sent raw"}


def test_intervals_add_up_to_the_flow() -> None:
    analysis = analysed("bounded:10", *(gradient(3000, seed) for seed in range(9)))
    view = analysis.flows[0].main
    words = np.zeros((len(analysis.packets), 5), np.int64)
    words[view.members] = packet_tags(analysis, view.members).words
    sums = timeline(analysis, analysis.flows[:1], words)
    assert sums.original.shape == (INTERVALS,)
    assert np.count_nonzero(sums.original) == 9, "a segment a millisecond"
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
