"""How ranks find each other and their NICs."""

from __future__ import annotations

import pytest

from softnic.collectives.framing import FrameReader
from softnic.comm import init_communicator
from softnic.comm.bootstrap import host_address as host_address
from softnic.comm.bootstrap import nic_launcher as nic_launcher
from softnic.comm.bootstrap import store
from softnic.comm.bootstrap.discovery import StoreLocation, locate_store
from softnic.comm.bootstrap.host_address import Wire
from softnic.comm.bootstrap.launch import LAUNCHERS, Launch, Launcher, from_environment
from softnic.comm.bootstrap.store import MAX_VALUE, Address, JoinStore, SetKey, StoreClient, StoreError, StoreServer
from softnic.comm.bootstrap.store_exchange import StoreExchange

__all__ = [
    "LAUNCHERS",
    "MAX_VALUE",
    "Address",
    "JoinStore",
    "Launch",
    "Launcher",
    "SetKey",
    "StoreClient",
    "StoreError",
    "StoreExchange",
    "StoreLocation",
    "StoreServer",
    "Wire",
    "drop_unused_nics",
    "from_environment",
    "host_address",
    "init_communicator",
    "locate_store",
    "nic_launcher",
    "shared_nics",
    "store",
    "store_reader",
    "use_shared_nics",
]


def shared_nics() -> list[nic_launcher.NicReference]:
    """Return the shared NICs that this process has started or uses."""
    return list(nic_launcher._nics)


def use_shared_nics(monkeypatch: pytest.MonkeyPatch, nics: list[nic_launcher.NicReference]) -> None:
    """Replace the shared NICs of this process."""
    monkeypatch.setattr(nic_launcher, "_nics", nics)


def drop_unused_nics() -> None:
    """Release NICs that no communicator uses."""
    nic_launcher._release_unused()


def store_reader() -> FrameReader[store.Frame]:
    """Return a reader of the frames of the store's connections."""
    return FrameReader(store._decode, "store")
