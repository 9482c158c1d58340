"""Files of neuroevolution potentials (NEP): nep.txt of GPUMD, NEP_CPU and MatPL.

All forms of potentials are read into one. docs/nep.md has them, and what is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from os import PathLike
from pathlib import Path

import numpy as np
from ase.data import chemical_symbols
from numpy.typing import ArrayLike

from pwmlff import arrays, native
from pwmlff.files import write_whole

Array = np.ndarray

#: Invariants of several A beyond q_nl, in the order of the flags behind l_max, with their degrees.
INVARIANTS = {
    "222": (2, 2, 2), "1111": (1, 1, 1, 1), "112": (1, 1, 2), "123": (1, 2, 3), "233": (2, 3, 3),
    "134": (1, 3, 4),
}  # fmt: skip
#: a and b of the screening function of Ziegler, Biersack and Littmark 1985.
UNIVERSAL = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))

ZBL_TABLE = (0.0, 0.0)  # the values of the line zbl where a table is at the end


@dataclass(frozen=True)
class Nep:
    """A model, the same for all forms of nep.txt.

    Attributes:
        elements: atomic numbers of the species, S of them.
        cut_radial, cut_angular: [S center, S neighbor] angstrom.
        l_max: largest l of q_nl, 0 to 8.
        invariants: names of those of INVARIANTS that are on, in their order.
        temperature: whether the last descriptor is the temperature, in K.
        layers: weights [S, out, in] and biases [S, out] of each hidden layer: tanh(w x + b).
        last: [S, width of the last hidden layer].
        shift: [S] eV, added to the energy of an atom.
        c_radial, c_angular: [S center, S neighbor, n, k]; the latter 0 where a file leaves it away.
        q_scaler: [D].
        zbl: [S, S, 10] inner and outer radius, and a, b of four terms, for each pair; None without.
        zbl_line: the values of the line zbl; (0, 0) where zbl is in the file pair by pair.
        neighbors: largest numbers of neighbors, radial and angular, that the file records.
        charge_mode: 1 or 2 of a model with charges (families/nep/network.h), else 0.
        last_charge: [S, width of the hidden layer] e, likewise that gives the charges.
        root_epsilon: square root of its electronic dielectric constant.
    """

    elements: tuple[int, ...]
    cut_radial: Array
    cut_angular: Array
    l_max: int
    invariants: tuple[str, ...]
    temperature: bool
    layers: tuple[tuple[Array, Array], ...]
    last: Array
    shift: Array
    c_radial: Array
    c_angular: Array
    q_scaler: Array
    zbl: Array | None = None
    zbl_line: tuple[float, ...] = ()
    neighbors: tuple[int, int] = (500, 200)
    charge_mode: int = 0
    last_charge: Array | None = None
    root_epsilon: float = 1.0

    @property
    def without_data(self) -> tuple[int, ...]:
        """Elements whose last layer is zero, as a training leaves it that had no atom of them."""
        unlearned = (self.last == 0.0).all(axis=1)
        return tuple(z for z, zero in zip(self.elements, unlearned, strict=True) if zero)

    @property
    def largest_degree(self) -> int:
        """The largest l of A that a descriptor needs; 0 without angular part."""
        return max([self.l_max, *(max(INVARIANTS[name]) for name in self.invariants)])

    def learned(self) -> dict[str, Array]:
        """The arrays that training changes, by name, in the order of families/nep/network.h."""
        layers = {
            f"{name}{k}": array
            for k, layer in enumerate(self.layers)
            for name, array in zip(("weight", "bias"), layer, strict=True)
        }
        others = {name: getattr(self, name) for name in ("last", "shift", "c_radial", "c_angular")}
        if not self.largest_degree:
            del others["c_angular"]
        if self.last_charge is not None:
            others["last_charge"] = self.last_charge
            others["root_epsilon"] = np.array([self.root_epsilon])
        return {**layers, **others}

    def contents(self) -> bytes:
        """Its arrays, as :class:`pwmlff.native.Network` takes them."""
        numbers: dict[str, ArrayLike] = {
            "atom_type": self.elements,
            **{name: getattr(self, name) for name in ("l_max", "temperature", "neighbors")},
            **{name: getattr(self, name) for name in ("cut_radial", "cut_angular", "q_scaler")},
            **dict(zip(("nradial", "kradial"), self.c_radial.shape[2:], strict=True)),
            **dict(zip(("nangular", "kangular"), self.c_angular.shape[2:], strict=True)),
            "nhidden0": len(self.layers[0][1][0]),
            "nhidden1": len(self.layers[1][1][0]) if len(self.layers) > 1 else 0,
            "invariant": [name in self.invariants for name in INVARIANTS],
            **self.learned(),
        }
        if self.zbl is not None:
            numbers |= {"zbl_table": self.zbl, "zbl_line": self.zbl_line}
        if self.last_charge is not None:
            numbers |= {name: getattr(self, name) for name in ("charge_mode", "root_epsilon")}
        return arrays.written("nep", numbers)

    @property
    def cutoff(self) -> float:
        """Beyond it nothing depends on an atom, angstrom."""
        reach = [self.cut_radial.max()]
        if self.largest_degree:
            reach.append(self.cut_angular.max())
        if self.zbl is not None:
            reach.append(np.minimum(self.zbl[..., 1], self.cut_angular).max())
        return float(max(reach))

    def restricted(self, species: Sequence[int]) -> Nep:
        """The same for some species in another order, by their places.

        Raises:
            ValueError: a model with charges whose largest radial cutoff is one of other species.
        """
        chosen = list(species)
        if (
            self.charge_mode
            and self.cut_radial[np.ix_(chosen, chosen)].max() < self.cut_radial.max()
        ):
            raise ValueError(
                "found charges that are screened by the largest radial cutoff, which is of an "
                "element to be left out; keep that element"
            )
        pairs = np.ix_(chosen, chosen)
        return replace(
            self,
            elements=tuple(self.elements[k] for k in chosen),
            cut_radial=self.cut_radial[pairs],
            cut_angular=self.cut_angular[pairs],
            layers=tuple((weight[chosen], bias[chosen]) for weight, bias in self.layers),
            last=self.last[chosen],
            shift=self.shift[chosen],
            c_radial=self.c_radial[pairs],
            c_angular=self.c_angular[pairs],
            zbl=None if self.zbl is None else self.zbl[pairs],
            last_charge=None if self.last_charge is None else self.last_charge[chosen],
        )


def read_nep(path: str | PathLike[str]) -> Nep:
    """Read nep.txt of GPUMD, NEP_CPU or MatPL.

    Raises:
        ValueError: it is damaged or no potential; the text has the line.
        OSError: it cannot be read.
    """
    return parse_nep(Path(path).read_bytes())


def is_nep(path: str | PathLike[str]) -> bool:
    """Whether there is such a file, and it looks like a NEP."""
    try:
        with Path(path).open("rb") as file:
            return native.family_of(file.read(256)) == "nep"
    except OSError:
        return False


def parse_nep(text: bytes) -> Nep:
    """The same for the contents of a file; what is wrong is said as pair_style pwmlff says it.

    Raises:
        ValueError: as of read_nep; the text goes on after the name of the file.
        ImportError: pair-pwmlff is not compiled.
    """
    return of_network(native.Network(text, "nep"))


def of_network(network: native.Network) -> Nep:
    """The same of one that was read."""
    p = network.arrays().numbers
    s = len(p["atom_type"])
    c_angular = np.zeros((s, s, int(p["nangular"]), int(p["kangular"])))
    c_angular.ravel()[:] = p.get("c_angular", p.get("unused", c_angular)).ravel()
    layers = [(p[f"weight{k}"], p[f"bias{k}"]) for k in range(2) if f"weight{k}" in p]
    neighbors = p["neighbors"].astype(int)
    return Nep(
        elements=tuple(p["atom_type"].astype(int).tolist()),
        l_max=int(p["l_max"]),
        invariants=tuple(
            name for name, flag in zip(INVARIANTS, p["invariant"], strict=True) if flag
        ),
        temperature=bool(p["temperature"]),
        layers=tuple(layers),
        c_angular=c_angular,
        zbl=p.get("zbl_table"),
        zbl_line=tuple(p["zbl_line"].tolist()) if "zbl_line" in p else (),
        neighbors=(int(neighbors[0]), int(neighbors[1])),
        charge_mode=int(p.get("charge_mode", 0)),
        last_charge=p.get("last_charge"),
        root_epsilon=float(p.get("root_epsilon", 1.0)),
        **{
            name: p[name]
            for name in ("cut_radial", "cut_angular", "last", "shift", "c_radial", "q_scaler")
        },
    )


def universal_zbl(line: Sequence[float], elements: Sequence[int]) -> Array:
    """Universal ZBL as [S, S, 10].

    Args:
        line: inner and outer radius, angstrom.
        elements: atomic numbers of the species.
    """
    return np.tile(np.r_[line, np.ravel(UNIVERSAL)], (len(elements), len(elements), 1))


def _shifted_by_neurons(model: Nep) -> Nep:
    """The same model without shifts: one more neuron is tanh(20), which is 1 in float64."""
    *others, (weight, bias) = model.layers
    s, _, width = weight.shape
    charge = model.last_charge
    if charge is not None:
        charge = np.concatenate([charge, np.zeros((s, 1))], axis=1)
    weight = np.concatenate([weight, np.zeros((s, 1, width))], axis=1)
    bias = np.concatenate([bias, np.full((s, 1), 20.0)], axis=1)
    return replace(
        model,
        layers=(*others, (weight, bias)),
        last=np.concatenate([model.last, model.shift[:, None]], axis=1),
        shift=np.zeros(s),
        last_charge=charge,
    )


def write_nep(model: Nep, path: str | PathLike[str], version: int = 5) -> None:
    """Write what :func:`nep_text` gives; the file is never half written.

    Raises:
        ValueError: as nep_text.
    """
    write_whole(path, nep_text(model, version))


def nep_text(model: Nep, version: int = 5) -> bytes:
    """The contents of nep4.txt or nep5.txt, with all digits.

    Args:
        version: 4 or 5; programs older than 2025, and calorine, read 4 alone. It has one shift for
            all elements: where theirs differ, each network has a neuron more, which gives it.

    Raises:
        ValueError: the form cannot hold the model: cutoffs have to be one, or means of one for each
            element.
    """
    if version == 4 and (model.shift != model.shift[0]).any():
        model = _shifted_by_neurons(model)
    s = len(model.elements)
    names = [chemical_symbols[z] for z in model.elements]
    shifts, common = -model.shift, 0.0
    if version == 4:
        common = shifts[0]
    cuts = np.stack((model.cut_radial, model.cut_angular), axis=-1)
    own_cutoffs = cuts[range(s), range(s)]
    if not np.allclose(cuts, (own_cutoffs[:, None] + own_cutoffs) / 2, rtol=1e-14, atol=0):
        raise ValueError(
            "found cutoffs by covalent radii, expected one for all elements, or means of one for "
            "each; programs read no other form today, so train the model with such cutoffs"
        )
    if (own_cutoffs == own_cutoffs[0]).all():
        own_cutoffs = own_cutoffs[:1]

    zbl, temperature = model.zbl is not None, "_temperature" * model.temperature
    flags = [int(name in model.invariants) for name in INVARIANTS]
    flags[0] *= 2  # what older programs expect
    flags = flags[: max([2, *(n for n, flag in enumerate(flags, 1) if flag)])]
    charges = f"_charge{model.charge_mode}" if model.charge_mode else ""
    head = [[f"nep{version}{'_zbl' * zbl}{temperature}{charges}", s, *names]]
    head += [["zbl", *model.zbl_line]] * zbl
    head += [["cutoff", *own_cutoffs.ravel().tolist(), *model.neighbors]]
    (nradial, kradial), (nangular, kangular) = model.c_radial.shape[2:], model.c_angular.shape[2:]
    head += [["n_max", nradial - 1, nangular - 1]]
    head += [["basis_size", kradial - 1, kangular - 1]]
    head += [["l_max", model.l_max, *flags]]
    head += [["ANN", *[*(len(b[0]) for _, b in model.layers), 0][:2]]]

    numbers: list[Array] = []
    for a in range(s):
        for weight, bias in model.layers:
            numbers += [weight[a], -bias[a]]
        numbers += [model.last[a]]
        if model.last_charge is not None:
            numbers += [model.last_charge[a]]
        numbers += [shifts[a : a + 1]] * (version == 5)
    if model.last_charge is not None:
        numbers += [np.array([model.root_epsilon])]
    numbers += [np.array([common])]
    numbers += [c.transpose(2, 3, 0, 1) for c in (model.c_radial, model.c_angular)]
    numbers += [model.q_scaler]
    if model.zbl is not None and model.zbl_line == ZBL_TABLE:
        numbers += [model.zbl[a, b] for a, b in combinations_with_replacement(range(s), 2)]
    rows = [" ".join(str(word) for word in row) for row in head]
    rows += [repr(value) for part in numbers for value in part.ravel().tolist()]
    return "\n".join([*rows, ""]).encode()
