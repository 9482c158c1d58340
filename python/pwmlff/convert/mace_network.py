"""The arrays of a MACE model that the fused engine takes (kernels/families/mace/network.h).

They are read from the TorchScript alone. What a part of it is linear in is asked of the part
itself, by unit vectors, so that the conventions of e3nn and its releases do not matter: the engine
and the file's own code are compared when the result is loaded.

Sources: Batatia et al. 2022, arXiv:2206.07697; Batatia et al. 2025, arXiv:2510.25380 (gates).
"""

from __future__ import annotations

import functools
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pwmlff.arrays import written

#: Interaction blocks: whether they add what an atom was before, and divide by a density.
BLOCKS = {
    "RealAgnosticInteractionBlock": (False, False),
    "RealAgnosticResidualInteractionBlock": (True, False),
    "RealAgnosticDensityInteractionBlock": (False, True),
    "RealAgnosticDensityResidualInteractionBlock": (True, True),
}
#: The block with gates, whose radial nets see the elements at both ends of an edge.
GATED = "RealAgnosticResidualNonLinearInteractionBlock"
MODELS = ("MACE", "ScaleShiftMACE")
BASES = {"BesselBasis": 0.0, "GaussianBasis": 1.0}
#: The most that the engine has room for.
MOST_DEGREE = 4  # of harmonics and features
MOST_CORRELATION = 3
SMALL = 1e-12  # what is taken for zero beside 1
EPSILON = 1e-5  # beside the variance in norms, which the engine has

Array = NDArray[np.float64]


class UnknownPartError(ValueError):
    """A part that the engine does not know; the text names it."""


def network(model: Any, elements: list[int], head: int) -> bytes:
    """The arrays of a scripted MACE or ScaleShiftMACE, in the form that the engine reads.

    Args:
        model: the module inside a file for LAMMPS.
        elements: atomic numbers, in the order of its types.
        head: index of that of several which is asked for.

    Raises:
        UnknownPartError: it has a part that the engine does not know.
    """
    with torch.no_grad(), torch.jit.optimized_execution(False):
        return written("mace", _arrays(model, elements, head))


def atom_energies(model: Any, head: int) -> tuple[Tensor, list[float]]:
    """Energies of single atoms by types, and what the rest is multiplied by and added to."""
    energies = torch.atleast_2d(model.atomic_energies_fn.atomic_energies)[head]
    scaling = [1.0, 0.0]
    if hasattr(model, "scale_shift"):
        block = model.scale_shift
        scaling = [float(torch.atleast_1d(part)[head]) for part in (block.scale, block.shift)]
    return energies, scaling


def _arrays(model: Any, elements: list[int], head: int) -> dict[str, Array]:
    if model.original_name not in MODELS:
        raise UnknownPartError(f"a model of class {model.original_name}")
    for part in ("joint_embedding", "embedding_readout"):
        if hasattr(model, part):
            raise UnknownPartError(part)
    nspecies, layers = len(elements), _children(model.interactions)
    dtype = model.r_max.dtype
    energies, scaling = atom_energies(model, head)
    embedding = model.node_embedding.linear(torch.eye(nspecies, dtype=dtype))
    channels = embedding.shape[1]
    arrays = {
        "atom_type": np.array(elements, float),
        "cutoff": _numbers(model.r_max),
        "energies": _numbers(energies),
        "scaling": np.array(scaling),
        "embedding": _numbers(embedding),
        **_radial(model.radial_embedding, elements),
    }
    if hasattr(model, "pair_repulsion_fn"):
        arrays |= _repulsion(model.pair_repulsion_fn, elements)
    degree = 0  # of the features that enter a layer
    largest = round(float(np.sqrt(_harmonics(model, dtype).shape[1]))) - 1
    products = _children(model.products)
    readouts = _readouts(model, len(layers))
    for t, (layer, block) in enumerate(zip(layers, products, strict=True)):
        kind = GatedLayer if layer.original_name == GATED else _Layer
        found = kind(layer, block, channels, nspecies, degree, largest, dtype)
        arrays |= {f"layer{t}.{name}": array for name, array in found.arrays().items()}
        degree = found.leaving
        if t in readouts:
            read, bias = _readout(readouts[t], channels, degree, head, dtype)
            arrays["energies"] = arrays["energies"] + scaling[0] * bias
            arrays |= {f"layer{t}.{name}": array for name, array in read.items()}
    return arrays


def _numbers(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().double().numpy())


def _children(modules: Any) -> list[Any]:
    return [module for _, module in modules.named_children()]


def _harmonics(model: Any, dtype: torch.dtype) -> Tensor:
    """[1, (L + 1)^2] of some direction."""
    found: Tensor = model.spherical_harmonics(torch.ones(1, 3, dtype=dtype))
    return found


def _radial(block: Any, elements: list[int]) -> dict[str, Array]:
    basis = block.bessel_fn
    if basis.original_name not in BASES:
        raise UnknownPartError(f"the radial functions {basis.original_name}")
    if basis.original_name == "BesselBasis":
        numbers = [_numbers(basis.bessel_weights).ravel(), _numbers(basis.prefactor).ravel()]
    else:
        numbers = [_numbers(basis.gaussian_weights).ravel(), np.array([float(basis.coeff)])]
    kind = BASES[basis.original_name]
    first = float(getattr(block, "apply_cutoff", True))
    power = float(block.cutoff_fn.p)
    arrays = {
        "radial.basis": np.concatenate(numbers),
        "radial.options": np.array([kind, power, first]),
    }
    if hasattr(block, "distance_transform"):
        transform = block.distance_transform
        if transform.original_name != "AgnesiTransform":
            raise UnknownPartError(f"the distances of {transform.original_name}")
        radii = _numbers(transform.covalent_radii)[elements]
        arrays["radial.agnesi"] = np.array([float(getattr(transform, name)) for name in "qpa"])
        arrays["radial.radii"] = radii
    return arrays


def _repulsion(zbl: Any, elements: list[int]) -> dict[str, Array]:
    # Integers and scalars make the default type of them there, which is float32 in lmp.
    z = torch.tensor(elements)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        power = torch.pow(z, zbl.a_exp)
        length = zbl.a_prefactor * 0.529 / (power[:, None] + power)
        strength = 14.3996 * z[:, None] * z
    finally:
        torch.set_default_dtype(default)
    radii = zbl.covalent_radii[z]
    return {
        "zbl.numbers": np.array([float(zbl.p), *_numbers(zbl.c)]),
        "zbl.length": _numbers(length),
        "zbl.strength": _numbers(strength),
        "zbl.reach": _numbers(radii[:, None] + radii),
    }


def _readouts(model: Any, nlayers: int) -> dict[int, Any]:
    """Those of each layer that has one; a single one is of the last."""
    readouts = _children(model.readouts)
    return {nlayers - 1: readouts[0]} if len(readouts) == 1 else dict(enumerate(readouts))


def _readout(
    block: Any, channels: int, degree: int, head: int, dtype: torch.dtype
) -> tuple[dict[str, Array], float]:
    """Its arrays, and what it adds to each energy."""
    width = channels * (degree + 1) ** 2
    units = torch.zeros(channels, width, dtype=dtype)
    units[:, :channels] = torch.eye(channels, dtype=dtype)
    if block.original_name == "LinearReadoutBlock":
        return {"readout": _numbers(block.linear(units)[:, head])}, 0.0
    if block.original_name not in ("NonLinearReadoutBlock", "NonLinearBiasReadoutBlock"):
        raise UnknownPartError(f"the readout {block.original_name}")
    first = block.linear_1(units)
    heads = int(getattr(block, "num_heads", 1))
    hidden = first.shape[1] // heads
    own = slice(head * hidden, (head + 1) * hidden) if heads > 1 else slice(None)
    gain = _gain(block.non_linearity, first.shape[1], dtype)
    last, bias = _affine(block.linear_2, first.shape[1], dtype)
    column = head if last.shape[1] > 1 else 0
    arrays = {
        "readout.first": _numbers(first[:, own]),
        "readout.last": gain * last[own, column],
    }
    if hasattr(block, "linear_mid"):
        middle, of_middle = _affine(block.linear_mid, first.shape[1], dtype)
        arrays |= {"readout.mid": gain * middle[own, own], "readout.bias": of_middle[own]}
    return arrays, float(bias[column])


def _affine(linear: Any, width: int, dtype: torch.dtype) -> tuple[Array, Array]:
    """Its matrix [width, out] and its bias [out]."""
    bias = linear(torch.zeros(1, width, dtype=dtype))
    return _numbers(linear(torch.eye(width, dtype=dtype)) - bias), _numbers(bias[0])


def _gain(activation: Any, width: int, dtype: torch.dtype) -> float:
    """The factor of an activation that is silu with one."""
    x = torch.linspace(-3.0, 3.0, width + 2, dtype=dtype)[1:-1].reshape(1, -1) + 0.01
    return _constant(activation(x), torch.nn.functional.silu(x), "an activation other than silu")


def _constant(found: Tensor, base: Tensor, what: str) -> float:
    ratio = (found / base).double()
    if not (ratio - ratio.mean()).abs().max() <= 1e-5 * ratio.mean().abs():
        raise UnknownPartError(what)
    return float(ratio.mean())


def _mlp(net: Any, dtype: torch.dtype) -> list[Array]:
    """Weights [in, out] of a net of silu without biases; what scales activations is in the next."""
    if net.original_name != "FullyConnectedNet":
        raise UnknownPartError(f"the radial net {net.original_name}")
    weights, gain = [], 1.0
    layers = _children(net)
    for k, layer in enumerate(layers):
        plain = layer.weight / layer.weight.shape[0] ** 0.5
        x = torch.randn(5, plain.shape[0], dtype=dtype, generator=torch.Generator().manual_seed(k))
        y, last = layer(x), k == len(layers) - 1
        argument = x @ plain
        factor = _constant(
            y,
            argument if last else torch.nn.functional.silu(argument),
            "a radial net of other activations than silu",
        )
        weights.append(_numbers(plain) * gain * (factor if last else 1.0))
        gain = factor
    return weights


class Path(NamedTuple):
    """Degrees of the features, of harmonics and of their product; its number in the radial net, and
    where it begins in the products of all."""

    degrees: tuple[int, int, int]
    number: int
    start: int


class _Layer:
    """A round of message passing: what a block of MACE and the product behind it hold.

    Features are [channels, 2l+1] for each degree l, one behind the other; `degree` is the largest
    that enters, `leaving` the largest that leaves.
    """

    def __init__(self, block: Any, product_block: Any, channels: int, nspecies: int, degree: int,
                 largest: int, dtype: torch.dtype) -> None:  # fmt: skip
        if hasattr(block, "conv_fusion"):
            raise UnknownPartError("conv_fusion")
        self.block, self.product, self.dtype = block, product_block, dtype
        self.channels, self.nspecies, self.degree = channels, nspecies, degree
        self.largest = largest
        self.contractions = _children(product_block.symmetric_contractions.contractions)
        self.leaving = len(self.contractions) - 1
        if max(degree, largest, self.leaving) > MOST_DEGREE:
            raise UnknownPartError(f"degrees above {MOST_DEGREE}")
        self._find_features()

    def _find_features(self) -> None:
        """What goes along edges: channels, largest degree, number of paths in the radial net."""
        if self.block.original_name not in BLOCKS:
            raise UnknownPartError(f"the interaction {self.block.original_name}")
        self.residual, self.density = BLOCKS[self.block.original_name]
        self.edge_channels, self.edge_degree = self.channels, self.degree
        columns = _mlp(self.block.conv_tp_weights, self.dtype)[-1].shape[1]
        self.npaths = columns // self.edge_channels

    def arrays(self) -> dict[str, Array]:
        """All of it, by name."""
        arrays: dict[str, Array] = {}
        for degree, matrix in enumerate(self._sent()):
            arrays[f"up.{degree}"] = matrix
        paths, couplings = self._couplings()
        arrays["paths"] = np.array([path.degrees for path in paths], float)
        for p, coupling in enumerate(couplings):
            arrays[f"coupling.{p}"] = coupling
        arrays |= self._nets(paths)
        arrays |= self._messages(paths)
        for degree, contraction in enumerate(self.contractions):
            for name, array in self._contraction(contraction, degree).items():
                arrays[f"contraction.{degree}.{name}"] = array
        for degree, matrix in enumerate(
            self._linear(self.product.linear, self.leaving, self.leaving)
        ):
            arrays[f"product.{degree}"] = matrix
        if self.residual:
            for degree, matrices in enumerate(zip(*self._skips(), strict=True)):
                arrays[f"skip.{degree}"] = np.stack(matrices)
        return arrays

    def _nets(self, paths: list[Path]) -> dict[str, Array]:
        """Of radial functions, and of the density."""
        weights = _mlp(self.block.conv_tp_weights, self.dtype)
        arrays = {f"radial.{n}": matrix for n, matrix in enumerate(weights)}
        if self.density:
            (arrays["density"],) = (part[:, 0] for part in _mlp(self.block.density_fn, self.dtype))
        return arrays

    def _units(self, degree: int, largest: int, channels: int = 0) -> Tensor:
        """Features with a single one, component 0 of each channel of a degree."""
        k = channels or self.channels
        return self._ones(k, k * degree**2, degree, k * (largest + 1) ** 2)

    def _ones(self, k: int, start: int, degree: int, width: int) -> Tensor:
        """[k, width], a one in component 0 of each channel of a degree that starts there."""
        units = torch.zeros(k, width, dtype=self.dtype)
        units[torch.arange(k), start + torch.arange(k) * (2 * degree + 1)] = 1.0
        return units

    def _component(self, found: Tensor, degree: int, channels: int = 0, start: int = -1) -> Array:
        """Component 0 of all channels of a degree, which starts there."""
        k = channels or self.channels
        start = k * degree**2 if start < 0 else start
        if found.shape[1] < start + k * (2 * degree + 1):
            raise UnknownPartError("features of different numbers of channels")
        block = found[:, start : start + k * (2 * degree + 1)]
        return _numbers(block.reshape(len(found), k, 2 * degree + 1)[:, :, 0])

    def _linear(self, linear: Any, entering: int, leaving: int) -> list[Array]:
        """The matrices [channels, channels] of a map from features to others, by degree."""
        return [
            self._component(linear(self._units(degree, entering)), degree)
            for degree in range(min(entering, leaving) + 1)
        ]

    def _sent(self) -> list[Array]:
        return self._linear(self.block.linear_up, self.degree, self.degree)

    def _skips(self) -> list[list[Array]]:
        """The matrices of each degree, of each species or once for all."""
        most = min(self.degree, self.leaving)
        found = []
        for species in range(self.nspecies):
            attributes = self._attributes(species, self.channels)
            skip = functools.partial(self._skip, attributes=attributes)
            found.append(self._linear(skip, self.degree, most))
        return found

    def _skip(self, features: Tensor, attributes: Tensor) -> Tensor:
        skipped: Tensor = self.block.skip_tp(features, attributes)
        return skipped

    def _attributes(self, species: int, rows: int) -> Tensor:
        attributes = torch.zeros(rows, self.nspecies, dtype=self.dtype)
        attributes[:, species] = 1.0
        return attributes

    def _couplings(self) -> tuple[list[Path], list[Array]]:
        """Paths, and their coefficients [2l1+1, 2l2+1, 2L+1]."""
        k, npaths, product_of = self.edge_channels, self.npaths, self.block.conv_tp
        nx, ny = (self.edge_degree + 1) ** 2, (self.largest + 1) ** 2
        pairs = torch.tensor(list(product(range(nx), range(ny))))
        x = torch.zeros(len(pairs), k * nx, dtype=self.dtype)
        degrees = torch.tensor([round(float(np.floor(np.sqrt(n)))) for n in range(nx)])
        starts = k * degrees**2 + torch.arange(nx) - degrees**2  # of channel 0
        x[torch.arange(len(pairs)), starts[pairs[:, 0]]] = 1.0
        y = torch.eye(ny, dtype=self.dtype)[pairs[:, 1]]
        generator = torch.Generator().manual_seed(1)
        some = torch.randn(1, k * nx, dtype=self.dtype, generator=generator)
        other = torch.randn(1, ny, dtype=self.dtype, generator=generator)
        all_ones = torch.ones(len(pairs), npaths * k, dtype=self.dtype)
        values = product_of(x, y, all_ones)
        self.width = values.shape[1]
        paths, couplings = [], []
        for p in range(npaths):
            weights = torch.zeros(1, npaths * k, dtype=self.dtype)
            weights[0, p * k] = 1.0
            (where,) = torch.nonzero(product_of(some, other, weights)[0], as_tuple=True)
            start, size = int(where[0]), len(where)
            table = _numbers(values[:, start : start + size]).reshape(nx, ny, size)
            used = [
                np.nonzero(np.abs(table).max(axis=axes) > SMALL)[0] for axes in ((1, 2), (0, 2))
            ]
            l1, l2 = (int(np.sqrt(part.max())) for part in used)
            if l1 > self.degree:
                continue  # no feature of an atom comes there
            paths.append(Path((l1, l2, (size - 1) // 2), p, start))
            couplings.append(table[l1**2 : (l1 + 1) ** 2, l2**2 : (l2 + 1) ** 2])
        return paths, couplings

    def _rows(self, linear: Any, paths: list[Path], degree: int) -> Tensor:
        """[paths of the degree times channels along edges, all that comes out] of a map of A."""
        rows = [
            linear(self._ones(self.edge_channels, path.start, degree, self.width))
            for path in paths
            if path.degrees[2] == degree
        ]
        if not rows:
            raise UnknownPartError(f"messages of degree {degree} to which nothing adds")
        return torch.cat(rows)

    def _messages(self, paths: list[Path]) -> dict[str, Array]:
        """[1 or species, paths of the degree times channels, channels] of each degree."""
        divisor = 1.0 if self.density else float(self.block.avg_num_neighbors)
        found = {}
        for degree in range(self.largest + 1):
            mixed = self._rows(self.block.linear, paths, degree) / divisor
            if self.residual:
                found[f"message.{degree}"] = self._component(mixed, degree)[None]
                continue
            each = [
                self._component(self._skip(mixed, self._attributes(z, len(mixed))), degree)
                for z in range(self.nspecies)
            ]
            found[f"message.{degree}"] = np.stack(each)
        return found

    def _contraction(self, contraction: Any, degree: int) -> dict[str, Array]:
        """Of each order, the monomials with a coefficient other than zero and their weights.

        `terms` [n, 3 + order]: component, parameter, coefficient, and the components of which the
        product is, in ascending order; `weights` [species, parameters, channels].
        """
        buffers = dict(contraction.named_buffers())
        order = sum(name.startswith("U_matrix_") for name in buffers)
        if not 1 <= order <= MOST_CORRELATION:
            raise UnknownPartError(f"correlation {order}")
        arrays = {}
        weights = [contraction.weights_max, *_parameters(contraction.weights)]
        for nu, weight in zip(range(order, 0, -1), weights, strict=True):
            table = _numbers(buffers[f"U_matrix_{nu}"])
            if table.ndim == nu + 1:
                table = table[None]
            terms: dict[tuple[int, ...], float] = {}
            for place in zip(*np.nonzero(np.abs(table) > SMALL), strict=True):
                component, *factors, parameter = (int(n) for n in place)
                key = (component, parameter, *sorted(factors))
                terms[key] = terms.get(key, 0.0) + float(table[place])
            rows = [
                [*key[:2], value, *key[2:]]
                for key, value in sorted(terms.items())
                if abs(value) > SMALL
            ]
            arrays[f"terms.{nu}"] = np.array(rows, float).reshape(-1, 3 + nu)
            full = _numbers(weight)
            if full.shape[0] == 1:
                full = np.repeat(full, self.nspecies, axis=0)
            arrays[f"weights.{nu}"] = full
        return arrays


class GatedLayer(_Layer):
    """The same with gates. What goes along edges may have channels and degrees of its own, and of
    degree 0 what is mixed of A has a gate for each higher degree behind it."""

    def _find_features(self) -> None:
        self.residual, self.density = True, True
        sent = self.block.linear_up(self._units(0, self.degree))
        self.edge_channels = int(torch.nonzero(sent.abs().amax(0))[-1]) + 1
        self.edge_degree = round(float(np.sqrt(sent.shape[1] / self.edge_channels))) - 1
        if self.edge_degree < self.degree:
            raise UnknownPartError("features of lower degrees along edges than of atoms")
        if self.edge_degree > MOST_DEGREE:
            raise UnknownPartError(f"degrees above {MOST_DEGREE}")
        last = _children(self.block.conv_tp_weights.net)[-1]
        self.npaths = last.weight.shape[0] // self.edge_channels

    def _sent(self) -> list[Array]:
        return [
            self._component(
                self.block.linear_up(self._units(degree, self.degree)), degree, self.edge_channels
            )
            for degree in range(self.degree + 1)
        ]

    def _skips(self) -> list[list[Array]]:
        return [self._linear(self.block.skip_tp, self.degree, min(self.degree, self.leaving))]

    def _nets(self, paths: list[Path]) -> dict[str, Array]:
        k = self.edge_channels
        columns = np.concatenate([np.arange(k) + k * path.number for path in paths])
        divisor = [float(self.block.alpha), float(self.block.beta)]
        return {
            **self._net("radial", self.block.conv_tp_weights, columns),
            **self._net("density", self.block.density_fn, np.arange(1)),
            "divisor": np.array(divisor),
        }

    def _net(self, name: str, net: Any, columns: NDArray[np.int64]) -> dict[str, Array]:
        """Matrices, biases, norms of hidden layers, and what two elements add at first; the last
        matrix has those columns."""
        if net.original_name != "RadialMLP":
            raise UnknownPartError(f"the radial net {net.original_name}")
        parts = _children(net.net)
        kinds = [part.original_name for part in parts]
        if kinds != ["Linear", *["LayerNorm", "SiLU", "Linear"] * (len(kinds) // 3)]:
            raise UnknownPartError(f"a radial net of {', '.join(kinds)}")
        arrays = {}
        for n, linear in enumerate(parts[::3]):
            chosen = columns if n == len(kinds) // 3 else slice(None)
            arrays[f"{name}.{n}"] = _numbers(linear.weight.T)[:, chosen]
            arrays[f"{name}.bias.{n}"] = _numbers(linear.bias)[chosen]
        for n, norm in enumerate(parts[1::3]):
            if norm.eps != EPSILON:
                raise UnknownPartError(f"a norm with {norm.eps} beside the variance")
            arrays[f"{name}.norm.{n}"] = _numbers(torch.stack((norm.weight, norm.bias)))
        # Behind the radial functions come the embeddings of the neighbor and of the center.
        species = torch.eye(self.nspecies, dtype=self.dtype)
        neighbor = _numbers(self.block.source_embedding(species))
        center = _numbers(self.block.target_embedding(species))
        nbasis = len(arrays[f"{name}.0"]) - neighbor.shape[1] - center.shape[1]
        of_basis, of_neighbor, of_center = np.split(
            arrays[f"{name}.0"], [nbasis, nbasis + neighbor.shape[1]]
        )
        arrays[f"{name}.0"] = of_basis
        arrays[f"{name}.pair"] = (center @ of_center)[:, None] + neighbor @ of_neighbor
        return arrays

    def _messages(self, paths: list[Path]) -> dict[str, Array]:
        k, ke, found = self.channels, self.edge_channels, {}
        factors = self._factors()
        mixing = self._linear(self.block.linear_2, self.largest, self.largest)
        # Of degree 0 what goes to the gates stands there, too.
        mixed = [
            self._rows(self.block.linear_1, paths, degree) for degree in range(self.largest + 1)
        ]
        own = [
            self.block.linear_res(self._units(degree, self.edge_degree, ke))
            for degree in range(min(self.degree, self.largest) + 1)
        ]
        for degree, rows in enumerate(mixed):
            found[f"message.{degree}"] = self._before_gates(rows, degree)[None]
            found[f"gate.mix.{degree}"] = mixing[degree] * factors[degree]
        for degree, rows in enumerate(own):
            found[f"gate.own.{degree}"] = self._before_gates(rows, degree)
        for degree in range(1, self.largest + 1):
            gate = slice(k * degree, k * (degree + 1))
            found[f"gate.z.{degree}"] = _numbers(mixed[0][:, gate])
            found[f"gate.own_z.{degree}"] = _numbers(own[0][:, gate])
        return found

    def _before_gates(self, found: Tensor, degree: int) -> Array:
        """Component 0 of a degree, where degree 0 has the scalars for gates behind it."""
        k = self.channels
        start = 0 if degree == 0 else k * self.largest + k * degree**2
        return self._component(found, degree, start=start)

    def _factors(self) -> list[float]:
        """What silu of degree 0 and the gate of each other degree are multiplied by."""
        k, largest = self.channels, self.largest
        generator = torch.Generator().manual_seed(1)
        width = k * ((largest + 1) ** 2 + largest)
        x = 1.0 + torch.rand(3, width, dtype=self.dtype, generator=generator)
        opened = self.block.equivariant_nonlin(x)
        wrong = "a gate other than silu and sigmoid"
        if opened.shape[1] != k * (largest + 1) ** 2:
            raise UnknownPartError(wrong)
        factors = [_constant(opened[:, :k], torch.nn.functional.silu(x[:, :k]), wrong)]
        for degree in range(1, largest + 1):
            start, size = k * degree**2, k * (2 * degree + 1)
            part = x[:, k * largest + start : k * largest + start + size]
            gate = torch.sigmoid(x[:, k * degree : k * (degree + 1)])
            expected = part * gate.repeat_interleave(2 * degree + 1, dim=1)
            factors.append(_constant(opened[:, start : start + size], expected, wrong))
        return factors


def _parameters(collection: Any) -> list[Tensor]:
    """Of a ParameterList, in order."""
    return [tensor for _, tensor in collection.named_parameters()]
