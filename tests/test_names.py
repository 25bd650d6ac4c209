"""Former names that differ from the field's terms are not used again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_architecture import ROOT, modules

CLASSES = {
    "Arrivals": "RxParser",
    "Auto": "AdaptiveCodec",
    "Bell": "Waker",
    "Board": "StoreExchange",
    "CapturePoint": "CaptureHook",
    "Chosen": "CompressionOptions",
    "Claims": "RxPlacement",
    "Combined": "ReduceRecv",
    "CombinedAhead": "PrefetchReduceRecv",
    "Completed": "WorkCompletion",
    "Driver": "ProgressLoop",
    "Ear": "FilteredPort",
    "Exchanged": "P2PBatch",
    "Executed": "NicCollective",
    "Fence": "ReadyEvents",
    "Flight": "Scoreboard",
    "Found": "Bootstrap",
    "Guard": "stall_watchdog, UnknownSourceFilter",
    "Head": "CollectiveHeader",
    "HostTap": "CaptureHook",
    "HostView": "CaptureHook",
    "Incoming": "RecvOp, RecvStep, AcceptReady",
    "Journal": "EventLog",
    "Journey": "convert",
    "Keeper": "NicOwner",
    "KernelNode": "TapNic",
    "Lane": "PeerQueue",
    "Lanes": "CopyStreams",
    "Lent": "ZeroCopyRuns",
    "Letter": "P2POp",
    "Means": "ExecContext",
    "Notices": "RateLimitedLog",
    "Nowhere": "NullLink",
    "Outgoing": "SendOp, SendStep",
    "Part": "WorkItem",
    "Piece": "TagRange, Allocation",
    "Place": "RxPlacement",
    "Placed": "CopyRecv",
    "Places": "ForwardingTable",
    "Post": "WorkRequest",
    "Pulse": "Heartbeat",
    "Requests": "ControlHandlers",
    "Seals": "SecureChannel",
    "SharedNic": "NicReference",
    "Slots": "StagingRing",
    "Stretches": "RetransmitCache",
    "TapDaemon": "TapNicDaemon",
    "Task": "CollectiveArgs",
    "Tcp": "TcpStack",
    "Together": "BulkAllreduce",
    "Warden": "ProcessSupervisor",
    "Watch": "LoopWaiter, Watchdog",
    "Way": "SimLink",
    "World": "CommunicatorState, Scenario",
}
IDENTIFIERS = {
    "_close_gate": "_block_until_connected",
    "_guest": "reserved_client",
    "_ready_here": "_ready_loopback",
    "_spare": "reserve_fd",
    "ack_due": "ack_pending",
    "crowded": "syn_queue_full",
    "disbelieve": "on_sack_reneging",
    "dropped_misshapen": "dropped_malformed",
    "duplicates_due": "dup_acks_pending",
    "excuse": "local_fault",
    "find_lost": "undo_lost_marks",
    "FLAG_TELL": "FLAG_SIGNALED",
    "loanable": "zerocopy_len",
    "lose_head": "mark_head_lost",
    "output_here": "output_loopback",
    "paced_at": "pacing_timer",
    "probe_at": "pto",
    "reopens": "may_reuse_time_wait",
    "reordered_at": "reo_timer",
    "rest_at": "trim_at",
    "rests_later": "schedule_trim",
    "room_of": "max_payload",
    "segment_arrives": "process_segment",
    "sent_alone": "on_pure_ack",
    "sn_guard": "sn_stall_watchdog",
    "sn_pass": "sn_serialize_times",
    "sn_piece": "sn_payload_ref",
    "sn_silent_words": "sn_zero_words",
    "sn_wake_on_time": "sn_set_timer_slack",
    "stalled_since": "unacked_since",
    "stood_still": "on_local_stall",
    "syn_due": "syn_pending",
    "take_back": "reclaim",
    "take_syn": "apply_syn_options",
    "turned_frames": "loopback_frames",
}
FILES = {
    "acks.py": "ack.py",
    "alarms.py": "arm_timers.py",
    "arrives.py": "input.py",
    "claims.py": "direct_placement.py",
    "crowd.py": "many_connections.py",
    "descriptors.py": "work_queue.py",
    "ends.py": "stream_endpoints.py",
    "finding.py": "discovery.py",
    "flood.py": "udp_baseline.py",
    "guard.c": "stall_watchdog.c",
    "idle.py": "trim.py",
    "layer.py": "stack.py",
    "picture.py": "plot.py",
    "planes.py": "byte_shuffle.py",
    "stretches.h": "coding_block.h",
    "tapped.py": "tap.py",
    "waits.c": "epoll.c",
    "words.py": "messages.py",
}
FOLDERS = ("softnic", "daemons", "native", "benchmarks", "tests")
HERE = Path(__file__)


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".pyi", ".c", ".h"} and path != HERE:
                yield path


def test_classes_have_the_names_of_the_field() -> None:
    old = [
        f"{path.relative_to(ROOT)}: class {node.name} is {CLASSES[node.name]}"
        for _, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name in CLASSES
    ]
    assert old == []


def test_identifiers_are_those_of_the_field() -> None:
    pattern = re.compile(rf"\b({'|'.join(IDENTIFIERS)})\b")
    old = [
        f"{path.relative_to(ROOT)}: {name} is {IDENTIFIERS[name]}"
        for path in sources()
        for name in sorted(set(pattern.findall(path.read_text())))
    ]
    assert old == []


def test_files_have_the_names_of_the_field() -> None:
    old = [f"{path.relative_to(ROOT)} is {FILES[path.name]}" for path in sources() if path.name in FILES]
    assert old == []
