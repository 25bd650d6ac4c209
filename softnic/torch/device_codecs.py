"""Which codecs run on the devices of tensors: those of softnic.torch.gpu, each tested before it is first used."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from functools import cache
from typing import NoReturn, cast

import numpy as np
import torch

from softnic import codecs
from softnic.codecs.combine import ReduceOp, decode_combine
from softnic.collectives.elements import Array
from softnic.torch.encoded import SlotCodec

_log = logging.getLogger("softnic")
_TESTED_BLOCKS = 8


class DeviceCodecError(RuntimeError):
    """A codec of a device has other bits than the host's."""


@cache
def device_codec(name: str, device: torch.device) -> SlotCodec | None:
    """Return a codec's kernels for a device, or None if there are none. Raises DeviceCodecError."""
    if os.environ.get("SOFTNIC_GPU") == "off":
        return None
    try:
        from softnic.torch.gpu.codec import DeviceCodec, kernels_of  # imports Triton
        from softnic.torch.gpu.exact_codec import DeviceExact
    except ImportError as error:
        _log.warning("floats of %s are encoded by the host, as Triton cannot be imported: %s", device, error)
        return None
    codec = codecs.get(name)
    if codec.name != "exact" and kernels_of(codec) is None:
        return None
    exact = codec.name == "exact"
    found = cast(SlotCodec, DeviceExact(codec, device)) if exact else DeviceCodec(codec, device)  # it has no slots
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():  # where Triton's kernels run
        check_bits(found, codec, device)
    return found


def check_bits(found: SlotCodec, codec: codecs.Codec, device: torch.device) -> None:
    """Compare some blocks with the host's. Raises DeviceCodecError if a bit differs."""
    generator = np.random.Generator(np.random.PCG64(35))
    words = (generator.standard_normal((_TESTED_BLOCKS, found.block_words)) * 1e-3).astype(np.float32)
    if found.slot:
        _check_slots(found, codec, words.ravel(), device)
    words[1] = 0
    words[3, 5] = 3e38
    _check_body(found, codec, words.ravel(), device)


def _check_slots(found: SlotCodec, codec: codecs.Codec, words: Array, device: torch.device) -> None:
    """Compare blocks that fit their slots, and what they add up to."""
    given, body = torch.from_numpy(words).to(device), codec.encode(words)
    slots, _ = found.encode_slots(given)
    if slots.cpu().numpy().tobytes() != body:
        _refuse(codec, device, "encodes")
    decoded = torch.empty_like(given)
    found.decode_slots(slots, decoded)
    if decoded.cpu().numpy().tobytes() != codec.decode(body, words.size).tobytes():
        _refuse(codec, device, "decodes")
    total = decode_combine(codec, body, ReduceOp.SUM, decode_combine(codec, body, ReduceOp.SUM, words))
    summed, _ = found.reduce_slots(torch.stack([slots, slots]), given, decode=True)
    if summed.cpu().numpy().tobytes() != codec.encode(total):
        _refuse(codec, device, "adds")


def _check_body(found: SlotCodec, codec: codecs.Codec, words: Array, device: torch.device) -> None:
    """Compare blocks of which some do not fit their slots."""
    given, body = torch.from_numpy(words).to(device), codec.encode(words)
    slots, sizes = found.encode_slots(given)
    if found.body_of(given, slots, sizes, len(body)).cpu().numpy().tobytes() != body:
        _refuse(codec, device, "encodes")
    decoded = torch.empty_like(given)
    found.decode_sizes(torch.from_numpy(np.frombuffer(body, np.uint8).copy()).to(device), sizes, decoded)
    if decoded.cpu().numpy().tobytes() != codec.decode(body, words.size).tobytes():
        _refuse(codec, device, "decodes")


def _refuse(codec: codecs.Codec, device: torch.device, does: str) -> NoReturn:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    raise DeviceCodecError(
        f"{codec} {does} to other bits on {device} ({name}) than on the host: do not train with it; compress with "
        "another codec or with SOFTNIC_GPU=off, which leaves codecs to the host, and report the GPU and torch's version"
    )
