"""The pages of `softnic stat` and `softnic top` at every width, from snapshots made here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec
import pytest

from softnic.commands import stat_page, top_page
from softnic.commands.layout import Line
from softnic.commands.meeting_text import meeting_lines
from softnic.commands.membership_text import membership_lines
from softnic.commands.snapshots import Rates, rates_of
from softnic.commands.stream_text import tag
from softnic.ipc.collectives_info import CommunicatorInfo, OperationInfo, RankLinkInfo
from softnic.ipc.control import AutoInfo, NicEvent, NicInfo, NicStats, StreamInfo
from softnic.ipc.membership import MembershipInfo
from softnic.ipc.snapshot import CollectiveTotals, MeetingInfo, PeerWay, ProcessInfo, StreamTotals

INFO = NicInfo(
    version=3, name="node0", ip="10.77.0.1", mac="02:53:4e:4d:00:01", mtu=1500, mode="fill",
    offloads={"0x28": "bounded:10"}, codecs=[0, 1], pid=11703, rate_bps=1e9,
)  # fmt: skip
BLOCKS = StreamInfo(
    stream=3, state="ESTABLISHED", local=("10.77.0.1", 29477), peer=("10.77.0.2", 39629), tos=0, codec="",
    bytes_sent=108_700_000, bytes_received=999_949_999, wire_bytes_sent=14_600_000, wire_bytes_received=9_800_000,
    offload_original_bytes=108_700_000, offload_encoded_bytes=14_600_000, send_queue=737_664, receive_queue=1_000_000,
    retransmits=12_345, srtt=0.00489, cwnd=1_366_600, sent_codecs=["rht:4"],
)  # fmt: skip
LISTENS = StreamInfo(stream=1, state="LISTEN", local=("10.77.0.1", 5000), send_queue=0)
AUTO = msgspec.structs.replace(
    BLOCKS, stream=4, peer=("10.77.0.2", 5001), tos=0x28, codec="auto:rht:4", sent_codecs=[],
    auto=AutoInfo(False, "auto: why"),
)  # fmt: skip
OPERATION = OperationInfo(number=4, call="Allreduce(1000 x float32, op=SUM)", age_s=0.0206, left=1, total=5)
RANK = CommunicatorInfo(
    rank=0, size=2, operations=[OPERATION], links=[RankLinkInfo(1, ("10.77.0.1", 1), ("10.77.0.2", 2), expected=4)]
)
RATES = Rates(
    seconds=1.02, tx_bytes=25.4e6, rx_bytes=25.5e6, tx_wire_bytes=3.6e6, rx_wire_bytes=3.7e6, tx_frames=2530.4,
    rx_frames=2603.0, busy=0.0288, cpu=0.107, ratio=7.43, recoveries=1234.5, drops=3.25,
)  # fmt: skip


COUNTERS = dict.fromkeys(
    ["rx_bytes", "tx_wire_bytes", "rx_wire_bytes", "tx_frames", "rx_frames", "tx_offload_original_bytes",
     "tx_offload_encoded_bytes", "rx_drop_mac"], 0
)  # fmt: skip


def snapshot(uptime: float = 10.0, **changed: object) -> NicStats:
    nic = NicStats(
        info=INFO,
        process=ProcessInfo(started=0.0, uptime=uptime, cpu=1.0, resident_bytes=52_300_000),
        counters={"tx_bytes": 108_700_000, **COUNTERS},
        events=[NicEvent(0.0, f"event {number}", 1 + 1000 * number) for number in range(12)],
        totals=StreamTotals(states={}, peers=[]),
        collectives=CollectiveTotals(in_progress=1, oldest=0.1),
        streams=[LISTENS, BLOCKS, AUTO],
        communicators=[RANK],
        failed=[],
    )
    return msgspec.structs.replace(nic, **changed)


def texts(lines: list[Line]) -> list[str]:
    return [text for text, _ in lines]


def plain(lines: list[str]) -> list[str]:
    """The lines with two spaces between columns."""
    return [re.sub(" {2,}", "  ", line) for line in lines]


def headings(lines: list[str], first: str) -> list[str]:
    """The heading that has this word, as columns."""
    [found] = [line for line in lines if first in re.split(r" {2,}", line.strip())]
    return re.split(r" {2,}", found.strip())


def test_a_nic_that_meets_shows_its_job_and_its_relays() -> None:
    ways = [PeerWay("10.77.0.2", "192.0.2.1:9500", "IPv4", relayed=True, age=1.0)]
    meeting = MeetingInfo(4, 4, 0, direct=1, relayed=1, waiting=["10.77.0.4"], nat="symmetric", registered=True)
    nic = snapshot(ways=ways, peers=1, meeting=meeting)
    about = "job: 4 of 4 nodes known, 1 direct, 1 relayed, no way yet to 10.77.0.4, NAT symmetric"
    lines = texts(stat_page.page(nic, None, False, None))
    assert about in lines
    assert "10.77.0.2 by 192.0.2.1:9500 (IPv4, relayed)" in lines
    lines = texts(top_page.page([nic], [nic], "rate"))
    assert f"{INFO.name}  {about}" in lines
    assert f"{INFO.name}  10.77.0.2 relayed by 192.0.2.1:9500" in lines
    alone = msgspec.structs.replace(meeting, waiting=[], registered=False, refusal="the server is full")
    [line] = meeting_lines(snapshot(meeting=alone))
    assert line.endswith("NAT symmetric, no meeting server answers, refused: the server is full")
    by_tcp = msgspec.structs.replace(meeting, waiting=[], tcp=True)
    assert meeting_lines(snapshot(meeting=by_tcp))[0].endswith("meeting server by TCP")


def test_members_of_elastic_jobs_are_shown() -> None:
    healing = MembershipInfo("job", "12", 1, 3, ["a", "b", "c"], "healing", ["a", "c"], 64_000_000, 100_000_000)
    training = MembershipInfo("job", "12", 0, 70, [], "training")
    nic = snapshot(memberships=[healing, training])
    first = "job: epoch 12, rank 1 of 3 members (a, b, c), healing from a, c: 64.0 MB of 100.0 MB (64%)"
    second = "job: epoch 12, rank 0 of 70 members, training"
    lines = texts(stat_page.page(nic, None, False, None))
    assert lines.index(second) == lines.index(first) + 1
    lines = texts(top_page.page([nic], [nic], "rate"))
    assert f"{INFO.name}  {first}" in lines
    some = msgspec.structs.replace(training, members=["a", "b"])
    assert membership_lines([some]) == ["job: epoch 12, rank 0 of 70 members (a, b and 68 more), training"]


STAT = {
    160: "state  local  peer  sent  wire out  ratio  received  wire in  unacked  unread  rtt  cwnd  again  tag",
    120: "local  peer  sent  wire out  ratio  received  unacked  rtt  again  tag",
    80: "peer  sent  wire out  ratio  received  again  tag",
    40: "peer  sent  ratio  again",
}


@pytest.mark.parametrize("width", [None, *STAT])
def test_columns_of_stat(width: int | None) -> None:
    lines = texts(stat_page.page(snapshot(), RATES, False, width))
    all_, shown = (STAT[each].split("  ") for each in (160, width or 160))
    assert headings(lines, "peer") == shown
    assert width is None or max(map(len, lines)) <= width
    left_out = [each for each in all_ if each not in shown]
    note = " ".join(line.strip() for line in lines[: lines.index("")])
    assert ("a wider terminal shows" in note) == bool(left_out)
    assert all(each in note.rpartition("a wider terminal shows")[2] for each in left_out)


def test_stat_names_the_way_to_each_peer() -> None:
    ways = [PeerWay(f"10.77.0.{peer}", f"[2001:db8::{peer}]:4789", "IPv6") for peer in range(2, 12)]

    def shown(everything: bool, peers: int = 10) -> list[str]:
        lines = texts(stat_page.page(snapshot(ways=ways, peers=peers), None, everything, None))
        return lines[1 : next(index for index, line in enumerate(lines) if line.startswith("state"))]

    named = [f"10.77.0.{peer} by [2001:db8::{peer}]:4789 (IPv6)" for peer in range(2, 12)]
    assert shown(True) == named
    assert shown(False) == [*named[:8], "and 2 more peers"]
    assert shown(True, 2000) == [*named, "and 1,990 more peers"]


def test_a_page_of_stat() -> None:
    lines = texts(stat_page.page(snapshot(events=[]), RATES, False, None))
    assert plain(lines) == [
        "node0  10.77.0.1  02:53:4e:4d:00:01  mtu 1500  mode fill  offloads 0x28=bounded:10  pid 11703  link 1 Gbit/s",
        "in 1.02 s: applications sent 25.4 MB/s, received 25.5 MB/s; wire out 28.8 Mbit/s (3% busy), in 29.6 Mbit/s; "
        "frames out 2,530/s, in 2,603/s; losses 1,234.5/s, drops 3.2/s; CPU 10.7%",
        STAT[160],
        "LISTEN  10.77.0.1:5000",
        "ESTABLISHED  10.77.0.1:29477  10.77.0.2:39629  108.7 MB  14.6 MB  7.45  999.9 MB  9.8 MB  737.7 KB  1.0 MB"
        "  4.89 ms  1.4 MB  12,345  rht:4",
        "ESTABLISHED  10.77.0.1:29477  10.77.0.2:5001  108.7 MB  14.6 MB  7.45  999.9 MB  9.8 MB  737.7 KB  1.0 MB"
        "  4.89 ms  1.4 MB  12,345  0x28 auto:rht:4",
        "10.77.0.1:29477 10.77.0.2:5001  auto: why",
        "",
        "rank 0 of 2  Allreduce(1000 x float32, op=SUM)  20.6 ms  waits for rank 1: its call",
        "",
        "tx_bytes  108,700,000",
        "",
    ]


def test_all_shows_zeros_and_every_event() -> None:
    few, all_ = (texts(stat_page.page(snapshot(), None, everything, None)) for everything in (False, True))
    assert [sum(" event " in line for line in lines) for lines in (few, all_)] == [10, 12]
    assert all_[-2].endswith("  event 11 (11,001 times)")
    assert re.search(r"^[0-9-]{10} [0-9:]{8}  event 0$", "\n".join(all_), re.MULTILINE)
    assert ["rx_drop_mac", "0"] in [line.split() for line in all_]
    assert not any("rx_drop_mac" in line for line in few)
    bare = stat_page.page(snapshot(streams=[], events=[], communicators=[], counters={}), None, False, 80)
    assert texts(bare)[-3:] == ["no streams", "", ""]
    assert bare[0][1] == "bold"


@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        (BLOCKS, "rht:4"),
        (AUTO, "0x28 auto:rht:4"),
        (msgspec.structs.replace(BLOCKS, sent_codecs=["rht:4", "bounded:10"]), "rht:4, bounded:10"),
        (msgspec.structs.replace(BLOCKS, tos=0x28, codec="bounded:10", sent_codecs=["rht:4"]), "0x28 rht:4"),
        (msgspec.structs.replace(BLOCKS, tos=0x10, sent_codecs=[]), "0x10"),
        (msgspec.structs.replace(BLOCKS, sent_codecs=[]), ""),
    ],
)
def test_the_codec_of_a_stream(stream: StreamInfo, shown: str) -> None:
    assert tag(stream) == shown


@pytest.mark.parametrize(("limit", "busy"), [(1e9, 0.004), (None, None)])
def test_rates_are_differences_by_time(limit: float | None, busy: float | None) -> None:
    info = msgspec.structs.replace(INFO, rate_bps=limit)
    first = snapshot(info=info)
    grown = {
        **first.counters, "tx_bytes": first.counters["tx_bytes"] + 400, "rx_bytes": 800, "tx_wire_bytes": 1_000_000,
        "rx_wire_bytes": 20, "tx_frames": 6, "rx_frames": 4, "tx_offload_original_bytes": 80,
        "tx_offload_encoded_bytes": 10, "fast_retransmits": 3, "tail_loss_probes": 1, "rx_drop_mac": 8,
    }  # fmt: skip
    process = msgspec.structs.replace(first.process, uptime=12.0, cpu=1.5)
    last = snapshot(info=info, counters=grown, process=process)
    [found] = rates_of([first], [last])
    assert found == Rates(
        seconds=2.0, tx_bytes=200, rx_bytes=400, tx_wire_bytes=500_000, rx_wire_bytes=10, tx_frames=3, rx_frames=2,
        busy=busy, cpu=0.25, ratio=8.0, recoveries=2.0, drops=4.0,
    )  # fmt: skip
    assert rates_of([last], [first]) == [None], "a NIC that has begun again has no rates"
    assert rates_of([snapshot(info=msgspec.structs.replace(INFO, pid=1))], [last]) == [None]


def top(width: int | None, height: int | None = None) -> list[str]:
    after = snapshot(11.0, streams=[LISTENS, msgspec.structs.replace(BLOCKS, bytes_sent=135_700_000), AUTO])
    return texts(top_page.page([snapshot()], [after], "rate", width, height))


TOP_NICS = {
    160: "nic  address  cpu  memory  flows  sent  wire out  received  wire in  ratio  busy  loss/s  drop/s",
    120: "nic  cpu  memory  flows  sent  wire out  received  wire in  ratio  busy  loss/s  drop/s",
    80: "nic  sent  wire out  received  wire in  ratio  loss/s  drop/s",
    40: "nic  wire out  loss/s  drop/s",
}
TOP_FLOWS = {
    160: "nic  local  peer  sent  wire out  ratio  received  wire in  rtt  cwnd  queued  again/s  tag",
    120: "nic  peer  sent  wire out  ratio  received  wire in  rtt  again/s  tag",
    80: "nic  peer  sent  wire out  ratio  received  again/s",
    40: "peer  sent  again/s",
}


@pytest.mark.parametrize("width", [None, *TOP_NICS])
def test_columns_of_top(width: int | None) -> None:
    lines = top(width)
    assert headings(lines, "drop/s") == TOP_NICS[width or 160].split("  ")
    assert headings(lines, "again/s") == TOP_FLOWS[width or 160].split("  ")
    assert width is None or max(map(len, lines)) <= width


def test_a_page_of_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda _form: "01:16:33")
    assert plain(top(None)) == [
        "01:16:33  1 NIC, 2 connections, by rate",
        TOP_NICS[160],
        "node0  10.77.0.1  0.0%  52.3 MB  2  0 B/s  0 bit/s  0 B/s  0 bit/s  0%  0.0  0.0",
        "",
        "node0  rank 0 of 2  Allreduce(1000 x float32, op=SUM)  20.6 ms  waits for rank 1: its call",
        "",
        TOP_FLOWS[160],
        "node0  10.77.0.1:29477  10.77.0.2:39629  27.0 MB/s  0 bit/s  0 B/s  0 bit/s  4.89 ms  1.4 MB  1.7 MB  0.0"
        "  rht:4",
        "node0  10.77.0.1:29477  10.77.0.2:5001  0 B/s  0 bit/s  0 B/s  0 bit/s  4.89 ms  1.4 MB  1.7 MB  0.0"
        "  0x28 auto:rht:4",
    ]


def test_a_nic_that_is_new_has_no_rates() -> None:
    lines = texts(top_page.page([], [snapshot()], "rtt"))
    assert lines[2].split() == ["node0", "10.77.0.1", "52.3", "MB", "2"]


@pytest.mark.parametrize(("height", "flows"), [(3, 0), (7, 0), (8, 1), (9, 2), (50, 2)])
def test_connections_fill_the_height(height: int, flows: int) -> None:
    lines = top(None, height)
    assert sum("10.77.0.2:" in line for line in lines) == flows


@pytest.mark.parametrize("count", [1, 3, 4, 40])
def test_many_nics_and_waits_leave_space_for_connections(count: int) -> None:
    nics = [snapshot(info=msgspec.structs.replace(INFO, name=f"node{number}", pid=number)) for number in range(count)]
    lines = texts(top_page.page(nics, nics, "rate", 60, 30))
    assert len(lines) <= 30
    named = [line for line in lines if line.startswith("node") and "rank" not in line]
    waiting = [line for line in lines if "rank 0 of 2" in line]
    if count < 40:
        assert len(waiting) == count
        assert not any("more" in line for line in lines)
    else:
        assert [line for line in lines if line.startswith("...")] == ["... and 32 more", "... and 36 more"]
        assert (len(named), len(waiting)) == (8, 4)


@pytest.mark.parametrize("sort", top_page.SORT)
def test_flows_are_sorted_largest_first(sort: str) -> None:
    small = msgspec.structs.replace(BLOCKS, stream=9, srtt=0.001, send_queue=1, receive_queue=0, peer=("10.77.0.9", 9))
    large = msgspec.structs.replace(BLOCKS, stream=8, srtt=0.002, send_queue=2, receive_queue=0, peer=("10.77.0.8", 8))
    moved = [
        msgspec.structs.replace(
            each, bytes_received=each.bytes_received + by, wire_bytes_sent=each.wire_bytes_sent + by,
            offload_original_bytes=each.offload_original_bytes + 4 * by * by,
            offload_encoded_bytes=each.offload_encoded_bytes + by, retransmits=each.retransmits + by,
        )
        for each, by in ((small, 1), (large, 2))
    ]  # fmt: skip
    flows = top_page.flows_of([snapshot(streams=[small, large])], [snapshot(12.0, streams=moved)], sort)
    assert [flow.stream.stream for flow in flows] == [8, 9]
    first = flows[0]
    assert (first.tx_bytes, first.rx_bytes, first.tx_wire_bytes, first.rx_wire_bytes) == (0, 1, 1, 0)
    assert (first.ratio, first.retransmits) == (8, 1)


def test_no_figure_is_cut_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of a narrow page is one of a page without a limit, and so is every figure with its unit."""
    monkeypatch.setattr(time, "strftime", lambda _form, _when=None: "2026-11-27 01:16:33")
    words = {
        "a",
        "wider",
        "terminal",
        "shows",
        "too",
        *(f"{name}{end}" for name in STAT[160].split() for end in ("", ",")),
    }
    pages: list[Callable[[int | None], list[Line]]] = [
        lambda width: stat_page.page(snapshot(), RATES, True, width),
        lambda width: top_page.page([snapshot()], [snapshot(11.0)], "rate", width),
    ]
    for page in pages:
        whole = texts(page(None))
        known = {word for line in whole for word in line.split()} | words
        figures = {cell for line in whole for cell in re.split(r" {2,}", line)}
        for width in range(1, 200):
            narrow = texts(page(width))
            assert {word for line in narrow for word in line.split()} <= known, width
            table = [line for line in narrow if "10.77.0.2:" in line and "auto:" not in line]
            assert {cell for line in table for cell in re.split(r" {2,}", line.strip())} <= figures, width
