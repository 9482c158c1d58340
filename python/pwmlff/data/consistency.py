"""Whether energies, forces and stresses belong together.

Along a trajectory, from one frame to the next::

    dE = -1/2 sum (F + F').dx - 1/2 (W + W'):e + O(dx^3)

with the displacements dx at fixed cell, the strain e of the cell and the virial W. The term of
third order is bounded by that of second order, sum |(F' - F).dx| / 2, times the largest
displacement over 1 angstrom, in which forces change by themselves. Energies are known to the
decimals of the file, or to float32's. Steps where these are not small tell little. The median of dE
over the right side is 1, -1 where a sign is wrong, and a conversion factor where a unit is. Where
frames are farther apart, many of them still tell that by their correlation. Forces alone tell
of virials by the laws of :mod:`pwmlff.data.virials`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ase.geometry import complete_cell
from ase.units import Bohr, GPa, Hartree, Rydberg

from pwmlff.data import sizes, units, virials
from pwmlff.data.finding import Finding
from pwmlff.data.frames import Frames

LENGTH, STRAIN = 1.0, 0.1  # over which forces and virials change by themselves
DIGITS = 4.0 * float(np.finfo(np.float32).eps)  # of energies, many files have no more
MOST_DECIMALS = 8  # where fewer are enough to write all energies of a file, they have no more
SMALL = 0.2  # largest share of the third order in a step that tells something
STEPS = 3  # that tell something, at least
RATIO_GATE = 0.2  # largest distance of the median from 1
#: Energies and forces are of different frames where most changes are off by such a part, and by
#: so many times what third order explains.
APART, TIMES_BOUND = 0.1, 3.0
#: Steps that tell by their correlation: how many at least, how far the third order may go, the
#: correlation, and the largest distance of their slope from 1.
MANY, LARGE, CORRELATION, FAR_OFF = 8, 2.0, 0.8, 0.5
MOST_FRAMES = 500  # of a trajectory at a time
#: A step is odd where dE is this much farther off than third order and scatter of the others.
ODD = 10.0
#: What a wrong unit multiplies by, or divides.
FACTORS = {
    **{f"{name} for eV": unit for name, unit in virials.ENERGY_UNITS.items()},
    "hartree/bohr for eV/Å": Hartree / Bohr,
    "rydberg/bohr for eV/Å": Rydberg / Bohr,
    "bohr for angstrom": Bohr,
    **{f"{name} for eV/angstrom^3": virials.PRESSURE_UNITS[name] for name in ("GPa", "kbar")},
}
SPREAD = 0.02  # relative range of volumes that shows a trend
FEWEST = 4  # frames of one composition that show it
TREND = 0.5  # rank correlation
#: Bulk moduli of solids and liquids, eV/angstrom^3, with room for soft and for reduced ones.
BULK_MODULUS = (1e-5, 125.0)
NO_FORCE = 1e-3  # that structures at rest may have


@dataclass(frozen=True)
class Steps:
    """From one frame to the next; all arrays [nsteps]."""

    frame: np.ndarray  # the later one, in the set
    energy: np.ndarray  # dE
    work: np.ndarray  # -1/2 sum (F + F').dx
    bound: np.ndarray  # of the third order of the work, and of the digits of energies
    strain_work: np.ndarray  # -1/2 (W + W'):e, zero where the cell stays, NaN without virials
    strain_bound: np.ndarray


def findings(frames: Frames) -> list[Finding]:
    """What is odd about the labels, file by file."""
    result, stress_known, every = [], False, frames
    frames = sizes.without_largest(every)
    measured = {}
    for file, name in enumerate(frames.files):
        chosen = np.flatnonzero(frames.file == file)
        parts = list(_runs(frames, chosen))
        force_findings, stress_findings, known = [], None, None
        if parts:
            arrays = zip(*(vars(part).values() for part in parts), strict=True)
            steps = Steps(*map(np.concatenate, arrays))
            known = _known(steps)
            force_findings, stress_findings = (
                [*_fixed_cell_findings(frames, steps, name)],
                _strain_findings(steps, chosen, name),
            )
        judged = virials.judge(frames, chosen)
        measured[name] = units.measure(frames, chosen, known, judged)
        explained = units.explain(measured[name])
        if explained is not None and explained.units.keys() != {"stresses"}:
            force_findings = [f for f in force_findings if f.frame is not None]
            force_findings.append(_unit_finding(explained, measured[name], chosen, name))
            stress_findings = []
        elif (
            # Energies along strains are closer, but what a constant does to them is no factor.
            not any(finding.frame is None for finding in force_findings)
            and judged is not None
            and judged.conclusive
            and (not stress_findings or judged.apart)
        ):
            stress_findings = [*_virial_findings(judged, chosen, name)]
        zeros = [*_zero_virial_findings(frames, chosen, name)]
        stress_known |= stress_findings is not None or bool(zeros)
        if explained is None or "forces" not in explained.units:
            force_findings += sizes.force_findings(frames, chosen, name)
        result += [*force_findings, *(stress_findings or []), *zeros]
    wrong_units = {finding.source for finding in result}
    right = {name: numbers for name, numbers in measured.items() if name not in wrong_units}
    for name, reference, explained in units.stiffness_mismatches(right):
        chosen = np.flatnonzero(frames.file == frames.files.index(name))
        result.append(_unit_finding(explained, measured[name], chosen, name, reference))
    if not stress_known:
        result += _volume_findings(frames)
    wrong = [k for finding in result for k in finding.virials]
    for file, name in enumerate(frames.files):
        chosen = np.setdiff1d(np.flatnonzero(every.file == file), wrong)
        result += sizes.pressure_findings(every, chosen, name)
    return result


def _unit_finding(
    explained: units.Explanation,
    measured: units.SourceNumbers,
    chosen: np.ndarray,
    file: str,
    reference: str = "",
) -> Finding:
    """A source whose labels or positions are in other units."""
    evidence = [
        f"{words} {np.exp(known.value):.4g} times {expected}"
        for words, known, expected in (
            ("energies change by", measured.energy, "what the forces say"),
            ("virials are", measured.virial, "those of the forces"),
            ("nearest atoms are", measured.length, "as far apart as usual"),
            ("pairs are", measured.stiffness, "as stiff as usual"),
        )
        if known is not None
    ]
    if reference:
        evidence.append(f"which differs from '{reference}'")
    return Finding(
        f"in '{file}' {', '.join(evidence)}: {explained.text}; expected eV, angstrom, and "
        "eV/angstrom^3 or virials in eV",
        "forces",
        virials=tuple(chosen.tolist()),
        source=file,
    )


def _virial_findings(judged: virials.Judgement, chosen: np.ndarray, file: str) -> Iterator[Finding]:
    """Sign, unit and offset of virials against forces."""
    law, correlation = judged.law, judged.correlation
    evidence = f"correlation {correlation:.2f}, {len(law.frames)} frames, by {law.name}"
    if not judged.fits:
        yield Finding(
            f"the virials of '{file}' are {judged.slope:.3g} times what the forces say "
            f"({evidence}): {virials.likely_mistake(judged)}; expected virials in eV that are "
            "positive when compressed, or stresses in eV/angstrom^3 that are negative then",
            "stress",
            virials=tuple(chosen.tolist()),
        )
    elif judged.apart:
        known = np.isfinite(judged.pressure)
        pressure = f", {judged.pressure / GPa:.3g} GPa" if known else ""
        yield Finding(
            f"the virials of '{file}' hold a constant of {judged.offset:.3g} eV per atom in each "
            f"direction{pressure}, which is no derivative of the energy ({evidence}): training "
            "takes it off or leaves them out, as [data] virial_offset says",
            "virial offset",
        )


def _zero_virial_findings(frames: Frames, chosen: np.ndarray, file: str) -> Iterator[Finding]:
    """Virials that were never computed."""
    zero = chosen[(frames.virials[chosen] == 0.0).all(axis=(1, 2))]
    forces = [np.abs(frames.forces[frames.rows(k)]) for k in zero]
    zero = zero[[len(f) > 1 and bool(f.max() > NO_FORCE) for f in forces]]
    if len(zero):
        yield Finding(
            f"the virial or stress of {len(zero)} of {len(chosen)} frames of '{file}' is zero in "
            f"all components, the first of them {frames.index[zero[0]]}, and their forces are not: "
            "it was not computed; expected it, or none",
            "stress",
            virials=tuple(zero.tolist()),
        )


def _runs(frames: Frames, chosen: np.ndarray) -> Iterator[Steps]:
    """Steps between frames of one file with the same atoms, some hundred at a time."""

    def follows(earlier: int, later: int) -> bool:
        a, b = (frames.numbers[frames.rows(k)] for k in (earlier, later))
        return frames.index[earlier] < frames.index[later] and np.array_equal(a, b)

    begins = [k for k in range(1, len(chosen)) if not follows(chosen[k - 1], chosen[k])]
    for run in np.split(chosen, begins):
        # The last frame of a piece is the first one of the next.
        for begin in range(0, len(run) - 1, MOST_FRAMES):
            if frames.natoms[run[0]]:
                yield _steps(frames, run[begin : begin + MOST_FRAMES + 1])


def _steps(frames: Frames, piece: np.ndarray) -> Steps:
    """Steps between frames that have the same atoms."""
    rows = frames.first[piece][:, None] + np.arange(frames.natoms[piece[0]])
    x, forces = frames.positions[rows], frames.forces[rows]
    cells, usable = _complete(frames.cells[piece], frames.pbc[piece])
    with np.errstate(invalid="ignore", over="ignore"):
        fraction = x @ np.linalg.inv(cells)
        move = np.diff(fraction, axis=0)
        move -= np.round(move) * frames.pbc[piece[1:]][:, None, :]
        middle, change = (cells[1:] + cells[:-1]) / 2.0, np.diff(cells, axis=0)
        dx = move @ middle
        work = -0.5 * np.einsum("tak,tak->t", forces[1:] + forces[:-1], dx)
        second = 0.5 * np.abs(np.einsum("tak,tak->ta", np.diff(forces, axis=0), dx)).sum(axis=1)
        far = np.sqrt((dx**2).sum(axis=2)).max(axis=1)
        strain = np.linalg.inv(middle) @ change
        virials = frames.virials[piece]
        strained = np.abs(strain).max(axis=(1, 2)) > 1e-9
        strain_work = -0.5 * np.einsum("tkl,tkl->t", virials[1:] + virials[:-1], strain)
        strain_second = 0.5 * np.abs(np.einsum("tkl,tkl->t", np.diff(virials, axis=0), strain))
    return Steps(
        frame=piece[1:],
        energy=np.where(usable[1:] & usable[:-1], np.diff(frames.energies[piece]), np.nan),
        work=work,
        bound=second * far / LENGTH + _rounding(frames.energies[piece])[1:],
        strain_work=np.where(strained, strain_work, 0.0),
        strain_bound=np.where(
            strained, strain_second * np.abs(strain).max(axis=(1, 2)) / STRAIN, 0.0
        ),
    )


def _rounding(energies: np.ndarray) -> np.ndarray:
    """How well energies are known, by the digits that they have, [k]."""
    known = energies[np.isfinite(energies)]
    decimals = next(
        (n for n in range(MOST_DECIMALS) if np.allclose(np.round(known, n), known, 1e-15, 1e-12)),
        None,
    )
    rounding: np.ndarray = DIGITS * np.abs(energies)
    return rounding if decimals is None else rounding + 10.0**-decimals


def _complete(cells: np.ndarray, pbc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells that have a volume, [k, 3, 3], and whether they are those of the frames, bool [k].

    Where nothing is periodic, any cell will do, as long as it stays the same.
    """
    if not pbc.any():
        return np.tile(np.eye(3), (len(cells), 1, 1)), np.ones(len(cells), dtype=bool)
    finite = np.isfinite(cells).all(axis=(1, 2))
    result = np.array([complete_cell(cell) for cell in np.where(finite[:, None, None], cells, 0.0)])
    usable = finite & (np.abs(np.linalg.det(result)) > 0.0)
    result[~usable] = np.eye(3)
    return result, usable


def _fixed_cell_findings(frames: Frames, steps: Steps, file: str) -> Iterator[Finding]:
    still = (steps.strain_work == 0.0) & np.isfinite(steps.energy + steps.work)
    energy, work, bound = steps.energy[still], steps.work[still], steps.bound[still]
    telling = bound < SMALL * np.abs(work)
    if telling.sum() < STEPS:
        yield from _correlation_findings(energy, work, bound, file)
        return
    ratio, scatter = _middle(energy[telling] / work[telling])
    if abs(ratio - 1.0) > RATIO_GATE:
        yield _ratio_finding(ratio, scatter, int(telling.sum()), file)
        return
    difference = np.abs(energy - work)
    rest = float(np.median(difference[telling]) / np.median(np.abs(work[telling])))
    if rest > APART and np.median(difference[telling] / bound[telling]) > TIMES_BOUND:
        yield Finding(
            f"along '{file}' the energy changes otherwise than the forces say, by "
            f"{100 * rest:.0f} % of it in the middle of {telling.sum()} steps: energies and "
            "forces do not belong together; look at the order of frames, and whether the "
            "energy is the potential one; expected dE = -F.dx",
            "forces",
        )
        return
    scatter = 1.4826 * float(np.median(difference[telling]))
    odd = np.flatnonzero(telling & (difference > ODD * (bound + scatter)))
    for s, k in zip(odd, steps.frame[still][odd], strict=True):
        yield Finding(
            f"{frames.where(k)}: the energy changes by {energy[s]:.4g} from the frame before, the "
            f"forces say {work[s]:.4g} +- {bound[s] + scatter:.1g}: energy or forces of one of the "
            "two are not converged, or it is of another calculation",
            "energy",
            frame=int(k),
        )


def _known(steps: Steps) -> units.Known | None:
    """Changes of the energy over what forces say, where steps are short."""
    telling = (steps.bound < SMALL * np.abs(steps.work)) & (steps.strain_work == 0.0)
    ratios = steps.energy[telling] / steps.work[telling]
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < STEPS:
        return None
    ratio, scatter = _middle(ratios)
    if ratio <= 0.0 or scatter > APART * ratio:
        return None
    return units.Known(float(np.log(ratio)), units.OF_ENERGY)


def _middle(ratios: np.ndarray) -> tuple[float, float]:
    """Median, and median of the distances from it."""
    median = float(np.median(ratios))
    return median, float(np.median(np.abs(ratios - median)))


def _correlation_findings(
    energy: np.ndarray, work: np.ndarray, bound: np.ndarray, file: str
) -> Iterator[Finding]:
    """By the correlation of many steps that each tell little."""
    chosen = bound < LARGE * np.abs(work)
    energy, work = energy[chosen], work[chosen]
    if len(work) < MANY or not energy.any():
        return
    product = float(energy @ work)
    slope = product / float(work @ work)
    correlation = product / float(np.linalg.norm(energy) * np.linalg.norm(work))
    if not (abs(correlation) < CORRELATION or abs(slope - 1.0) < FAR_OFF):
        yield _ratio_finding(slope, 0.0, len(work), file)


def _ratio_finding(ratio: float, scatter: float, count: int, file: str) -> Finding:
    return Finding(
        f"along '{file}' the energy changes by {ratio:.4g} times what the forces say ({count} "
        f"steps): {_reason(ratio, scatter, 'forces', 'dE = -F.dx')}",
        "forces",
    )


def _strain_findings(steps: Steps, chosen: np.ndarray, file: str) -> list[Finding] | None:
    """None where no step tells anything."""
    rest = steps.energy - steps.work
    bound = steps.bound + steps.strain_bound
    telling = bound < SMALL * np.abs(steps.strain_work)
    telling &= np.isfinite(rest)
    if telling.sum() < STEPS:
        return None
    ratio, scatter = _middle(rest[telling] / steps.strain_work[telling])
    if abs(ratio - 1.0) <= RATIO_GATE:
        return []
    expected = "virials that are positive when compressed"
    reason = _reason(ratio, scatter, "virial or stress", expected)
    return [
        Finding(
            f"along '{file}' the energy changes by {ratio:.4g} times what the stress says where "
            f"the cell changes (median of {telling.sum()} steps): {reason}",
            "stress",
            virials=tuple(chosen.tolist()),
        )
    ]


def _reason(ratio: float, scatter: float, what: str, expected: str) -> str:
    """The likely mistake behind a factor."""
    if scatter > 0.5 * abs(ratio):
        return f"energies and {what} do not belong together; look at the order of atoms and frames"
    if ratio == 0.0:
        return f"the energies are the same in most frames; expected {expected}"
    sign = f"the sign of the {what} is wrong" if ratio < 0 else ""
    size = ""
    if abs(abs(ratio) - 1.0) > RATIO_GATE:
        size = f"the unit of energies or {what} is wrong"
        for name, factor in FACTORS.items():
            for value in (factor, 1.0 / factor):
                if abs(abs(ratio) / value - 1.0) < 0.1:
                    size += f", perhaps {name}"
    return f"{' and '.join(filter(None, (sign, size)))}; expected {expected}"


def _volume_findings(frames: Frames) -> Iterator[Finding]:
    """The sign of the stress, by the trend of the pressure against the volume."""
    finite = np.isfinite(frames.cells).all(axis=(1, 2))
    volume = np.abs(np.linalg.det(np.where(finite[:, None, None], frames.cells, 0.0)))
    known = np.isfinite(frames.virials).all(axis=(1, 2)) & frames.pbc.all(axis=1) & (volume > 0.0)
    known &= ~frames.isolated  # in a cell of any volume, without a pressure
    if not known.any():
        return
    labelled = tuple(np.flatnonzero(known).tolist())
    trends = []
    for all_of_it in compositions(frames).values():
        chosen = all_of_it[known[all_of_it]]
        volumes = volume[chosen]
        if len(chosen) < FEWEST or np.ptp(volumes) < SPREAD * volumes.mean():
            continue
        pressure = np.trace(frames.virials[chosen], axis1=1, axis2=2) / (3.0 * volumes)
        ranks = np.argsort(np.argsort((volumes, pressure)))
        trend = float(np.corrcoef(*ranks)[0, 1])
        modulus = -float(np.polyfit(volumes / volumes.mean(), pressure, 1)[0])
        trends.append((len(chosen), trend, modulus))
    count, trend, modulus = max(trends, default=(0, 0.0, 0.0))
    low, high = BULK_MODULUS
    if trend > TREND:
        yield Finding(
            f"the pressure grows with the volume (rank correlation {trend:.2f} of {count} "
            "frames of one composition): the sign of the virial or stress is wrong; expected "
            "virials that are positive when compressed, or stresses that are negative then",
            "stress",
            virials=labelled,
        )
    elif not trend < -TREND:
        yield Finding(
            "the sign of the stress cannot be told: no frames of one composition differ enough in "
            "volume, or their pressures show no trend",
            "stress",
            warning=False,
        )
    elif not low < modulus < high:
        yield Finding(
            f"pressures and volumes mean a bulk modulus of {modulus / GPa:.3g} GPa: the unit "
            "of the virial or stress is wrong; expected eV, or eV/angstrom^3",
            "stress",
            virials=labelled,
        )


def compositions(frames: Frames) -> dict[tuple[tuple[int, int], ...], np.ndarray]:
    """Frames of each composition: ((8, 64), (72, 32)) -> int64 [k]."""
    distinct, which = np.unique(frames.counts, axis=0, return_inverse=True)
    return {
        tuple((z, int(n)) for z, n in zip(frames.elements, row, strict=True) if n): np.flatnonzero(
            which.ravel() == k
        )
        for k, row in enumerate(distinct)
    }
