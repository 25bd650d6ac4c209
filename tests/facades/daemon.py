"""The daemon's parts: configuration, selector, streams, regions."""

from __future__ import annotations

from softnicd.config import EXAMPLE, Config, ConfigError, load, parser
from softnicd.daemon import Daemon
from softnicd.programs import state_of
from softnicd.regions import Regions
from softnicd.registered import Records
from softnicd.selector import AT_ONCE, NEVER, Selector
from softnicd.streams import Settings, Stream

__all__ = [
    "AT_ONCE",
    "EXAMPLE",
    "NEVER",
    "Config",
    "ConfigError",
    "Daemon",
    "Records",
    "Regions",
    "Selector",
    "Settings",
    "Stream",
    "load",
    "parser",
    "state_of",
]
