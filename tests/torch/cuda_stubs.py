"""Lets a CUDA build of torch run on a CPU without NVIDIA's libraries, which take gigabytes that no test needs.

    python cuda_stubs.py [FOLDER]     # of torch's libraries; without it, those of the torch that this Python has

Each library that torch is linked with and that is absent becomes a small one beside torch's own: its functions return
cudaErrorNoDevice, so torch finds no GPU. Needs a C compiler, and readelf and nm of binutils.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

_NVIDIA = re.compile(r"^lib(cu|nv|nccl)")
_CUDA = re.compile(r"_*(cu|nv|nccl)")
_NO_DEVICE = 100
"""cudaErrorNoDevice. Most functions of the other libraries return such a status, too."""


def torch_libraries() -> Path:
    """Return the folder of the installed torch's libraries, without importing torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("torch is not installed")
    return Path(spec.origin).parent / "lib"


def _printed(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> list[str]:
    """Return the names of the libraries that one is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _printed("readelf", "-d", library))


def versions_needed(library: Path) -> dict[str, str]:
    """Return which library a library takes the symbols of a version from."""
    found, file = {}, ""
    for line in _printed("readelf", "-V", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif file and (match := re.search(r"Name: (\S+)\s+Flags", line)):
            found[match[1]] = file
    return found


def undefined(library: Path) -> list[tuple[str, str]]:
    """Return the symbols that a library takes from others, each with its version, which may be empty."""
    lines = _printed("nm", "-D", "--undefined-only", "--with-symbol-versions", library).splitlines()
    symbols = (line.split()[-1].partition("@") for line in lines if " U " in line)  # weak ones may be absent
    return [(name, version.lstrip("@")) for name, _, version in symbols]


def _definition(symbol: str) -> str:
    if re.search(r"Get(Last)?Error(String|Name)|GetStatusString", symbol, re.IGNORECASE):
        return f'const char *{symbol}(void) {{ return "there is no NVIDIA library"; }}'
    return f"long {symbol}(void) {{ return {0 if symbol.startswith('__') else _NO_DEVICE}; }}"


def make_stub(name: str, symbols: dict[str, set[str]], folder: Path) -> None:
    """Compile a library with this name that defines symbols, given by their version."""
    with TemporaryDirectory() as temporary:
        source, versions = Path(temporary, "stub.c"), Path(temporary, "versions")
        every = sorted(set().union(*symbols.values()))
        source.write_text("\n".join(map(_definition, every)) + "\n")
        named = sorted(version for version in symbols if version)
        versions.write_text("\n".join(f"{each} {{ {'; '.join(sorted(symbols[each]))}; }};" for each in named) + "\n")
        script = [f"-Wl,--version-script={versions}"] if named else []
        command = [
            "cc",
            "-shared",
            "-fPIC",
            "-w",
            f"-Wl,-soname,{name}",
            *script,
            "-o",
            str(folder / name),
            str(source),
        ]
        subprocess.run(command, check=True)


def make_stubs(folder: Path) -> list[str]:
    """Make what torch's libraries lack; return the names."""
    libraries = sorted(folder.glob("*.so*"))
    wanted = {name for library in libraries for name in needed(library) if _NVIDIA.match(name)}
    missing = sorted(wanted - {library.name for library in libraries})
    defined: set[str] = set()
    for library in libraries:
        defined |= {
            line.split()[-1].partition("@")[0] for line in _printed("nm", "-D", "--defined-only", library).splitlines()
        }
    by_library: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in missing}
    for library in libraries:
        linked = [name for name in needed(library) if name in by_library]
        owners = versions_needed(library)
        for symbol, version in undefined(library):
            if owners.get(version) in by_library:
                by_library[owners[version]][version].add(symbol)
            elif not version and linked and _CUDA.match(symbol) and symbol not in defined:
                by_library[linked[0]][""].add(symbol)
    for name in missing:
        make_stub(name, by_library[name], folder)
    return missing


if __name__ == "__main__":
    made = make_stubs(Path(sys.argv[1]) if len(sys.argv) > 1 else torch_libraries())
    print(f"stubs of {len(made)} libraries: {' '.join(made)}")
