"""Finding the plugin, starting without it, and refusing a torch that it was not compiled for."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import ase.data
import pytest
import torch

from harness import Lammps
from pwmlff import plugin
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
SETUP = """
units metal
read_data atoms.data
pair_style pwmlff model.pt
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
    text = SETUP if style else SETUP.replace("pwmlff model.pt", "zero 3.0").replace("O Hf", "")
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
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    after_torch = subprocess.run(
        [sys.executable, "-c", "import torch\n" + code],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    energy = folder.run(SETUP).thermo()["PotEng"][0]
    for found in (by_hand, after_torch):
        assert float(found.stdout.split()[-1]) == pytest.approx(energy, rel=1e-12)


@pytest.mark.parametrize("release", ["2.9.1+cpu", None])
def test_other_torch_is_refused(folder: Lammps, tmp_path, release):
    """A different release, or none at all, is named before anything of it is opened."""
    torch = tmp_path / "torch"
    (torch / "lib").mkdir(parents=True)
    if release:
        (torch / "lib" / "libtorch_cpu.so").write_text("not opened")
        (torch / "version.py").write_text(f"__version__ = '{release}'\n")
        run = folder(SETUP, 2, PWMLFF_TORCH_LIB=str(torch / "lib"))
        expected = ["found torch 2.9.1", f"compiled against torch {version('torch').split('+')[0]}"]
    else:
        bare = tmp_path / "bare"
        bare.mkdir()
        (bare / "pwmlffplugin.so").write_bytes(Path(plugin.library()).read_bytes())
        text = f"plugin clear\nplugin load {bare}/pwmlffplugin.so\n" + SETUP
        run = folder(text, 2, PWMLFF_TORCH_LIB=str(torch / "lib"))
        expected = ["found no torch", str(torch / "lib"), "PWMLFF_TORCH_LIB"]
    assert run.returncode != 0
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1, run.output
    assert all(word in errors[0] for word in expected), errors[0]


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
