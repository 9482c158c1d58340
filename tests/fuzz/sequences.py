"""Random sequences of LAMMPS commands, good and bad, in processes that catch errors.

    [mpirun -np RANKS] python -m mpi4py sequences.py SEED COUNT

runs COUNT sequences in a folder that :func:`prepare` has filled. After each run that succeeds, the
energy and the forces are those of the float64 reference, for the positions that LAMMPS has then and
for the model and the elements of the last commands that were accepted, and gamma is that of NumPy;
where special_bonds leaves some pairs out, which the reference does not, the run has to go on or end
in an error, no more. A run without a model or elements fails.

On several ranks all choose the same, message passing and comm_style more often. An error on one of
them alone ends them all, as it does in lmp, with the code :data:`ABORTED`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.io.lammpsdata import write_lammps_data

from edge_models import MessagePassing
from harness import Lammps
from nep_files import HEADS, random_text
from pwmlff.evaluation.nep_file import Nep, parse_nep
from pwmlff.evaluation.reference import evaluate
from systems import SYSTEMS, crystal, gamma_alone, graded

BINARY = SYSTEMS["two elements, triclinic"]
ABORTED = 75  # exit code
LENGTH = 14  # commands of a sequence, without those that set it up
SETUP = "clear\nunits metal\natom_modify map yes\nread_data atoms.data\nneighbor 0.5 bin\n"
TILED = "comm_style tiled"  # never back: the end of such a comm_style brick can crash LAMMPS
#: Three atoms with two bonds, in an atom style with charges, which are zero.
BONDED = (
    "clear\nunits metal\natom_style full\natom_modify map yes\nspecial_bonds lj/coul 1 1 1\n"
    "bond_style zero\nread_data full.data extra/bond/types 1 extra/bond/per/atom 2 "
    "extra/special/per/atom 6\nbond_coeff 1\ncreate_bonds single/bond 1 1 2\n"
    "create_bonds single/bond 1 2 3\nneighbor 0.5 bin\n"
)
SYMBOLS = {"O": 8, "o": 8, "8": 8, "Hf": 72, "HF": 72, "72": 72, "NULL": 0}
#: Energy per atom and force, as a share of the largest value (at least 1), and a share of gamma.
GATES = {"mixed": (2e-6, 1e-4, 1e-3), "double": (1e-8, 1e-6, 1e-6), "exact": (1e-10, 1e-10, 1e-8)}


def models() -> dict[str, torch.nn.Module | Nep]:
    """Model files that can be used, by name."""
    return {
        "a.pt": graded(BINARY.model(isotropic=True), 2),
        "nep.txt": parse_nep(random_text(HEADS["nep5"])),
        "b.pt": BINARY.model(seed=1, isotropic=True),
        "far.pt": replace(BINARY, rmax=4.1).model(seed=2),
        "few.pt": replace(BINARY, max_neighbor=12).model(seed=3),
        "titanium.pt": replace(BINARY, elements=(8, 22)).model(),
        "edge.pt": MessagePassing([8, 72], 2.5, rounds=2),
    }


def prepare(folder: Path) -> None:
    """Write the files that the sequences name."""
    for name, model in models().items():
        if isinstance(model, Nep):
            (folder / name).write_bytes(random_text(HEADS["nep5"]))
        else:
            torch.jit.script(model).save(folder / name)
    replace(BINARY, units="lj").model().save(folder / "reduced.pt")
    good = (folder / "a.pt").read_bytes()
    (folder / "half.pt").write_bytes(good[: len(good) // 2])
    (folder / "text.pt").write_text("not a model\n")
    Lammps(folder, None).data(crystal(1), [8, 72], "atoms.data")
    write_lammps_data(
        folder / "full.data", crystal(1), specorder=["O", "Hf"], atom_style="full", masses=True
    )


@dataclass
class State:
    """What LAMMPS has been told and has accepted."""

    style: str = ""  # first model file; empty where the last pair_style failed
    precision: str = "double"
    hybrid: bool = False
    elements: tuple[int, ...] = ()  # of the types; empty without an accepted pair_coeff
    grades: bool = False  # fix grade is there


def pair_style(random: random.Random, charged: bool, ranks: int) -> tuple[str, str, str, bool]:
    """A command, the file that drives, its precision, and whether it is part of a hybrid."""
    names = [
        *models(),
        "a.pt",
        "b.pt",
        "absent.pt",
        "half.pt",
        "text.pt",
        "reduced.pt",
        *["edge.pt"] * (12 if ranks > 1 else 0),
    ]
    files = random.choices(names, k=random.choice((1, 1, 1, 2)))
    count = random.choice(("", f"{len(files)} "))
    engine = random.choice(("", " engine fused", " engine torchscript"))
    precision = random.choice(("", "", "exact", "mixed"))
    keyword = f" precision {precision}" if precision else ""
    output = random.choice(("", " out_freq 1", " out_file devi.out"))
    if random.random() < 0.2:  # one of them wrong
        count = random.choice((count, "3 ", "-1 "))
        engine = random.choice((engine, " engine steam"))
        output = random.choice((" out_freq 0", " out_file", " out_frq 2", " out_freq often"))
    words = f"pwmlff {count}{' '.join(files)}{engine}{keyword}{output}"
    hybrid = random.random() < 0.25
    part = random.choice(("zero 3.0", "coul/long 3.0")) if charged else "zero 3.0"
    command = f"pair_style hybrid/overlay {part} {words}" if hybrid else f"pair_style {words}"
    return command, files[0], precision or "double", hybrid


def pair_coeff(random: random.Random, state: State) -> tuple[str, list[str]]:
    """A command and its elements."""
    names = random.choices((*SYMBOLS, "O", "Hf", "Xx"), k=random.choice((2, 2, 2, 2, 2, 1, 3)))
    part = "pwmlff " if state.hybrid else ""
    return f"pair_coeff * * {part}{' '.join(names)}", names


def other(random: random.Random, ranks: int) -> str:
    """A command that changes the structure or the way it is treated."""
    seed = random.randint(1, 10000)
    scale = random.choice((0.75, 0.97, 1.03, 1.3))
    if ranks > 1 and random.random() < 0.5:
        return TILED
    return random.choice(
        (
            f"displace_atoms all random 0.1 0.1 0.1 {seed}",
            f"displace_atoms all random 2.0 2.0 2.0 {seed}",
            f"change_box all x scale {scale} y scale {scale} remap",
            f"set atom {random.randint(1, 8)} type {random.choice((1, 2))}",
            f"neighbor {random.choice((0.3, 0.5, 1.0))} {random.choice(('bin', 'nsq'))}",
            f"atom_modify sort {random.choice((0, 2))} 1.0",
            "neigh_modify every 1 delay 0 check yes",
            f"velocity all create {random.choice((300, 3000))} {seed}",
            "fix move all nve",
            f"fix move all npt temp 900 900 0.1 {random.choice(('iso', 'tri'))} 0 1000 0.1",
            "unfix move",
            "fix probe all numdiff 1 0.001",
            "unfix probe",
            f"timestep {random.choice((0.0005, 0.002))}",
            "replicate 1 1 2",
            "delete_atoms random count 1 yes all NULL 17 compress yes",
            f"create_atoms 1 random 1 {seed} NULL overlap 1.0 maxtry 50",
            "thermo 1",
            f"comm_modify cutoff {random.choice((5.0, 9.0))}",
            TILED,
            f"special_bonds lj {random.choice(('1 1 1', '0 1 1', '1 0.5 1'))} coul 1 0 1",
            "change_box all triclinic",
            f"fix box all deform 1 {random.choice(('x erate 2', 'xy erate 50'))} remap x",
            "unfix box",
        )
    )


def check(lmp, comm, model: torch.nn.Module, state: State) -> None:
    """Compare what LAMMPS has computed with the reference."""
    x, f, t = (gathered(lmp, comm, name) for name in ("x", "f", "type"))
    n = len(t)
    assert n == lmp.get_natoms()
    low, high, xy, yz, xz, *_ = lmp.extract_box()
    lx, ly, lz = (b - a for a, b in zip(low, high, strict=True))
    cell = [[lx, 0, 0], [xy, ly, 0], [xz, yz, lz]]
    numbers = np.array([state.elements[k - 1] for k in t])
    ours = numbers > 0  # the others are not there for the model
    structure = Atoms(numbers[ours], x[ours], cell=cell, pbc=True)
    expected = evaluate(model, structure, elements=sorted(set(state.elements) - {0}))
    energy, force, gamma = GATES[state.precision]
    energy *= max(1.0, np.abs(expected.atom_energy).max(initial=0.0)) * n
    force *= max(1.0, np.abs(expected.forces).max(initial=0.0))
    found = lmp.get_thermo("pe")
    assert abs(found - expected.energy) <= energy, f"energy {found}, expected {expected.energy}"
    worst = np.abs(f[ours] - expected.forces).max(initial=0.0)
    assert worst <= force, f"force off by {worst}, allowed {force}"
    if state.grades and {*state.elements} == {*BINARY.elements}:
        grades = gathered(lmp, comm, "grade", fix=True)
        np.testing.assert_allclose(grades, gamma_alone(model, structure), rtol=gamma)


def gathered(lmp, comm, name: str, fix: bool = False) -> np.ndarray:
    """A property of the atoms of all ranks, or numbers of a fix, in the order of the ranks."""
    n = lmp.extract_setting("nlocal")
    take = partial(lmp.numpy.extract_fix, fstyle=1, ftype=1) if fix else lmp.numpy.extract_atom
    parts = comm.allgather(np.array(take(name)[:n]) if n else None)
    return np.concatenate([part for part in parts if part is not None])


def long_range(pair_style: str) -> tuple[str, ...]:
    """What a pair style needs beside it; LAMMPS may not survive where it is missing or too much."""
    if "coul/long" in pair_style:
        return "kspace_style pppm 1e-4", "kspace_modify gewald 0.5"  # without charges it finds none
    return ("kspace_style none",)


def whole_pairs(command: str, before: bool) -> bool:
    """Whether all pairs of bonded atoms count after a command."""
    return "lj 1 1 1" in command if command.startswith("special_bonds") else before


def sequence(lmp, comm, number: int) -> int:
    """Run one; return how many runs were compared."""
    from lammps import MPIAbortException  # an import of it changes the environment

    choice = random.Random(number)
    known, state, compared, grades = models(), State(), 0, False
    bonded, whole, deforms = choice.random() < 0.3, True, False
    lmp.commands_string(BONDED if bonded else SETUP)

    def accepted(command: str) -> bool:
        say(comm, command)
        try:
            lmp.command(command)
        except MPIAbortException as error:
            print(f"  # on rank {comm.rank} alone: {error}", flush=True)
            comm.Abort(ABORTED)
        except Exception as error:  # noqa: BLE001  all that lmp raises
            text = str(error)
            assert text.strip(), "an error without a word"
            say(comm, f"  # {text.splitlines()[0]}")
            return False
        return True

    for _ in range(LENGTH):
        kind = choice.random()
        if not state.style or kind < 0.15:
            command, file, precision, hybrid = pair_style(choice, bonded, comm.size)
            for one in long_range(command):
                accepted(one)
            if grades:
                accepted("unfix grade")
            ok = accepted(command)
            grades = (
                ok and choice.random() < 0.5 and accepted("fix grade all pair 1 pwmlff gamma 1")
            )
            state = State(file, precision, hybrid) if ok else State(hybrid=hybrid)
            if hybrid and ok:
                accepted(f"pair_coeff * * {'zero' if ' zero ' in command else 'coul/long'}")
        elif not state.elements or kind < 0.35:
            command, names = pair_coeff(choice, state)
            if accepted(command):
                state.elements = tuple(SYMBOLS[name] for name in names)
        elif kind < 0.65:
            command = other(choice, comm.size)
            if accepted(command):
                whole = whole_pairs(command, whole)
                deforms = command.startswith("fix box") or (deforms and command != "unfix box")
            continue
        if kind < 0.3 or kind > 0.65:
            steps = choice.choice((0, 0, 0, 2, 50))
            ran = accepted(choice.choice((f"run {steps}", f"run {steps}", "minimize 0 0 2 10")))
            complete = state.style and state.elements and (state.hybrid or all(state.elements))
            assert complete or not ran, "a run without a model or elements"
            # Fix deform leaves a box that is a step ahead of the forces.
            if ran and deforms and not accepted("run 0"):
                continue
            if ran and (whole or not bonded):
                check(lmp, comm, known[state.style], replace(state, grades=grades))
                compared += 1
    return compared


def say(comm, text: str) -> None:
    """Print once."""
    if comm.rank == 0:
        print(text, flush=True)


def main() -> None:
    """Run the sequences that the command line asks for."""
    from mpi4py import MPI

    from lammps import lammps

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    seed, count = map(int, sys.argv[1:])
    lmp = lammps(cmdargs=["-log", "none", "-screen", "none"])
    for number in range(seed, seed + count):
        say(comm, f"# sequence {number}")
        say(comm, f"# compared {sequence(lmp, comm, number)}")


if __name__ == "__main__":
    main()
