"""Captures: the pcapng format, taps, the reader and its reports."""

from __future__ import annotations

from softnic.capture import pcapng, reader
from softnic.capture.captured_link import CapturedLink
from softnic.capture.extcap import ALL, LiveNic, interface_list, interfaces_of, link_types, options
from softnic.capture.float_paths import PATH_WORDS, CodecErrors, FloatPath, bit_owners, follow_floats
from softnic.capture.flows import Analysis, CapturedFlow, FlowView, is_host, unwrap
from softnic.capture.frames import host_frames
from softnic.capture.hook import MAX_CAPTURES, CaptureHook
from softnic.capture.merge import Merger
from softnic.capture.packets import CUT_OFF, ENCODED, MALFORMED, PLAIN
from softnic.capture.page import MOST_FLOWS, CapturePage
from softnic.capture.pcapng import Direction
from softnic.capture.reader import CaptureError, CaptureFile, parse, read
from softnic.capture.recorder import Recorder
from softnic.capture.report import CaptureReport, jsonable_floats, summarize
from softnic.capture.sink import CaptureSink
from softnic.capture.streams import StreamError, packet_tags, stream_bytes, stream_floats, tag_distribution
from softnic.capture.timeline import INTERVALS, timeline
from softnic.capture.wireshark_folders import (
    DISSECTOR,
    WiresharkFolders,
    install,
    reported_folders,
    uninstall,
    wireshark_folders,
)

__all__ = [
    "ALL",
    "CUT_OFF",
    "DISSECTOR",
    "ENCODED",
    "INTERVALS",
    "MALFORMED",
    "MAX_CAPTURES",
    "MOST_FLOWS",
    "PATH_WORDS",
    "PLAIN",
    "Analysis",
    "CaptureError",
    "CaptureFile",
    "CaptureHook",
    "CapturePage",
    "CaptureReport",
    "CaptureSink",
    "CapturedFlow",
    "CapturedLink",
    "CodecErrors",
    "Direction",
    "FloatPath",
    "FlowView",
    "LiveNic",
    "Merger",
    "Recorder",
    "StreamError",
    "WiresharkFolders",
    "bit_owners",
    "follow_floats",
    "host_frames",
    "install",
    "interface_list",
    "interfaces_of",
    "is_host",
    "jsonable_floats",
    "link_types",
    "options",
    "packet_tags",
    "parse",
    "pcapng",
    "read",
    "reader",
    "reported_folders",
    "stream_bytes",
    "stream_floats",
    "summarize",
    "tag_distribution",
    "timeline",
    "uninstall",
    "unwrap",
    "wireshark_folders",
]
