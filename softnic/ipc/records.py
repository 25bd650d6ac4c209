"""What a stream in registered mode carries between program and NIC: records of RECORD.size bytes, and short texts.

A program that has memory mapped by its NIC (`softnic.ipc.regions`) may put a stream into this mode (`UseRecords` of the
control protocol). From there on its Unix socket carries, both ways, records in the order of the stream's bytes:

    program to NIC   SEND      the next bytes of the stream are `size` bytes at `offset` of `region`, then `pad` zeros
                     BYTES     ... are the `size` bytes that follow this record, then `pad` zeros
                     RECEIVE   the next bytes of the peer go to `offset` of `region` (region 0: back through here, as
                               BYTES); `pad` more are thrown away
                     TAG       the next bytes have another tag: see `TAG_RECORD`
    NIC to program   SENT      `size` more bytes of what was sent are the program's again
                     PLACED    `size` more bytes of the first receive that still lacks some are in its place
                     BYTES     `size` bytes of it follow this record

Rules. Nothing comes that was not asked for, so a program can always read. Memory that is sent must not change, and
memory that is received into means nothing, until the NIC says so. SENT comes when a SEND with FLAG_TELL has been
acknowledged or copied, for that one and all before; PLACED comes every `step` bytes and at the end of a receive. A
record that breaks a rule ends its stream with EINVAL and a text that says why.
"""

from __future__ import annotations

import struct

RECORD = struct.Struct("<BBHIQQQ")
"""kind, flags, pad, step, region, offset, size."""
TAG_RECORD = struct.Struct("<BBHI24s")
"""kind, flags, ToS, 0, codec as in `bounded:10`, filled up with zeros (empty: the one of the NIC's table)."""

SEND, BYTES, RECEIVE, TAG, SENT, PLACED = range(1, 7)
FLAG_TELL = 1
"""Of SEND: the program waits for this memory. Once little of it is left, the NIC copies that rather than wait."""
MAX_PAD = 63
MAX_RECEIVES = 4096
"""Posted and not complete, of one stream."""
