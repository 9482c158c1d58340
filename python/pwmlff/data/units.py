"""In which units the labels and positions of a source are, as they tell by themselves.

Four numbers do not depend on what the structures are:

- *energies*: changes of the energy over those that forces mean, 1 where both are in one unit: along
  a trajectory, by -1/2 (F + F').dx between frames of the same atoms, or by the pair potential
  nearest to the forces;
- *virials* over those of the forces, likewise (:mod:`pwmlff.data.virials`);
- *lengths*: distances of nearest neighbors over the sum of their covalent radii, close to 1;
- *stiffness*: that of the pairs, 1/6 sum r^2 phi'' per atom, over n e^2 / r. n is the mean number
  of valence electrons, r the distance of nearest neighbors. The bulk moduli of solids scale so
  (M. L. Cohen, doi:10.1103/PhysRevB.32.7988): 0.5 to 3 from molecules to tungsten.

Units of energies, forces, lengths and stresses multiply them by known factors. The combination
counts that explains the numbers best. Each unit that is another has a price, and so has each system
of units that they are of. It is told where it is far better than no mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from ase.data import atomic_numbers, covalent_radii
from ase.units import Bohr, GPa, Hartree, Pascal, Rydberg, bar, kcal, kJ, mol, nm

from pwmlff.data import neighbors, virials
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.report import Failure

#: Of a source that are looked at: frames, their atoms, and how few tell nothing.
MOST_FRAMES, MOST_ATOMS, FEWEST = 24, 2400, 3
TOGETHER, MANY = 4, 8  # frames that follow each other; that tell of curvature by the volume
CORRELATION = 0.95  # of energies with what forces say, at least
SAME_CELL = 1e-6
DOUBTFUL = 0.3  # doubt of a stiffness over it, beyond which it tells nothing
LITTLE_MOVED = 1.0  # angstrom, over which forces change evenly enough
#: Deviations of logarithms: of energies, at least; of lengths; of stiffness; of the stiffness of
#: two sources whose lengths are so near.
OF_ENERGY, OF_LENGTH, OF_STIFFNESS = 0.06, 0.13, 0.5
OF_SOURCES, SAME_LENGTH = 0.3, 0.04
LENGTH, STIFFNESS = 0.97, 1.3  # that are usual
#: Times the nearest distance, within which two more neighbors make lengths reliable.
COORDINATED = 1.3
#: Logarithms of odds: the price of a system of units and of each unit of it, of a rare one; how
#: much better than no mistake, how far off the best may be, and what the stiffness counts where
#: the others tell.
SYSTEM, UNIT, RARE, CERTAIN, FAR, LITTLE = 6.0, 0.75, 1.5, 5.0, 8.0, 0.25
NOBLE = [0, *(atomic_numbers[symbol] for symbol in ("He", "Ne", "Ar", "Kr", "Xe", "Rn"))]


@dataclass(frozen=True)
class Unit:
    """A unit that may have been written."""

    name: str  # empty where it is that which is expected
    factor: float  # of numbers in it over those expected
    systems: frozenset[str] = frozenset()
    rare: bool = False


def _unit(name: str, size: float, systems: str, rare: bool = False) -> Unit:
    return Unit(name, 1.0 / size, frozenset(systems.split()), rare)


NONE = Unit("", 1.0)
ENERGIES = (
    NONE,
    _unit("hartree", Hartree, "hartree"),
    _unit("rydberg", Rydberg, "rydberg"),
    _unit("kcal/mol", kcal / mol, "kcal"),
    _unit("kJ/mol", kJ / mol, "kJ"),
    _unit("meV", 1e-3, "meV"),
)
FORCES = (
    NONE,
    *(replace(unit, name=f"{unit.name}/Å", rare=unit.factor < 1.0) for unit in ENERGIES[1:]),
    _unit("hartree/bohr", Hartree / Bohr, "hartree"),
    _unit("rydberg/bohr", Rydberg / Bohr, "rydberg"),
    _unit("eV/bohr", 1.0 / Bohr, "bohr"),
    _unit("kJ/mol/nm", kJ / mol / nm, "kJ", rare=True),
)
LENGTHS = (NONE, _unit("bohr", Bohr, "hartree rydberg bohr"), _unit("nm", nm, "kJ"))
STRESSES = (
    NONE,
    *(
        replace(unit, name=f"{unit.name}/angstrom^3", rare=unit.factor < 1.0)
        for unit in ENERGIES[1:]
    ),
    _unit("hartree/bohr^3", Hartree / Bohr**3, "hartree"),
    _unit("rydberg/bohr^3", Rydberg / Bohr**3, "rydberg"),
    _unit("eV/bohr^3", 1.0 / Bohr**3, "bohr"),
    _unit("GPa", GPa, "pressure"),
    _unit("kbar", 0.1 * GPa, "pressure"),
    _unit("bar", bar, "pressure"),
    _unit("Pa", Pascal, "pressure"),
)
EXPECTED = {
    "energies": "eV",
    "forces": "eV/Å",
    "positions": "angstrom",
    "stresses": "eV/angstrom^3",
}


@dataclass(frozen=True)
class Known:
    """The logarithm of a number, its deviation, and how many measurements tell of that."""

    value: float
    deviation: float
    free: float = np.inf

    def misfit(self, factor: float) -> float:
        """Logarithm of the odds against a factor, by Student's distribution.

        Half the square of how many deviations it is away where there are many measurements.
        """
        square = float(((self.value - np.log(factor)) / self.deviation) ** 2)
        if np.isinf(self.free):
            return 0.5 * square
        return 0.5 * (self.free + 1.0) * float(np.log1p(square / self.free))


@dataclass(frozen=True)
class SourceNumbers:
    """What a source tells; None where it does not."""

    energy: Known | None = None
    virial: Known | None = None
    length: Known | None = None
    stiffness: Known | None = None
    relative: Known | None = None  # the stiffness over that of a source in right units
    composition: tuple[float, ...] = ()  # mean shares of elements
    natoms: float = 1.0  # of a frame


@dataclass(frozen=True)
class Explanation:
    """Units by what they are of."""

    units: dict[str, Unit]  # those that are not as expected
    odds: float  # logarithm of them, over those of no mistake

    @property
    def text(self) -> str:
        """In words."""
        return " and ".join(
            f"the unit of the {what} is wrong, perhaps {unit.name} for {EXPECTED[what]}"
            for what, unit in self.units.items()
        )


def explain(measured: SourceNumbers) -> Explanation | None:
    """Units that make the numbers what they are; None where right ones may."""
    if not (measured.energy or measured.length or measured.stiffness):
        return None  # the virials alone are judged by themselves
    per_atom = Unit("eV per atom", 1.0 / measured.natoms, frozenset({"atom"}))
    options = [
        *product((*ENERGIES, per_atom), FORCES, LENGTHS, STRESSES if measured.virial else (NONE,))
    ]
    right = (NONE,) * 4
    # The stiffness, which is known the least, tells by itself only where the others are at ease.
    for share in (LITTLE, 1.0):
        nothing = _misfit(measured, right, 0.0 if share < 1.0 else 1.0)
        best = min(options, key=lambda units: _price(units) + _misfit(measured, units, share))
        odds = nothing - _price(best) - _misfit(measured, best, share)
        changed = {what: one for what, one in zip(EXPECTED, best, strict=True) if one.name}
        if changed and odds > CERTAIN and _misfit(measured, best, share) < FAR:
            return Explanation(changed, odds)
    return None


def _price(units: Sequence[Unit]) -> float:
    """What a combination costs: as few systems as explain all, and each unit."""
    changed = [unit for unit in units if unit.name]
    price = sum(UNIT + RARE * unit.rare for unit in changed)
    for n in range(len(changed) + 1):
        names = sorted({name for unit in changed for name in unit.systems})
        if any(
            all(unit.systems & set(some) for unit in changed) for some in combinations(names, n)
        ):
            price += SYSTEM * n
            break
    return price


def _misfit(measured: SourceNumbers, units: Sequence[Unit], share: float) -> float:
    """How far a combination is off, with a share of what the stiffness tells."""
    e, f, x, s = (unit.factor for unit in units)
    numbers = (
        (measured.energy, e / (f * x), 1.0),
        (measured.virial, s * x**2 / f, 1.0),
        (measured.length, x, 1.0),
        (measured.stiffness, f * x**2, share),
        (measured.relative, f * x**2, 1.0),
    )
    return sum(share * known.misfit(factor) for known, factor, share in numbers if known)


# ---- what a source tells


def measure(
    frames: Frames, chosen: np.ndarray, energy: Known | None, judged: virials.Judgement | None
) -> SourceNumbers:
    """All numbers of a source.

    Args:
        frames: labelled structures.
        chosen: those of the source.
        energy: by the steps of a trajectory, if they tell.
        judged: its virials.
    """
    virial = None
    if judged is not None and judged.conclusive and judged.slope > 0.0:  # otherwise a sign is wrong
        deviation = float(np.log(judged.law.tolerance)) / 3.0
        virial = Known(float(np.log(judged.slope)), deviation)
    atoms = np.isfinite(frames.forces).all(axis=1) & np.isfinite(frames.positions).all(axis=1)
    usable = frames.reduce_atoms(atoms, np.logical_and, False)[chosen] & (frames.natoms[chosen] > 1)
    usable &= np.isfinite(frames.cells[chosen]).all(axis=(1, 2))
    chosen = chosen[usable]
    if len(chosen) < FEWEST:
        return SourceNumbers(energy, virial)
    most = max(FEWEST, min(MOST_FRAMES, int(MOST_ATOMS / frames.natoms[chosen].mean())))
    # Some that follow each other, as these are alike.
    begins = np.linspace(0, max(0, len(chosen) - TOGETHER), -(-most // TOGETHER)).astype(int)
    places = np.unique(np.add.outer(begins, np.arange(TOGETHER)))
    some = frames.select(chosen[places[places < len(chosen)]])
    try:
        with np.errstate(all="ignore"):
            return _measured(some, energy, virial)
    except (Failure, np.linalg.LinAlgError):  # frames that the check names by itself
        return SourceNumbers(energy, virial)


def _measured(frames: Frames, energy: Known | None, virial: Known | None) -> SourceNumbers:
    edges = neighbors.find_edges(frames, frames.elements, virials.pair_cutoff(frames), closest=0.0)
    shares = np.bincount(frames.numbers, minlength=len(covalent_radii)) / len(frames.numbers)
    measured = SourceNumbers(
        energy, virial, composition=tuple(shares.tolist()), natoms=float(frames.natoms.mean())
    )
    if not len(edges):
        return measured
    nearest = np.full(len(frames.numbers), np.inf)
    np.minimum.at(nearest, edges.centers, edges.distances)
    fit = stiffness = None
    if frames.forces.any():
        functions = virials.PairFunctions.for_pairs(frames, edges)
        fit = virials.fitted_pairs(frames, functions)
    if energy is None:
        ways = [_by_work(frames), _by_pairs(frames, fit) if fit else None]
        energy = min((one for one in ways if one), key=lambda one: one.deviation, default=None)
    if fit:
        stiffness = _stiffness(frames, fit, float(np.median(nearest[np.isfinite(nearest)])))
    length = _length(frames, edges, nearest)
    return replace(measured, energy=energy, length=length, stiffness=stiffness)


def _slope(expected: np.ndarray, measured: np.ndarray, free: int) -> Known | None:
    """Found energies over expected ones, of so many that are free."""
    product, size = float(expected @ measured), np.linalg.norm(expected) * np.linalg.norm(measured)
    if free < FEWEST - 1 or not product >= CORRELATION * size or size == 0.0:
        return None
    correlation = product / float(size)
    scatter = np.sqrt(max(0.0, 1.0 / correlation**2 - 1.0) / free)
    return Known(float(np.log(product / (expected @ expected))), OF_ENERGY + scatter, free)


def _by_work(frames: Frames) -> Known | None:
    """By -1/2 (F + F').dx between frames with the same atoms in the same cell, little moved."""
    first = frames.numbers[frames.rows(0)]
    cell = frames.cells[0]
    if (
        (frames.natoms != len(first)).any()
        or (frames.numbers.reshape(len(frames), -1) != first).any()
        or (frames.pbc != frames.pbc[0]).any()
        or not np.allclose(frames.cells, cell, atol=SAME_CELL)
    ):
        return None
    shape = len(frames), len(first), 3
    x, forces, pbc = frames.positions.reshape(shape), frames.forces.reshape(shape), frames.pbc[0]
    one, other = np.triu_indices(len(frames), 1)
    move = x[other] - x[one]
    if pbc.any():
        inverse = np.linalg.pinv(cell)
        move -= np.round(move @ inverse) * pbc @ cell
    little = (np.linalg.norm(move, axis=2) < LITTLE_MOVED).all(axis=1)
    one, other, move = one[little], other[little], move[little]
    work = -0.5 * np.einsum("tak,tak->t", forces[one] + forces[other], move)
    free = len(np.union1d(one, other)) - 1
    return _slope(work, frames.energies[other] - frames.energies[one], free)


def _by_pairs(frames: Frames, fit: virials.PairFit) -> Known | None:
    """By the pair potential, among frames of one composition and group; beside the volume."""
    _, kind = np.unique(np.c_[frames.counts, frames.group], axis=0, return_inverse=True)
    columns = [*(kind.ravel()[:, None] == np.unique(kind)).T.astype(float)]
    if frames.pbc.all():
        volumes = frames.volumes / frames.natoms
        u = volumes / volumes.mean() - 1.0
        if np.ptp(u) > SAME_CELL:
            columns += [u, u**2] if len(frames) >= MANY else [u]
    basis, sizes, _ = np.linalg.svd(np.stack(columns, axis=1), full_matrices=False)
    basis = basis[:, sizes > 1e-8 * sizes[0]]
    expected, found = (
        values - basis @ (basis.T @ values)
        for values in (fit.energies / frames.natoms, frames.energies_per_atom)
    )
    return _slope(expected, found, len(frames) - basis.shape[1])


def _length(frames: Frames, edges: Edges, nearest: np.ndarray) -> Known | None:
    """By the frames in which atoms are nearest to each other."""
    neighbors_of = np.bincount(
        edges.centers, edges.distances < COORDINATED * nearest[edges.centers], len(nearest)
    )
    if np.isin(frames.numbers, NOBLE).any() or np.median(neighbors_of) < 2.0:
        return None
    radii = covalent_radii[frames.numbers]
    ratios = np.full(len(nearest), np.inf)
    sums = radii[edges.centers] + radii[frames.first[edges.frames] + edges.j]
    np.minimum.at(ratios, edges.centers, edges.distances / sums)
    of_frames = [float(np.median(ratios[frames.rows(k)])) for k in range(len(frames))]
    shortest = float(np.percentile(of_frames, 10.0))
    return Known(np.log(shortest / LENGTH), OF_LENGTH) if 0.0 < shortest < np.inf else None


def _stiffness(frames: Frames, fit: virials.PairFit, distance: float) -> Known | None:
    low, high = min(fit.stiffnesses), max(fit.stiffnesses)
    if np.isin(frames.numbers, NOBLE).any() or not 0.0 < high < 1.5 * low:
        return None
    if fit.doubt() > DOUBTFUL * low:
        return None
    electrons = float(np.mean([_valence(z) for z in frames.numbers.tolist()]))
    usual = STIFFNESS * electrons * Hartree * Bohr / distance
    return Known(float(np.log(fit.stiffnesses[0] / usual)), OF_STIFFNESS)


def _valence(z: int) -> int:
    """Electrons of an atom that bind, by its group in the periodic table."""
    last = max(noble for noble in NOBLE if noble < z)
    column, length = z - last, NOBLE[NOBLE.index(last) + 1] - last if last < 86 else 32
    if length == 32 and column > 2:
        column = max(3, column - 14)  # f elements are as the third group
    elif length == 8 and column > 2:
        column += 10
    if z <= 2 or column <= 2:
        return min(column, 2)
    if column <= 12:
        return column if column <= 8 else (2 if column == 12 else 4)
    return max(1, min(column - 10, 18 - column))


# ---- sources beside each other


def stiffness_mismatches(
    measured: dict[str, SourceNumbers],
) -> Iterator[tuple[str, str, Explanation]]:
    """Sources whose pairs are stiffer, or softer, than those of another by a unit.

    Returns:
        The source, the one that tells, and the units.
    """
    for one, other in combinations(measured, 2):
        a, b = measured[one], measured[other]
        if not (a.stiffness and b.stiffness and a.length and b.length):
            continue
        alike = np.abs(np.subtract(a.composition, b.composition)).max() < SAME_LENGTH
        if not alike or abs(a.length.value - b.length.value) > SAME_LENGTH:
            continue
        ratio = b.stiffness.value - a.stiffness.value
        mismatches = [
            (explained.odds, wrong, right, explained)
            for wrong, right, sign in ((other, one, 1.0), (one, other, -1.0))
            if (
                explained := explain(
                    replace(measured[wrong], relative=Known(sign * ratio, OF_SOURCES))
                )
            )
        ]
        if mismatches:
            _, wrong, right, explained = max(mismatches, key=lambda one: one[0])
            yield wrong, right, explained
