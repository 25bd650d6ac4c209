"""Builds native/ into softnic._native with cffi in API mode, driven by pyproject.toml.

The headers named in PUBLIC are both the C interface and cffi's declarations, so the two cannot disagree. They contain
plain declarations only; text between `/* C only */` and `/* all */` is for the compiler and removed for cffi.

The library has a second module, softnic._fields, which shows the fields of flow.h as attributes. Its tables are written
from the structs between `/* FIELDS` and `/* END OF FIELDS */` of the headers named in FLOW. Functions between
`/* METHODS` and `/* END OF METHODS */` become methods of the classes: a call takes half the time of one through cffi.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sysconfig import get_platform
from typing import Any

from cffi import FFI
from setuptools import Extension
from setuptools.command.build_ext import build_ext

NATIVE = Path(__file__).resolve().parent
FOLDERS = {
    "softnic._native": ("codecs", "tcp", "nic", "collectives", "watchdog"),
    "softnic._preload": ("preload",),
}
"""Where the sources of each extension are."""
PUBLIC = (
    *("codecs/codecs.h", "codecs/reduce.h", "codecs/combine.h", "codecs/parallel.h", "codecs/feedback.h"),
    *("nic/frames.h", "nic/packets.h", "nic/tap.h", "nic/batch_io.h"),
    *("nic/pcg64.h", "nic/emulated_chance.h", "nic/emulated_link.h"),
    *("nic/aead.h", "nic/steering.h", "nic/secure_channel.h", "nic/epoll.h", "watchdog/watchdog.h"),
    *(
        "tcp/scoreboard.h",
        "tcp/send_buffer.h",
        "tcp/receive_buffer.h",
        "tcp/reassembly.h",
        "tcp/fast_path.h",
        "tcp/schedule.h",
    ),
    *("nic/port.h", "tcp/flow_totals.h"),
    *("nic/capture_ring.h", "nic/capture.h", "collectives/engine.h"),
    *("nic/nic_flow.h", "nic/retransmit_cache.h", "nic/tap_flows.h", "nic/tap_nic.h", "nic/turn.h"),
)

CALLBACKS = """
extern "Python" {
    uint32_t sn_python_receive(void *owner, bool has_batch, double now);
    void sn_python_run(void *owner, uint32_t index, double now);
    void sn_python_expire(void *owner, sn_flow *flow, double now);
    void sn_python_notify(void *owner, sn_flow *flow, uint32_t what);
    void sn_python_prepare(void *owner, sn_flow *flow, double now);
    int64_t sn_python_output(void *owner, sn_ready_ring *ring, int64_t space, double now);
    void sn_python_acknowledge(void *owner, sn_flow *flow, double now);
    void sn_python_send(void *owner, uint32_t first, double now);
    void sn_python_loop(void *owner, uint32_t first);
    void sn_python_release(void *owner, double now);
    int64_t sn_python_space(void *owner, double now);
    void sn_python_examine(void *owner, double now);
    void sn_python_advance_link(void *owner, double now);
    void sn_python_advance_requests(void *owner, double now);
    void sn_python_attend(void *owner, double now);
    void sn_python_report(void *owner, double now);
    bool sn_python_outgoing(void *owner, uint32_t index, double now);
    bool sn_python_incoming(void *owner, uint32_t index, double now);
    bool sn_python_find_path(void *owner, sn_nic_flow *path, double now);
    bool sn_python_encodes(void *owner, sn_tap_flow *flow, uint32_t tos);
    void sn_python_encoded(void *owner, sn_tap_flow *flow, bool is_limited, double now);
    void sn_python_record(void *owner, uint32_t direction, const uint8_t *header, uint32_t header_length,
                          const uint8_t *payload, uint64_t length, double now);
    void sn_python_exhausted(void *owner);
}
"""
"""The control plane of a turn (nic/turn.h, `sn_control`) in Python: softnic/nic/turn.py and link_turn.py; and what the
NIC of a kernel adds to it (nic/tap_nic.h, `sn_tap_control`): softnic/tapnic/turn.py."""

FLOW = ("tcp/scoreboard.h", "tcp/send_buffer.h", "tcp/reassembly.h", "nic/nic_flow.h", "tcp/flow.h", "nic/port.h")
METHODS = ("tcp/scoreboard.h", "tcp/send_buffer.h", "tcp/flow_steps.h")

_C_ONLY = re.compile(r"/\* C only \*/.*?/\* all \*/", re.DOTALL)


_FIELDS = re.compile(r"/\* FIELDS.*?/\* END OF FIELDS \*/", re.DOTALL)
_STRUCT = re.compile(r"typedef struct(?: sn_\w+)? \{(.*?)\} sn_(\w+);", re.DOTALL)
_FIELD = re.compile(r"^ {4}(\w+) (\w+);", re.MULTILINE)
_ACCESS = {
    "int64_t": "int",
    "double": "float",
    "bool": "bool",
    "sn_maybe_position": "maybe_position",
    "sn_maybe_number": "maybe_number",
}
"""Which pair of views.c reads and writes a field of a C type; fields of other types are not shown."""
_COPIES = """
static PyObject *{part}_copy(PyObject *view, PyObject *other)
{{
    return copy_part(view, other, {part}_type, sizeof(sn_{part}));
}}
static PyObject *{part}_move(PyObject *view, PyObject *memory)
{{
    return move_part(view, memory, offsetof(sn_flow, {part}), sizeof(sn_{part}));
}}
"""
_METHODS = """\
    {{"copy_fields", {part}_copy, METH_O, "Takes the values of all fields from another view."}},
    {{"move_to", {part}_move, METH_O, "Shares the memory of a flow from now on, with the values of this view."}},
"""
"""For parts that own no memory of their own."""
_METHODS_BLOCK = re.compile(r"/\* METHODS.*?/\* END OF METHODS \*/", re.DOTALL)
_PROTOTYPE = re.compile(r"^(\w+) sn_(\w+)\((.*?)\);", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"(?:const )?(\w+) (\*?)(\w+)")
_RESULT = {
    "void": "{call}; return Py_NewRef(Py_None)",
    "bool": "return PyBool_FromLong({call})",
    "int": "return done({call})",
    "int64_t": "return PyLong_FromLongLong({call})",
    "uint32_t": "return PyLong_FromUnsignedLong({call})",
    "double": "return PyFloat_FromDouble({call})",
    "sn_maybe_number": "return maybe_number({call})",
}
"""How the result of a C function becomes that of a method."""
_METHOD = """
static PyObject *call_{name}(PyObject *self, PyObject *const *args, Py_ssize_t count)
{{
    {declarations}
    if (!takes(count, {count}){conversions})
        return NULL;
    {result};
}}
"""
_METHOD_ENTRY = """\
    {{"{method}", (PyCFunction)(void (*)(void))call_{name}, METH_FASTCALL, NULL}},
"""
ALONE = ("ack", "port")
"""Structs that are no part of a flow."""
_PART_NEW = "return view_new(type, kwargs, offsetof(sn_flow, {part}));"
_ALONE_NEW = "return alone_new(type, sizeof(sn_{part}));"
_PART = """
static PyObject *{part}_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{{
    (void)args;
    (void)kwargs;
    {new}
}}
{copies}static PyMethodDef {part}_methods[] = {{
{methods}    {{NULL, NULL, 0, NULL}},
}};
static PyGetSetDef {part}_fields[] = {{
    VIEW_FIELDS
{fields}
    {{NULL, NULL, NULL, NULL, NULL}},
}};
static PyType_Slot {part}_slots[] = {{
    {{Py_tp_new, {part}_new}}, {{Py_tp_dealloc, view_dealloc}}, {{Py_tp_methods, {part}_methods}},
    {{Py_tp_getset, {part}_fields}}, {{0, NULL}},
}};
static PyType_Spec {part}_spec = {{
    "softnic._fields.{name}Fields", sizeof(View), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, {part}_slots,
}};
"""


def declarations() -> str:
    """Return the declarations of the public headers for cffi."""
    texts = [_C_ONLY.sub("", (NATIVE / name).read_text()) for name in PUBLIC]
    return "\n".join(line for text in texts for line in text.splitlines() if not line.startswith("#"))


def write_bindings(path: Path) -> None:
    """Write the C source of the Python module."""
    ffi = FFI()
    ffi.cdef(declarations() + CALLBACKS)
    ffi.set_source("softnic._native", "".join(f'#include "{name}"\n' for name in PUBLIC))
    path.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(path))


def _method(result: str, name: str, parameters: str) -> str:
    """Return the C function of a method, which converts its arguments and calls a function of native/."""
    (first, _, _), *taken = _PARAMETER.findall(parameters)
    values = ["flow_of(self)" if first == "sn_flow" else "(void *)((View *)self)->part"]
    declarations, conversions = ["(void)args;"], []
    for index, (kind, pointer, parameter) in enumerate(taken):
        declarations.append(f"{'void *' if pointer else kind + ' '}{parameter};")
        values.append(parameter)
        which = f"view(args[{index}], {kind.removeprefix('sn_')}_type" if pointer else f"{kind}(args[{index}]"
        conversions.append(f" || !take_{which}, &{parameter})")
    return _METHOD.format(
        name=name,
        declarations="\n    ".join(declarations),
        count=len(taken),
        conversions="".join(conversions),
        result=_RESULT[result].format(call=f"sn_{name}({', '.join(values)})"),
    )


def flow_fields() -> str:
    """Return the C of the classes of softnic._fields, for views.c."""
    blocks = [block for name in FLOW for block in _FIELDS.findall((NATIVE / name).read_text())]
    parts = {part: body for block in blocks for body, part in _STRUCT.findall(block)}
    prototypes = [
        prototype
        for name in METHODS
        for block in _METHODS_BLOCK.findall((NATIVE / name).read_text())
        for prototype in _PROTOTYPE.findall(block)
    ]
    entries = {part: "" for part in parts}
    for _, name, _ in prototypes:
        owner = max((part for part in (*parts, "flow") if name.startswith(f"{part}_")), key=len)
        entry = _METHOD_ENTRY.format(method=name.removeprefix(f"{owner}_"), name=name)
        entries["connection" if owner == "flow" else owner] += entry
    texts = [f"static PyObject *{part}_type;\n" for part in parts] + [_method(*each) for each in prototypes]
    for part, body in parts.items():
        fields = "\n".join(
            f'    {{"{name}", get_{_ACCESS[kind]}, set_{_ACCESS[kind]}, NULL, (void *)offsetof(sn_{part}, {name})}},'
            for kind, name in _FIELD.findall(body)
            if kind in _ACCESS
        )
        name = part.title().replace("_", "")
        owns_memory = re.search(r" \*\w+;", body) is not None
        alone = part in ALONE
        new = (_ALONE_NEW if alone else _PART_NEW).format(part=part)
        copies, methods = ("", "") if owns_memory or alone else (_COPIES.format(part=part), _METHODS.format(part=part))
        methods += entries[part]
        texts.append(_PART.format(part=part, name=name, new=new, fields=fields, copies=copies, methods=methods))
    table = "\n".join(f"    {{&{part}_spec, &{part}_type}}," for part in parts)
    return "".join(texts) + f"\nstatic const part_type parts[] = {{\n{table}\n}};\n"


def _write_if_changed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _is_current(made: Path, command: str) -> bool:
    """Return whether an object file was made by this command of the sources as they are now.

    Beside an object file are its command and the list of its headers, which the compiler wrote (-MMD).
    """
    headers, by = made.with_suffix(".d"), made.with_suffix(".command")
    if not (made.exists() and headers.exists() and by.exists() and by.read_text() == command):
        return False
    sources = map(Path, headers.read_text().replace("\\\n", " ").partition(":")[2].split())
    return all(source.exists() and source.stat().st_mtime <= made.stat().st_mtime for source in sources)


class BuildNative(build_ext):
    """A build_ext that writes the bindings of softnic._native, and softnic._fields's tables, before it compiles.

    It compiles on all cores, and what has changed only: editable installs, too, keep their object files in build/. What
    it makes has no debugging symbols unless CFLAGS has -g, and no path of the machine it was built on.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        headers = [str(path) for path in sorted(Path("native").rglob("*.h"))]
        for extension in self.extensions:
            folders = [Path("native", name) for name in FOLDERS[extension.name]]
            extension.sources = [str(path) for folder in folders for path in sorted(folder.glob("*.c"))]
            extension.depends = ["native/build_native.py", *headers]
            extension.include_dirs = ["native"]
        if self.editable_mode:  # setuptools would use a new temporary directory each time
            self.build_temp = str(Path("build", f"temp.{get_platform()}-{sys.implementation.cache_tag}"))

    def build_extensions(self) -> None:
        compiler: Any = self.compiler
        linker = [each for each in compiler.linker_so if not each.startswith("-Wl,-rpath")]
        wants_symbols = "-g" in os.environ.get("CFLAGS", "").split()
        compiler.linker_so = linker if wants_symbols else [*linker, "-Wl,-s"]
        compiler.compile = self._compile_changed
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        whole, self.build_temp = self.build_temp, str(Path(self.build_temp, ext.name))  # flags differ: objects do, too
        try:
            generated = Path(self.build_temp)
            if ext.name == "softnic._native":
                write_bindings(generated / "_native.c")
                _write_if_changed(generated / "flow_fields.h", flow_fields())
                ext.sources = [*ext.sources, str(generated / "_native.c")]
                ext.include_dirs = [*ext.include_dirs, str(generated)]
            super().build_extension(ext)
        finally:
            self.build_temp = whole

    def _compile_changed(
        self, sources: Sequence[str], output_dir: str, extra_postargs: Sequence[str] | None = None, **options: Any
    ) -> list[str]:
        """Do as the compile of the compiler's class, which compiles everything, one after the other."""
        compiler: Any = self.compiler
        _, objects, extra, defined, build = compiler._setup_compile(
            output_dir, options["macros"], options["include_dirs"], sources, options["depends"], extra_postargs
        )
        arguments = compiler._get_cc_args(defined, options["debug"], None)
        compile_one: Callable[..., None] = compiler._compile

        def compile_if_changed(made: str) -> None:
            source, ending = build[made]
            command = json.dumps([*compiler.compiler_so, *arguments, source, *extra])
            if not _is_current(Path(made), command):
                compile_one(made, source, ending, ["-MMD", *arguments], extra, defined)
                Path(made).with_suffix(".command").write_text(command)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            list(workers.map(compile_if_changed, objects))
        return list(objects)
