"""`pwmlff build`: compile the plugin against a LAMMPS of the user's own.

What the compiler needs to know of that LAMMPS, its version, integer sizes and MPI, is found where
it can be found, and said. The plugin ends up in DIR/lib; torch is that of this Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text
from typer import Option

from pwmlff.launch import program as lmp
from pwmlff.launch.script import quoted
from pwmlff.plugin import FILE, commit, full_version, library
from pwmlff.report import Failure, Report, console, facts

CUDA = ("auto", "on", "off")
CMAKE = (3, 26)  # cmake_minimum_required of the sources
TRUE = ("ON", "YES", "TRUE", "Y", "1")  # for CMake
TAIL = 25  # lines of a failed command that are shown
TIMEOUT = 60  # seconds for lmp to answer


@dataclass(frozen=True)
class BuildReport(Report):
    """What was compiled."""

    built_for: dict[str, str]  # what build.json says
    sizes_from: str
    plugin: str = ""  # empty where only configured
    checked: str = ""  # the lmp that loaded it, or why none did

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "line": self._line() if self.plugin else ""}

    def show(self) -> RenderableType:
        """What it was compiled for, and the line to paste."""
        built = self.built_for
        rows = {
            "LAMMPS": full_version(built["lammps"], built["update"]),
            "integer sizes": f"{built['sizes']} ({self.sizes_from})",
            "MPI": f"{built['mpi']} {built['mpi_version']}".strip() or "unknown",
            "KOKKOS": f"on {built['kokkos']}" if built["kokkos"] else "",
            "torch": built["torch"],
            "CUDA": built["cuda"] or f"no GPU kernels: {built['no_cuda']}",
            "architectures": built["cuda_architectures"],
            "compiler": built["compiler"],
            "checked": self.checked,
        }
        table = facts({name: text for name, text in rows.items() if text})
        if not self.plugin:
            return Group(table, Text("configured, not compiled"))
        line = Text(self._line())
        return Group(table, Text("before the first pair_style in the input:"), line)

    def _line(self) -> str:
        return f"plugin load {quoted(self.plugin)}"


def build(
    lammps: Annotated[Path, Option(help="Source tree or installation of LAMMPS.")],
    mpi: Annotated[str | None, Option(help="The mpicxx that LAMMPS was built with.")] = None,
    cuda: Annotated[str, Option(help="GPU kernels: auto (where nvcc is), on, off.")] = "auto",
    arch: Annotated[str | None, Option(help="GPU architectures, like '80;90'.")] = None,
    sizes: Annotated[
        str | None, Option(help="Integer sizes of that LAMMPS, where it does not tell.")
    ] = None,
    output: Annotated[Path, Option("-o", "--output", help="Folder for the plugin.")] = Path(
        "pwmlff-plugin"
    ),
    jobs: Annotated[
        int | None, Option("-j", "--jobs", min=1, help="Files to compile at a time.")
    ] = None,
    configure_only: Annotated[
        bool, Option("--configure-only", help="Say what it would compile for.")
    ] = False,
) -> BuildReport:
    """Compile the plugin against a LAMMPS of your own.

    Needs CMake and ninja or make: pip install 'pair-pwmlff[build]' brings the first two.

    Example: pwmlff build --lammps ~/lammps --mpi /usr/bin/mpicxx -o ~/pwmlff-plugin
    """
    if cuda not in CUDA:
        raise Failure(f"--cuda is '{cuda}', expected one of {', '.join(CUDA)}")
    root = lammps.resolve()
    if not any((root / place / "pair.h").is_file() for place in ("src", "include/lammps")):
        raise Failure(
            f"'{lammps}' has neither src/pair.h nor include/lammps/pair.h; give the source "
            "tree or the installation of LAMMPS"
        )
    cmake = new_enough_cmake()
    sizes_from = "as asked"
    if sizes is None:
        sizes, sizes_from = integer_sizes(root)
    elif sizes not in lmp.INTEGER_SIZES:
        raise Failure(f"--sizes is '{sizes}', expected one of {', '.join(lmp.INTEGER_SIZES)}")
    if proof := without_plugins(root):
        raise Failure(
            f"this LAMMPS has no package PLUGIN, without which it loads none (so {proof}); compile "
            "it again with cmake -D PKG_PLUGIN=yes, or make yes-plugin"
        )
    folder, tree = output.resolve(), output.resolve() / "build"
    path = f"{Path(cmake).parent}:{os.environ['PATH']}"
    command = [
        cmake, "-S", str(sources()), "-B", str(tree), "-DCMAKE_BUILD_TYPE=Release",
        f"-DPWMLFF_LAMMPS={root}", f"-DPWMLFF_LAMMPS_SIZES={sizes}",
        f"-DPWMLFF_CUDA={cuda.upper()}", f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_INSTALL_LIBDIR=lib",
    ]  # fmt: skip
    if shutil.which("ninja", path=path):
        command += ["-G", "Ninja"]
    if mpi:
        mpicxx = shutil.which(mpi)
        if mpicxx is None:
            raise Failure(f"found no '{mpi}'; give the mpicxx that LAMMPS was built with")
        command.append(f"-DMPI_CXX_COMPILER={mpicxx}")
    if not (sources() / ".git").exists():
        command.append(f"-DPWMLFF_COMMIT={commit(library())}")
    if arch:
        command.append(f"-DPWMLFF_CUDA_ARCHITECTURES={arch}")
    _watch(command, path, "configuring")
    built_for = json.loads((tree / "pair_pwmlff" / "build.json").read_text())
    if configure_only:
        return BuildReport(built_for, sizes_from)
    parallel = [] if jobs is None else ["-j", str(jobs)]
    _watch([cmake, "--build", str(tree), *parallel], path, "compiling", percentage)
    _watch([cmake, "--install", str(tree), "--prefix", str(folder)], path, "installing")
    plugin = folder / "lib" / FILE
    return BuildReport(built_for, sizes_from, str(plugin), check(root, plugin))


def new_enough_cmake() -> str:
    """CMake beside this Python, else the first of the PATH that the sources accept.

    Raises:
        Failure: there is none, or all are too old.
    """
    too_old = []
    for folder in (str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)):
        if program := shutil.which("cmake", path=folder):
            words = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=False
            )
            version = re.search(r"cmake version (\d+)\.(\d+)\S*", words.stdout)
            if version and (int(version[1]), int(version[2])) >= CMAKE:
                return program
            too_old.append(f"{program} ({version[0] if version else 'which does not run'})")
    raise Failure(
        f"found {' and '.join(dict.fromkeys(too_old)) or 'no cmake'}; the sources need "
        f"{'.'.join(map(str, CMAKE))} or newer: pip install 'pair-pwmlff[build]'"
    )


def sources() -> Path:
    """Folder with the C++ sources: in the installed package, or the source tree.

    Raises:
        Failure: it is neither here nor there.
    """
    here = Path(__file__).parents[1]
    for folder in (here / "source", here.parents[1]):
        if (folder / "pair_pwmlff" / "pwmlffplugin.cpp").is_file():
            return folder
    raise Failure(f"found no C++ sources in {here / 'source'}: reinstall pair-pwmlff")


def programs(root: Path) -> list[Path]:
    """Executables of that LAMMPS."""
    candidates = [root / "lmp"]
    for pattern in ("bin/lmp*", "build*/lmp*", "src/lmp_*"):
        candidates += sorted(root.glob(pattern))
    return [p for p in candidates if p.is_file() and os.access(p, os.X_OK)]


def environment_of(program: Path) -> dict[str, str]:
    """What a program needs to find its MPI: the lmp of the lammps package says where that is."""
    result = dict(os.environ)
    package = lmp.find()
    if Path(package.path).resolve() == program.resolve():
        result |= package.environment
    result.pop(lmp.PLUGIN_VARIABLE, None)  # only the plugin that is asked for
    return result


def say(program: Path, arguments: list[str], text: str = "") -> str:
    """What a program says, empty where it does not run."""
    try:
        process = subprocess.run(
            [program, *arguments], env=environment_of(program), input=text, capture_output=True,
            text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout + process.stderr


def cached(root: Path, variable: str) -> Iterator[tuple[Path, str]]:
    """What CMake keeps of a variable, in each folder where a source tree was compiled."""
    for cache in sorted(root.glob("build*/CMakeCache.txt")):
        if match := re.search(rf"^{variable}:\w+=(\w+)", cache.read_text(), re.MULTILINE):
            yield cache, match[1]


def integer_sizes(root: Path) -> tuple[str, str]:
    """Integer sizes of a LAMMPS, and what told them."""
    for cache, value in cached(root, "LAMMPS_SIZES"):
        return value.upper(), f"from {cache}"
    for pc in pkgconfig_files(root):
        if sizes := lmp.integer_sizes(pc.read_text()):
            return sizes, f"from {pc}"
    for program in programs(root):
        if sizes := lmp.integer_sizes(say(program, ["-h"])):
            return sizes, f"from {program} -h"
    return "SMALLBIG", "assumed; --sizes says otherwise"


def pkgconfig_files(root: Path) -> list[Path]:
    """liblammps.pc of an installation or of the folders in which a source tree was compiled."""
    places = ("pkgconfig", "lib*/pkgconfig", "lib*/*/pkgconfig", "build*", "build*/lib*/pkgconfig")
    return sorted({file for place in places for file in root.glob(f"{place}/liblammps.pc")})


def without_plugins(root: Path) -> str:
    """What says that this LAMMPS has no package PLUGIN; empty where it has, or nothing tells."""
    answers = {
        f"PKG_PLUGIN={value} in {cache}": value.upper() in TRUE
        for cache, value in cached(root, "PKG_PLUGIN")
    }
    listed = re.compile(r"^Installed packages:\s*\n(.*?)\n\s*\n\S", re.MULTILINE | re.DOTALL)
    for program in programs(root):
        if match := listed.search(say(program, ["-h"])):
            answers[f"the packages of {program} -h"] = "PLUGIN" in match[1].split()
    source = root / "src"
    if not answers and (source / "Makefile.package").is_file():  # make yes-plugin copies it there
        place = f"{source}, where 'make yes-plugin' leaves plugin.cpp"
        answers[place] = (source / "plugin.cpp").is_file()
    return "" if not answers or any(answers.values()) else ", ".join(answers)


def check(root: Path, plugin: Path) -> str:
    """Let an lmp of that LAMMPS load the plugin.

    Raises:
        Failure: it does not.
    """
    for program in programs(root):
        if "Large-scale" not in say(program, ["-h"]):
            continue  # it does not run here
        name = quoted(str(plugin))
        commands = f"plugin load {name}\n{lmp.OPEN_STYLE.format(file=name)}"
        said = say(program, ["-log", "none"], commands)
        if lmp.STYLE_OPENS in said:
            return f"{program} loads it"
        raise Failure(f"{program} does not load {plugin}:\n{_tail(said)}")
    return "not loaded: found no lmp there that runs on this machine"


def percentage(line: str) -> float | None:
    """Share of the work that is done, from a line of ninja or of make."""
    match = re.match(r"\[ *(\d+)(?:%|/(\d+))\]", line)
    return 100 * int(match[1]) / int(match[2] or 100) if match else None


def file_of(line: str) -> str:
    """Source file or library in a line of ninja or of make."""
    what = r"Building \w+ object|Linking \w+ (?:shared|static) (?:library|module)"
    match = re.match(rf"\[.*?\] (?:{what}) (\S+)", line)
    return Path(match[1]).name.removesuffix(".o") if match else ""


def _watch(
    command: list[str], path: str, title: str, share: Callable[[str], float | None] | None = None
) -> None:
    """Run a command, and say how far it is: a bar on a terminal, else a line for each file."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"),
        TimeElapsedColumn(), TextColumn("{task.fields[file]}", markup=False), console=screen,
        transient=True, disable=not screen.is_terminal,
    )  # fmt: skip
    if not screen.is_terminal:
        screen.print(title)
    lines: list[str] = []
    with bar, subprocess.Popen(
        command, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        task = bar.add_task(title, total=100 if share else None, file="")
        for line in process.stdout or ():
            lines.append(line)
            if share and (done := share(line)) is not None:
                bar.update(task, completed=done, file=file_of(line))
                if not screen.is_terminal and file_of(line):
                    screen.print(f"{done:3.0f} % {file_of(line)}")
    if process.returncode != 0:
        raise Failure(f"{title} failed: {' '.join(command)}\n{_tail(''.join(lines))}")


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL:])
