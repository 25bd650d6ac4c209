"""The page of `softnic inspect --html`: a capture in one file that loads nothing, whatever the capture's size.

Sums are over all packets; flows, packets and floats that are listed one by one are a bounded number, the largest or the
most interesting ones, and the page says of how many.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from softnic.capture import html
from softnic.capture.capture_file import Column
from softnic.capture.float_paths import evenly, follow_floats
from softnic.capture.flows import Analysis, CapturedFlow
from softnic.capture.html import el, table, table_row
from softnic.capture.packets import CUT_OFF, ENCODED, MALFORMED
from softnic.capture.page_floats import codec_errors, float_ways
from softnic.capture.report import endpoint
from softnic.capture.streams import packet_tags
from softnic.capture.timeline import INTERVALS, interval_s, timeline
from softnic.codecs import CodecError, from_number
from softnic.terminal import printable
from softnic.units import text_bytes, text_time

MOST_FLOWS = 200
_INTERFACES = 40
_TIMELINES = 8
_CODECS = 2
_EVERY_KIND = 50
_EVENLY = 250
_KINDS = {"raw": "sent raw", "again": "sent again", "broken": "not decodable"}
_TAGS = ("2 bit", "10 bit", "18 bit", "34 bit", "raw")
_CLASSES = ("t0", "t1", "t2", "t3", "t4")


class CapturePage:
    """Makes the page.

    Parameters
    ----------
    analysis : Analysis
        The capture.
    name : str
        Name of the file, as the page shows it.
    """

    def __init__(self, analysis: Analysis, name: str) -> None:
        self._analysis, self._name = analysis, printable(name)
        packets, headers = analysis.packets, analysis.headers
        flows = [flow.main for flow in analysis.flows]
        self._members = np.concatenate([np.empty(0, np.int64), *(view.members for view in flows)])
        self._flow = np.zeros(len(packets), np.int64)
        self._position = np.zeros(len(packets), np.int64)
        self._repeated = np.zeros(len(packets), bool)
        for number, view in enumerate(flows):
            self._flow[view.members] = number
            self._position[view.members] = view.position
            self._repeated[view.members] = view.repeated
        encoded = self._members[headers.state[self._members] == ENCODED]
        tags = packet_tags(analysis, encoded)
        self._words = np.zeros((len(packets), 5), np.int64)
        self._words[encoded] = tags.words
        self._broken = (headers.state == CUT_OFF) | (headers.state == MALFORMED)
        self._broken[encoded] = ~tags.decodable
        times = analysis.capture.time_ns
        self._began_ns = int(times.min()) if len(times) else 0

    def html(self) -> str:
        """Return the page."""
        errors, paths = follow_floats(self._analysis)
        sections = [self._flows(), self._over_time(), self._packets(), float_ways(paths), codec_errors(errors)]
        head = el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            el("title", f"{self._name}: softnic inspect"),
            el("style", _resource("page.css")),
        )
        main = el("main", *(section for section in sections if section is not None))
        page = el("html", head, el("body", self._header(), main, el("script", _resource("page.js"))), lang="en")
        return f"<!DOCTYPE html>\n{html.to_html(page)}\n"

    def _header(self) -> Element:
        analysis = self._analysis
        capture, members = analysis.capture, self._members
        began = datetime.fromtimestamp(self._began_ns / 1e9, UTC)
        seconds = interval_s(analysis) * INTERVALS
        dropped = sum(one.dropped or 0 for one in capture.interfaces)
        names = ", ".join(one.name for one in capture.interfaces[:_INTERFACES])
        if len(capture.interfaces) > _INTERFACES:
            names += f" and {len(capture.interfaces) - _INTERFACES:,} more"
        tagged = members[analysis.tagged[members]]
        before, after = int(analysis.headers.original[tagged].sum()), int(analysis.packets.payload[tagged].sum())
        facts = {
            "packets": f"{len(capture):,}",
            "flows": f"{len(analysis.flows):,}",
            "stream data": text_bytes(int(analysis.headers.original[members].sum())),
            "tagged data": text_bytes(before) if before else "-",
            "compressed to": text_bytes(after) if after else "-",
            "ratio": f"{before / after:.2f}" if after else "-",
            "sent raw": f"{int(self._raw(tagged).sum()):,}",
            "sent again": f"{int(self._repeated[members].sum()):,}",
            "not decodable": f"{int(self._broken[members].sum()):,}",
        }
        tiles = el("dl", *(el("div", el("dt", key), el("dd", value)) for key, value in facts.items()), class_="tiles")
        text = f"{text_time(seconds)} from {began:%Y-%m-%d %H:%M:%S} UTC on, recorded at {names}."
        if dropped:
            text += f" The capture missed {dropped:,} packets, because its host was too slow."
        return el("header", el("h1", self._name), el("p", text), tiles)

    def _raw(self, members: Column) -> Column:
        headers = self._analysis.headers
        raw: Column = headers.raw[members] & (headers.state[members] == ENCODED)
        return raw

    def _flows(self) -> Element:
        flows = self._analysis.flows
        shown = sorted(flows, key=lambda flow: flow.main.frame_bytes, reverse=True)[:MOST_FLOWS]
        columns = ("flow", "from", "to", "seen at", "packets", "stream", "wire", "codec")
        rows = [self._flow_row(flow) for flow in sorted(shown, key=lambda flow: flow.number)]
        listed = f" The {MOST_FLOWS} of {len(flows):,} with most bytes are listed." if len(flows) > MOST_FLOWS else ""
        return el(
            "section",
            el("h2", "Flows"),
            el("p", _FLOWS_TEXT + listed, class_="dim"),
            html.legend(_TAGS, _CLASSES),
            table(
                "Flows",
                (*columns, "before", "after", "ratio", "floats"),
                rows,
                left=("from", "to", "seen at", "codec", "floats"),
            ),
        )

    def _flow_row(self, flow: CapturedFlow) -> Element:
        view = flow.main
        encoded = view.members[self._analysis.headers.state[view.members] == ENCODED]
        codecs = [self._codec(one) for one in encoded[self._first_of_kind(encoded)].tolist()]
        if len(codecs) > _CODECS:
            codecs[_CODECS:] = [f"{len(codecs) - _CODECS} more"]
        sizes = ("-", "-", "-")
        if view.ratio is not None:
            before, after = text_bytes(view.tagged_original_bytes), text_bytes(view.tagged_payload_bytes)
            sizes = (before, after, f"{view.ratio:.2f}")
        return table_row(
            *(str(flow.number), endpoint(flow.src, flow.sport), endpoint(flow.dst, flow.dport)),
            *(self._analysis.capture.interfaces[view.interface].name, f"{view.packets:,}"),
            *(text_bytes(view.original_bytes), text_bytes(view.frame_bytes), ", ".join(codecs) or "-"),
            *(*sizes, self._tag_bar(self._words[view.members].sum(axis=0))),
        )

    def _first_of_kind(self, members: Column) -> Column:
        headers = self._analysis.headers
        kinds = headers.codec[members] << 8 | headers.parameter[members] & 0xFF
        first: Column = np.unique(kinds, return_index=True)[1]
        return first

    def _codec(self, member: int) -> str:
        number, parameter = (
            int(column[member]) for column in (self._analysis.headers.codec, self._analysis.headers.parameter)
        )
        try:
            return str(from_number(number, parameter))
        except CodecError:
            return f"codec {number}:{parameter}"

    def _tag_bar(self, words: Column) -> Element | None:
        counts = words.tolist()
        total = max(1, sum(counts))
        text = ", ".join(f"{name}: {count / total:.1%}" for name, count in zip(_TAGS, counts, strict=True) if count)
        return html.share_bar(counts, _CLASSES, text)

    def _over_time(self) -> Element | None:
        flows = sorted((flow for flow in self._analysis.flows if flow.main.tagged_packets), key=_size, reverse=True)
        if not flows or not interval_s(self._analysis):
            return None
        parts = [el("details", el("summary", "All flows"), *self._charts(self._analysis.flows), open="")]
        for flow in flows[: _TIMELINES if len(flows) > 1 else 0]:
            ends = f"{endpoint(flow.src, flow.sport)} to {endpoint(flow.dst, flow.dport)}"
            parts.append(el("details", el("summary", f"Flow {flow.number}: {ends}"), *self._charts([flow])))
        text = f"{INTERVALS} intervals of {text_time(interval_s(self._analysis))}."
        return el("section", el("h2", "Over time"), el("p", text, class_="dim"), *parts)

    def _charts(self, flows: list[CapturedFlow]) -> Iterator[Element]:
        sums, length = timeline(self._analysis, flows, self._words), interval_s(self._analysis)
        ends = ("0 s", text_time(length * INTERVALS))
        top = float(sums.original.max(initial=0))
        drawing = [
            html.steps(sums.original, top, "before", filled=True),
            html.steps(sums.encoded, top, "after", filled=True),
        ]
        yield el("h3", "Tagged data a second")
        yield html.legend(("before compression", "after"), ("before", "after"))
        rate = f"{text_bytes(top / length)}/s"
        yield html.chart(f"Tagged data a second, at most {rate} before compression", drawing, INTERVALS, rate, ends)
        ratio = sums.original / np.where(sums.encoded, sums.encoded, np.nan)
        top = float(np.nanmax(ratio, initial=1))
        yield el("h3", "Ratio")
        yield html.chart(f"Ratio, at most {top:.2f}", [html.steps(ratio, top, "ratio")], INTERVALS, f"{top:.2f}", ends)
        if sums.words.any():
            yield el("h3", "Floats by encoded bits")
            yield html.legend(_TAGS, _CLASSES)
            label = "Shares of floats by encoded bits"
            yield html.chart(label, html.stacked(sums.words, _CLASSES), INTERVALS, "100%", ends)

    def _packets(self) -> Element | None:
        tagged = self._members[self._analysis.tagged[self._members]]
        if not len(tagged):
            return None
        masks = {"raw": self._raw(tagged), "again": self._repeated[tagged], "broken": self._broken[tagged]}
        parts = [tagged[evenly(len(tagged), _EVENLY)]]
        for mask in masks.values():
            one = tagged[mask]
            parts.append(one[evenly(len(one), _EVERY_KIND)] if len(one) else one)
        chosen = np.unique(np.concatenate(parts))
        chosen = chosen[np.argsort(self._analysis.packets.row[chosen])]
        largest = int(self._analysis.headers.original[chosen].max())
        columns = ("no.", "time", "flow", "at byte", "codec", "before", "after", "size", "ratio", "floats", "note")
        rows = [self._packet_row(member, largest) for member in chosen.tolist()]
        counts = ", ".join(f"{int(masks[kind].sum()):,} {text}" for kind, text in _KINDS.items())
        text = f"{len(tagged):,} packets with tagged data: {counts}. A sample of each kind is listed."
        numbers = sorted({self._analysis.flows[number].number for number in self._flow[chosen].tolist()})
        return el(
            "section",
            el("h2", "Packets before and after"),
            el("p", text, class_="dim"),
            el(
                "p",
                *_filter("flow", {str(one): str(one) for one in numbers}),
                *_filter("kind", _KINDS),
                _shown(len(rows)),
            ),
            html.legend(("before", "after", *_TAGS), ("before", "after", *_CLASSES)),
            table("Packets before and after", columns, rows, left=("codec", "size", "floats", "note")),
        )

    def _packet_row(self, member: int, largest: int) -> Element:
        packets, headers = self._analysis.packets, self._analysis.headers
        before, after = int(headers.original[member]), int(packets.payload[member])
        marks = {
            "raw": bool(self._raw(np.array([member]))[0]),
            "again": bool(self._repeated[member]),
            "broken": bool(self._broken[member]),
        }
        kinds = [kind for kind, marked in marks.items() if marked]
        pair = el(
            "span", *(_width(100 * size / largest, kind) for size, kind in ((before, "before"), (after, "after")))
        )
        pair.set("class", "pair")
        flow = self._analysis.flows[int(self._flow[member])].number
        return table_row(
            *(
                str(int(packets.row[member]) + 1),
                f"{(int(packets.time_ns[member]) - self._began_ns) / 1e9:.6f}",
                str(flow),
            ),
            *(f"{int(self._position[member]):,}", self._codec(member) if headers.state[member] == ENCODED else "-"),
            *(f"{before:,}", f"{after:,}", pair, f"{before / after:.2f}", self._tag_bar(self._words[member])),
            ", ".join(_KINDS[kind] for kind in kinds),
            data_flow=flow,
            data_kind=" ".join(kinds),
        )


_FLOWS_TEXT = (
    "One direction of a connection each, as its sender's wire side shows it, in the order of the first packets."
    " Stream: all bytes; before and after: those that were tagged, and what they became."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _size(flow: CapturedFlow) -> tuple[int, int]:
    return flow.main.tagged_original_bytes, flow.main.frame_bytes


def _filter(name: str, choices: dict[str, str]) -> tuple[Element, Element]:
    options = [el("option", "all", value=""), *(el("option", text, value=value) for value, text in choices.items())]
    return el("label", f"{name} ", for_=name), el("select", *options, id=name)


def _shown(count: int) -> Element:
    return el("span", f"{count} packets", id="shown", class_="dim", role="status")


def _width(percent: float, kind: str) -> Element:
    return el("span", style=f"width:{percent:.1f}%", class_=kind)
