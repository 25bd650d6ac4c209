"""Results of trainings, kept between runs in $XDG_CACHE_HOME/softnic/reproduce (~/.cache/softnic/reproduce)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from softnic.experiments.data import DataSet


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "softnic" / "reproduce"


def digest(data: DataSet) -> str:
    """Return a digest that differs between data sets."""
    return hashlib.sha256(data.train_inputs[:100].tobytes() + data.train_labels.tobytes()).hexdigest()


def key(model: str, data: DataSet, settings: Mapping[str, object]) -> str:
    """Return a file name that differs with the model, the data and every setting, which must be JSON."""
    fields = {**settings, "data": digest(data)}
    return f"{model}-{hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]}"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a file beside `path`, then rename it: an interrupted run leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}")
    write(part)
    part.replace(path)
