"""Models of edges in rounds, features of ghosts from other ranks, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms
from test_edge_models import STYLE, message_passing, script
from test_ensembles import found_by_check
from test_graph_budget import SEVERAL, found
from test_numbers import assert_equal, assert_same_on_any_number_of_ranks, read

from edge_models import InRounds
from harness import Lammps
from pwmlff import Calculator
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE
from systems import SYSTEMS, crystal

IN_ROUNDS = "engine torchscript in rounds, float64\n"


@pytest.fixture
def engine() -> str:
    """There is one only."""
    return "automatic"


def in_rounds(defect: str = "") -> InRounds:
    return InRounds([8, 72], 3.0, defect)


def slab() -> Atoms:
    """So high that one of two ranks has no atoms."""
    atoms = crystal(2)
    cell = np.array(atoms.cell)
    cell[2, 2] *= 2.5
    atoms.set_cell(cell)
    atoms.pbc = (True, True, False)
    return atoms


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name.startswith("two")])
def test_reference(lammps: Lammps, name: str, ranks: int):
    """All of forward, from the parts: in cells that are smaller than its range, too."""
    atoms = SYSTEMS[name].atoms()
    model = script(lammps, in_rounds())
    prism = lammps.data(atoms, [8, 72])
    run = lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}", ranks)
    assert (IN_ROUNDS in run.output) == (ranks > 1)
    assert_equal(lammps, run, evaluate(model, atoms), prism)


def test_any_number_of_ranks(lammps: Lammps):
    script(lammps, in_rounds())
    assert_same_on_any_number_of_ranks(lammps, share=1e-10)


def test_each_edge_once(lammps: Lammps):
    """Two ranks do together what one does alone; as forward they do more."""
    script(lammps, in_rounds())
    atoms = crystal(3)
    lammps.data(atoms, [8, 72])
    for engine, work in (("auto", 1.0), ("torchscript", 2.0)):
        style = STYLE.replace("model.pt\n", f"model.pt engine {engine}\n")
        run = lammps.run(f"{read(atoms)}{style}run 0\n", 2)
        edges, _, alone, _, _, found_work, _ = found(SEVERAL, run.output)
        assert found_work == work
        assert edges == pytest.approx(alone if work == 2.0 else alone / 2, rel=0.1)


def test_check_in_flight(lammps: Lammps):
    """Parts and forward give the same on pieces of the run; a rank without atoms takes part."""
    script(lammps, in_rounds())
    atoms = slab()
    lammps.data(atoms, [8, 72])
    style = STYLE.replace("model.pt\n", "model.pt check 1\n")
    move = "velocity all create 900 7\nfix 1 all nve\nrun 5\n"
    run = lammps.run(f"processors 1 1 2\n{read(atoms)}{style}{move}", 2)
    assert IN_ROUNDS in run.output
    differences = found_by_check(lammps)
    assert {atoms for *_, atoms in differences} == {24}
    assert all(energy < 1e-12 and force < 1e-12 for *_, energy, force, _ in differences)


def test_check_finds_what_the_clusters_do_not_show(lammps: Lammps):
    script(lammps, in_rounds("crowd"))
    atoms = crystal(4)
    lammps.data(atoms, [8, 72])
    style = STYLE.replace("model.pt\n", "model.pt check 5\n")
    run = lammps.run(f"{read(atoms)}{style}run 4\n", 2)
    assert IN_ROUNDS in run.output
    (energy, force, natoms), *more = [found[2:] for found in found_by_check(lammps)]
    assert energy > 1e-6 and force > 1e-6 and natoms == 2 * 26 and not more
    assert run.output.count("that is more than its precision allows") == 1


def test_rank_without_atoms_and_hybrid_styles(lammps: Lammps):
    """All of the slab on one of two ranks, rows that are not atoms, beside one as forward."""
    atoms = slab()
    model = script(lammps, in_rounds())
    script(lammps, message_passing(3), "far.pt")
    prism = lammps.data(atoms, [8, 72])
    run = lammps.run(
        f"processors 1 1 2\n{read(atoms)}"
        "pair_style hybrid/overlay zero 4.0 pwmlff model.pt far.pt out_freq 1\n"
        f"pair_coeff * * pwmlff O Hf\npair_coeff * * zero\n{MEASURE}run 0\n{DUMP}",
        2,
    )
    assert_equal(lammps, run, evaluate(model, atoms), prism)


def test_calculator(tmp_path):
    """Periodic images of the one process there is."""
    atoms = crystal(2)
    model = in_rounds()
    torch.jit.script(model).save(tmp_path / "model.pt")
    atoms.calc = Calculator(tmp_path / "model.pt")
    expected = evaluate(torch.jit.load(tmp_path / "model.pt"), atoms)
    np.testing.assert_allclose(atoms.get_forces(), expected.forces, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "defect, reason",
    [
        ("share", "not rounds: energies differ by"),
        ("width", "not rounds: the start of model file 'model.pt' returned [25, 2], expected "
                  "features [25, 1] in its type"),
    ],
)  # fmt: skip
def test_parts_that_are_not_forward(lammps: Lammps, defect: str, reason: str):
    """Forward runs instead, and the log says why."""
    atoms = crystal(2)
    model = script(lammps, in_rounds(defect))
    prism = lammps.data(atoms, [8, 72])
    run = lammps.run(f"{read(atoms)}{STYLE}{MEASURE}run 0\n{DUMP}", 2)
    assert reason in run.output, run.output
    assert_equal(lammps, run, evaluate(model, atoms), prism)


@pytest.mark.parametrize("files", ["model.pt", "model.pt other.pt capture 0 100 doubt.xyz"])
def test_one_rank_fails_in_a_round(lammps: Lammps, files: str):
    """The other one waits for its features, and ends with it."""
    for name in ("model.pt", "other.pt"):
        script(lammps, in_rounds("close"), name)
    atoms = crystal(2)
    near = int(np.argmin(np.abs(atoms.get_scaled_positions()[:, 0] - 0.25)))
    atoms.positions[(near + 1) % len(atoms)] = atoms.positions[near] + [0.0, 0.05, 0.0]
    lammps.data(atoms, [8, 72])
    style = STYLE.replace("model.pt", files)
    run = lammps(f"processors 2 1 1\n{read(atoms)}{style}run 0\n", 2)
    assert run.returncode != 0 and IN_ROUNDS in run.output, run.output
    assert "ERROR on proc 0: Pair style pwmlff: the round of model file 'model.pt' failed" in (
        run.output
    )


def test_widths(lammps: Lammps):
    model = in_rounds()
    model.widths = [0, 2]
    script(lammps, model)
    atoms = crystal(2)
    lammps.data(atoms, [8, 72])
    run = lammps.run(f"{read(atoms)}{STYLE}run 0\n", 2)
    assert "not rounds: model file 'model.pt' has start, round and finish, but its " in run.output
    assert "widths is not a list of positive numbers, one for each round" in run.output
