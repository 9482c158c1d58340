"""Models on some of their elements, by lmp and by the calculator, against numbers from elsewhere.

A Deep Potential divides by slots: of all its elements where they were trained so, and of those that
take part where PWMLFF or MatPL have made it. Other kinds do not know which elements take part.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.data import chemical_symbols
from ase.stress import full_3x3_to_voigt_6_stress

import dp_oracle
import mace_oracle
from edge_models import MessagePassing
from harness import ENGINES, ON_DEVICE, Lammps, thorough
from nep_files import HEADS, random_text
from pwmlff import Calculator
from pwmlff.evaluation.model_file import describe_unopened
from pwmlff.evaluation.nep_file import parse_nep, write_nep
from pwmlff.evaluation.nep_reference import evaluate_nep
from pwmlff.evaluation.reference import evaluate
from pwmlff.launch.lmp import DUMP, MEASURE, forces, read_command, virial_to_lammps
from pwmlff.models import DP, pad_neighbors, save_model
from pwmlff.report import Failure
from systems import System

EXAMPLE = Path(__file__).parents[2] / "examples" / "hfo2" / "a.pt"
TINY, ARRAYS = dp_oracle.TINY, dp_oracle.read()[0]
CELL = np.array([[9.0, 0.0, 0.0], [1.1, 9.4, 0.0], [-0.7, 0.9, 9.2]])
POSITIONS = np.array([[0.3, 0.2, 0.1], [2.2, 0.4, 0.3], [0.5, 2.3, 0.9], [8.0, 0.1, 1.9]])
#: What the calculator has for the engines of lmp.
OF_CALCULATOR = {
    "torchscript": {"engine": "torchscript"},
    "exact": {"engine": "fused", "precision": "exact"},
    "double": {"engine": "fused"},
    "mixed": {"engine": "fused", "precision": "mixed"},
    "device": {"engine": "fused", "device": "cuda"},
    "device mixed": {"engine": "fused", "precision": "mixed", "device": "cuda"},
}
EVERY = ["torchscript", thorough("exact"), "double", thorough("mixed"), "device"]
EVERY += [thorough("device mixed")]


@pytest.fixture
def engine() -> str:
    """Where a test has no parameter of this name."""
    return "automatic"


@dataclass
class Wanted:
    energy: float
    atom_energy: np.ndarray
    forces: np.ndarray
    virial: np.ndarray


def structure(numbers: Sequence[int]) -> Atoms:
    """Four atoms of these elements in turn."""
    every = [z for z, _ in zip(itertools.cycle(numbers), POSITIONS, strict=False)]
    return Atoms(every, POSITIONS, cell=CELL, pbc=True)


@functools.cache
def by_oracle(numbers: tuple[int, ...], counted: tuple[int, ...]) -> Wanted:
    """Numbers of the Deep Potential in NumPy, of four atoms of these elements in turn."""
    atoms = structure(numbers)
    more = TINY, counted
    return Wanted(**dp_oracle.evaluate(ARRAYS, atoms.numbers, POSITIONS, CELL, *more))


def of_tiny(**changes) -> DP:
    return DP.from_parameters(ARRAYS, **vars(replace(TINY, **changes)))


def trained(path: Path) -> None:
    of_tiny(sel=(TINY.max_neighbor,) * 2).save(path)


def of_matpl(path: Path) -> None:
    of_tiny().save(path)


def of_older_release(path: Path) -> None:
    """A training wrote its configuration, and not that all elements count."""
    of_tiny().save(path, {"configuration": {"model": {"elements": ["Si", "O"]}}})


#: What writes a Deep Potential of silicon and oxygen, and whether all its elements count.
POTENTIALS: dict[str, tuple[Callable[[Path], None], bool]] = {
    "trained": (trained, True),
    "of MatPL": (of_matpl, False),
    "of an older release": (of_older_release, True),
}
SUBSETS = [(14,), (8,), (14, 8), (8, 14)]


def wanted_of(all_count: bool, elements: Sequence[int], named: Sequence[int]) -> Wanted:
    return by_oracle(tuple(elements), (14, 8) if all_count else tuple(sorted(named, reverse=True)))


def names(elements: Sequence[int]) -> str:
    return " ".join(chemical_symbols[z] for z in elements)


def one(lammps: Lammps, model: str, elements: Sequence[int], named: Sequence[int]) -> str:
    """The input of one structure; its number is that of the data files so far."""
    k = len(list(lammps.folder.glob("*.data")))
    lammps.data(structure(elements), list(named), f"{k}.data")
    return (
        f"clear\n{read_command(structure(elements), f'{k}.data')}pair_style pwmlff {model}\n"
        f"pair_coeff * * {names(named)}\n{MEASURE}run 0\n{DUMP.replace('atoms', str(k))}"
    )


def agrees(lammps: Lammps, run, k: int, elements: Sequence[int], wanted: Wanted) -> None:
    gates, atoms = lammps.engine, structure(elements)
    prism = lammps.data(atoms, sorted(set(elements)), "turned.data")
    (lammps.folder / "turned.data").unlink()
    found = run.atoms(f"{k}.dump")
    assert np.abs(found.c_peatom - wanted.atom_energy).max() < gates.atom_energy
    assert np.abs(forces(found) - prism.vector_to_lammps(wanted.forces)).max() < gates.force
    assert np.abs(run.virial(k) - virial_to_lammps(wanted.virial, prism)).max() < gates.virial


def calculator_agrees(calculator: Calculator, engine: str, elements, wanted: Wanted) -> None:
    gates, atoms = ENGINES[engine], structure(elements)
    atoms.calc = calculator
    assert np.abs(atoms.get_potential_energies() - wanted.atom_energy).max() < gates.atom_energy
    assert np.abs(atoms.get_forces() - wanted.forces).max() < gates.force
    stress = full_3x3_to_voigt_6_stress(-wanted.virial) / atoms.get_volume()
    assert np.abs(atoms.get_stress() - stress).max() < gates.virial / atoms.get_volume()


@pytest.mark.parametrize("engine", EVERY)
def test_deep_potentials(lammps: Lammps, engine: str):
    """Each of them, in one lmp, on each subset; silicon alone also where both are named."""
    text, cases = "", []
    for name, (write, all_count) in POTENTIALS.items():
        file = f"{name.replace(' ', '_')}.pt"
        write(lammps.folder / file)
        for elements, named in [*zip(SUBSETS, SUBSETS, strict=True), ((14,), (14, 8))]:
            text += one(lammps, file, elements, named)
            cases.append((elements, wanted_of(all_count, elements, named)))
    run = lammps.run(text, ranks=2)
    for k, (elements, wanted) in enumerate(cases):
        agrees(lammps, run, k, elements, wanted)
    said = [line for line in run.output.splitlines() if "its descriptor is divided by" in line]
    begin = "    its descriptor is divided by the slots of {} alone, the elements that pair_coeff"
    assert said == [f"{begin.format(z)} names: 1 of 2" for z in ("Si", "O")]


def test_calculator_of_a_file_that_is_replaced(tmp_path: Path, monkeypatch):
    """What was opened is not mixed with what the file is later; the folder may be another one."""
    write = next(write for write, all_count in POTENTIALS.values() if not all_count)
    write(tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    first, second = Calculator("model.pt"), Calculator("model.pt")
    for one in (first, second):
        one.get_potential_energy(structure(SUBSETS[0]))
    monkeypatch.chdir("/")
    first.get_potential_energy(structure(SUBSETS[1]))
    write(tmp_path / "model.pt")
    with pytest.raises(Failure, match="was changed after it was opened"):
        second.get_potential_energy(structure(SUBSETS[1]))


@pytest.mark.parametrize("engine", ["reference", *EVERY])
def test_calculator_on_deep_potentials(tmp_path: Path, monkeypatch, engine: str):
    """One calculator for structures of other elements in turn; and elements that are named."""
    for variable, value in ON_DEVICE.items():
        monkeypatch.setenv(variable, value)
    options = OF_CALCULATOR.get(engine, {"engine": engine})
    gates = engine if engine in ENGINES else "exact"
    for write, all_count in POTENTIALS.values():
        write(path := tmp_path / "model.pt")
        assert describe_unopened(path).counts_present is not all_count
        calculator = Calculator(path, **options)
        for elements in [*SUBSETS, SUBSETS[0]]:
            wanted = wanted_of(all_count, elements, elements)
            calculator_agrees(calculator, gates, elements, wanted)
        both = Calculator(path, elements=(8, 14), **options)
        calculator_agrees(both, gates, (14,), wanted_of(all_count, (14,), (14, 8)))


def test_the_forward_takes_some_elements(tmp_path: Path):
    """Of a trained file, it gives the same whichever are passed."""
    trained(path := tmp_path / "model.pt")
    module = torch.jit.load(path)
    inputs = pad_neighbors(structure((14,)), [14, 8], TINY.rmax, TINY.max_neighbor)
    for passed in ((14, 8), (14,), (8, 14)):
        inputs = inputs._replace(atom_type=torch.tensor(passed, dtype=torch.int32))
        energy = module(*inputs)[1].detach().numpy().ravel()
        np.testing.assert_allclose(energy, by_oracle((14,), (14, 8)).atom_energy, atol=1e-11)


@pytest.mark.parametrize("engine", ["torchscript", "double", "device"])
def test_null_and_several_types_of_an_element(lammps: Lammps, engine: str):
    """In a hybrid style; an element of two types counts once, and one that is NULL not at all."""
    atoms = structure((14,))
    lammps.data(Atoms([1, 2, 1, 2], POSITIONS, cell=CELL, pbc=True), [1, 2, 3])
    text = ""
    for name, (write, _) in POTENTIALS.items():
        file = f"{name.replace(' ', '_')}.pt"
        write(lammps.folder / file)
        text += (
            f"clear\n{read_command(atoms, 'atoms.data')}"
            f"pair_style hybrid/overlay zero 4.0 pwmlff {file}\npair_coeff * * zero\n"
            f"pair_coeff * * pwmlff Si Si NULL\n{MEASURE}run 0\n"
        )
    run = lammps.run(text)
    for k, (_, all_count) in enumerate(POTENTIALS.values()):
        energy = wanted_of(all_count, (14,), (14,)).energy
        assert run.thermo(k)["PotEng"][0] == pytest.approx(energy, abs=4 * lammps.engine.energy)


@pytest.mark.parametrize("engine", ["torchscript", "double", "device"])
def test_ensembles_of_both_sorts(lammps: Lammps, engine: str):
    """Each model divides by its own."""
    trained(lammps.folder / "trained.pt")
    of_matpl(lammps.folder / "matpl.pt")
    files = "matpl.pt trained.pt drive mean out_freq 1"
    run = lammps.run(one(lammps, files, (14,), (14,)))
    energies = [wanted_of(all_count, (14,), (14,)).energy for all_count in (True, False)]
    mean = sum(energies) / 2
    assert run.thermo()["PotEng"][0] == pytest.approx(mean, abs=4 * lammps.engine.energy)
    assert run.output.count("its descriptor is divided by the slots of Si alone") == 1


def test_a_file_of_an_older_release_with_its_record(lammps: Lammps):
    """The example's: its record has numbers of hafnium alone by another divisor."""
    module = torch.jit.load(EXAMPLE)
    arrays = {name: p.detach().double().numpy() for name, p in module.named_parameters()}
    arrays |= {name: getattr(module, name).numpy() for name in ("davg", "dstd")}
    sizes = (module.Rmax, module.Rmin, module.maxNeighborNum, module.M2)
    contract = dp_oracle.Contract(tuple(module.atom_type), *sizes)
    energies = dp_oracle.atom_energies(
        arrays, np.full(4, 72), POSITIONS + 0j, CELL + 0j, contract
    ).real
    run = lammps.run(one(lammps, str(EXAMPLE), (72,), (72,)))
    assert "engine fused" in run.output and "its descriptor is divided" not in run.output
    np.testing.assert_allclose(run.atoms("0.dump").c_peatom, energies, atol=1e-8)
    found = structure((72,))
    found.calc = Calculator(EXAMPLE)
    np.testing.assert_allclose(found.get_potential_energies(), energies, atol=1e-8)


def without_data(folder: Path) -> Iterator[str]:
    """Files that say that there were no data of hafnium."""
    card = {"without_data": ["Hf"]}
    model = System((72, 8), max_neighbor=20).model()
    yield str(model.save(folder / "recorded.pt", card).relative_to(folder))
    yield str(model.save(folder / "bare.pt", card, record=False).relative_to(folder))
    save_model(MessagePassing([8, 72], 3.0, 2, 0), folder / "edges.pt", card)
    yield "edges.pt"
    nep = parse_nep(random_text(HEADS["nep5"]))
    nep.last[nep.elements.index(72)] = 0.0
    write_nep(nep, folder / "nep.txt")
    yield "nep.txt"


def test_an_element_without_data(lammps: Lammps):
    """Of each kind: a warning for each type that takes it, and none where none does."""
    warning = "WARNING: Pair style pwmlff: the data of model '{}' had no atom of Hf, which atom"
    for file in without_data(lammps.folder):
        text = "".join(one(lammps, file, *(named,) * 2) for named in [(8,), (8, 72)])
        run = lammps.run(text)
        assert run.output.count(warning.format(file)) == 1
        assert warning.format(file) + " type 2 is" in run.output
        for data in lammps.folder.glob("*.data"):
            data.unlink()


def of_nep(path: Path) -> Callable[[Atoms], object]:
    path.write_bytes(text := random_text(HEADS["nep5"]))
    return functools.partial(evaluate_nep, parse_nep(text))


def of_edges(path: Path) -> Callable[[Atoms], object]:
    save_model(model := MessagePassing([8, 72], 3.0, 2, 0), path)
    return functools.partial(evaluate, model)


def of_mace(path: Path) -> Callable[[Atoms], object]:
    return functools.partial(evaluate, mace_oracle.save(path, mace_oracle.Shape()))


@pytest.mark.parametrize("engine", ["automatic", "device"])
@pytest.mark.parametrize("kind", [of_nep, of_edges, of_mace])
def test_other_kinds(lammps: Lammps, monkeypatch, kind, engine: str):
    """Named or not, elements without atoms change nothing."""
    for variable, value in ON_DEVICE.items():
        monkeypatch.setenv(variable, value)
    lammps = Lammps(lammps.folder, replace(lammps.engine, keywords=""))
    file = "model.txt" if kind is of_nep else "model.pt"
    reference = kind(lammps.folder / file)
    options = {"device": "cuda"} if engine == "device" and kind is of_nep else {}
    calculator = Calculator(lammps.folder / file, **options)
    cases = [((8,), (8,)), ((72,), (72,)), ((72,), (8, 72)), ((8, 72), (72, 8))]
    run = lammps.run("".join(one(lammps, file, *case) for case in cases))
    for k, (elements, _) in enumerate(cases):
        atoms = structure(elements)
        wanted = reference(atoms)
        assert np.abs(run.atoms(f"{k}.dump").c_peatom - wanted.atom_energy).max() < 1e-8
        atoms.calc = calculator
        assert np.abs(atoms.get_potential_energies() - wanted.atom_energy).max() < 1e-8
        assert np.abs(atoms.get_forces() - wanted.forces).max() < 1e-6
