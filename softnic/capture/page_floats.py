"""Sections of the page about floats: their way from host to wire to host, and the errors of each codec."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

import numpy as np

from softnic.capture import html
from softnic.capture.float_paths import DECADES, STEPS, CodecErrors, FloatPath, differences
from softnic.capture.html import el, table, table_row

_DELIVERED = {
    True: "The receiver's host side shows these floats.",
    False: "The receiver's host side shows other floats.",
}


def float_ways(paths: list[FloatPath]) -> Element:
    text = (
        "The first floats of the packet of each codec that changed them most: as the program sent them, the bits that"
        " they are on the wire, and as they arrived. Choose a float to see its bits: bold are those that change it"
        " alone; the others change its neighbours too (tags, exponents, scales, and whatever moves the bits after it)."
    )
    if not paths:
        text = (
            "The capture has no compressed packet with both sides of its sender: record host and wire to see it here."
        )
    return el("section", el("h2", "A float's way"), el("p", text, class_="dim"), *(_path(path) for path in paths))


def _path(path: FloatPath) -> Element:
    change = differences(path.sent, path.received)
    owned = [int(((path.owners >> word & 1) & path.alone).sum()) for word in range(len(path.sent))]
    rows = [
        el(
            "tr",
            el("td", el("button", str(word), type="button", aria_pressed="false")),
            *(el("td", text) for text in (f"{sent:.9g}", f"{got:.9g}", f"{error:.3g}", str(bits))),
            *(el("td", el("code", _float_bits(value))) for value in (sent, got)),
            data_word=word,
        )
        for word, (sent, got, bits, error) in enumerate(zip(path.sent, path.received, owned, change, strict=True))
    ]
    columns = ("float", "sent", "arrived", "error", "own bits", "bits sent", "bits arrived")
    arrived = "" if path.delivered is None else _DELIVERED[path.delivered]
    return el(
        "div",
        el("h3", f"{path.codec}: packet {path.packet} of flow {path.flow}"),
        table(f"Floats of codec {path.codec}", columns, rows, left=("bits sent", "bits arrived")),
        el("div", *_body_bits(path), class_="bits", role="img", aria_label="Bits of the packet's body"),
        el("p", arrived, class_="dim") if arrived else None,
        class_="path",
    )


def _float_bits(value: np.float32) -> str:
    bits = f"{int(value.view(np.uint32)):032b}"
    return f"{bits[0]} {bits[1:9]} {bits[9:]}"


def _body_bits(path: FloatPath) -> Iterator[Element]:
    """Yield the bytes of a body that change the floats shown, each with its offset; the highest bit comes first."""
    for at in np.flatnonzero(path.owners.reshape(-1, 8).any(axis=1)).tolist():
        bits = [
            el(
                "span",
                str(path.body[at] >> bit & 1),
                data_mask=int(path.owners[8 * at + bit]),
                data_alone="" if path.alone[8 * at + bit] else None,
            )
            for bit in range(7, -1, -1)
        ]
        yield el("span", el("small", str(at)), *bits, class_="byte")


def codec_errors(errors: list[CodecErrors]) -> Element | None:
    if not errors:
        return None
    rows = [
        table_row(
            *(one.codec, f"{one.packets:,}", f"{one.floats:,}", f"{one.exact / max(1, one.floats):.1%}"),
            *(f"{one.not_finite:,}", f"{one.mean:.3g}", f"{one.relative:.3g}", f"{one.largest:.3g}"),
        )
        for one in errors
    ]
    columns = ("codec", "packets", "floats", "unchanged", "not finite", "mean error", "relative error", "largest error")
    text = (
        "Absolute differences between what left the host and what was decoded from the wire, in packets at equal"
        " distances over the capture. Relative: root of the sum of squares, to that of the floats."
    )
    return el(
        "section",
        el("h2", "Errors by codec"),
        el("p", text, class_="dim"),
        table("Errors by codec", columns, rows, left=("codec",)),
        *_histograms([one for one in errors if one.bins.any()]),
    )


def _histograms(errors: list[CodecErrors]) -> Iterator[Element]:
    """Yield a histogram of each codec, all over the same decades."""
    used = np.flatnonzero(np.sum([one.bins for one in errors], axis=0))
    for one in errors:
        first, last = int(used[0]) // STEPS, int(used[-1]) // STEPS + 1
        bins = one.bins[first * STEPS : last * STEPS]
        ends = (f"1e{DECADES[0] + first}", f"1e{DECADES[0] + last}")
        yield el("h3", f"{one.codec}: floats by error other than 0")
        label = f"Histogram of the errors of {one.codec}, from {ends[0]} to {ends[1]}"
        yield html.chart(label, html.columns(bins, "after"), len(bins), f"{int(bins.max()):,}", ends)
