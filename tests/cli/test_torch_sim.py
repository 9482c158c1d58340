"""The model of torch-sim against the ase calculator and ase's dynamics."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from ase import units
from ase.md.verlet import VelocityVerlet

from nep_files import CHARGED, HEADS, random_text
from pwmlff import Calculator
from pwmlff.report import Failure
from systems import SYSTEMS, crystal

ts = pytest.importorskip("torch_sim")
BINARY = SYSTEMS["two elements, triclinic"]


@pytest.fixture(params=["DP", "NEP", "charges"])
def model(request, tmp_path):
    """A model file, and torch-sim's model of it."""
    from pwmlff.torch_sim import TorchSimModel

    if request.param == "DP":
        path = BINARY.model(isotropic=True).save(tmp_path / "model.pt")
    else:
        path = tmp_path / "nep.txt"
        head = HEADS["nep5"] if request.param == "NEP" else CHARGED["charge 1"]
        path.write_bytes(random_text(head))
    return path, TorchSimModel(path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers(model, dtype):
    """Systems of several sizes at a time, in any order, as the calculator has each of them."""
    from pwmlff.torch_sim import TorchSimModel

    path = model[0]
    chosen = TorchSimModel(path, dtype=dtype)
    oxygen = crystal(1)
    del oxygen[oxygen.numbers == 72]
    some = [crystal(1), BINARY.atoms(), BINARY.atoms(seed=3), oxygen]
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    for systems in (some, some[::-1], some[:1]):
        found = chosen(ts.io.atoms_to_state(systems, torch.device("cpu"), dtype))
        assert {values.dtype for values in found.values()} == {dtype}
        for atoms in systems:
            atoms.calc = Calculator(path)
        for name, wanted in {
            "energy": [atoms.get_potential_energy() for atoms in systems],
            "forces": np.concatenate([atoms.get_forces() for atoms in systems]),
            "stress": [atoms.get_stress(voigt=False) for atoms in systems],
        }.items():
            assert found[name].shape == np.shape(wanted)
            error = np.abs(found[name].numpy() - wanted).max()
            assert error <= tolerance * max(1.0, np.abs(wanted).max())


def test_dynamics(model):
    """Velocity Verlet of torch-sim and of ase, from the same velocities."""
    path, chosen = model
    atoms = crystal(1)
    atoms.set_masses(np.where(atoms.numbers == 8, 16.0, 178.5))
    state = ts.io.atoms_to_state([atoms], torch.device("cpu"), torch.float64)
    dt, kT = torch.tensor(0.5 * units.fs, dtype=torch.float64), torch.tensor(0.02)
    if hasattr(ts, "Integrator"):  # since torch-sim 0.4
        state, step = ts.nve_init(state, chosen, kT=kT), partial(ts.nve_step, model=chosen)
    else:
        init, step = ts.nve(model=chosen, dt=dt, kT=kT, seed=1)
        state = init(state)
    atoms.set_momenta(state.momenta.numpy())
    atoms.set_masses(state.masses.numpy())
    atoms.calc = Calculator(path)
    VelocityVerlet(atoms, timestep=0.5 * units.fs).run(20)
    for _ in range(20):
        state = step(state, dt=dt)
    moved = ts.io.state_to_atoms(state)[0]
    difference = (atoms.positions - moved.positions) / 4.4  # the cell
    assert np.abs(difference - np.rint(difference)).max() < 1e-9


def test_neighbors_are_kept_for_each_system(model):
    """Not looked for anew at each step because another system came in between."""
    systems = [crystal(1), BINARY.atoms()]
    state = ts.io.atoms_to_state(systems, torch.device("cpu"), torch.float64)
    model[1](state)
    built = [engine.built for engine in model[1]._engines]
    state.positions += 0.01
    model[1](state)
    assert all(engine.built is one for engine, one in zip(model[1]._engines, built, strict=True))


def test_refusals(model):
    from pwmlff.torch_sim import TorchSimModel

    with pytest.raises(Failure, match="engine is 'steam'"):
        TorchSimModel(model[0], engine="steam")
    with pytest.raises(FileNotFoundError, match=r"found no model file 'absent\.pt'"):
        TorchSimModel("absent.pt")
    atoms = BINARY.atoms()
    atoms.numbers[0] = 14
    with pytest.raises(ValueError, match="atom 0 has atomic number 14"):
        model[1](ts.io.atoms_to_state([atoms], torch.device("cpu"), torch.float64))
