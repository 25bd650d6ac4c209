"""How ranks find each other and their NICs."""

from __future__ import annotations

from softnic.comm import hosts as host_address
from softnic.comm import meet as init_communicator
from softnic.comm import nics as nic_launcher
from softnic.comm import store
from softnic.comm.board import Board as StoreExchange
from softnic.comm.finding import Rendezvous, rendezvous
from softnic.comm.hosts import Wire
from softnic.comm.launch import LAUNCHERS, Launch, from_environment
from softnic.comm.store import MAX_VALUE, Address, Client, Hello, Server, Set, StoreError

__all__ = [
    "LAUNCHERS",
    "MAX_VALUE",
    "Address",
    "Client",
    "Hello",
    "Launch",
    "Rendezvous",
    "Server",
    "Set",
    "StoreError",
    "StoreExchange",
    "Wire",
    "from_environment",
    "host_address",
    "init_communicator",
    "nic_launcher",
    "rendezvous",
    "store",
]
