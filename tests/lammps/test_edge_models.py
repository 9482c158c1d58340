"""Edge models against lj/cut of LAMMPS, the reference, finite differences, and themselves."""

from __future__ import annotations

import platform
import re
import statistics

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from test_commands import run_hybrid_with_null
from test_numbers import assert_equal, assert_same_on_any_number_of_ranks, read, symbols

import foreign_models
from edge_models import Adjacent, Angles, Bonds, LennardJones, Limited, Masked, MessagePassing, Wide
from harness import ENGINES, Lammps, thorough
from pwmlff import devices
from pwmlff.convert import convert
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
STYLE = "pair_style pwmlff model.pt\npair_coeff * * O Hf\n"


@pytest.fixture
def engine() -> str:
    """There is one only."""
    return "automatic"


def script(lammps: Lammps, model, name: str = "model.pt"):
    torch.jit.script(model).save(lammps.folder / name)
    return model


def message_passing(rounds: int = 2, seed: int = 0) -> MessagePassing:
    return MessagePassing([8, 72], 3.0, rounds, seed)


MELT = f"""
units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
{{style}}
neighbor 0.3 bin
neigh_modify delay 0 every 5 check no
fix 1 all nve
compute even all stress/atom NULL pair
{MEASURE}
{{run}}
write_dump all custom atoms.dump id type x y z fx fy fz c_peatom c_even[*] modify format float %.17g
"""


LJ_STYLES = (
    "pair_style pwmlff model.pt\npair_coeff * * Ar",
    "pair_style lj/cut 2.5\npair_coeff * * 1 1",
)
LJ_RUNS = {"displace_atoms all random 0.05 0.05 0.05 1\nrun 0": 1e-12, "run 50": 1e-8}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("command", LJ_RUNS)
def test_lennard_jones(lammps: Lammps, command, ranks):
    """Ten lines of PyTorch and LAMMPS's lj/cut: all of a step, then 50 steps."""
    script(lammps, LennardJones())
    found = []
    for style in LJ_STYLES:
        run = lammps.run(MELT.format(style=style, run=command), ranks)
        atoms = run.atoms()
        columns = [atoms[name] for name in atoms.dtype.names if name.startswith("c_")]
        assert len(columns) == 7  # energy and virial of each atom
        found.append((run.thermo()["PotEng"][-1], forces(atoms), run.vector("c_press"), columns))
    for ours, theirs in zip(*found, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=LJ_RUNS[command] * scale)


@pytest.mark.parametrize("rounds", [1, 2, thorough(3)])
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name.startswith("two")])
def test_reference(lammps: Lammps, name, rounds):
    """Triclinic cells and slabs smaller than the range of the energy: ghosts of ghosts."""
    atoms = SYSTEMS[name].atoms()
    model = script(lammps, message_passing(rounds))
    prism = lammps.data(atoms, [8, 72])
    run = lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}")
    assert "kind EDGE, elements O Hf, units metal, cutoff 3" in run.output
    assert ("interaction range" in run.output) == (rounds > 1)
    assert_equal(lammps, run, evaluate(model, atoms), prism)


def test_elements_in_other_order(lammps: Lammps):
    system = SYSTEMS["three elements, one without atoms"]
    atoms = system.atoms()
    model = script(lammps, MessagePassing([22, 8, 38], 3.0))
    prism = lammps.data(atoms, [38, 22])
    run = lammps.run(
        f"{read(atoms)}pair_style pwmlff model.pt\npair_coeff * * {symbols([38, 22])}\n"
        f"{MEASURE}run 0\n{DUMP}"
    )
    assert_equal(lammps, run, evaluate(model, atoms), prism)


@pytest.mark.parametrize("rounds", [thorough(1), 2, thorough(3)])
def test_any_number_of_ranks(lammps: Lammps, rounds):
    script(lammps, message_passing(rounds))
    assert_same_on_any_number_of_ranks(lammps, share=1e-10)


@pytest.mark.parametrize("ranks", [2, 4])
def test_copies_of_an_atom_are_one(lammps: Lammps, ranks):
    """No rank sees more atoms than there are, however far its ghosts reach around the box."""
    atoms = crystal(2)
    model = script(lammps, Limited(message_passing(3), len(atoms)))
    prism = lammps.data(atoms, [8, 72])
    moving = "velocity all create 900 4711 loop geom\nfix 1 all nve\ntimestep 0.001\nrun 20\n"
    run = lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}{moving}", ranks)
    assert_equal(lammps, run, evaluate(model, atoms), prism, which=0)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_edges_as_the_model_asks_for_them(lammps: Lammps, ranks):
    """Reverse edges and pairs, which the reference finds in another way; in order of centers.

    A model that finds the edges of a center by counting has all of them, whoever owns it.
    """
    atoms, text = crystal(2), ""
    models = {"bonds": Bonds([8, 72], 3.4, 2.6), "angles": Angles([8, 72], 3.0)}
    prism = lammps.data(atoms, [8, 72])
    for name, model in models.items():
        script(lammps, model, f"{name}.pt")
        style = STYLE.replace("model", name)
        text += f"clear\n{read(atoms)}{style}{MEASURE}run 0\n{DUMP.replace('atoms', name)}"
    run = lammps.run(text, ranks)
    for k, (name, model) in enumerate(models.items()):
        assert_equal(lammps, run, evaluate(model, atoms), prism, f"{name}.dump", k)


def test_edges_in_order_of_centers_of_a_hybrid_style(lammps: Lammps):
    """Where rows are not atoms, and in an ensemble whose models reach differently far."""
    atoms = crystal(2)
    prism = lammps.data(atoms, [8, 72])
    model = script(lammps, Angles([8, 72], 3.0))
    script(lammps, message_passing(3), "far.pt")
    run = lammps.run(
        f"{read(atoms)}pair_style hybrid/overlay zero 4.0 pwmlff model.pt far.pt out_freq 1\n"
        f"pair_coeff * * pwmlff O Hf\npair_coeff * * zero\n{MEASURE}run 0\n{DUMP}",
        4,
    )
    assert_equal(lammps, run, evaluate(model, atoms), prism)


def test_message_passing_between_rebuilds(lammps: Lammps):
    """Atoms move within the skin, which the range of ghosts has to include; hybrid styles too."""
    script(lammps, message_passing())
    atoms = crystal(2)
    lammps.data(atoms, [8, 72])
    text = (
        f"{read(atoms)}{{}}neighbor 1.0 bin\nneigh_modify delay 0 every 1 check yes\n"
        "velocity all create 900 4711 loop geom\nfix 1 all nve\ntimestep 0.001\n"
        f"{MEASURE}run 200\n{DUMP}"
    )
    hybrid = (
        "pair_style hybrid/overlay pwmlff model.pt zero 3.0\npair_coeff * * pwmlff O Hf\n"
        "pair_coeff * * zero\n"
    )
    runs = [lammps.run(text.format(STYLE), ranks) for ranks in (1, 4)]
    energies = [run.thermo()["TotEng"] for run in (*runs, lammps.run(text.format(hybrid), 2))]
    assert energies[0][-1] == pytest.approx(energies[0][0], abs=5e-3)  # of 64 atoms
    for found in energies[1:]:
        np.testing.assert_allclose(found, energies[0], rtol=1e-10)


@pytest.mark.parametrize("order", ["masked.pt model.pt", "model.pt masked.pt"])
def test_file_changes_nothing_around_it(lammps: Lammps, order):
    """Integers stay integers, and derivatives work for the model after it."""
    models = {"masked.pt": script(lammps, Masked(), "masked.pt")}
    models["model.pt"] = script(lammps, MessagePassing([8, 72], 3.0, rounds=1))
    atoms = crystal(2)
    prism = lammps.data(atoms, [8, 72])
    run = lammps.run(
        f"{read(atoms)}pair_style pwmlff {order} out_freq 1\npair_coeff * * O Hf\n"
        f"{MEASURE}run 1\nrun 0\n{DUMP}",
        ranks=2,
    )
    with torch.enable_grad():
        expected = evaluate(models[order.split()[0]], atoms)
    assert_equal(lammps, run, expected, prism)


def test_ghosts_are_fewer_again(lammps: Lammps):
    """Message passing needs ghosts from afar; the style after it does not."""
    script(lammps, message_passing(3))
    script(lammps, message_passing(1), "near.pt")
    lammps.data(crystal(2), [8, 72])
    near = STYLE.replace("model.pt", "near.pt")
    run = lammps.run(
        f"{read(crystal(2))}{near}run 0\n{STYLE}run 0\nrun 0\n{near}run 0\n"
        f"comm_modify cutoff 12\nrun 0\n{STYLE}run 0\npair_style zero 3.0\npair_coeff * *\nrun 0\n",
        2,
    )
    found = re.findall(r"ghost atom cutoff = (\S+)", run.output)
    assert found == ["5", "11", "5", "12", "12"]  # said where it changes


def test_ghosts_are_fewer_again_after_comm_style(lammps: Lammps):
    """Which puts another object in the place of the one that LAMMPS communicates with."""
    script(lammps, message_passing(2))
    lammps.data(crystal(2), [8, 72])
    run = lammps.run(
        f"{read(crystal(2))}{STYLE}run 0\ncomm_style tiled\nrun 0\n{STYLE}run 0\n"
        "pair_style lj/cut 3.0\npair_coeff * * 0.01 2.0\nrun 0\n"
        f"comm_style brick\nrun 0\n{STYLE}run 0\nclear\n{read(crystal(2))}"
        "pair_style lj/cut 3.0\npair_coeff * * 0.01 2.0\nrun 0\n",
        2,
    )
    found = re.findall(r"ghost atom cutoff = (\S+)", run.output)
    assert found == ["8", "5", "8", "5"]


def test_ghosts_are_fewer_again_after_a_hybrid_style(lammps: Lammps):
    """Two that need ghosts from afar, which end in the order in which they began."""
    script(lammps, message_passing(2), "two.pt")
    script(lammps, message_passing(3), "three.pt")
    lammps.data(crystal(2), [8, 72])
    run = lammps.run(
        f"{read(crystal(2))}pair_style hybrid/overlay pwmlff two.pt pwmlff three.pt\n"
        "pair_coeff * * pwmlff 1 O Hf\npair_coeff * * pwmlff 2 O Hf\nrun 0\nrun 0\n"
        "pair_style zero 3.0\npair_coeff * *\nrun 0\n",
        2,
    )
    assert re.findall(r"ghost atom cutoff = (\S+)", run.output) == ["11", "5"]


def test_one_rank_has_no_ghosts_of_others(lammps: Lammps):
    """Copies of its atoms are these atoms: no farther ghosts, no edges of ghosts."""
    script(lammps, message_passing(3))
    lammps.data(crystal(2), [8, 72])
    run = lammps.run(f"{read(crystal(2))}{STYLE}{MEASURE}run 0\n{DUMP}")
    assert re.findall(r"ghost atom cutoff = (\S+)", run.output) == ["5"]
    assert "full, newton on, ghost" not in run.output
    assert run.thermo()["PotEng"][0] == pytest.approx(
        evaluate(message_passing(3), crystal(2)).energy, rel=1e-12
    )


@pytest.mark.parametrize(
    "model", [message_passing(), Angles([8, 72], 3.0)], ids=lambda model: type(model).__name__
)
def test_numdiff(lammps: Lammps, model):
    """LAMMPS's own finite differences of the energy, over atoms and over the box."""
    script(lammps, model)
    atoms = crystal(1)
    lammps.data(atoms, [8, 72])
    run = lammps.run(
        f"{read(atoms)}{STYLE}"
        "fix force all numdiff 1 1e-4\nfix stress all numdiff/virial 1 1e-4\n"
        f"{MEASURE}thermo_style custom step pe vol c_press[*] f_stress[*]\nrun 0\n"
        "write_dump all custom atoms.dump id fx fy fz f_force[1] f_force[2] f_force[3] "
        "modify format float %.17g\n",
        2,
    )
    atoms = run.atoms()
    numeric = np.stack([atoms[f"f_force[{k}]"] for k in (1, 2, 3)], axis=1)
    scale = np.abs(numeric).max()
    np.testing.assert_allclose(forces(atoms), numeric, rtol=0, atol=1e-6 * scale)
    exact, numeric = run.vector("c_press"), run.vector("f_stress")
    order = [0, 1, 2, 5, 4, 3]  # fix numdiff/virial gives xx yy zz yz xz xy
    np.testing.assert_allclose(exact, numeric[order], rtol=0, atol=1e-6 * np.abs(exact).max())


def test_ensemble(lammps: Lammps):
    """Models of different ranges share one list; the first one drives."""
    models = [
        script(lammps, message_passing(rounds, seed), f"{seed}.pt")
        for seed, rounds in enumerate((1, 3, 2))
    ]
    atoms = crystal(2)
    lammps.data(atoms, [8, 72])
    text = (
        f"{read(atoms)}pair_style pwmlff 0.pt 1.pt 2.pt out_freq 1 out_file devi.txt\n"
        f"pair_coeff * * O Hf\n{MEASURE}run 0\n"
    )
    run = lammps.run(text, 4)
    results = [evaluate(model, atoms) for model in models]
    force = np.sqrt(np.var([r.forces for r in results], axis=0).sum(axis=1))
    energy = np.std([r.atom_energy for r in results], axis=0)
    expected = [f(x) for x in (force, energy) for f in (np.mean, np.min, np.max)]
    found = np.loadtxt(run.folder / "devi.txt")
    np.testing.assert_allclose(found[1:], expected, rtol=0, atol=2e-9)
    assert run.thermo()["PotEng"][0] == pytest.approx(results[0].energy, rel=1e-10)


def test_hybrid_with_null(lammps: Lammps):
    """Atoms of other styles are no ends of edges."""
    model = script(lammps, message_passing())
    run, atoms, strange = run_hybrid_with_null(lammps)
    expected = evaluate(model, atoms[~strange])
    assert run.thermo()["PotEng"][0] == pytest.approx(expected.energy, rel=1e-10)
    np.testing.assert_allclose(forces(run.atoms())[~strange], expected.forces, rtol=0, atol=1e-9)
    assert np.all(forces(run.atoms())[strange] == 0)


def test_atoms_without_neighbors(lammps: Lammps):
    script(lammps, message_passing())
    atoms = Atoms([8, 72], [[1, 1, 1], [40, 40, 40]], cell=[90] * 3, pbc=True)
    lammps.data(atoms, [8, 72])
    run = lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}", 2)
    assert run.thermo()["PotEng"][0] == 0
    assert np.all(forces(run.atoms()) == 0)


class Detached(MessagePassing):
    def forward(
        self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor, nlocal: int
    ) -> torch.Tensor:
        return self.shift[types[:nlocal]] * edge_vec.detach().sum()


class Ordered(MessagePassing):
    """The first atom is another one than the rest."""

    def forward(
        self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor, nlocal: int
    ) -> torch.Tensor:
        energies = torch.zeros(nlocal, dtype=edge_vec.dtype).index_add(
            0, edge_index[0], 1.0 - edge_vec.square().sum(1) / self.cutoff**2
        )
        return energies * (torch.arange(nlocal) > 0)


class WrongShape(MessagePassing):
    def forward(
        self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor, nlocal: int
    ) -> torch.Tensor:
        return edge_vec.sum(dim=1)


class WrongSignature(MessagePassing):
    def forward(self, edge_vec: torch.Tensor, nlocal: int) -> torch.Tensor:
        return edge_vec.sum(dim=1)[:nlocal]


def changed(**attributes):
    model = message_passing()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


ERRORS = {
    "no derivative": (Detached([8, 72], 3.0), "", ["do not depend on edge_vec"]),
    "shape": (WrongShape([8, 72], 3.0), "", ["energies of atoms as [", "expected a tensor ["]),
    "signature": (WrongSignature([8, 72], 3.0), "", ["wrong signature", "edge_index"]),
    "cutoff": (changed(cutoff=-1.0), "", ["has cutoff -1, expected a length from 0.01 to 100"]),
    "range": (
        changed(interaction_range=2.0),
        "",
        ["interaction_range 2, expected a length from the cutoff"],
    ),
    "range of one round less": (
        changed(interaction_range=3.0),
        "",
        ["beyond interaction_range 3; give it the number of rounds of message passing times"],
    ),
    "order of atoms": (Ordered([8, 72], 3.0, 1), "", ["depend on the order of the atoms"]),
    "numbers of atoms": (Adjacent(), "", ["depend on the order of the atoms"]),
    "pairs": (Bonds([8, 72], 3.0, 4.0), "", ["has a pair_cutoff of 4", "no more than its cutoff"]),
    "no elements": (changed(atom_type=[8, 8]), "", ["distinct atomic numbers"]),
    "fused": (message_passing(), "engine fused", ["of kind EDGE", "auto or torchscript"]),
}


def test_errors(lammps: Lammps):
    lammps.data(crystal(2), [8, 72])
    inputs = {}
    for k, (case, (model, keywords, _)) in enumerate(ERRORS.items()):
        script(lammps, model, f"{k}.pt")
        style = STYLE.replace("model.pt", f"{k}.pt {keywords}")
        inputs[case] = f"units metal\nread_data atoms.data\n{style}run 0\n"
    for case, error in lammps.errors(inputs).items():
        assert error.count("ERROR") == 1, case
        for word in ERRORS[case][2]:
            assert word in error, (case, error)


def test_multi_cutoffs_of_ghosts(lammps: Lammps):
    script(lammps, message_passing())
    lammps.data(crystal(1), [8, 72])
    multi = "neighbor 2.0 multi\ncomm_modify mode multi\n"
    run = lammps(f"units metal\nread_data atoms.data\n{multi}{STYLE}run 0\n", 2)
    assert run.returncode != 0 and "use comm_modify mode single" in run.output


@pytest.mark.parametrize("style", ["multi", "multi/old"])
def test_neighbor_multi(lammps: Lammps, style: str):
    """LAMMPS makes no such lists of ghosts, which several ranks need; one rank runs."""
    model = script(lammps, message_passing())
    atoms = crystal(2)
    prism = lammps.data(atoms, [8, 72])
    text = f"units metal\nread_data atoms.data\nneighbor 2.0 {style}\n{STYLE}{MEASURE}run 0\n"
    run = lammps(text, 2)
    assert run.returncode != 0 and run.output.count("ERROR") == 1
    assert "does not make with neighbor multi; use neighbor bin, or one rank" in run.output
    assert_equal(lammps, lammps.run(f"{text}{DUMP}"), evaluate(model, atoms), prism)


@pytest.mark.skipif(
    not devices.inventory().gpus or torch.version.cuda is None,
    reason="needs a GPU and a torch with CUDA",
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_on_gpu(tmp_path, ranks):
    lammps = Lammps(tmp_path, ENGINES["visible"])
    script(lammps, message_passing())
    lammps.data(crystal(1), [8, 72])
    text = f"units metal\nread_data atoms.data\n{STYLE}{MEASURE}run 0\n{DUMP}"
    found = []
    for device in ("cpu", "gpu"):
        run = lammps.run(text.replace("model.pt", f"model.pt device {device}"), ranks)
        found.append((run.thermo()["PotEng"][0], forces(run.atoms()), run.vector("c_press")))
    assert "torchscript, float64, on the GPU" in run.output
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not GNU's")
def test_memory_stays(lammps: Lammps):
    """What the tensors of a step leave is there for the next: its pages do not come anew.

    A step may widen the heap, which is no rule then. They go back with the last pair style.
    """
    script(lammps, Wide())
    lammps.data(crystal(6), [8, 72])
    program = f"""
import re, resource
from pathlib import Path
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\\s*(\\d+) kB", status)[1]) * 1024 // resource.getpagesize()
lmp = start()
lmp.command("units metal")
lmp.command("read_data atoms.data")
lmp.commands_string('''{STYLE}''')
lmp.command("fix 1 all nve")
lmp.command("run 0")
for _ in range(30):
    before = faults()
    lmp.command("run 1 pre no post no")
    print(faults() - before, "faults")
before = resident()
lmp.command("pair_style zero 4.0")
print(before - resident(), "pages back")
"""
    output = lammps.python(program).output
    steps = [int(number) for number in re.findall(r"(\d+) faults", output)]
    back = int(re.search(r"(-?\d+) pages back", output)[1])
    assert len(steps) == 30
    assert statistics.mean(steps[5:]) < back / 20, output


def test_dpa_2_of_a_sparse_crystal(lammps: Lammps):
    """Three short steps of its layers lead where two long ones do not, on two ranks too."""
    model = foreign_models.local_deepmd((60,), True, foreign_models.DescrptBlockRepformers)
    layers = model.atomic_model.repformers
    layers.rcut, layers.nlayers = 2.66, 3
    foreign_models.save(model, lammps.folder / "a.pth")
    convert(lammps.folder / "a.pth", lammps.folder / "model.pt")
    atoms = bulk("OHf", "rocksalt", a=4.6, cubic=True).repeat((12, 1, 1))
    atoms.rattle(0.05, seed=3)
    lammps.data(atoms, [8, 72])
    text = f"{read(atoms)}pair_style pwmlff model.pt\npair_coeff * * O Hf\n{MEASURE}run 0\n{DUMP}"
    alone, two = (forces(lammps.run(text, ranks).atoms()) for ranks in (1, 2))
    assert abs(alone).max() > 1e-2
    np.testing.assert_allclose(two, alone, rtol=0, atol=1e-13)
