"""Builds native/ into softnic._native with cffi in API mode, and softnic._flow, driven by pyproject.toml.

The headers named in PUBLIC are both the C interface and cffi's declarations, so the two cannot disagree. They contain
plain declarations only; text between `/* C only */` and `/* all */` is for the compiler and removed for cffi.

softnic._flow shows the fields of flow.h as attributes; its tables are written from the structs between `/* FIELDS` and
`/* END OF FIELDS */` of the headers named in FLOW. Functions between `/* METHODS` and `/* END OF METHODS */` become
methods of the classes: a call takes half of the time of one through cffi.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI
from setuptools import Extension
from setuptools.command.build_ext import build_ext

NATIVE = Path(__file__).resolve().parent
PUBLIC = (
    *("codecs.h", "reduce.h", "combine.h", "parallel.h", "feedback.h"),
    *("frames.h", "packets.h", "tap.h", "batch_io.h", "emulated_link.h"),
    *("aead.h", "epoll.h", "stall_watchdog.h"),
    *("scoreboard.h", "send_buffer.h", "fast_path.h", "port.h", "flow_totals.h", "engine.h", "turn.h"),
)

FLOW = ("scoreboard.h", "send_buffer.h", "flow.h", "port.h")
METHODS = ("scoreboard.h", "send_buffer.h", "flow_steps.h")

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
    "softnic._flow.{name}Fields", sizeof(View), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, {part}_slots,
}};
"""


def declarations() -> str:
    """Return the declarations of the public headers for cffi."""
    texts = [_C_ONLY.sub("", (NATIVE / name).read_text()) for name in PUBLIC]
    return "\n".join(line for text in texts for line in text.splitlines() if not line.startswith("#"))


def write_bindings(path: Path) -> None:
    """Write the C source of the Python module."""
    ffi = FFI()
    ffi.cdef(declarations())
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
    """Return the C of the classes of softnic._flow, for views.c."""
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


class BuildNative(build_ext):
    """A build_ext that writes the bindings of softnic._native, and the fields of softnic._flow, before it compiles."""

    def build_extension(self, ext: Extension) -> None:
        if ext.name == "softnic._flow":
            temporary = Path(self.build_temp)
            temporary.mkdir(parents=True, exist_ok=True)
            (temporary / "flow_fields.h").write_text(flow_fields())
            ext.include_dirs = [*ext.include_dirs, str(NATIVE), str(temporary)]
        if ext.name == "softnic._native":
            generated = Path(self.build_temp) / "_native.c"
            write_bindings(generated)
            ext.sources = [*ext.sources, str(generated)]
            ext.include_dirs = [*ext.include_dirs, str(NATIVE)]
        super().build_extension(ext)
