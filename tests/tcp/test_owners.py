"""Ownership of connection state: each field of a flow, or of a part of it, is assigned by one module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("softnic/tcp", "softnic/nic", "softnic/collectives", "softnic/sim", "daemons/softnicd")
FLOW = "softnic/tcp/flow.py"
PARTS = (
    ("snd", "SendState"),
    ("rcv", "ReceiveState"),
    ("rto", "RetransmissionTimeout"),
    ("congestion", "Congestion"),
    ("recovery", "Recovery"),
    ("rack", "Rack"),
    ("pacing", "Pacer"),
    ("timestamps", "Timestamps"),
    ("delayed_ack", "DelayedAck"),
    ("autotune", "ReceiveTuning"),
    ("send_buffer", "SendBuffer"),
    ("scoreboard", "Scoreboard"),
    ("reassembly", "Reassembly"),
    ("zerocopy", "ZeroCopyRuns"),
)
FLOWS = {"c", "flow", "connection", "old", "peer", "oldest", "client", "server"}
"""Names of variables and attributes that refer to a flow."""


def class_body(path: Path, name: str) -> list[ast.stmt]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node.body
    raise LookupError(f"{path} has no class {name}")


def fields_of(path: str, name: str) -> set[str]:
    """Return the annotated fields of a class."""
    body = class_body(ROOT / path, name)
    return {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}


def part_fields(module: str, name: str) -> set[str]:
    """Return the attributes that a part assigns to itself."""
    body = class_body(ROOT / f"softnic/tcp/{module}.py", name)
    assigned = (node for statement in body for node in ast.walk(statement))
    return {target.attr for node in assigned for target in targets(node) if base_of(target) == "self"}


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Return the attributes that a statement assigns."""
    if isinstance(node, ast.Assign):
        found: list[ast.expr] = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return
    for target in found:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Attribute):
                yield each


def base_of(target: ast.Attribute) -> str:
    """Return the last name of the object whose attribute this is."""
    value = target.value
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def assignments() -> Iterator[tuple[str, str, str]]:
    """Return module, object and attribute of each assignment to an attribute."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                for target in targets(node):
                    yield path.relative_to(ROOT).as_posix(), base_of(target), target.attr


def test_each_field_of_a_flow_is_assigned_by_one_module() -> None:
    fields, of_nic = fields_of(FLOW, "Flow"), fields_of("softnic/nic/flows.py", "NicFlow")
    owners = defaultdict(set)
    for module, base, attribute in assignments():
        if module.startswith("softnic/nic/") and attribute in of_nic:
            continue
        own = base == "self" and module == "softnic/tcp/connection.py"
        if attribute in fields and (base in FLOWS or own):
            owners[attribute].add(module)
    assert {field: found for field, found in owners.items() if len(found) > 1} == {}
    assert owners["state"] == {"softnic/tcp/transitions.py"}
    assert owners["nic"] == {"softnic/nic/flows.py"}


def test_a_comment_above_each_group_of_fields_names_the_owner() -> None:
    owner, owners = "", {}
    for line in (ROOT / FLOW).read_text().splitlines():
        if line.startswith("    # ") and line.endswith(".py"):
            owner = line.removeprefix("    # ")
        elif line.startswith("    def "):
            break
        elif owner and line.startswith("    ") and line[4].isalpha() and ":" in line:
            owners[line.strip().partition(":")[0]] = owner
    for module, base, attribute in assignments():
        if attribute in owners and base in FLOWS:
            assert module in (f"softnic/tcp/{owners[attribute]}", owners[attribute]), f"{module}: {attribute}"


def test_parts_of_a_flow_are_assigned_by_their_own_module_only() -> None:
    owner: dict[str, set[str]] = {}
    for module, name in PARTS:
        for attribute in part_fields(module, name):
            owner.setdefault(attribute, set()).add(f"softnic/tcp/{module}.py")
    parts = {"snd", "rcv", "rtt", "congestion", "recovery", "rack", "pacer", "timestamps", "delayed_ack", "buffer"}
    parts |= {"scoreboard", "zerocopy", "receive_tuning", "send_tuning", "_reassembly", "sent", "head"}
    wrong = [
        f"{module} assigns {base}.{attribute}"
        for module, base, attribute in assignments()
        if base in parts and attribute in owner and module not in owner[attribute] and "/tcp/" in module
    ]
    assert wrong == []
