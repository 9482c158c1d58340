"""`pwmlff doctor`: does what is installed fit together?

Each check looks at one thing on this machine and says what it found and, where that is not well,
what to do. What the plugin was compiled for is in build.json beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from typer import Option

from pwmlff import devices, plugin
from pwmlff.commands.base import Lmp, Mpirun, Plugin
from pwmlff.launch import interpreter, program, rank_survey
from pwmlff.launch import mpirun as launcher
from pwmlff.report import Failure, Report
from pwmlff.threads import available, openmp_threads

TIMEOUT = 60  # seconds for one program to answer
OK, WARNING, ERROR = "ok", "warning", "error"
COLORS = {OK: "green", WARNING: "yellow", ERROR: "bold red"}
FAMILIES = {"hydra": "MPICH", "openmpi": "Open MPI"}
GIB = 2**30
DRIVER = Path("/proc/driver/nvidia")  # what the kernel module tells
#: Where LAMMPS and the plugin do not fit.
BUILD_FOR_IT = (
    "compile the plugin for this LAMMPS: pip install --no-build-isolation beside its Python "
    "package, or pwmlff build --lammps DIR --mpi MPICXX and --plugin; or use the lmp that it was "
    "compiled for"
)
#: Shared libraries of which a wrong one would be taken without a word.
SENSITIVE = ("libtorch", "libc10", "libmpi", "liblammps", "libpwmlff", "libpair_pwmlff")


@dataclass(frozen=True)
class Check:
    """What one check found."""

    status: str
    found: str
    remedy: str = ""
    name: str = ""  # in CHECKS

    @property
    def text(self) -> str:
        """The same in one line."""
        return f"{self.name}: {self.found}; {self.remedy}"


@dataclass(frozen=True)
class DoctorReport(Report):
    """What `pwmlff doctor` found."""

    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings are not all well either."""
        return all(check.status == OK for check in self.checks)

    def show(self) -> RenderableType:
        """One row for each check."""
        names = ("check", "", "found", "remedy")
        table = Table(*(Column(name, overflow="fold") for name in names))
        for check in self.checks:
            status = Text(check.status, COLORS[check.status])
            table.add_row(check.name, status, check.found, check.remedy)
        wrong = [check.name for check in self.checks if check.status != OK]
        return Group(table, Text("all is well" if not wrong else f"look at: {', '.join(wrong)}"))


@dataclass
class Machine:
    """What is installed here; each fact is found once."""

    lmp_path: str | None = None
    mpirun_path: str | None = None
    ranks: int = 1
    plugin_path: Path | None = None  # that lmp has to load
    loaded_by_input: Path | None = None  # where lmp loads none by itself

    @cached_property
    def plugin(self) -> str:
        """The plugin that lmp loads; the installed one where it loads none."""
        if self.plugin_path is None and self.program.plugin is None and self.loaded_by_input:
            return plugin.chosen(self.loaded_by_input)
        path = self.program.plugin or plugin.library()
        if path is None:
            raise Failure("found no compiled plugin")
        return path

    @cached_property
    def build(self) -> dict[str, str]:
        """What the plugin was compiled for."""
        try:
            return plugin.facts(self.plugin)
        except ValueError as error:
            raise Failure(str(error)) from error

    @property
    def remake(self) -> str:
        """How the plugin that lmp loads is made anew."""
        with suppress(Failure, ValueError):
            if self.plugin != plugin.library():
                folder = Path(self.plugin).parent
                output = folder.parent if folder.name == "lib" else folder
                return f"pwmlff build --lammps DIR -o {output}"
        return "pip install --force-reinstall pair-pwmlff"

    @cached_property
    def program(self) -> program.Program:
        """The lmp that is started."""
        return program.find(self.lmp_path, self.plugin_path)

    @cached_property
    def lammps(self) -> str:
        """LAMMPS's version, like 22 Jul 2025 - Update 4."""
        match = re.search(r"- (\d+ \w+ \d+(?: - \S.*)?)$", self.lmp_help, re.MULTILINE)
        return match[1].strip() if match else "unknown"

    @cached_property
    def lmp_help(self) -> str:
        """What `lmp -h` says: version, integer sizes, MPI."""
        process = _run([self.program.path, "-h"], {**os.environ, **self.program.environment})
        if process.returncode != 0 or "LAMMPS" not in process.stdout.upper():
            lines = (process.stderr or process.stdout).strip().splitlines() or ["nothing"]
            raise Failure(f"'{self.program.path} -h' says {lines[-1]}")
        return process.stdout

    @cached_property
    def lmp_mpi(self) -> str:
        """Family of the MPI that lmp runs with."""
        match = re.search(r"^MPI v.*$", self.lmp_help, re.MULTILINE)
        return family_of(match[0] if match else "")


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"'{command[0]}' does not run: {error}") from error


def family_of(text: str) -> str:
    """Family of the MPI that describes itself so."""
    for name, words in (
        ("Open MPI", ("Open MPI",)),
        ("MPICH", ("MPICH", "Intel", "MVAPICH")),
        ("none", ("STUBS",)),
    ):
        if any(word in text for word in words):
            return name
    return text.strip() or "unknown"


def check_lmp(machine: Machine) -> Check:
    """Is there an lmp, and which?"""
    own, first = Path(sys.executable).with_name("lmp"), shutil.which("lmp")
    if machine.lmp_path is None and own.is_file() and first and Path(first) != own:
        remedy = "activate the environment of this Python, or call lmp by its path"
        return Check(WARNING, f"{first} comes first on PATH, not {own}", remedy)
    return Check(OK, f"{machine.program.path}, {machine.lammps}")


def check_version(machine: Machine) -> Check:
    """LAMMPS's version against the plugin's."""
    expected = plugin.full_version(machine.build["lammps"], machine.build["update"])
    return _same(machine.lammps, expected, ", and the classes change with every update")


def check_sizes(machine: Machine) -> Check:
    """LAMMPS's integer sizes against the plugin's."""
    sizes = program.integer_sizes(machine.lmp_help) or "unknown"
    return _same(sizes, machine.build["sizes"], ": it would read wrong numbers")


def check_mpi_of_lmp(machine: Machine) -> Check:
    """MPI family of LAMMPS against the plugin's; no difference where that is not known."""
    return _same(machine.lmp_mpi, machine.build["mpi"] or machine.lmp_mpi)


def check_mpi(machine: Machine) -> Check:
    """One MPI family for lmp, mpirun, mpi4py and the plugin."""
    families = {"lmp": machine.lmp_mpi, "plugin": machine.build["mpi"]}
    families["mpirun"] = FAMILIES[launcher.find(machine.mpirun_path).family]
    probe = interpreter.command("from mpi4py import MPI; print(MPI.Get_library_version())")
    library = None
    if families["mpirun"] == "Open MPI":  # as ranks that it starts are led to it
        library = _run(probe, dict([rank_survey.OPEN_MPI_ABI]) | os.environ)
    if library is None or library.returncode != 0:
        library = _run(probe)
    if library.returncode != 0:
        found = f"mpi4py does not start: {library.stderr.strip().splitlines()[-1]}"
        return Check(ERROR, found, "pip install --force-reinstall mpi4py into this environment")
    families["mpi4py"] = family_of(library.stdout)
    known = {key: value for key, value in families.items() if value}
    text = ", ".join(f"{key} {value}" for key, value in known.items())
    if len(set(known.values())) == 1:
        return Check(OK, text)
    remedy = (
        f"use {machine.lmp_mpi} for all, as lmp does: its mpirun (--mpirun), mpi4py built with its "
        "mpicc, and pwmlff build --mpi with its mpicxx"
    )
    return Check(ERROR, text, remedy)


def check_torch(machine: Machine) -> Check:
    """The torch release that the plugin would open."""
    expected = machine.build["torch"]
    folder = os.environ.get(plugin.TORCH_LIB_VARIABLE) or plugin.torch_lib()
    if folder is None or not Path(folder, "libtorch_cpu.so").is_file():
        where = folder or "this environment"
        remedy = f"pip install torch=={expected}, or correct {plugin.TORCH_LIB_VARIABLE}"
        return Check(ERROR, f"no libtorch_cpu.so in {where}", remedy)
    # The Python package and the C++ distribution.
    files = [Path(folder).parent / word for word in ("version.py", "build-version")]
    text = "".join(file.read_text() for file in files if file.is_file())
    version = re.search(r"(?:__version__.*?'|^)([\d.]+)", text)
    cuda = re.search(r"^cuda.*?= *'([\d.]+)'", text, re.MULTILINE)
    actual = version[1] if version else "unknown"
    detail = f"{actual}, {'CUDA ' + cuda[1] if cuda else 'CPU only'}, in {folder}"
    if actual != expected:
        remedy = f"pip install torch=={expected}, or reinstall pair-pwmlff against torch {actual}"
        return Check(ERROR, detail, remedy)
    compiled = machine.build["cuda"]
    if cuda and compiled and cuda[1].split(".")[0] != compiled.split(".")[0]:
        remedy = "take a torch of that CUDA, or compile the plugin with the other (pwmlff build)"
        return Check(WARNING, f"{detail}; the plugin has kernels of CUDA {compiled}", remedy)
    if devices.inventory().gpus and compiled and not cuda:
        remedy = f"pip install torch=={expected} from an index with CUDA builds, for TorchScript"
        return Check(WARNING, f"{detail}, but there is a GPU", remedy)
    return Check(OK, detail)


def check_driver(machine: Machine) -> Check:
    """The NVIDIA driver against the CUDA of the kernels."""
    inventory = devices.inventory()
    if inventory.runtime is None:
        if not (gpus := nvidia_gpus()):
            return Check(OK, f"not needed: {inventory.reason}")
        found = f"there is a GPU ({', '.join(gpus)}), but {inventory.reason}"
        remedy = "compile the plugin with CUDA 12 or newer (pip or pwmlff build --cuda on)"
        return Check(WARNING, found, f"{remedy}, or use the CPU only")
    if inventory.driver is None:
        if DRIVER.exists() or shutil.which("nvidia-smi"):
            return Check(ERROR, inventory.reason, "install a driver that fits, or restart it")
        return Check(OK, f"{inventory.reason}: runs on the CPU")
    driver, runtime = (".".join(map(str, n)) for n in (inventory.driver, inventory.runtime))
    found = f"up to CUDA {driver}; the kernels are of CUDA {runtime}"
    if inventory.driver[0] < inventory.runtime[0]:
        remedy = "install a newer driver, or compile the plugin with an older CUDA (pwmlff build)"
        return Check(ERROR, found, remedy)
    return Check(OK, found)


def nvidia_gpus() -> list[str]:
    """Names of the GPUs of which the NVIDIA driver tells, without CUDA."""
    names = []
    for file in sorted(DRIVER.glob("gpus/*/information")):
        model = re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE)
        names.append(model[1].strip() if model else file.parent.name)
    return names


def check_gpus(machine: Machine) -> Check:
    """GPUs, their memory and place."""
    inventory = devices.inventory()
    if not inventory.gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if inventory.driver and hidden is not None:
            found = f"none: {inventory.reason} (CUDA_VISIBLE_DEVICES='{hidden}')"
            return Check(WARNING, found, "unset CUDA_VISIBLE_DEVICES, or name GPUs that are there")
        return Check(OK if not inventory.driver else WARNING, f"none: {inventory.reason}")
    text = "; ".join(
        f"{g.index} {g.name} {g.total_memory / GIB:.0f} GiB at {g.pci_bus_id}"
        for g in inventory.gpus
    )
    if old := [str(g.index) for g in inventory.gpus if not g.supported]:
        oldest = ".".join(map(str, inventory.oldest_supported or ()))
        found = f"{text}; no kernels for GPU {', '.join(old)} (oldest: {oldest})"
        remedy = "pwmlff build --arch with their compute capability, or device cpu"
        return Check(WARNING, found, remedy)
    return Check(OK, text)


def check_threads(machine: Machine) -> Check:
    """OpenMP threads of all ranks of this node against its cores."""
    value = os.environ.get("OMP_NUM_THREADS")
    threads = 1 if value is None else openmp_threads(value)  # LAMMPS takes one where it is not set
    if threads is None:
        found = f"OMP_NUM_THREADS is '{value}', which OpenMP ignores: each rank takes all "
        remedy = "set it to a whole number above zero, like 1"
        return Check(ERROR, f"{found}{available()} cores", remedy)
    text = f"{machine.ranks} rank{'s' * (machine.ranks > 1)} x {threads} on {available()} cores"
    if machine.ranks * threads > available():
        return Check(WARNING, text, "set OMP_NUM_THREADS to cores / ranks, or start fewer ranks")
    return Check(OK, text if value else f"{text} (OMP_NUM_THREADS is not set)")


def check_plugin(machine: Machine) -> Check:
    """Does lmp find the style and open it?"""
    path = machine.plugin
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.doctor").write_text(program.OPEN_STYLE.format(file="in.doctor"))
        command = [machine.program.path, "-in", "in.doctor", "-log", "none"]
        environment = {**os.environ, **machine.program.environment}
        process = _run(command, environment, cwd=folder)
    output = process.stdout + process.stderr
    if refusals := [
        line for line in output.splitlines() if "there is no pair_style pwmlff" in line
    ]:
        return Check(ERROR, refusals[0].removeprefix("WARNING: "), BUILD_FOR_IT)
    if "Unrecognized pair style" in output or "Unknown pair style" in output:
        fits = all(
            check(machine).status == OK for check in (check_version, check_sizes, check_mpi_of_lmp)
        )
        remedy = f"write 'plugin load {path}' into the input, or give --plugin {path}"
        return Check(ERROR, "lmp does not know pair_style pwmlff", remedy if fits else BUILD_FOR_IT)
    if program.STYLE_OPENS in output:
        return Check(OK, ", ".join(filter(None, (path, plugin.origin(path)))))
    lines = [line for line in output.splitlines() if "ERROR" in line] or output.strip().splitlines()
    text = lines[-1] if lines else f"lmp ended with {process.returncode} and without a word"
    return Check(ERROR, text, f"see the text; {machine.remake}")


def check_libraries(machine: Machine) -> Check:
    """Shared libraries that the environment puts before the right ones."""
    odd = []
    for variable in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        for word in re.split(r"[: ]", os.environ.get(variable, "")):
            path = Path(word)
            if not word or path.resolve().is_relative_to(sys.prefix):
                continue  # what belongs to this environment is right
            files = [path] if variable == "LD_PRELOAD" else sorted(path.glob("lib*.so*"))
            hits = [file.name for file in files if file.name.startswith(SENSITIVE)]
            if hits:
                odd.append(f"{variable} has {path} with {', '.join(hits[:3])}")
    if odd:
        return Check(WARNING, "; ".join(odd), "take these folders out of the variable")
    return Check(OK, "none in LD_LIBRARY_PATH or LD_PRELOAD")


def check_copies(machine: Machine) -> Check:
    """Several libtorch or several plugins, of which one would be taken silently."""
    packages = [Path(folder or ".") for folder in sys.path]
    torches = [p / "torch/lib" for p in packages if (p / "torch/lib/libtorch_cpu.so").is_file()]
    if other := os.environ.get(plugin.TORCH_LIB_VARIABLE):
        torches.append(Path(other))
    named = os.environ.get(program.PLUGIN_VARIABLE, "").split(":")
    folders = [*(p / "pwmlff/lib" for p in packages), *(Path(word) for word in named if word)]
    plugins = [folder for folder in folders if (folder / plugin.FILE).is_file()]
    several = []
    for what, places in (("torch", torches), ("plugin", plugins)):
        distinct = dict.fromkeys(str(place.resolve()) for place in places)
        if len(distinct) > 1:
            several.append(f"{what}: {', '.join(distinct)}")
    if not several:
        return Check(OK, "one torch, one plugin")
    variables = f"{program.PLUGIN_VARIABLE} and {plugin.TORCH_LIB_VARIABLE}"
    remedy = f"keep one: clean PYTHONPATH, {variables}, or uninstall the others"
    return Check(WARNING, "; ".join(several), remedy)


def _same(actual: str, expected: str, consequence: str = "") -> Check:
    if actual == expected:
        return Check(OK, actual)
    found = f"{actual}, but the plugin was compiled for {expected}{consequence}"
    return Check(ERROR, found, BUILD_FOR_IT)


CHECKS: dict[str, Callable[[Machine], Check]] = {
    "lmp": check_lmp,
    "LAMMPS version": check_version,
    "integer sizes": check_sizes,
    "MPI family": check_mpi,
    "torch": check_torch,
    "driver": check_driver,
    "GPUs": check_gpus,
    "threads": check_threads,
    "plugin": check_plugin,
    "shared libraries": check_libraries,
    "several copies": check_copies,
}
#: Checks that take no noticeable time, for the start of a run.
CHEAP = ("lmp", "LAMMPS version", "integer sizes", "torch", "threads", "shared libraries")


def examine(machine: Machine, names: Sequence[str] = tuple(CHECKS)) -> DoctorReport:
    """Run checks; one that cannot be made is an error of its own."""
    rows = []
    for name in names:
        try:
            rows.append(replace(CHECKS[name](machine), name=name))
        except (Failure, ImportError, OSError) as failure:
            remedy = f"{machine.remake}, or name programs that are there"
            rows.append(Check(ERROR, str(failure), remedy, name))
    return DoctorReport(rows)


def doctor(
    np: Annotated[int, Option("-np", "--np", min=1, help="Ranks on this machine.")] = 1,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
) -> DoctorReport:
    """Check that LAMMPS, MPI, torch, driver, GPUs and the plugin fit together.

    Each check says ok, warning or error, what it found, and what to do.

    Example: pwmlff doctor -np 4
    """
    return examine(Machine(lmp, mpirun, np, plugin))
