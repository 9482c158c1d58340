"""Run by a Python in which MACE is installed: mace_create_lammps_model, of models it fails at too.

    PYTHON mace_export.py MODEL [WORDS OF THAT COMMAND] [--charge CHARGE] [--spin SPIN]

MACE's own command reads and writes the file. In between, parts that do not become TorchScript are
replaced by modules with the same weights and formulas: the gate of 0.3.16 and attention. A charge
and a spin that are the same for all atoms add a constant to the embedding of each element. So they
become a part of its weights. MACE's own energies and forces of a cluster, before, say whether those
of the result, after, are the same. What cannot be converted ends in one line that begins with
"cannot be converted: ". Nothing of pwmlff is imported, as it need not be installed there.

Sources: Batatia et al. 2022, arXiv:2206.07697; Batatia et al. 2025, arXiv:2510.25380 (gates, charge
and spin); Levine et al. 2025, arXiv:2505.08762 (OMol25).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

MODELS = ("MACE", "ScaleShiftMACE")
#: What a model may embed, by MACE's names: the options that say how much of it there is.
OPTIONS = {"total_charge": "charge", "total_spin": "spin"}
#: By which energies (of the largest, at least 1 eV) and forces may differ from MACE's own.
GATES = {torch.float64: 1e-11, torch.float32: 1e-4}


def refuse(text: str) -> NoReturn:
    """End; whoever started this has the line for its user."""
    sys.exit(f"cannot be converted: {text}")


class Gate(nn.Module):
    """Scalars through silu, each feature of a higher degree times the sigmoid of a scalar.

    Features are scalars, the scalars for gates, and what these open, one degree behind the other.
    """

    def __init__(self, original: Any) -> None:
        super().__init__()
        own = vars(original)
        #: Where they start, and how many there are.
        self.scalars = (int(own["_s_start"]), int(own["_s_len"]))
        self.gates = (int(own["_g_start"]), int(own["_g_len"]))
        nothing = (0, 0, 1, 0, 0)
        #: Where a degree starts and how long it is, its components, channels and first gate.
        self.gated = [tuple(map(int, group)) for group in own["_gated_info"] or [nothing]]
        self.factors = (float(own["_scalar_cst"]), float(own["_gate_cst"]))

    def forward(self, features: Tensor) -> Tensor:
        """[n, all of them] to [n, scalars and what was gated]."""
        of_scalars, of_gates = self.factors
        first, size = self.scalars
        scalars = nn.functional.silu(features.narrow(1, first, size)) * of_scalars
        first, size = self.gates
        gates = torch.sigmoid(features.narrow(1, first, size)) * of_gates
        parts = [scalars]
        for first, size, components, channels, gate in self.gated:
            part = features.narrow(1, first, size).reshape(len(features), channels, components)
            part = part * gates.narrow(1, gate, channels).unsqueeze(2)
            parts.append(part.reshape(len(features), size))
        return torch.cat(parts, 1)


class Attention(nn.Module):
    """RealAgnosticAttResidualInteractionBlock: radial nets see the atoms at both ends of edges."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.linear_up, self.linear_down = original.linear_up, original.linear_down
        self.conv_tp, self.conv_tp_weights = original.conv_tp, original.conv_tp_weights
        self.linear, self.reshape = original.linear, original.reshape
        self.skip_linear = original.skip_linear
        self.avg_num_neighbors = float(original.avg_num_neighbors)

    def forward(
        self, node_attrs: Tensor, node_feats: Tensor, edge_attrs: Tensor, edge_feats: Tensor,
        edge_index: Tensor, cutoff: Tensor | None = None, lammps_class: Any | None = None,
        lammps_natoms: tuple[int, int] = (0, 0), first_layer: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Messages [n, channels, (L + 1)^2] and what atoms keep of themselves, as MACE names them.

        The last three are MACE's own ways to LAMMPS, which are not taken here.
        """
        sender, receiver = edge_index[0], edge_index[1]
        sent, seen = self.linear_up(node_feats), self.linear_down(node_feats)
        weights = self.conv_tp_weights(torch.cat((edge_feats, seen[sender], seen[receiver]), 1))
        if cutoff is not None:
            weights = weights * cutoff
        parts = self.conv_tp(sent[sender], edge_attrs, weights)
        zero = torch.zeros(sent.size(0), parts.size(1), dtype=parts.dtype, device=parts.device)
        message = self.linear(zero.index_add(0, receiver, parts)) / self.avg_num_neighbors
        return self.reshape(message), self.skip_linear(node_feats)


def embedded(model: Any, given: dict[str, int | None]) -> dict[str, Tensor]:
    """Charge and spin [1] by MACE's names, of a model that embeds them; empty for others.

    Args:
        model: of MACE.
        given: by option, what the user said.
    """
    specs = getattr(model, "embedding_specs", None) or {}
    unknown = [name for name in specs if name not in OPTIONS]
    if unknown:
        refuse(
            f"it embeds {', '.join(specs)}; charge and spin can be, of a whole system "
            f"({', '.join(OPTIONS)}), not {unknown[0]}"
        )
    wanted = [OPTIONS[name] for name in specs]
    said = {option: value for option, value in given.items() if value is not None}
    missing = [option for option in wanted if option not in said]
    if missing:
        words = " ".join(f"--{option}" for option in missing)
        refuse(
            f"it embeds {' and '.join(specs)} of a whole system, found no {words}; give what "
            "simulations will have, as the data of its training count it (--charge 0 --spin 1 for "
            "a neutral singlet of OMol25)"
        )
    for option, value in said.items():
        if option not in wanted:
            refuse(f"found --{option} {value}, expected none: it embeds no {option}")
    found = {}
    for name, spec in specs.items():
        value = said[OPTIONS[name]]
        if spec["per"] != "graph":
            refuse(f"it embeds {name} of each {spec['per']}, expected one of a whole system")
        if spec["type"] == "categorical":
            low = -int(spec.get("offset", 0))
            high = low + int(spec["num_classes"]) - 1
            if not low <= value <= high:
                refuse(f"found --{OPTIONS[name]} {value}, expected {low} to {high}, which it knows")
        found[name] = torch.tensor([value], dtype=model.r_max.dtype)
    return found


def fold(model: Any, features: dict[str, Tensor]) -> None:
    """Let the embedding of elements hold that of charge and spin, and the energy of these."""
    attributes = torch.eye(len(model.atomic_numbers), dtype=model.r_max.dtype)
    nodes = model.node_embedding(attributes)  # [species, channels]
    nodes = nodes + model.joint_embedding(torch.zeros(1, dtype=torch.int64), features)
    linear = nn.Linear(nodes.shape[0], nodes.shape[1], bias=False, dtype=nodes.dtype)
    linear.weight = nn.Parameter(nodes.T.contiguous())
    model.node_embedding.linear = linear
    if hasattr(model, "embedding_readout"):
        energies = torch.atleast_2d(model.atomic_energies_fn.atomic_energies)  # [heads, species]
        read = model.embedding_readout(nodes)  # [species, heads]
        model.atomic_energies_fn.atomic_energies = energies + read.T
        del model.embedding_readout
    del model.joint_embedding, model.embedding_specs


def replace(model: Any) -> None:
    """Put modules of this file in the place of those that do not become TorchScript."""
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            kind = type(part).__name__
            if kind == "GatedEquivariantBlock":
                setattr(parent, name, Gate(part))
            elif kind == "RealAgnosticAttResidualInteractionBlock":
                setattr(parent, name, Attention(part))


def evaluate(model: Any, features: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Energies [heads], eV, and forces [heads, n, 3], eV/angstrom, of a cluster in free space."""
    dtype, cutoff = model.r_max.dtype, float(model.r_max)
    generator = torch.Generator().manual_seed(1)
    axis = torch.arange(3, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis, axis)
    apart = 0.3 * torch.rand(grid.shape, generator=generator, dtype=torch.float64)
    positions = (cutoff / 2.2 * (grid + apart)).to(dtype)
    n, nspecies = len(grid), len(model.atomic_numbers)
    distances = torch.cdist(positions, positions).fill_diagonal_(2.0 * cutoff)
    edges = (distances < cutoff).nonzero().T.contiguous()
    types = torch.randint(nspecies, (n,), generator=generator)
    energies, forces = [], []
    for head in range(len(getattr(model, "heads", [None]))):
        found = model(
            {
                "positions": positions.clone(), "edge_index": edges,
                "shifts": torch.zeros(edges.shape[1], 3, dtype=dtype),
                "unit_shifts": torch.zeros(edges.shape[1], 3, dtype=dtype),
                "cell": torch.zeros(3, 3, dtype=dtype), "head": torch.tensor([head]),
                "node_attrs": nn.functional.one_hot(types, nspecies).to(dtype),
                "batch": torch.zeros(n, dtype=torch.int64), "ptr": torch.tensor([0, n]), **features,
            }
        )  # fmt: skip
        energies.append(found["energy"].detach().flatten())
        forces.append(found["forces"].detach())
    return torch.cat(energies), torch.stack(forces)


def prepare(model: Any, given: dict[str, int | None]) -> None:
    """Replace and fold what has to be, in place, and compare with MACE's own numbers."""
    kind = type(model).__name__
    if kind not in MODELS:
        refuse(f"it is a model of class {kind}, expected {' or '.join(MODELS)}")
    features = embedded(model, given)
    expected = evaluate(model, features)
    with torch.no_grad():
        if features:
            fold(model, features)
        replace(model)
    for what, ours, own in zip(("energy", "force"), evaluate(model, {}), expected):  # noqa: B905
        difference, gate = float((ours - own).abs().max()), GATES[ours.dtype]
        if not difference <= gate * max(1.0, float(own.abs().max())):
            refuse(f"an {what} differs by {difference:.1e} from that of MACE's own code")


def unscripted(model: Any) -> str:
    """The class of the first part that does not become TorchScript by itself."""
    from e3nn.util import jit  # noqa: PLC0415

    for parts in (model.interactions, model.products, model.readouts, model.children()):
        for part in parts:
            try:
                jit.script(part)
            except Exception:  # noqa: BLE001  whatever it is, that part is the one
                return type(part).__name__
    return type(model).__name__


def main() -> None:
    """Run MACE's command, with a model that is prepared when it is to become TorchScript."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for option in OPTIONS.values():
        parser.add_argument(f"--{option}", type=int)
    options, words = parser.parse_known_args()
    sys.argv[1:] = words
    try:
        from mace.cli import create_lammps_model as program  # noqa: PLC0415
    except ModuleNotFoundError as error:
        refuse(f"the Python beside MACE's command, {sys.executable}, has no {error.name}")
    wrapper, prepared = program.LAMMPS_MACE, []

    def prepare_and_wrap(model: Any, **more: Any) -> Any:
        prepare(model, vars(options))
        wrapped = wrapper(model, **more)  # which a head that there is not ends
        prepared.append(model)
        return wrapped

    program.LAMMPS_MACE = prepare_and_wrap
    try:
        program.main()
    except ModuleNotFoundError as error:
        refuse(
            f"it needs the module {error.name}, which is not beside MACE; models of "
            "cuequivariance can be after mace_cueq_to_e3nn"
        )
    except Exception as error:
        if not prepared:
            raise
        reason = str(error).strip().splitlines()[0]
        refuse(
            f"its {unscripted(prepared[0])} does not become TorchScript ({reason}); the "
            "interaction blocks of MACE up to 0.3.16 do"
        )


if __name__ == "__main__":
    main()
