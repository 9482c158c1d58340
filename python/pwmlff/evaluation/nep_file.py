"""Files of neuroevolution potentials (NEP): nep.txt of GPUMD, NEP_CPU and MatPL.

All forms that are local potentials are read into one. docs/nep.md has them, and what is refused.
"""

from __future__ import annotations

import codecs
import ctypes
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise
from math import prod
from os import PathLike
from pathlib import Path

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from pwmlff.files import write_whole
from pwmlff.plugin import open_library

Array = np.ndarray

#: Invariants of several A beyond q_nl, in the order of the flags behind l_max, with their degrees.
INVARIANTS = {
    "222": (2, 2, 2), "1111": (1, 1, 1, 1), "112": (1, 1, 2), "123": (1, 2, 3), "233": (2, 3, 3),
    "134": (1, 3, 4),
}  # fmt: skip
#: a and b of the screening function of Ziegler, Biersack and Littmark 1985.
UNIVERSAL = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))

#: Covalent radii of H to Pu in 0.01 angstrom: Pyykko and Atsumi 2009, doi:10.1002/chem.200800987,
#: metals less 10 %, as Grimme et al. 2010, doi:10.1063/1.3382344, have them.
_RADII = (
    32, 46, 120, 94, 77, 75, 71, 63, 64, 67, 140, 125, 113, 104, 110, 102, 99, 96, 176, 154, 133,
    122, 121, 110, 107, 104, 100, 99, 101, 109, 112, 109, 115, 110, 114, 117, 189, 167, 147, 139,
    132, 124, 115, 113, 113, 108, 115, 123, 128, 126, 126, 123, 132, 131, 209, 176, 162, 147, 158,
    157, 156, 155, 151, 152, 151, 150, 149, 149, 148, 153, 146, 137, 131, 123, 118, 116, 111, 112,
    113, 132, 130, 130, 136, 131, 138, 142, 201, 181, 167, 158, 152, 153, 154, 155,
)  # fmt: skip
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TEXT = 2048  # bytes for a message
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
        """The arrays that training changes, in the order of kernels/nep/nep_training.h."""
        layers = {
            f"{name}{k}": array
            for k, layer in enumerate(self.layers)
            for name, array in zip(("weight", "bias"), layer, strict=True)
        }
        others = {name: getattr(self, name) for name in ("last", "shift", "c_radial", "c_angular")}
        if not self.largest_degree:
            del others["c_angular"]
        return {**layers, **others}

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
        """The same for some species in another order, by their places."""
        chosen = list(species)
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
        )


class _Lines:
    """The lines of a file that are not blank, one after the other."""

    def __init__(self, text: bytes) -> None:
        self.rows = [(n, line) for n, line in enumerate(text.split(b"\n"), 1) if line.split()]
        self.rows.append((self.rows[-1][0] if self.rows else 1, b""))  # the end
        self.current = -1

    def words(self) -> list[bytes]:
        """Those of the next line, which is then the current one; none at the end."""
        self.current = min(self.current + 1, len(self.rows) - 1)
        return self.rows[self.current][1].split()

    def error(self, expected: str) -> ValueError:
        """An error in the current line."""
        number, line = self.rows[self.current]
        found = ascii(line.decode("latin-1").strip()) if line else "the end of the file"
        return ValueError(f"line {number}: found {found}, expected {expected}")

    def number(self, word: bytes) -> float:
        """A word as a number; floats of Python may be written in more ways."""
        value = float(word) if _NUMBER.fullmatch(word) else np.nan
        if not np.isfinite(value):
            raise self.error("finite numbers")
        return value

    def values(self, keyword: str, form: str, counts: Collection[int]) -> list[float]:
        """Values of the next line, which begins with the keyword."""
        found = self.words()
        if found[:1] != [keyword.encode()] or len(found) - 1 not in counts:
            raise self.error(f"'{keyword} {form}'")
        return [self.number(word) for word in found[1:]]

    def integers(self, values: Sequence[float], least: int, most: int) -> list[int]:
        """Values of the current line that have to be whole numbers."""
        if not all(least <= value <= most and value == int(value) for value in values):
            raise self.error(f"whole numbers from {least} to {most}")
        return [int(value) for value in values]

    def numbers(self) -> Array:
        """All that is left, one to a line."""
        found = []
        while words := self.words():
            if len(words) > 1:
                raise self.error("one number")
            found.append(self.number(words[0]))
        return np.array(found)


def read_nep(path: str | PathLike[str]) -> Nep:
    """Read nep.txt of GPUMD, NEP_CPU or MatPL.

    Raises:
        ValueError: it is damaged or no local potential; the text has the line.
        OSError: it cannot be read.
    """
    return parse_nep(Path(path).read_bytes())


def looks_like_nep(contents: bytes) -> bool:
    """As kernels/nep/read_nep.h has it."""
    return re.match(rb"(\xef\xbb\xbf)?[ \t\r\n]*nep[0-9_]", contents[:256]) is not None


def is_nep(path: str | PathLike[str]) -> bool:
    """Whether there is such a file, and it looks like a NEP."""
    try:
        with Path(path).open("rb") as file:
            return looks_like_nep(file.read(256))
    except OSError:
        return False


def checked_nep(text: bytes) -> Nep:
    """The same for the contents of a file; what is wrong is said as pair_style pwmlff says it.

    Raises:
        ValueError: as of read_nep; the text goes on after the name of the file.
        ImportError: pair-pwmlff is not compiled.
    """
    library = open_library("pwmlff_kernels", "read a NEP")
    message = ctypes.create_string_buffer(_TEXT)
    library.pwmlff_read_nep.restype = ctypes.c_void_p
    read = library.pwmlff_read_nep(text, ctypes.c_uint64(len(text)), message, ctypes.c_int(_TEXT))
    if not read:
        raise ValueError(message.value.decode(errors="replace"))
    library.pwmlff_free_nep(ctypes.c_void_p(read))
    return parse_nep(text)


def parse_nep(text: bytes) -> Nep:
    """The same by this module alone."""
    lines = _Lines(text.removeprefix(codecs.BOM_UTF8))
    version, has_zbl, temperature, elements = _first_line(lines)
    s = len(elements)
    zbl_line = _zbl_line(lines) if has_zbl else ()
    values = lines.values("cutoff", "RADIAL ANGULAR ..", (2, 4, 7, 2 * s + 2))
    cut_radial, cut_angular = _cutoffs(values, elements, lines)
    zbl = None
    if has_zbl and zbl_line != ZBL_TABLE:
        typewise = max(0.0, values[6]) if len(values) == 7 else 0.0
        zbl = universal_zbl(zbl_line, elements, typewise, lines)
        zbl_line = ZBL_TABLE if typewise else zbl_line
    of_zbl = 5 * s * (s + 1) if has_zbl and zbl is None else 0
    neighbors = Nep.neighbors
    if len(values) > 2:
        radial, angular = values[2:4] if len(values) == 7 else values[-2:]
        neighbors = (int(radial), int(angular))

    nradial, nangular = (
        value + 1 for value in lines.integers(lines.values("n_max", "R A", (2,)), 0, 100)
    )
    kradial, kangular = (
        value + 1 for value in lines.integers(lines.values("basis_size", "R A", (2,)), 0, 100)
    )
    degrees = lines.values("l_max", "L and 2 to 6 flags", range(3, 8))
    (l_max,) = lines.integers(degrees[:1], 0, 8)
    invariants = tuple(
        name for name, flag in zip(INVARIANTS, degrees[1:], strict=False) if flag != 0
    )
    neurons = lines.values("ANN", "NEURONS NEURONS", (2,))
    hidden = lines.integers(neurons[:1], 1, 10000) + lines.integers(neurons[1:], 0, 10000)

    width = nradial + nangular * (l_max + len(invariants)) + temperature
    shapes: list[tuple[int, ...]] = []
    for n, m in pairwise([width, *(h for h in hidden if h)]):
        shapes += [(m, n), (m,)]
    shapes += [shapes[-1], *[()] * (version == 5)]
    networks = 1 if version == 3 else s
    angular_shape = (nangular, kangular, s, s)

    # MatPL wrote a bias of each element where nep4 has one for all, and leaves c of the angular
    # part away where nothing depends on it.
    begin = lines.current + 1
    numbers = lines.numbers()
    most = networks * sum(map(prod, shapes)) + 1 + nradial * kradial * s * s + prod(angular_shape)
    most += width + of_zbl
    allowed = {most: (1, angular_shape)}
    if not l_max and not invariants:
        allowed[most - prod(angular_shape)] = (1, (0, kangular, s, s))
    if version == 4:
        allowed |= {size + s - 1: (s, shape) for size, (_, shape) in allowed.items()}
    if len(numbers) not in allowed:
        raise lines.error(f"{most} numbers, not {len(numbers)}")
    biases, angular_shape = allowed[len(numbers)]

    place = 0

    def take(*shape: int) -> Array:
        nonlocal place
        place += prod(shape)
        return numbers[place - prod(shape) : place].reshape(shape)

    parts = [[take(*shape) for shape in shapes] for _ in range(networks)] * (s // networks)
    stacked = [np.stack(arrays) for arrays in zip(*parts, strict=True)]
    shift = -stacked.pop() if version == 5 else np.zeros(s)
    last = stacked.pop()
    layers = tuple((w, -b) for w, b in zip(stacked[::2], stacked[1::2], strict=True))
    shift = shift - take(biases)
    c_radial = take(nradial, kradial, s, s).transpose(2, 3, 0, 1)
    c_angular = np.zeros((s, s, nangular, kangular))
    c_angular[:, :, : angular_shape[0]] = take(*angular_shape).transpose(2, 3, 0, 1)
    q_scaler = take(width)
    if of_zbl:
        zbl = np.zeros((s, s, 10))
        for a, b in combinations_with_replacement(range(s), 2):
            lines.current = begin + place
            zbl[a, b] = zbl[b, a] = row = take(10)
            if not (row[0] >= 0 and row[1] <= 100 and (row[0] < row[1] or row[1] == 0)):
                raise lines.error("0 <= inner < outer <= 100 in the table of ZBL, or 0 and 0")
    return Nep(
        elements, cut_radial, cut_angular, l_max, invariants, temperature, layers, last, shift,
        c_radial, c_angular, q_scaler, zbl, zbl_line, neighbors,
    )  # fmt: skip


def _first_line(lines: _Lines) -> tuple[int, bool, bool, tuple[int, ...]]:
    """The version, whether there is ZBL and a temperature, and atomic numbers."""
    first, count, *symbols = [*lines.words(), b"", b""]
    form = re.fullmatch(rb"nep([345])(_zbl)?(_temperature)?(_zbl)?", first)
    if form is None or (form[2] and form[4]):
        raise lines.error(
            "nep3, nep4 or nep5, with _zbl or _temperature: other kinds of NEP are no local "
            "potentials"
        )
    symbols = [symbol for symbol in symbols if symbol]
    elements = tuple(atomic_numbers.get(symbol.decode("latin-1"), 0) for symbol in symbols)
    n = int(count) if re.fullmatch(rb"[+-]?\d+", count) else 0
    if not n or n != len(elements) or 0 in elements or len(set(elements)) != n:
        raise lines.error("the number of elements and as many different symbols")
    return int(form[1]), bool(form[2] or form[4]), bool(form[3]), elements


def _zbl_line(lines: _Lines) -> tuple[float, ...]:
    values = tuple(lines.values("zbl", "INNER OUTER [FACTOR]", (2, 3)))
    if values[:2] == ZBL_TABLE:
        return ZBL_TABLE
    if not 0 <= values[0] < values[1] <= 100 or (values[2:] and not values[2] > 0):
        raise lines.error("0 <= INNER < OUTER <= 100 and a factor above 0")
    return values


def _sums_of_radii(elements: Sequence[int], lines: _Lines | None) -> Array:
    """[S, S] of 4/3 of the covalent radii, which have six digits."""
    if max(elements) > len(_RADII):
        error = "elements up to Pu where cutoffs are by covalent radii"
        raise lines.error(error) if lines else ValueError(f"expected {error}")
    radii = np.array([float(f"{_RADII[z - 1] / 75:.6g}") for z in elements])
    sums: Array = radii[:, None] + radii
    return sums


def _cutoffs(
    values: Sequence[float], elements: Sequence[int], lines: _Lines
) -> tuple[Array, Array]:
    """Radial and angular cutoffs, [S, S]."""
    s = len(elements)
    cuts = np.full((s, s, 2), values[:2])
    if len(values) == 2 * s + 2:
        of_each = np.array(values[:-2]).reshape(s, 2)
        cuts = (of_each[:, None] + of_each) / 2
    if len(values) == 7:
        if (values[4] > 0) != (values[5] > 0):
            raise lines.error("factors of both cutoffs above 0, or none")
        if values[4] > 0:
            sums = _sums_of_radii(elements, lines)
            cuts = np.minimum(cuts, sums[..., None] * values[4:6])
    if not ((cuts >= 0.01) & (cuts <= 100)).all():
        raise lines.error("cutoffs from 0.01 to 100 angstrom")
    return cuts[..., 0], cuts[..., 1]


def universal_zbl(
    line: Sequence[float],
    elements: Sequence[int],
    typewise: float = 0.0,
    lines: _Lines | None = None,
) -> Array:
    """Universal ZBL as [S, S, 10].

    Args:
        line: inner and outer radius, angstrom, and a factor for sums of radii.
        elements: atomic numbers of the species.
        typewise: the factor of the line cutoff, which goes first and has inner = outer/2.
        lines: that an error is of.

    Raises:
        ValueError: an element has no radius.
    """
    s = len(elements)
    table = np.tile(np.r_[line[:2], np.ravel(UNIVERSAL)], (s, s, 1))
    factor = typewise or sum(line[2:])
    if factor:
        table[..., 1] = np.minimum(line[1], factor * _sums_of_radii(elements, lines))
        table[..., 0] = table[..., 1] / 2 if typewise else 0.0
    return table


def _shifted_by_neurons(model: Nep) -> Nep:
    """The same model without shifts: one more neuron is tanh(20), which is 1 in float64."""
    *others, (weight, bias) = model.layers
    s, _, width = weight.shape
    weight = np.concatenate([weight, np.zeros((s, 1, width))], axis=1)
    bias = np.concatenate([bias, np.full((s, 1), 20.0)], axis=1)
    return replace(
        model,
        layers=(*others, (weight, bias)),
        last=np.concatenate([model.last, model.shift[:, None]], axis=1),
        shift=np.zeros(s),
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
    of_each = cuts[range(s), range(s)]
    if not np.allclose(cuts, (of_each[:, None] + of_each) / 2, rtol=1e-14, atol=0):
        raise ValueError(
            "found cutoffs by covalent radii, expected one for all elements, or means of one for "
            "each; programs read no other form today, so train the model with such cutoffs"
        )
    if (of_each == of_each[0]).all():
        of_each = of_each[:1]

    zbl, temperature = model.zbl is not None, "_temperature" * model.temperature
    flags = [int(name in model.invariants) for name in INVARIANTS]
    flags[0] *= 2  # what older programs expect
    flags = flags[: max([2, *(n for n, flag in enumerate(flags, 1) if flag)])]
    head = [[f"nep{version}{'_zbl' * zbl}{temperature}", s, *names]]
    head += [["zbl", *model.zbl_line]] * zbl
    head += [["cutoff", *of_each.ravel().tolist(), *model.neighbors]]
    (nradial, kradial), (nangular, kangular) = model.c_radial.shape[2:], model.c_angular.shape[2:]
    head += [["n_max", nradial - 1, nangular - 1]]
    head += [["basis_size", kradial - 1, kangular - 1]]
    head += [["l_max", model.l_max, *flags]]
    head += [["ANN", *[*(len(b[0]) for _, b in model.layers), 0][:2]]]

    numbers: list[Array] = []
    for a in range(s):
        for weight, bias in model.layers:
            numbers += [weight[a], -bias[a]]
        numbers += [model.last[a]] + [shifts[a : a + 1]] * (version == 5)
    numbers += [np.array([common])]
    numbers += [c.transpose(2, 3, 0, 1) for c in (model.c_radial, model.c_angular)]
    numbers += [model.q_scaler]
    if model.zbl is not None and model.zbl_line == ZBL_TABLE:
        numbers += [model.zbl[a, b] for a, b in combinations_with_replacement(range(s), 2)]
    rows = [" ".join(str(word) for word in row) for row in head]
    rows += [repr(value) for part in numbers for value in part.ravel().tolist()]
    return "\n".join([*rows, ""]).encode()
