"""Code for AVX2 and AVX-512 stays out of what all processors run.

A function template or an inline function that two files use has one name, and the linker keeps one
copy for both. Where that is the copy of the file compiled for AVX-512, other processors stop with
SIGILL in code that has nothing to do with the engine.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pwmlff import plugin

ROOT = Path(__file__).resolve().parents[2]
BUILD_VARIABLE = "PWMLFF_BUILD_FOLDER"
LIBRARIES = ("kernels", "archive", "optimizer", "placement")

# Namespaces of the backends, and what GCC and Clang add to the names of target_clones.
TAGS = {
    "baseline": re.compile(r"8baseline"),
    "avx2": re.compile(r"4avx2|\.avx2"),
    "avx512": re.compile(r"6avx512|\.avx512f"),
}
# In AT&T syntax all of AVX, FMA and AVX-512 begins with v or with k; the rest of x86-64-v3 by name.
# (tzcnt is left out: older processors run it as bsf, which is how GCC means it.)
VECTOR = re.compile(
    r"\tv[a-z]|\tk(add|and|mov|not|or|shift|test|unpck|xn?or)"
    r"|\t(andn|bextr|blsi|blsmsk|blsr|bzhi|lzcnt|movbe|mulx|pdep|pext|rorx|sarx|shlx|shrx)\b"
)
WIDE = re.compile(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])")
FORBIDDEN = {"": VECTOR, "baseline": VECTOR, "avx2": WIDE}

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="one instruction set on this processor"
)


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def instruction_set(symbol: str) -> str:
    """That a function is compiled for, by its name; empty for all."""
    if symbol.startswith("_GLOBAL__"):  # runs when the library is opened
        return ""
    return next((name for name, tag in TAGS.items() if tag.search(symbol)), "")


def instructions(library: Path) -> Iterator[tuple[str, str]]:
    """Function and text of each instruction."""
    function = ""
    for line in output("objdump", "-d", "--no-show-raw-insn", library).splitlines():
        if line.endswith(">:"):
            function = line[line.index("<") + 1 : -2]
        elif ":\t" in line:
            yield function, line[line.index(":\t") + 1 :]


def leaks(library: Path) -> dict[str, str]:
    """Functions with an instruction that not all of their processors have: the first such one."""
    found: dict[str, str] = {}
    for function, text in instructions(library):
        forbidden = FORBIDDEN.get(instruction_set(function))
        if forbidden and forbidden.search(text):
            found.setdefault(function, text.strip())
    return found


def shared_functions(folder: Path) -> list[str]:
    """Functions of object files that others could link to, but that are named for no processor."""
    lines = output("nm", "--defined-only", *folder.rglob("*.o")).splitlines()
    symbols = [line.split()[1:] for line in lines if len(line.split()) == 3]
    return [name for kind, name in symbols if kind in "TWui" and not instruction_set(name)]


def text_of(library: Path, scratch: Path) -> bytes:
    target = scratch / "text"
    output("objcopy", "-O", "binary", "--only-section=.text", library, target)
    return target.read_bytes()


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    """Where the installed libraries were compiled: there they still name all functions."""
    scratch = tmp_path_factory.mktemp("text")
    installed = Path(plugin.sister(plugin.library() or "", "pwmlff_kernels"))
    named = os.environ.get(BUILD_VARIABLE)
    folders = [Path(named)] if named else sorted((ROOT / "build").glob("*"))
    for folder in folders:
        library = folder / "lib" / installed.name
        if library.is_file() and text_of(library, scratch) == text_of(installed, scratch):
            return folder
    looked = ", ".join(map(str, folders)) or ROOT / "build"
    pytest.skip(
        f"{installed} was not compiled in {looked}: install this tree by pip, or set "
        f"{BUILD_VARIABLE} to the folder of the build"
    )


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_all_processors_run(build: Path, name: str):
    (library,) = build.glob(f"lib/libpwmlff_{name}-*.so")
    assert leaks(library) == {}


def test_the_engine_is_there_for_each(build: Path):
    """Else nothing above has been looked at."""
    longest: dict[str, int] = defaultdict(int)
    (library,) = build.glob("lib/libpwmlff_kernels-*.so")
    for function, text in instructions(library):
        for width, register in enumerate(("%xmm", "%ymm", "%zmm")):
            if register in text:
                name = instruction_set(function)
                longest[name] = max(longest[name], width)
    assert dict(longest) == {"": 0, "baseline": 0, "avx2": 1, "avx512": 2}


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_names_of_the_programs(build: Path, name: str):
    folder = build / "kernels/CMakeFiles" / f"pwmlff_{name}.dir"
    assert list(folder.rglob("*.o"))
    assert shared_functions(folder) == []


def test_a_leak_is_found(tmp_path: Path):
    """A template that a file for all processors and one for AVX-512 share."""
    (tmp_path / "sum.h").write_text(
        "template <class T> __attribute__((noinline)) T sum(const T *x) {\n"
        "  T s = 0; for (int i = 0; i < 64; ++i) s += x[i] * x[i]; return s; }\n"
    )
    sources = {
        "avx512": "double run(const double *x) { return sum(x); }",
        "plain": "double run(const double *x) { return sum(x) + 1; }",
    }
    objects = []
    for name, body in sources.items():
        source, folder = tmp_path / f"{name}.cpp", tmp_path / name
        folder.mkdir()
        source.write_text(f'#include "sum.h"\nnamespace {name} {{ {body} }}\n')
        objects.append(folder / "a.o")
        flags = ["-mavx512f"] if name == "avx512" else []
        output("c++", "-O2", "-fPIC", *flags, "-c", source, "-o", objects[-1])
    library = tmp_path / "library.so"
    output("c++", "-shared", *objects, "-o", library)
    assert shared_functions(tmp_path / "avx512") == ["_Z3sumIdET_PKS0_"]
    assert list(leaks(library)) == ["_Z3sumIdET_PKS0_"]
    output("c++", "-shared", *reversed(objects), "-o", library)
    assert leaks(library) == {}
