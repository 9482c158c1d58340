"""Whether the virials of a source are those of its forces: sign, unit, and a constant beside them.

Two laws give virials W from structures and forces alone:

- *clusters*: where atoms form clusters farther than `APART` from each other and from their images,
  W = sum x_i (x) F_i, with the positions of a cluster put together;
- *pairs*: elsewhere the pair potential that comes nearest to the forces, a linear least-squares
  problem, has W = 1/2 sum r_ij (x) f_ij. It says nothing where it leaves too much of forces that it
  has not seen. Where the volume of the cell changes, a fit to energies too, with a term by volume,
  which metals need, has the mean pressure.

Labels are compared with the law per atom: the slope, through the origin of all components but the
mean isotropic part, is 1 where sign and unit are right. What the isotropic parts differ by on
average is the offset, in eV per atom: plane-wave programs may have one in their stress, and it is
no derivative of the energy. Forces in one cell hardly tell the mean pressure, so that the offset
has to be large there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from ase.data import covalent_radii
from ase.units import Bohr, GPa, Hartree, Pascal, Rydberg, bar, kcal, kJ, mol

from pwmlff.data import neighbors
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.report import Failure

#: Of a source that are looked at: frames, their atoms, and how few frames tell nothing.
MOST_FRAMES, MOST_ATOMS, FEWEST = 64, 8192, 3
FEWEST_ENERGIES = 8  # that tell the pressure
APART = 4.0  # angstrom between atoms of two clusters, or of a cluster and its image
FAR_APART = 1.6  # sums of covalent radii, where that is more
SAME_PLACE = 1e-6  # angstrom
CUTOFF, NEIGHBORS = 6.0, 60  # of pairs: at most, and about how many of them
FUNCTIONS, GRID = 14, 1024  # of distance, for each pair of elements; where they are tabulated
RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # over the sum of squares of the forces of a function
AS_GOOD = 1.05  # force error over the least one of those
USEFUL = 0.5  # rms of what pairs leave of forces that they have not seen, over that of the forces
#: Doubt of the virials of pairs over their size, from which those of so few frames tell nothing.
DOUBTFUL, FEW = 0.7, 8
CORRELATION = 0.8  # of labels and law, at least, for a word on the slope
SPREAD = 0.01  # relative range of volumes from which energies tell the pressure
ENERGY = 0.003  # per atom, error of an energy that weighs as much as the rms of what forces leave
EXPLAINED = 0.5  # rms of what a sound fit leaves of energies per atom, over their deviation
WORSE = 1.5  # force error of a sound fit to energies too, over that without
#: Offsets per atom that are none: of clusters, of pairs where volumes differ, how they grow with
#: the part of the forces that pairs leave, and in one cell as a part of the stiffness of the pairs.
#: What many atoms together add to the pressure of a metal, which pairs do not know, is 0.05 to 0.17
#: of that in copper, silver, palladium, platinum and gold.
CLOSE, ROUGH, OF_LEFT, OF_STIFFNESS = 0.05, 0.5, 3.0, 0.25


@dataclass(frozen=True)
class Law:
    """Virials of some frames by their forces."""

    name: str  # as it stands in messages
    frames: Frames  # that it tells of
    virials: np.ndarray  # [nframes, 3, 3]
    isotropic: float  # mean of a third of their traces, eV per atom, where more than that tells it
    tolerance: float  # of a slope: from 1 / tolerance to it
    doubt: float  # of the mean, eV per atom

    def allows(self, slope: float) -> bool:
        """Whether labels may be so many times the virials."""
        return 1.0 / self.tolerance < slope < self.tolerance


@dataclass(frozen=True)
class Judgement:
    """Labelled virials of a source against a law."""

    law: Law
    slope: float
    correlation: float
    offset: float  # eV per atom
    pressure: float  # offset per volume; NaN where there is no volume
    volume: float  # of a frame, on average; likewise

    @property
    def conclusive(self) -> bool:
        """Whether sign and unit can be told."""
        return abs(self.correlation) >= CORRELATION

    @property
    def fits(self) -> bool:
        """Whether they are right."""
        return self.conclusive and self.law.allows(self.slope)

    @property
    def apart(self) -> bool:
        """Whether the means differ by more than the law may be wrong."""
        return abs(self.offset) > self.law.doubt

    @property
    def shifted(self) -> bool:
        """Whether there is an offset, and nothing else wrong."""
        return self.fits and self.apart


def judge(frames: Frames, chosen: np.ndarray) -> Judgement | None:
    """Compare virials with forces.

    Args:
        frames: labelled structures.
        chosen: those of one source.

    Returns:
        None where there are too few frames with virials and forces, or no law tells anything.
    """
    labelled = np.isfinite(frames.virials[chosen]).all(axis=(1, 2))
    labelled &= (frames.virials[chosen] != 0.0).any(axis=(1, 2))
    atoms = np.isfinite(frames.forces).all(axis=1) & np.isfinite(frames.positions).all(axis=1)
    bad = np.r_[0, np.cumsum(~atoms)]
    labelled &= bad[frames.first[chosen + 1]] == bad[frames.first[chosen]]
    labelled &= (frames.natoms[chosen] > 1) & np.isfinite(frames.cells[chosen]).all(axis=(1, 2))
    chosen = chosen[labelled]
    if len(chosen) < FEWEST:
        return None
    most = max(FEWEST, min(MOST_FRAMES, int(MOST_ATOMS / frames.natoms[chosen].mean())))
    some = frames.select(chosen[np.unique(np.linspace(0, len(chosen) - 1, most).astype(int))])
    try:
        with np.errstate(all="ignore"):
            law = _law(some)
    except (Failure, np.linalg.LinAlgError):  # frames that the check names by itself
        return None
    return _compared(law) if law else None


def _law(frames: Frames) -> Law | None:
    """The law that tells most of the frames."""
    by_clusters = [_cluster_virial(frames, k) for k in range(len(frames))]
    isolated = [k for k, virial in enumerate(by_clusters) if virial is not None]
    if len(isolated) >= FEWEST:
        virials = np.array([by_clusters[k] for k in isolated])
        name = f"sum x (x) F of clusters that are more than {APART:g} apart"
        frames = frames.select(isolated)
        return Law(name, frames, virials, _mean(frames, virials), 1.2, CLOSE)
    others = np.setdiff1d(np.arange(len(frames)), isolated)
    return pair_law(frames.select(others)) if len(others) >= FEWEST else None


def _compared(law: Law) -> Judgement:
    frames, natoms = law.frames, law.frames.natoms[:, None, None]
    label, expected = frames.virials / natoms, law.virials / natoms
    y, x = ((v - _mean(frames, v * natoms) * np.eye(3)).ravel() for v in (label, expected))
    xx, yy, xy = float(x @ x), float(y @ y), float(x @ y)
    volume = float(frames.volumes.mean()) if (frames.volumes > 0.0).all() else np.nan
    offset = _mean(frames, frames.virials) - law.isotropic
    return Judgement(
        law=law,
        slope=xy / xx if xx else np.nan,
        correlation=xy / np.sqrt(xx * yy) if xx and yy else 0.0,
        offset=offset,
        pressure=offset * frames.natoms.mean() / volume,
        volume=volume,
    )


def _mean(frames: Frames, virials: np.ndarray) -> float:
    """Mean over the frames of a third of the trace per atom."""
    return float(np.mean(np.trace(virials, axis1=1, axis2=2) / 3.0 / frames.natoms))


#: Units that are written by mistake, in eV and eV/angstrom^3.
ENERGY_UNITS = {
    "hartree": Hartree, "rydberg": Rydberg, "kcal/mol": kcal / mol, "kJ/mol": kJ / mol,
}  # fmt: skip
PRESSURE_UNITS = {
    "GPa": GPa, "kbar": 0.1 * GPa, "bar": bar, "Pa": Pascal,
    "hartree/bohr^3": Hartree / Bohr**3, "rydberg/bohr^3": Rydberg / Bohr**3,
}  # fmt: skip


def likely_mistake(judged: Judgement) -> str:
    """What may be behind a slope that is not 1, in words."""
    sign = "the sign of the virials or of the forces is wrong" if judged.slope < 0.0 else ""
    size = abs(judged.slope)
    if judged.law.allows(size):
        return sign
    causes = {f"{name} for eV": 1.0 / unit for name, unit in ENERGY_UNITS.items()}
    for name, unit in PRESSURE_UNITS.items():
        causes[f"{name} for eV/angstrom^3"] = 1.0 / unit
    if np.isfinite(judged.volume):
        for name, unit in {"eV/angstrom^3": 1.0, **PRESSURE_UNITS}.items():
            causes[f"a stress in {name} for a virial"] = 1.0 / (unit * judged.volume)
        causes["a virial for a stress"] = judged.volume
    distance, best = min((abs(np.log(size / factor)), cause) for cause, factor in causes.items())
    perhaps = f", perhaps {best}" if distance < np.log(judged.law.tolerance) / 2.0 else ""
    return f"{sign}{' and ' * bool(sign)}the unit of the virials or stresses is wrong{perhaps}"


# ---- clusters


def _cluster_virial(frames: Frames, k: int) -> np.ndarray | None:
    """sum x_i (x) F_i of frame k [3, 3], over clusters far from their images; None where none are.

    A cluster is what distances of less than `APART`, or of large atoms `FAR_APART`, hold together;
    it is put together along them. The net force of a cluster, of the others on it, does not count.
    """
    frame = frames.select([k])
    edges = neighbors.find_edges(
        frame,
        frame.elements,
        max(APART, FAR_APART * 2.0 * float(covalent_radii[frame.numbers].max())),
        closest=0.0,
        threads=1,
    )
    natoms = len(frame.numbers)
    first = np.r_[0, np.cumsum(edges.count.sum(axis=1))]
    x = np.full((natoms, 3), np.nan)
    virial = np.zeros((3, 3))
    for start in range(natoms):
        if np.isfinite(x[start, 0]):
            continue
        x[start] = 0.0
        members = [start]
        for i in members:  # which grows meanwhile
            rows = slice(first[i], first[i + 1])
            j, positions = edges.j[rows], x[i] + edges.rij[rows]
            fresh = np.isnan(x[j, 0])
            x[j[fresh]] = positions[fresh]
            members.extend(np.unique(j[fresh]).tolist())
            if (np.abs(x[j] - positions) > SAME_PLACE).any():  # an image of itself
                return None
        forces = frame.forces[members]
        virial += x[members].T @ (forces - forces.mean(axis=0))
    return (virial + virial.T) / 2.0


# ---- pairs


def pair_law(frames: Frames) -> Law | None:
    """The pair potential nearest to the forces, and what it says of virials.

    Returns:
        None where it leaves too much of the forces of half of the frames by those of the others.
    """
    edges = neighbors.find_edges(frames, frames.elements, pair_cutoff(frames))
    if not len(edges) or not frames.forces.any():
        return None
    functions = PairFunctions.for_pairs(frames, edges)
    by_forces = fitted_pairs(frames, functions)
    if by_forces is None:
        return None
    if len(frames) < FEW and by_forces.doubt_of_virials() > DOUBTFUL:
        return None
    volumes = frames.volumes / frames.natoms
    best = None
    if (
        len(frames) >= FEWEST_ENERGIES
        and frames.pbc.all()
        and np.isfinite(frames.energies).all()
        and np.ptp(volumes) > SPREAD * volumes.mean()
    ):
        best = fitted_pairs(frames, functions.with_volumes(frames), by_forces.left)
    fit = best or by_forces
    means = [_mean(frames, virials) for virials in fit.virials]
    doubt = ROUGH if best else OF_STIFFNESS * abs(by_forces.stiffnesses[0])
    doubt += OF_LEFT * fit.left + float(np.ptp(means))
    name = (
        f"the pair potential nearest to the forces{' and energies' if best else ''} (it leaves "
        f"{100 * fit.left:.0f} % of forces that it has not seen)"
    )
    return Law(name, frames, by_forces.virials[0], means[0], 2.5, doubt)


@dataclass(frozen=True)
class PairFit:
    """What the functions that come nearest say."""

    virials: list[np.ndarray]  # [nframes, 3, 3] by all ridges that do as well, the largest first
    left: float  # of forces that were not fitted to, over their rms
    energies: np.ndarray  # [nframes]
    stiffnesses: list[float]  # 1/6 sum r^2 phi'' per atom, three times bulk modulus times volume
    _doubt: Callable[[np.ndarray], float]  # of the sum of such rows [k, n] of the functions
    _of_stiffness: np.ndarray  # [1, n]
    _of_virials: np.ndarray  # [k, n] without the mean of the traces
    _solution: np.ndarray  # [n]

    def doubt(self) -> float:
        """Of a stiffness, by what the forces leave."""
        return self._doubt(self._of_stiffness)

    def doubt_of_virials(self) -> float:
        """Likewise, over their size."""
        size = float(np.linalg.norm(self._of_virials @ self._solution))
        return self._doubt(self._of_virials) / size


@dataclass(frozen=True)
class PairFunctions:
    """What functions of distance, and of the volume, give for all frames."""

    force: np.ndarray  # [natoms, 3, n]
    virial: np.ndarray  # [nframes, 3, 3, n]
    energy: np.ndarray  # [nframes, n]
    stiffness: np.ndarray  # [n] mean of 1/6 sum r^2 phi'' per atom

    @classmethod
    def for_pairs(cls, frames: Frames, edges: Edges) -> PairFunctions:
        """Each function belongs to a pair of elements.

        f = -dphi/dr is a Gaussian times what ends it smoothly at the cutoff.
        """
        natoms, nframes = len(frames.numbers), len(frames)
        center, frame = edges.centers, edges.frames
        kinds = divmod(edges.pairs, edges.ntypes)
        pair = np.minimum(*kinds) * edges.ntypes + np.maximum(*kinds)
        pairs = np.unique(pair)
        n = len(pairs) * FUNCTIONS
        force, virial = np.zeros((natoms, 3, n)), np.zeros((nframes, 3, 3, n))
        energy, stiffness = np.zeros((nframes, n)), np.zeros(n)
        for p, one in enumerate(pairs):
            chosen = np.flatnonzero(pair == one)
            distances, rij = edges.distances[chosen], edges.rij[chosen]
            i, k = center[chosen], frame[chosen]
            # Closer together where repulsion is steep.
            places = np.geomspace(distances.min(), edges.cutoff, FUNCTIONS + 1)
            grid = np.linspace(distances.min(), edges.cutoff, GRID)
            f = np.exp(-0.5 * ((grid[:, None] - places[:-1]) / np.diff(places)) ** 2)
            f *= (1.0 - (grid[:, None] / edges.cutoff) ** 2) ** 2  # [GRID, FUNCTIONS]
            steps = 0.5 * (f[1:] + f[:-1]) * np.diff(grid)[:, None]
            phi = np.vstack([np.cumsum(steps[::-1], axis=0)[::-1], np.zeros(FUNCTIONS)])
            # Linear between points of the grid, so that sums over pairs are sums over points.
            share = (distances - grid[0]) / (grid[1] - grid[0])
            lower = np.minimum(share.astype(int), GRID - 2)
            share -= lower
            sums = partial(_sums_at_points, k * GRID + lower, share, (nframes, GRID))
            columns = slice(p * FUNCTIONS, (p + 1) * FUNCTIONS)
            slope = sums(distances**2).sum(axis=0) @ np.gradient(f, grid, axis=0)
            stiffness[columns] = -slope / (6.0 * natoms)
            energy[:, columns] = 0.5 * sums(np.ones(len(distances))) @ phi
            for c, d in np.ndindex(3, 3):
                virial[:, c, d, columns] = 0.5 * sums(rij[:, c] * rij[:, d] / distances) @ f
            on_j = f[lower] * ((1.0 - share) / distances)[:, None]
            on_j += f[lower + 1] * (share / distances)[:, None]
            first = np.flatnonzero(np.diff(i, prepend=-1))  # edges lie center by center
            for c in range(3):
                force[i[first], c, columns] = -np.add.reduceat(on_j * rij[:, [c]], first)
        return cls(force, virial, energy, stiffness)

    def with_volumes(self, frames: Frames) -> PairFunctions:
        """The same with energies that are linear and quadratic in the volume per atom."""
        natoms = frames.natoms[:, None]
        volume = frames.volumes / frames.natoms
        u = volume / volume.mean()
        energy = np.stack([u - 1.0, (u - 1.0) ** 2], axis=1) * natoms
        slope = -np.stack([u, 2.0 * (u - 1.0) * u], axis=1) * natoms  # W = -V dE/dV
        none = np.zeros((*self.force.shape[:2], 2))
        isotropic = np.eye(3)[None, :, :, None] * slope[:, None, None]
        return PairFunctions(
            np.concatenate([self.force, none], axis=2),
            np.concatenate([self.virial, isotropic], axis=3),
            np.concatenate([self.energy, energy], axis=1),
            np.r_[self.stiffness, 0.0, 0.0],
        )


def _sums_at_points(
    point: np.ndarray, part: np.ndarray, shape: tuple[int, int], weights: np.ndarray
) -> np.ndarray:
    """Sums of weights by the point of a grid below, and, by the part of the way, the next one."""
    size = shape[0] * shape[1]
    sums = np.bincount(point, (1.0 - part) * weights, size)
    return (sums + np.bincount(point + 1, part * weights, size)).reshape(shape)


def fitted_pairs(
    frames: Frames, functions: PairFunctions, alone: float | None = None
) -> PairFit | None:
    """Least squares with a ridge, which is chosen by forces that are not fitted to.

    Args:
        frames: with forces and, if `alone` is given, energies.
        functions: to add up.
        alone: what a fit to the forces alone leaves of them; then energies count too, those that
            compositions do not explain.

    Returns:
        None where the fit is of no use.
    """
    design, forces = functions.force.reshape(-1, functions.force.shape[2]), frames.forces.ravel()
    size = float(np.sqrt(np.square(forces).mean()))
    scale = np.sqrt(np.square(design).sum(axis=0))
    scale[scale == 0.0] = 1.0
    design = design / scale
    whole = 0.0, 0.0
    useful = USEFUL
    if alone is not None:
        rows = _beside_compositions(frames, functions.energy / frames.natoms[:, None] / scale)
        energies = _beside_compositions(frames, frames.energies / frames.natoms)
        weight = len(forces) / len(frames) * (alone * size / ENERGY) ** 2
        whole = weight * rows.T @ rows, weight * rows.T @ energies
        useful = min(USEFUL, WORSE * alone)
    half = np.repeat(np.arange(len(frames)) % 2, 3 * frames.natoms) == 0
    parts = [
        (design[chosen].T @ design[chosen], design[chosen].T @ forces[chosen], ~chosen)
        for chosen in (half, ~half)
    ]
    left = []
    for ridge in RIDGES:
        rest = 0.0
        for matrix, vector, others in parts:
            solution = _solved(matrix + whole[0], vector + whole[1], ridge)
            rest += float(np.square(forces[others] - design[others] @ solution).sum())
        left.append(np.sqrt(rest / len(forces)) / size)
    least = min(left)
    if not least <= useful:
        return None
    matrix, vector = (parts[0][k] + parts[1][k] + whole[k] for k in range(2))
    solutions = [
        _solved(matrix, vector, ridge)
        for ridge, rest in zip(RIDGES, left, strict=True)
        if rest <= AS_GOOD * least
    ]
    if alone is not None and np.std(energies - rows @ solutions[0]) > EXPLAINED * np.std(energies):
        return None
    of_stiffness = functions.stiffness / scale

    def doubt(rows: np.ndarray) -> float:
        spread = _solved(matrix, rows.T, RIDGES[-1]).T
        return float(least * size * np.sqrt(np.sum(rows * spread)))

    labels = functions.virial / frames.natoms[:, None, None, None] / scale
    mean = np.einsum("kaan->n", labels) / (3.0 * len(frames))
    labels = (labels - np.eye(3)[:, :, None] * mean).reshape(-1, len(scale))
    return PairFit(
        [functions.virial @ (one / scale) for one in solutions],
        least,
        functions.energy @ (solutions[0] / scale),
        [float(of_stiffness @ one) for one in solutions],
        doubt,
        of_stiffness[None],
        labels,
        solutions[0],
    )


def _beside_compositions(frames: Frames, values: np.ndarray) -> np.ndarray:
    """Values per atom [nframes, ...] without what is linear in the composition."""
    basis, sizes, _ = np.linalg.svd(frames.counts / frames.natoms[:, None], full_matrices=False)
    basis = basis[:, sizes > 1e-8 * sizes[0]]
    rest: np.ndarray = values - basis @ (basis.T @ values)
    return rest


def pair_cutoff(frames: Frames) -> float:
    """Where about so many neighbors are, by the volumes."""
    volumes = frames.volumes
    if not (volumes > 0.0).all():
        return CUTOFF
    density = float(np.max(frames.natoms / volumes))
    return min(CUTOFF, float(np.cbrt(3.0 * NEIGHBORS / (4.0 * np.pi * density))))


def _solved(matrix: np.ndarray, vector: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.solve(matrix + ridge * np.eye(len(matrix)), vector)
