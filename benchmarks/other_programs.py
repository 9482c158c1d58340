"""A random model of another program, its own numbers and its own speed; run by families.py.

    PYTHON benchmarks/other_programs.py FAMILY FOLDER

with the Python in which the program is installed. FOLDER holds structure.npz (numbers, positions,
cell). Left there: the model as the program writes it for others (model.*), own.npz with the energy
and the forces [n, 3] of its own calculator and the CPU seconds of a step on one thread.
"""

# Each program is imported where it is used.
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms

ELEMENTS = ["O", "Hf"]
STEPS, ROUNDS = 3, 3
Calculated = tuple[float, np.ndarray]
Evaluate = Callable[[Atoms], Calculated]


def deepmd(folder: Path, embedding: list[int], fitting: list[int]) -> Evaluate:
    """DeepPot-SE with nets of some widths; frozen, and evaluated by DeePMD-kit's calculator."""
    import json

    from deepmd.calculator import DP
    from deepmd.pt.model.model import get_model

    parameters: dict[str, Any] = {
        "type_map": ELEMENTS,
        "descriptor": {
            "type": "se_e2_a", "sel": [70, 40], "rcut_smth": 0.5, "rcut": 6.0,
            "neuron": embedding, "axis_neuron": 16, "seed": 1, "precision": "float64",
        },
        "fitting_net": {"neuron": fitting, "seed": 1, "precision": "float64"},
    }  # fmt: skip
    model = get_model(parameters)
    model.model_def_script = json.dumps(parameters)
    block = model.atomic_model.descriptor.sea
    generator = torch.Generator().manual_seed(1)
    for values, low, high in ((block.mean, -0.05, 0.05), (block.stddev, 0.05, 0.2)):
        drawn = torch.rand(2, 1, 4, generator=generator, dtype=torch.float64)
        values.copy_((low + (high - low) * drawn).expand_as(values))
    torch.jit.script(model).save(str(folder / "model.pth"))
    return from_ase(DP(str(folder / "model.pth")))


def mace(folder: Path, dtype: torch.dtype) -> Evaluate:
    """MACE with two rounds; written for LAMMPS, and evaluated by MACE's calculator."""
    # MACE says how e3nn may read its constants, so it comes first.
    # isort: off
    from mace import modules
    from e3nn import o3

    # isort: on
    from e3nn.util import jit
    from mace.calculators import MACECalculator
    from mace.calculators.lammps_mace import LAMMPS_MACE

    torch.manual_seed(1)
    torch.set_default_dtype(dtype)
    blocks = modules.interaction_classes
    model = modules.ScaleShiftMACE(
        atomic_inter_scale=1.3, atomic_inter_shift=0.2, r_max=5.0, num_bessel=8,
        num_polynomial_cutoff=5, max_ell=3, num_interactions=2, num_elements=2,
        interaction_cls=blocks["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=blocks["RealAgnosticInteractionBlock"],
        hidden_irreps=o3.Irreps("32x0e + 32x1o"), MLP_irreps=o3.Irreps("16x0e"),
        gate=torch.nn.functional.silu, atomic_energies=np.array([-3.0, -7.5]),
        avg_num_neighbors=40, atomic_numbers=[8, 72], correlation=3, radial_type="bessel",
    )  # fmt: skip
    jit.compile(LAMMPS_MACE(model)).save(str(folder / "model.pth"))
    name = str(dtype).removeprefix("torch.")
    calculator = MACECalculator(models=model, device="cpu", default_dtype=name)
    return from_ase(calculator)


def nequip(folder: Path, dtype: str, allegro: bool = False) -> Evaluate:
    """NequIP with three rounds, or Allegro; compiled, and evaluated by NequIP's calculator."""
    from nequip.ase import NequIPCalculator
    from nequip.model import NequIPGNNModel
    from nequip.model.inference_models.torchscript import save_torchscript_model
    from nequip.utils.global_state import TF32_KEY, set_global_state

    set_global_state()
    common: dict[str, Any] = {
        "seed": 1, "model_dtype": dtype, "type_names": ELEMENTS, "r_max": 5.0, "parity": True,
        "avg_num_neighbors": 40.0, "per_type_energy_scales": {"O": 1.0, "Hf": 1.5},
        "per_type_energy_shifts": {"O": -3.0, "Hf": -7.0},
    }  # fmt: skip
    if allegro:
        from allegro.model import AllegroModel

        model = AllegroModel(
            radial_chemical_embed={
                "_target_": "allegro.nn.TwoBodyBesselScalarEmbed",
                "num_bessels": 8,
            },
            radial_chemical_embed_dim=32, scalar_embed_mlp_hidden_layers_depth=1,
            scalar_embed_mlp_hidden_layers_width=32, l_max=2, num_layers=2, num_scalar_features=32,
            num_tensor_features=16, allegro_mlp_hidden_layers_depth=1,
            allegro_mlp_hidden_layers_width=32, readout_mlp_hidden_layers_depth=1,
            readout_mlp_hidden_layers_width=16, **common,
        )  # fmt: skip
    else:
        model = NequIPGNNModel(
            num_layers=3, l_max=2, num_features=32, radial_mlp_depth=1, radial_mlp_width=32,
            type_embed_num_features=16, num_bessels=8, **common,
        )  # fmt: skip
    told = {"r_max": "5.0", "type_names": " ".join(ELEMENTS), "model_dtype": dtype, TF32_KEY: "0"}
    path = str(folder / "model.nequip.pth")
    save_torchscript_model(model.eval(), told, path, "cpu")
    return from_ase(
        NequIPCalculator.from_compiled_model(path, device="cpu", chemical_species=ELEMENTS)
    )


FAMILIES: dict[str, Callable[[Path], Evaluate]] = {
    "DeePMD-kit se_e2_a": lambda folder: deepmd(folder, [25, 50, 100], [240, 240, 240]),
    "DeePMD-kit se_e2_a, nets of PWMLFF": lambda folder: deepmd(folder, [25, 25, 25], [50, 50, 50]),
    "MACE": lambda folder: mace(folder, torch.float64),
    "MACE, float32": lambda folder: mace(folder, torch.float32),
    "NequIP": lambda folder: nequip(folder, "float64"),
    "NequIP, float32": lambda folder: nequip(folder, "float32"),
    "Allegro": lambda folder: nequip(folder, "float64", allegro=True),
}


def from_ase(calculator: Any) -> Evaluate:
    """Energy and forces by a calculator of ase."""

    def evaluate(atoms: Atoms) -> Calculated:
        calculator.calculate(atoms, ["energy", "forces"])
        found = calculator.results
        return float(np.ravel(found["energy"])[0]), np.asarray(found["forces"])

    return evaluate


def main() -> None:
    """Make, evaluate, time."""
    family, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    with np.load(folder / "structure.npz") as given:
        atoms = Atoms(given["numbers"], given["positions"], cell=given["cell"], pbc=True)
    evaluate = FAMILIES[family](folder)
    energy, forces = evaluate(atoms)
    rng, best = np.random.default_rng(0), np.inf
    evaluate(atoms)
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(STEPS):
            atoms.positions += rng.normal(scale=1e-3, size=atoms.positions.shape)
            evaluate(atoms)
        best = min(best, (time.process_time() - began) / STEPS)
    np.savez(folder / "own.npz", energy=energy, forces=forces, seconds=best)


if __name__ == "__main__":
    main()
