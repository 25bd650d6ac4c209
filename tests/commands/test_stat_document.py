"""The document of `softnic stat --json` is what its schema and its page say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from softnic import Cluster
from softnic.commands.snapshots import NicReport
from tests.commands.test_stat import floats_sent

Softnic = Callable[..., tuple[int, str, str]]
PYTHON: dict[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with floats_sent("auto") as (cluster, _client, _server):
        yield cluster


def test_the_schema_has_not_changed(softnic: Softnic) -> None:
    """A field that is removed or that changes its type breaks programs: it needs another number in `schema`."""
    code, out, _ = softnic("stat", "--schema")
    assert code == 0
    kept = DOCS / "examples" / "monitoring" / "stat.schema.json"
    assert json.loads(out) == json.loads(kept.read_text()), f"softnic stat --schema > {kept}"


def fields() -> Iterator[str]:
    kept = json.loads((DOCS / "examples" / "monitoring" / "stat.schema.json").read_text())
    for kind in kept["$defs"].values():
        yield from kind["properties"]


def test_every_field_is_on_the_page() -> None:
    page = (DOCS / "monitoring.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert set(fields()) <= documented


def shape(kind: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value, behind its reference."""
    name = kind.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schema["$defs"][name] if name else kind
    return found


def check(value: Any, kind: dict[str, Any], schema: dict[str, Any]) -> None:
    """Check a value against the parts of JSON Schema that msgspec writes."""
    kind = shape(kind, schema)
    if "anyOf" in kind:
        [kind] = [each for each in kind["anyOf"] if (each.get("type") == "null") == (value is None)]
        kind = shape(kind, schema)
    if "enum" in kind:
        assert value in kind["enum"]
        return
    assert isinstance(value, PYTHON[kind["type"]]), (value, kind)
    if isinstance(value, list):
        items = kind.get("prefixItems") or [kind["items"]] * len(value)
        for each, item in zip(value, items, strict=True):
            check(each, item, schema)
    elif isinstance(value, dict) and "properties" in kind:
        assert set(kind["required"]) <= set(value) <= set(kind["properties"])
        for name, each in value.items():
            check(each, kind["properties"][name], schema)


def test_the_document_has_the_form_of_the_schema(cluster: Cluster, softnic: Softnic) -> None:
    paths = [f"--nic={path}" for path in cluster.controls]
    schema = json.loads(softnic("stat", "--schema")[1])
    plain = json.loads(softnic("stat", *paths, "--json", "-")[1])
    measured = json.loads(softnic("stat", *paths, "--seconds", "0.05", "--json", "-")[1])
    for document in (plain, measured):
        check(document, schema, schema)
        assert [nic["schema"] for nic in document] == [1, 1]
        msgspec.convert(document, list[NicReport])
    assert ["rates" in nic for nic in (*plain, *measured)] == [False, False, True, True]
    assert plain[0]["streams"][0]["auto"]["why"]
    assert plain[0]["totals"]["peers"][0]["address"] == "10.77.0.2"


def test_watch_writes_a_line_each_time(cluster: Cluster, softnic: Softnic, tmp_path: Path) -> None:
    watch = ["stat", f"--nic={cluster.controls[0]}", "--watch", "0.02", "--count", "3", "--json"]
    lines = softnic(*watch, "-")[1].splitlines()
    assert len(lines) == 3
    uptimes = []
    for line in lines:
        [nic] = json.loads(line)
        assert nic["rates"]["seconds"] >= 0.02
        uptimes.append(nic["process"]["uptime"])
    assert uptimes == sorted(uptimes)
    file = tmp_path / "rates.jsonl"
    _, out, _ = softnic(*watch, str(file))
    assert len(file.read_text().splitlines()) == 3
    assert out.count("applications sent ") == 3


def test_count_needs_watch(softnic: Softnic) -> None:
    assert softnic("stat", "--count", "2") == (1, "", "softnic stat: --count needs --watch\n")
