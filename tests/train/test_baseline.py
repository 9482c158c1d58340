"""[data] baseline: what LAMMPS or ase gives is taken off the labels, and put back in LAMMPS."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from typer.testing import CliRunner

from harness import ENGINES, Lammps
from labelled_structures import frames_of, trajectory
from pwmlff import Calculator
from pwmlff.cli import app
from pwmlff.data.baseline import Baseline
from pwmlff.evaluation.labeller import make_calculator
from pwmlff.launch.lmp import DUMP, enclosed, forces, read_command, write_data
from pwmlff.report import Failure
from pwmlff.train import train
from systems import SYSTEMS

pytestmark = pytest.mark.usefixtures("undrawn")

ZBL = Baseline("zbl 3.0 4.0", ("1 1 10 10", "1 2 10 18", "2 2 18 18"))
SETTINGS = ["model.embedding=[4]", "model.fitting=[4]", "model.m2=2", "model.rmax=5.0"]


def lennard_jones(atoms: Atoms) -> Atoms:
    """Labels of the potential that LAMMPS calls lj/cut, but for a constant of the energy."""
    result = atoms.copy()
    atoms.calc = LennardJones(sigma=2.2, epsilon=0.3, rc=5.0, smooth=False)
    results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
    if atoms.cell.rank == 3:
        results["stress"] = atoms.get_stress()
    result.calc = SinglePointCalculator(result, **results)
    return result


def test_a_pair_style_of_lammps():
    """Forces and virials against ase's, in cells that are turned for LAMMPS, and without a cell."""
    structures = [lennard_jones(atoms) for atoms in trajectory(3, strain=0.02)]
    structures[1].rotate(40, (1, 2, 3), rotate_cell=True)
    structures[1] = lennard_jones(structures[1])
    cluster = structures[0][:9].copy()
    cluster.set_cell(None)
    cluster.pbc = False
    structures.append(lennard_jones(cluster))
    labels = [atoms.calc.results for atoms in structures]
    energies, virials = [r["energy"] for r in labels], [np.zeros((3, 3))] * 4
    frames = frames_of(structures, energies, [r["forces"] for r in labels], virials)
    less = Baseline("lj/cut 5.0", ("* * 0.3 2.2",)).taken_off(frames, [10, 18])
    assert np.abs(less.forces).max() < 1e-9
    for k, atoms in enumerate(structures[:3]):
        virial = frames.virials[k] - less.virials[k]
        wanted = -atoms.get_stress(voigt=False) * atoms.get_volume()
        assert np.abs(virial - wanted).max() < 1e-8
    # ase's potential is zero at the cutoff, LAMMPS's is not.
    shift = 4 * 0.3 * ((2.2 / 5.0) ** 12 - (2.2 / 5.0) ** 6)
    distances = cluster.get_all_distances()[np.triu_indices(9, 1)]
    found = frames.energies[3] - less.energies[3]
    assert found - (distances < 5.0).sum() * shift == pytest.approx(energies[3], abs=1e-9)


def test_a_calculator_of_ase():
    structures = []
    for seed in range(2):
        atoms = Atoms("Cu4", np.random.default_rng(seed).random((4, 3)) * 3.0 + 2.0, cell=[9] * 3)
        atoms.pbc = True
        structures.append(atoms)
    labels = []
    for atoms in structures:
        atoms.calc = EMT()
        labels.append((atoms.get_potential_energy(), atoms.get_forces()))
    frames = frames_of(structures, [e for e, _ in labels], [f for _, f in labels])
    less = Baseline("ase.calculators.emt:EMT()").taken_off(frames, [29])
    assert np.abs(less.energies).max() < 1e-12 and np.abs(less.forces).max() < 1e-12


def test_from_the_labels_to_lammps(tmp_path: Path):
    """A training with ZBL taken off: its lines for LAMMPS add it, and pwmlff test asks for it."""
    lammps = Lammps(tmp_path, ENGINES["automatic"])
    frames = trajectory(12, step=0.1)
    settings = [*SETTINGS, f"data.baseline={ZBL.words}"]
    settings.append(f"data.baseline_coeff={json.dumps(ZBL.coeff)}")
    report = train(frames, ["Ne", "Ar"], tmp_path / "run", epochs=2, settings=settings)
    model = Path(report.models[0].file)
    commands = [line.strip() for line in report._use() if "pair_" in line]
    assert commands[0].startswith("pair_style hybrid/overlay pwmlff 1 ")
    assert "pair_coeff 1 2 zbl 10 18" in commands
    box = enclosed(frames[3])
    prism = write_data(lammps.folder / "atoms.data", box, [10, 18])
    text = read_command(box, "atoms.data") + "\n".join(commands)
    run = lammps.run(f"{text}\ncompute peatom all pe/atom\nrun 0\n{DUMP}")
    own = Calculator(model)
    bare = frames_of([frames[3]], [0.0], [np.zeros((len(box), 3))])
    zbl = -ZBL.taken_off(bare, [10, 18]).forces
    wanted = own.get_property("forces", frames[3]) + zbl
    assert np.abs(zbl).max() > 1e-3
    assert np.abs(prism.vector_to_ase(forces(run.atoms())) - wanted).max() < 1e-6
    write(tmp_path / "some.xyz", frames[:4], format="extxyz")
    words = ["test", str(model), str(tmp_path / "some.xyz"), "--json"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert f"--baseline '{ZBL.words}' '--baseline-coeff={ZBL.coeff[0]}'" in refused.stdout
    again = [f"--baseline-coeff={one}" for one in ZBL.coeff]
    said = CliRunner().invoke(app, [*words, "--baseline", ZBL.words, *again])
    done = CliRunner().invoke(app, [*words, "--trust"])
    assert said.stdout == done.stdout
    found = json.loads(done.stdout)
    labels = frames_of(frames[:4], [0.0] * 4, [atoms.get_forces() for atoms in frames[:4]])
    less = ZBL.taken_off(labels, [10, 18]).forces
    errors = np.concatenate([own.get_property("forces", atoms) for atoms in frames[:4]]) - less
    assert found["baseline"] == ZBL.words
    rmse = 1000 * np.sqrt((errors**2).mean())
    assert found["errors"]["force"]["rmse"] == pytest.approx(rmse, rel=1e-5)


@pytest.mark.parametrize(
    "baseline,words",
    [
        (Baseline("zbl 3.0 4.0"), "baseline_coeff is empty"),
        (Baseline("nothing/at/all", ("* * 1",)), "Unrecognized pair style 'nothing/at/all'"),
        (Baseline("ase.calculators.emt:Nothing()"), "has no attribute 'Nothing'"),
        (Baseline("no.such.module:A()"), "No module named 'no'"),
    ],
)
def test_errors(baseline: Baseline, words: str):
    frames = frames_of(trajectory(1), [0.0], [np.zeros((32, 3))])
    with pytest.raises(Failure, match=words):
        baseline.taken_off(frames, [10, 18])


@pytest.mark.parametrize(
    "words,coeff",
    [
        ("pathlib:Path('ran').touch()", []),
        ("ase.calculators.emt:EMT(asap_cutoff=__import__('pathlib').Path('ran').touch())", []),
        ("zbl 3.0 4.0\nshell touch ran", ["* * 10 10"]),
        ("zbl 3.0 4.0", ["* * 10 10\nshell touch ran"]),
        ("zbl 3.0 $(v_x)", ["* * 10 10"]),
        ("ran.py:made()", []),
    ],
)
def test_a_card_is_data(tmp_path: Path, monkeypatch, words: str, coeff: list[str]):
    """Nothing of it runs because a file says so; and with --trust what is more than a call."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ran.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    card = {"configuration": {"data": {"baseline": words, "baseline_coeff": coeff}}}
    SYSTEMS["two elements, triclinic"].model().save(tmp_path / "model.pt", card)
    write("some.xyz", lennard_jones(trajectory(1)[0]), format="extxyz")
    command = ["test", "model.pt", "some.xyz", "--json", "--elements", "O"]
    for trust in ([], ["--trust"]):
        done = CliRunner().invoke(app, [*command, *trust])
        assert done.exit_code == 2, done.stdout
        assert (tmp_path / "ran").exists() == bool(trust and words == "ran.py:made()")
        assert "baseline" in json.loads(done.stdout)["error"]
    # Nobody has to take it: then the elements are what is wrong.
    done = CliRunner().invoke(app, [*command, "--baseline", "none"])
    assert "expected one of [8]" in json.loads(done.stdout)["error"]


def test_calculators_are_calls_with_plain_values(tmp_path: Path):
    path = tmp_path / "file.py"
    path.write_text(
        "class A:\n"
        "    class B:\n"
        "        def __init__(self, *more, **named): self.given = more, named\n"
        "one = A.B(7)\n"
    )
    given = f"{path}:A.B(-1, [2.5, 'a'], device=None, sizes={{'x': (1, True)}})"
    found = ((-1, [2.5, "a"]), {"device": None, "sizes": {"x": (1, True)}})
    assert make_calculator(given).given == found
    assert make_calculator(f"{path}:one").given == ((7,), {})
    assert isinstance(make_calculator("ase.calculators.emt:EMT(fixed_cutoff=True)"), EMT)
    for words in (
        "A()", ":A()", f"{path}:", f"{path}:A.B(open('x'))", f"{path}:A.B(*[1])",
        f"{path}:A.B(**{{}})",
        f"{path}:A.B()()", f"{path}:A.B().given", f"{path}:one or one", f"{path}:A.B(1 + x)",
        f"{path}:A.B(); one", f"{path}:[one][0]", f"{path}:(lambda: 1)()",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="expected module:name, called with plain values"):
            make_calculator(words)
