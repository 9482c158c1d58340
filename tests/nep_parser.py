"""A parser of nep.txt of its own, for tests of the compiled one (families/nep/read_nep.cpp)."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Sequence
from itertools import combinations_with_replacement, pairwise
from math import prod

import numpy as np
from ase.data import atomic_numbers

from pwmlff.evaluation.nep_file import INVARIANTS, UNIVERSAL, ZBL_TABLE, Array, Nep

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


def parse_nep(text: bytes) -> Nep:
    """The model of a text.

    Raises:
        ValueError: it is damaged or no local potential; the text has the line.
    """
    lines = _Lines(text.removeprefix(codecs.BOM_UTF8))
    version, has_zbl, temperature, mode, elements = _first_line(lines)
    s = len(elements)
    zbl_line = _zbl_line(lines) if has_zbl else ()
    values = lines.values("cutoff", "RADIAL ANGULAR ..", (2, 4, 7, 2 * s + 2))
    cut_radial, cut_angular = _cutoffs(values, elements, lines)
    zbl = None
    if has_zbl and zbl_line != ZBL_TABLE:
        typewise = max(0.0, values[6]) if len(values) == 7 else 0.0
        zbl = _universal_zbl(zbl_line, elements, typewise, lines)
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
    if mode and hidden[1]:
        raise lines.error("one hidden layer with charges")

    width = nradial + nangular * (l_max + len(invariants)) + temperature
    shapes: list[tuple[int, ...]] = []
    for n, m in pairwise([width, *(h for h in hidden if h)]):
        shapes += [(m, n), (m,)]
    shapes += [shapes[-1]] * (2 if mode else 1) + [()] * (version == 5)
    networks = 1 if version == 3 else s
    angular_shape = (nangular, kangular, s, s)

    # MatPL wrote a bias of each element where nep4 has one for all, and leaves c of the angular
    # part away where nothing depends on it.
    begin = lines.current + 1
    numbers = lines.numbers()
    most = networks * sum(map(prod, shapes)) + 1 + nradial * kradial * s * s + prod(angular_shape)
    most += width + of_zbl + bool(mode)
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
    charge = stacked.pop() if mode else None
    last = stacked.pop()
    layers = tuple((w, -b) for w, b in zip(stacked[::2], stacked[1::2], strict=True))
    root_epsilon = float(take()) if mode else 1.0
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
        c_radial, c_angular, q_scaler, zbl, zbl_line, neighbors, mode, charge, root_epsilon,
    )  # fmt: skip


def _first_line(lines: _Lines) -> tuple[int, bool, bool, int, tuple[int, ...]]:
    """The version, whether there is ZBL and a temperature, the charge mode, atomic numbers."""
    first, count, *symbols = [*lines.words(), b"", b""]
    form = re.fullmatch(rb"nep([345])(_zbl)?(_temperature)?(_zbl)?(?:_charge([12]))?", first)
    if form is None or (form[2] and form[4]) or (form[5] and (form[1] == b"3" or form[3])):
        raise lines.error(
            "nep3, nep4 or nep5, with _zbl or _temperature or charges: other kinds of NEP are no "
            "potentials"
        )
    symbols = [symbol for symbol in symbols if symbol]
    elements = tuple(atomic_numbers.get(symbol.decode("latin-1"), 0) for symbol in symbols)
    n = int(count) if re.fullmatch(rb"[+-]?\d+", count) else 0
    if not n or n != len(elements) or 0 in elements or len(set(elements)) != n:
        raise lines.error("the number of elements and as many different symbols")
    mode = int(form[5] or 0)
    return int(form[1]), bool(form[2] or form[4]), bool(form[3]), mode, elements


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


def _universal_zbl(
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
