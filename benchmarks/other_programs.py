"""Random models of another program, its own numbers and its own speed; run by families.py.

    PYTHON benchmarks/other_programs.py FOLDER ROUNDS FAMILY...

with the Python in which the program is installed. FOLDER holds structure.npz (numbers, positions,
cell). Left there, in a folder for each family with its number: the model as the program writes it
for others (model.*), own.npz with the energy, the forces [n, 3] and the virial [3, 3] of its own
calculator and, with ROUNDS to take them, the CPU seconds of a step on one thread.
"""

# Each program is imported where it is used.
# ruff: noqa: PLC0415

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.stress import voigt_6_to_full_3x3_stress

ELEMENTS = ["O", "Hf"]
STEPS = 3
HEADS = ["first", "second"]
SYSTEM = {"charge": -1, "spin": 2}
#: What differs in small models of MACE.
SMALL = {"features": "8x0e + 8x1o", "r_max": 4.0, "max_ell": 2, "correlation": 2}
NONLINEAR = ("ResidualNonLinear", "ResidualNonLinear")
#: The shape of MACE-OMOL, in small.
OMOL = {
    **SMALL, "edge_irreps": "4x0e + 4x1o", "use_edge_irreps_first": True, "apply_cutoff": False,
    "use_agnostic_product": True, "use_last_readout_only": True, "use_embedding_readout": True,
    "radial_MLP": [16, 16], "readout_cls": "NonLinearBiasReadoutBlock",
}  # fmt: skip
#: The same with the sizes of a large one.
LARGE = {
    "features": "128x0e + 128x1o", "edge_irreps": "64x0e + 64x1o", "r_max": 5.0, "max_ell": 3,
    "correlation": 3, "radial_MLP": [64, 64, 64],
}  # fmt: skip
Calculated = tuple[float, np.ndarray, np.ndarray]
Evaluate = Callable[[Atoms], Calculated]


def deepmd(
    folder: Path, embedding: list[int], fitting: list[int], one_sided: bool = True,
    steps: bool = True, precision: str = "float64", activation: str = "tanh",
    compressed: bool = False,
) -> Evaluate:  # fmt: skip
    """DeepPot-SE with nets of some widths; frozen, and evaluated by DeePMD-kit's calculator."""
    common = {"seed": 1, "precision": precision, "activation_function": activation}
    descriptor = {
        "type": "se_e2_a", "sel": [70, 40], "rcut_smth": 0.5, "rcut": 6.0, "neuron": embedding,
        "axis_neuron": 16, "type_one_side": one_sided, **common,
    }  # fmt: skip
    nets = {"neuron": fitting, "resnet_dt": steps, **common}
    return deepmd_with(folder, descriptor, nets, compressed=compressed)


#: Distance of two atoms, angstrom, from which on tables of DeePMD-kit have all of a function.
CLOSEST = 1.0
#: Other descriptors of DeePMD-kit, in small.
NETS: dict[str, Any] = {"seed": 1, "precision": "float64", "neuron": [8, 16]}
REACH = {"rcut_smth": 0.5, "rcut": 4.0}
ATTENTION: dict[str, Any] = {
    "type": "se_atten", "sel": 100, "axis_neuron": 8, "attn": 16, "attn_layer": 2,
    **REACH, **NETS,
}  # fmt: skip
STRIPPED = {
    **ATTENTION, "attn_layer": 0, "tebd_input_mode": "strip", "smooth_type_embedding": True,
}  # fmt: skip
RADIAL = {"type": "se_e2_r", "sel": [70, 60], **REACH, **NETS}
DPA_2 = {
    "type": "dpa2", "repinit": {**REACH, "nsel": 100, "neuron": [8, 16]},
    "repformer": {"rcut": 3.0, "rcut_smth": 2.0, "nsel": 40, "nlayers": 1}, "seed": 1,
}  # fmt: skip

DPA_3 = {
    "type": "dpa3", "seed": 1,
    "repflow": {
        "n_dim": 8, "e_dim": 6, "a_dim": 4, "nlayers": 2, "e_rcut": 4.0, "e_rcut_smth": 3.0,
        "e_sel": 80, "a_rcut": 3.0, "a_rcut_smth": 2.0, "a_sel": 40,
    },
}  # fmt: skip


def deepmd_with(
    folder: Path, descriptor: dict[str, Any], fitting: dict[str, Any] | None = None,
    means: bool = True, compressed: bool = False,
) -> Evaluate:  # fmt: skip
    """A model with some descriptor, frozen, and evaluated by DeePMD-kit's calculator.

    Args:
        means: statistics have others than zero, as without `set_davg_zero`.
        compressed: the file is as of `dp --pt compress`; what evaluates is not, since that needs
            an operator library that goes with one release of torch.
    """
    import json

    from deepmd.calculator import DP
    from deepmd.pt.model.model import get_model

    parameters = {
        "type_map": ELEMENTS,
        "descriptor": descriptor,
        "fitting_net": fitting or NETS,
    }
    model = get_model(parameters)
    model.model_def_script = json.dumps(parameters)
    generator = torch.Generator().manual_seed(1)
    # As statistics of structures are, alike for x, y and z: the model knows no directions.
    for block in model.modules():
        for name, low, high in (("mean", -0.05, 0.05), ("stddev", 0.05, 0.2)):
            values = getattr(block, name, None)
            if not isinstance(values, torch.Tensor) or values.shape[-1] not in (1, 4):
                continue
            size = (2, 1, 2)
            drawn = low + (high - low) * torch.rand(size, generator=generator, dtype=torch.float64)
            if name == "mean" and not means:
                drawn = 0.0 * drawn
            angular = 0.0 * drawn[..., 1:] if name == "mean" else drawn[..., 1:]
            whole = torch.cat((drawn[..., :1], angular.repeat(1, 1, 3)), -1)
            values.copy_(whole[..., : values.shape[-1]].expand_as(values))
    own = str(folder / ("own.pth" if compressed else "model.pth"))
    torch.jit.script(model).save(own)
    if compressed:
        model.min_nbor_dist = torch.tensor(CLOSEST, dtype=torch.float64)
        model.enable_compression(5.0, 0.01, 0.1, -1)  # as the command has it by default
        torch.jit.script(model).save(str(folder / "model.pth"))
    return from_ase(DP(own))


def mace(
    folder: Path, dtype: torch.dtype, pickled: bool = False, heads: int = 1,
    features: str = "32x0e + 32x1o", blocks: tuple[str, str] = ("", "Residual"),
    system: dict[str, int] | None = None, **changes: Any,
) -> Evaluate:  # fmt: skip
    """MACE with two rounds; written for LAMMPS or pickled, and evaluated by MACE's calculator.

    Args:
        heads: of several the last one is evaluated.
        blocks: the first interaction block and the later one, by what is in their names.
        system: charge and spin, for a model that embeds them as OMOL does.
        changes: other arguments of the model.
    """
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
    classes = modules.interaction_classes
    # The names that a release knows, which differ.
    shapes: dict[str, Any] = {
        "atomic_energies": np.array([-3.0, -7.5]),
        "atomic_inter_scale": 1.3, "atomic_inter_shift": 0.2,
    }  # fmt: skip
    chosen: dict[str, Any] = {}
    if heads > 1:
        shapes = {
            "atomic_energies": np.array([[-3.0, -7.5], [-2.0, -8.5]]), "heads": HEADS,
            "atomic_inter_scale": [1.3, 1.1], "atomic_inter_shift": [0.2, -0.1],
        }  # fmt: skip
        chosen = {"head": HEADS[-1]}
    if system:
        count = {"type": "categorical", "per": "graph", "in_dim": 1, "emb_dim": 8}
        changes["embedding_specs"] = {
            "total_charge": {**count, "num_classes": 201, "offset": 100},
            "total_spin": {**count, "num_classes": 101, "offset": 0},
        }
    if "edge_irreps" in changes:
        changes["edge_irreps"] = o3.Irreps(changes["edge_irreps"])
    if "readout_cls" in changes:
        changes["readout_cls"] = modules.readout_classes[changes["readout_cls"]]
    shapes |= {
        "r_max": 5.0, "num_bessel": 8, "num_polynomial_cutoff": 5, "max_ell": 3, "correlation": 3,
        **changes,
    }  # fmt: skip
    model = modules.ScaleShiftMACE(
        num_interactions=2, num_elements=2,
        interaction_cls=classes[f"RealAgnostic{blocks[1]}InteractionBlock"],
        interaction_cls_first=classes[f"RealAgnostic{blocks[0]}InteractionBlock"],
        hidden_irreps=o3.Irreps(features), MLP_irreps=o3.Irreps("16x0e"),
        gate=torch.nn.functional.silu, avg_num_neighbors=40, atomic_numbers=[8, 72],
        radial_type="bessel", **shapes,
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # These begin so small that their formulas would not matter.
            if name.endswith(("beta", "source_embedding.weight", "target_embedding.weight")):
                parameter.uniform_(0.5, 1.0)
    name, own = str(dtype).removeprefix("torch."), folder / "own.model"
    torch.save(model, own)
    if pickled:
        shutil.copyfile(own, folder / "model.model")
    else:
        jit.compile(LAMMPS_MACE(model, **chosen)).save(str(folder / "model.pth"))
    evaluate = from_ase(
        MACECalculator(model_paths=str(own), device="cpu", default_dtype=name, **chosen)
    )

    def of_head(atoms: Atoms) -> Calculated:
        atoms.info |= chosen | (system or {})  # where 0.3.10 looks for the head, too
        return evaluate(atoms)

    return of_head


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


def nequip_deployed(folder: Path, dtype: str) -> Evaluate:
    """A small NequIP 0.6 with two rounds, deployed, and evaluated by its calculator."""
    from e3nn.util import jit
    from nequip.ase import NequIPCalculator
    from nequip.model import model_from_config

    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    model = model_from_config(
        {
            "model_builders": [
                "SimpleIrrepsConfig", "EnergyModel", "PerSpeciesRescale", "StressForceOutput",
                "RescaleEnergyEtc",
            ],
            "default_dtype": "float64", "model_dtype": dtype, "r_max": 4.0, "num_layers": 2,
            "l_max": 1, "parity": True, "num_features": 8, "invariant_layers": 1,
            "invariant_neurons": 8, "avg_num_neighbors": 40.0, "use_sc": True,
            "chemical_symbols": ELEMENTS, "num_basis": 8, "BesselBasis_trainable": True,
            "PolynomialCutoff_p": 6, "per_species_rescale_scales": [1.0, 1.5],
            "per_species_rescale_shifts": [-3.0, -7.0], "global_rescale_scale": 1.7,
        },
        initialize=True,
    )  # fmt: skip
    told = {
        "r_max": "4.0", "type_names": " ".join(ELEMENTS), "n_species": "2", "allow_tf32": "0",
        "default_dtype": "float64", "model_dtype": dtype, "nequip_version": "0.6.2",
        "_jit_bailout_depth": "2", "_jit_fusion_strategy": "DYNAMIC,3", "config": "",
    }  # fmt: skip
    path = str(folder / "model.pth")
    torch.jit.save(jit.script(model.eval()), path, _extra_files=told)
    return from_ase(NequIPCalculator.from_deployed_model(path, device="cpu"))


def sevennet(folder: Path, weights: str = "") -> Evaluate:
    """SevenNet, evaluated by its calculator.

    Args:
        weights: those that the package brings, whose checkpoint is the model; without, a small
            model with two rounds is drawn and deployed.
    """
    import sevenn
    from sevenn.calculator import SevenNetCalculator

    if weights:
        brought = Path(sevenn.__file__).with_name("pretrained_potentials") / weights
        (checkpoint,) = brought.glob("*.pth")
        shutil.copyfile(checkpoint, folder / "model.pth")
        return from_ase(SevenNetCalculator(str(checkpoint), device="cpu"))

    from sevenn.model_build import build_E3_equivariant_model
    from sevenn.parse_input import init_model_config
    from sevenn.scripts.deploy import deploy

    torch.manual_seed(1)
    shape = {
        "chemical_species": ELEMENTS, "cutoff": 4.0, "channel": 8, "lmax": 2,
        "num_convolution_layer": 2, "is_parity": False,
    }  # fmt: skip
    config = init_model_config(shape) | {
        "shift": -3.0, "scale": 1.3, "conv_denominator": [40.0, 40.0], "dtype": "single",
        "version": sevenn.__version__, "cuequivariance_config": {"use": False},
    }  # fmt: skip
    model, own = build_E3_equivariant_model(config), folder / "own.pth"
    unused: dict[str, Any] = {"optimizer_state_dict": {}, "scheduler_state_dict": {}}
    torch.save({"model_state_dict": model.state_dict(), "config": config, **unused}, own)
    deploy(str(own), str(folder / "model.pt"))
    return from_ase(SevenNetCalculator(str(own), device="cpu"))


def chgnet(folder: Path, weights: str) -> Evaluate:
    """CHGNet, evaluated by its calculator.

    Args:
        weights: those that the package brings.
    """
    import chgnet
    from chgnet.model import CHGNet
    from chgnet.model.dynamics import CHGNetCalculator

    brought = Path(chgnet.__file__).with_name("pretrained") / weights
    (checkpoint,) = brought.glob("*.pth.tar")
    shutil.copyfile(checkpoint, folder / "model.pth.tar")
    model = CHGNet.load(model_name=weights, use_device="cpu", verbose=False)
    return from_ase(CHGNetCalculator(model, use_device="cpu"))


FAMILIES: dict[str, Callable[[Path], Evaluate]] = {
    "DeePMD-kit se_e2_a": lambda folder: deepmd(folder, [25, 50, 100], [240, 240, 240]),
    "DeePMD-kit se_e2_a, nets of PWMLFF": lambda folder: deepmd(folder, [25, 25, 25], [50, 50, 50]),
    "DeePMD-kit se_e2_a, a net for each pair": lambda folder: deepmd(
        folder, [8, 16, 32], [24, 24, 24], one_sided=False
    ),
    "DeePMD-kit se_e2_a, no steps": lambda folder: deepmd(
        folder, [8, 16, 32], [24, 24, 24], steps=False
    ),
    "DeePMD-kit se_e2_a, float32": lambda folder: deepmd(
        folder, [8, 16, 32], [24, 24, 24], precision="float32"
    ),
    "DeePMD-kit se_e2_a, compressed": lambda folder: deepmd(
        folder, [8, 16, 32], [24, 24, 24], compressed=True
    ),
    "DeePMD-kit se_atten": lambda folder: deepmd_with(folder, ATTENTION, means=False),
    "DeePMD-kit se_atten, stripped": lambda folder: deepmd_with(folder, STRIPPED, means=False),
    "DeePMD-kit se_atten, compressed": lambda folder: deepmd_with(
        folder, STRIPPED, means=False, compressed=True
    ),
    "DeePMD-kit se_e2_r": lambda folder: deepmd_with(folder, RADIAL),
    "DeePMD-kit se_e2_r and se_atten": lambda folder: deepmd_with(
        folder, {"type": "hybrid", "list": [RADIAL, ATTENTION]}, means=False
    ),
    "DeePMD-kit se_atten, statistics": lambda folder: deepmd_with(folder, ATTENTION),
    "DeePMD-kit DPA-2": lambda folder: deepmd_with(folder, DPA_2, means=False),
    "DeePMD-kit DPA-3": lambda folder: deepmd_with(folder, DPA_3),
    "DeePMD-kit se_e2_a, gelu": lambda folder: deepmd(
        folder, [8, 16, 32], [24, 24, 24], activation="gelu"
    ),
    "MACE": lambda folder: mace(folder, torch.float64),
    "MACE, float32": lambda folder: mace(folder, torch.float32),
    "MACE, 128x0e": lambda folder: mace(folder, torch.float64, features="128x0e", r_max=6.0),
    "MACE, 128x0e + 128x1o": lambda folder: mace(
        folder, torch.float64, features="128x0e + 128x1o", r_max=6.0
    ),
    "MACE, densities, Agnesi, ZBL": lambda folder: mace(
        folder,
        torch.float64,
        features="16x0e + 16x1o + 16x2e",
        blocks=("Density", "DensityResidual"),
        distance_transform="Agnesi",
        pair_repulsion=True,
    ),
    "MACE, pickled": lambda folder: mace(folder, torch.float64, pickled=True),
    "MACE, two heads": lambda folder: mace(folder, torch.float64, heads=2),
    "MACE, pickled, two heads": lambda folder: mace(folder, torch.float64, pickled=True, heads=2),
    "MACE, attention": lambda folder: mace(
        folder, torch.float64, pickled=True, blocks=("AttResidual", "AttResidual"), **SMALL
    ),
    "MACE, nonlinear": lambda folder: mace(
        folder, torch.float64, pickled=True, blocks=NONLINEAR, **SMALL
    ),
    "MACE, nonlinear, 128x0e + 128x1o": lambda folder: mace(
        folder, torch.float64, pickled=True, blocks=NONLINEAR, **OMOL | LARGE
    ),
    "MACE, nonlinear, float32": lambda folder: mace(
        folder, torch.float32, pickled=True, blocks=NONLINEAR, **SMALL
    ),
    "MACE, nonlinear, two heads": lambda folder: mace(
        folder,
        torch.float64,
        pickled=True,
        heads=2,
        blocks=NONLINEAR,
        readout_cls="NonLinearBiasReadoutBlock",
        **SMALL,
    ),
    "MACE, nonlinear, Agnesi, ZBL": lambda folder: mace(
        folder,
        torch.float64,
        pickled=True,
        blocks=NONLINEAR,
        distance_transform="Agnesi",
        pair_repulsion=True,
        apply_cutoff=False,
        **SMALL,
    ),
    "MACE, nonlinear, higher degrees along edges": lambda folder: mace(
        folder,
        torch.float64,
        pickled=True,
        blocks=NONLINEAR,
        edge_irreps="6x0e + 6x1o + 6x2e",
        **SMALL,
    ),
    "MACE, nonlinear behind linear": lambda folder: mace(
        folder, torch.float64, pickled=True, blocks=("Density", "ResidualNonLinear"), **SMALL
    ),
    "MACE, charge and spin": lambda folder: mace(
        folder, torch.float64, pickled=True, system=SYSTEM, use_embedding_readout=True, **SMALL
    ),
    "MACE, nonlinear, charge and spin": lambda folder: mace(
        folder, torch.float64, pickled=True, blocks=NONLINEAR, system=SYSTEM, **OMOL
    ),
    "NequIP": lambda folder: nequip(folder, "float64"),
    "NequIP, float32": lambda folder: nequip(folder, "float32"),
    "NequIP, deployed": lambda folder: nequip_deployed(folder, "float64"),
    "NequIP, deployed, float32": lambda folder: nequip_deployed(folder, "float32"),
    "SevenNet, float32": sevennet,
    "SevenNet-0, float32": lambda folder: sevennet(folder, "SevenNet_0__11Jul2024"),
    "CHGNet 0.3.0, float32": lambda folder: chgnet(folder, "0.3.0"),
    "CHGNet r2scan, float32": lambda folder: chgnet(folder, "r2scan"),
    "Allegro": lambda folder: nequip(folder, "float64", allegro=True),
}


def from_ase(calculator: Any) -> Evaluate:
    """Energy, forces and virial by a calculator of ase."""

    def evaluate(atoms: Atoms) -> Calculated:
        calculator.calculate(atoms, ["energy", "forces", "stress"])
        found = calculator.results
        stress = np.squeeze(found["stress"])
        if stress.size == 6:  # as ase has it; CHGNet gives all nine
            stress = voigt_6_to_full_3x3_stress(stress)
        return (
            float(np.ravel(found["energy"])[0]),
            np.asarray(found["forces"]),
            -atoms.get_volume() * stress,
        )

    return evaluate


def main() -> None:
    """Make, evaluate, time."""
    given, rounds, *families = sys.argv[1:]
    torch.set_num_threads(1)
    with np.load(Path(given) / "structure.npz") as structure:
        whole = Atoms(
            structure["numbers"], structure["positions"], cell=structure["cell"], pbc=True
        )
    for number, family in enumerate(families):
        folder, atoms = Path(given) / str(number), whole.copy()
        folder.mkdir(exist_ok=True)
        evaluate = FAMILIES[family](folder)
        energy, forces, virial = evaluate(atoms)
        rng, best = np.random.default_rng(0), np.inf
        for _ in range(int(rounds)):
            evaluate(atoms)
            began = time.process_time()
            for _ in range(STEPS):
                atoms.positions += rng.normal(scale=1e-3, size=atoms.positions.shape)
                evaluate(atoms)
            best = min(best, (time.process_time() - began) / STEPS)
        np.savez(folder / "own.npz", energy=energy, forces=forces, virial=virial, seconds=best)


if __name__ == "__main__":
    main()
