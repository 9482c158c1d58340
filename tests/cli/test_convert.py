"""`pwmlff convert`: files of other programs give the same numbers here, or are refused by name."""

from __future__ import annotations

import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk
from torch import nn

import ace_files
import dp_oracle
import edge_models
import foreign_models
from foreign_models import save
from nep_files import HEADS, random_text
from pwmlff import Calculator
from pwmlff.convert import conversion, convert, mace_export
from pwmlff.evaluation import model_file, reference, self_test
from pwmlff.evaluation.engine import choose
from pwmlff.evaluation.nep_file import parse_nep, read_nep
from pwmlff.evaluation.structures import random_cluster
from pwmlff.models import save_model
from pwmlff.report import Failure

#: What releases have added, or may leave out; without it a model has none of what it switches on.
ADDED = (
    "compress", "env_protection", "emask", "idt", "bias_atom_e", "out_bias",
    "exclude_types", "numb_fparam", "numb_aparam", "dim_case_embd", "mixed_types",
    "remove_vaccum_contribution", "pair_excl", "atom_excl",
)  # fmt: skip
DEEPMD = {
    "plain": {},
    "early release": {"lacks": ADDED},
    "one-sided": {"one_sided": True},
    "no steps": {"step": False},
    "three elements": {"sel": (14, 17, 20), "vacuum": True, "seed": 3},
}


@pytest.mark.parametrize("name", DEEPMD)
def test_deepmd(tmp_path, name):
    """All that the project tests of a DP holds of it: the fused engine takes it."""
    path = save(foreign_models.deepmd(**DEEPMD[name]), tmp_path / "graph.pth")
    if "lacks" not in DEEPMD[name]:
        with pytest.raises(RuntimeError, match="deepmd::tabulate_fusion_se_a"):
            torch.jit.load(str(path))
    report = convert(path, tmp_path / "a.pt")
    assert report.family == "DeePMD-kit, se_e2_a"
    assert report.engine.startswith("fused")
    assert report.energy_difference < 1e-12
    assert report.force_difference < 1e-12
    found = choose(tmp_path / "a.pt", "fused", "double").engine(
        random_cluster(4.0, report.model.atom_type, report.model.limit)
    )
    assert np.abs(found.forces).max() > 1e-2


@pytest.mark.parametrize("mixed", [False, True])
def test_other_deepmd(tmp_path, mixed: bool):
    """By the code of the file, each center as a structure of its own; more neighbors than it has
    room for are not left out."""
    sel = (100,) if mixed else (60, 60)
    path = save(foreign_models.local_deepmd(sel, mixed), tmp_path / "graph.pth")
    report = convert(path, tmp_path / "a.pt")
    assert (report.family, report.engine) == ("DeePMD-kit, DescrptDPA1", "torchscript, float64")
    assert report.model.interaction_range == report.model.cutoff == 4.0
    assert report.energy_difference < 1e-13
    assert report.force_difference < 1e-13
    engine = choose(tmp_path / "a.pt", "torchscript").engine
    assert np.abs(engine(random_cluster(4.0, [8, 72], None)).forces).max() > 1e-2
    assert engine(Atoms("O", [[0, 0, 0]])).atom_energy == 0.0
    dense = bulk("HfO2", "fluorite", a=2.8, cubic=True)
    with pytest.raises(ValueError, match="more neighbors than sel of this DeePMD-kit model"):
        engine(dense)


def test_deepmd_that_passes_messages(tmp_path):
    """Further than its cutoff; an edge more of an atom that is far enough changes nothing."""
    model = foreign_models.local_deepmd((60,), True, foreign_models.DescrptBlockRepformers)
    report = convert(save(model, tmp_path / "a.pth"), tmp_path / "a.pt")
    assert (report.model.cutoff, report.model.interaction_range) == (4.0, 3 * 4.0)
    assert report.energy_difference < 1e-13 and report.force_difference < 1e-13
    engine = choose(tmp_path / "a.pt", "torchscript").engine
    chain = Atoms("O5", [[3.0 * k, 0.0, 0.0] for k in range(5)])
    energies = [engine(chain[:n]).atom_energy[0] for n in range(1, 6)]
    assert abs(np.diff(energies)[:3]).min() > 1e-8  # the fourth atom is two layers and a list away
    assert energies[4] == energies[3] and energies[0] == 0.0


def test_se_e2_a_that_is_none_of_the_contract(tmp_path):
    """By the code of the file, and the reason is told."""
    path = save(foreign_models.local_deepmd(activation="gelu"), tmp_path / "graph.pth")
    report = convert(path, tmp_path / "a.pt")
    assert report.family == "DeePMD-kit, DescrptSeA" and report.engine == "torchscript, float64"
    assert report.told["own code"] == "runs: its activation function is gelu, expected tanh"
    assert report.force_difference < 1e-13


@pytest.mark.parametrize(
    "make,words",
    [
        (foreign_models.deepmd, {"compress": True}),
        (foreign_models.local_deepmd, {"compressed": True}),
    ],
)
def test_compressed_deepmd(tmp_path, make, words):
    """By the networks that its tables were made of, which do not travel along."""
    reports = {
        name: convert(save(make(**more), tmp_path / f"{name}.pth"), tmp_path / f"{name}.pt")
        for name, more in (("plain", {}), ("compressed", words))
    }
    told = [report.told.pop("compression", "") for report in reports.values()]
    assert [bool(text) for text in told] == [False, True]
    plain, other = (report.model for report in reports.values())
    assert plain.nparameters == other.nparameters
    cluster = random_cluster(4.0, plain.atom_type, plain.limit)
    found = [choose(tmp_path / f"{name}.pt", "torchscript").engine(cluster) for name in reports]
    assert (found[0].atom_energy == found[1].atom_energy).all()
    assert (found[0].forces == found[1].forces).all()
    assert abs(found[0].forces).max() > 1e-2


def test_mace_and_nequip(tmp_path):
    rounds = {}
    for name, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        save(foreign_models.mace(dtype), tmp_path / f"{name}.pt")
    foreign_models.save_nequip(tmp_path / "nequip.pth")
    for name in ("f64.pt", "f32.pt", "nequip.pth"):
        report = convert(tmp_path / name, tmp_path / f"our_{name}")
        assert report.energy_difference < (1e-12 if name == "f64.pt" else 1e-5)
        assert report.model.interaction_range == 8.0
        rounds[report.family] = report.told["rounds"]
        dtype = "float64" if name == "f64.pt" else "float32"
        parts = " in rounds" if report.family == "NequIP" else ""
        assert report.engine == f"torchscript{parts}, {dtype}"
        engine = choose(tmp_path / f"our_{name}", "reference").engine
        cluster = random_cluster(4.0, [8, 72], None)
        expected = engine(cluster)
        found = choose(tmp_path / f"our_{name}").engine(cluster)
        close = 1e-10 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=close)
        assert np.abs(expected.forces).max() > 1e-2
    assert rounds == {"MACE": "2", "NequIP": "2"}


def test_mace_of_other_releases(tmp_path):
    """Up to 0.3.6 there is no head; a later release gives models of those one without a name."""
    for head, heads in ((None, ()), (0, ()), (0, ("only",))):
        save(foreign_models.mace(head=head, heads=heads), tmp_path / "a-lammps.pt")
        report = convert(tmp_path / "a-lammps.pt", tmp_path / "a.pt")
        assert report.family == "MACE"
        assert "head" not in report.told
        assert report.energy_difference < 1e-12
    save(foreign_models.mace(), tmp_path / "a-lammps.pt")
    assert convert(tmp_path / "a-lammps.pt", tmp_path / "a.pt").told["head"] == "b of a, b"


def test_nequip_whose_parts_do_not_follow_each_other(tmp_path):
    """Its forward as it is."""
    torch.manual_seed(0)  # as for the other
    foreign_models.save_nequip(tmp_path / "a.pth", func=foreign_models.Interleaved())
    foreign_models.save_nequip(tmp_path / "b.pth")
    reports = [convert(tmp_path / f"{name}.pth", tmp_path / f"{name}.pt") for name in "ab"]
    assert [report.engine.startswith("torchscript in rounds") for report in reports] == [0, 1]
    cluster = random_cluster(4.0, [8, 72], None)
    one, other = (choose(tmp_path / f"{name}.pt").engine(cluster) for name in "ab")
    np.testing.assert_allclose(one.forces, other.forces, rtol=0, atol=1e-6)


def test_deployed_nequip(tmp_path):
    """What nequip-deploy writes: scaled energies of atoms, against the code of the file."""
    foreign_models.save_nequip(tmp_path / "deployed.pth", constant=0.0)
    report = convert(tmp_path / "deployed.pth", tmp_path / "a.pt")
    assert report.family == "NequIP"
    assert report.energy_difference < 1e-5
    cluster = random_cluster(4.0, [8, 72], None)
    foreign_models.save_nequip(tmp_path / "compiled.pth")
    convert(tmp_path / "compiled.pth", tmp_path / "b.pt")
    scaled, plain = (choose(tmp_path / name).engine(cluster) for name in ("a.pt", "b.pt"))
    np.testing.assert_allclose(scaled.forces, 3.0 * plain.forces, rtol=0, atol=1e-5)
    assert np.abs(plain.forces).max() > 1e-2
    for words, changed in (
        ("adds 2 eV to the energy of any number of atoms", {"constant": 2.0}),
        ("without r_max in its metadata", {"constant": 0.0, "r_max": ""}),
    ):
        foreign_models.save_nequip(tmp_path / "deployed.pth", **changed)
        with pytest.raises(Failure, match=words):
            convert(tmp_path / "deployed.pth", tmp_path / "a.pt")


def test_deployed_sevennet(tmp_path):
    """Its rounds are told by how far energies reach, as the code has no layers any more.

    The code of releases up to 0.11 takes positions and makes forces of its energy by itself.
    """
    for rounds, older in ((1, False), (3, False), (1, True), (3, True)):
        foreign_models.save_sevennet(tmp_path / "deployed_serial.pt", rounds, older)
        report = convert(tmp_path / "deployed_serial.pt", tmp_path / "a.pt")
        assert (report.family, report.told["rounds"]) == ("SevenNet", str(rounds))
        assert report.model.interaction_range == 4.0 * rounds
        assert report.engine == "torchscript, float32"
        assert report.force_difference < 1e-5
        assert list(report.model.atom_type) == [8, 72]
    for words, changed in (
        ("in double precision, expected single", {"dtype": "double"}),
        ("a part of a model of SevenNet for its own pair style", {"comm_size": "64"}),
        ("without cutoff in its metadata", {"cutoff": ""}),
    ):
        foreign_models.save_sevennet(tmp_path / "deployed_serial.pt", **changed)
        with pytest.raises(Failure, match=words):
            convert(tmp_path / "deployed_serial.pt", tmp_path / "a.pt")


LISTED = {
    "asked": "Available heads in the model:\\n1: one\\n2: other two\\nSelect a head by number: ",
    "told": "Selected head: x from command line in the list available heads: "
    "['one', 'other two']\\n",
}


@pytest.mark.parametrize("way, head", [("asked", ""), ("told", "x")])
def test_heads_are_listed(tmp_path, monkeypatch, way, head):
    """As mace_create_lammps_model prints them before it fails."""
    (tmp_path / "model.model").write_bytes(foreign_models.pickled_mace())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mace_create_lammps_model"
    does = f'printf "{LISTED[way]}"; echo EOFError >&2; exit 1'
    program.write_text(STAND_IN.format(folder=tmp_path, does=does))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    with pytest.raises(Failure, match=r"with the heads one, other two: found .*, expected one of"):
        convert(tmp_path / "model.model", tmp_path / "a.pt", head=head)


def test_command_of_mace_that_takes_a_file_alone(tmp_path, monkeypatch):
    """That of 0.3.6."""
    (tmp_path / "model.model").write_bytes(foreign_models.pickled_mace())
    made = save(foreign_models.mace(head=None, heads=()), tmp_path / "made.pt")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mace_create_lammps_model"
    usage = 'echo "AssertionError: Usage: $0 FILE" >&2; exit 1'
    does = f'if [ $# != 1 ]; then {usage}; fi; cp {made} "$1-lammps.pt"'
    program.write_text(STAND_IN.format(folder=tmp_path, does=does))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert convert(tmp_path / "model.model", tmp_path / "a.pt").family == "MACE"


STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/words
{does}
"""
PROGRAMS = {
    "MACE": ("mace_create_lammps_model", "model.model", 'cp {made} "$1-lammps.pt"'),
    "NequIP": ("nequip-compile", "model.nequip.zip", 'cp {made} "$2"'),
    "NequIP, checkpoint": ("nequip-compile", "best.ckpt", 'cp {made} "$2"'),
    "SevenNet": ("sevenn_get_model", "checkpoint.pth", 'cp {made} "$3"'),
}


def save_for_programs(family: str, path):
    """What only their program opens, as far as it is told apart by, and what that makes of it."""
    made = path.with_name("made.pt")
    if family == "MACE":
        path.write_bytes(foreign_models.pickled_mace())
        save(foreign_models.mace(torch.float32), made)
        return made
    if family == "SevenNet":
        torch.save({"model_state_dict": {"onehot_to_feature_x.linear.weight": 0}}, path)
        foreign_models.save_sevennet(made)
        return made
    foreign_models.save_nequip(made)
    if path.suffix == ".ckpt":
        torch.save({"pytorch-lightning_version": "2", "hyper": "nequip.train.Lightning"}, path)
        return made
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/.data/extern_modules", "torch")
        archive.writestr("model/nequip/__init__.py", "")
    return made


def test_chgnet(tmp_path, monkeypatch, caplog):
    """Its Python is asked for a model and for numbers of it; without one, it is named."""
    source, made, turn = (tmp_path / name for name in ("a.pth.tar", "made.pt", "turn"))
    names = {"bond_basis_expansion.rbf_expansion_ag.frequencies": 0}
    torch.save({"model": {"state_dict": names}}, source)
    module = edge_models.Bonds([8, 72], 4.0, 3.0)
    save_model(module, made)
    clusters = self_test.clusters(model_file.describe_unopened(made))
    expected = [reference.evaluate(made, cluster) for cluster in clusters]
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    program = tmp_path / "bin" / "python3"
    numbers = f'n=$(cat {turn}); cp {tmp_path}/$n.npz "$3"; echo $(((n + 1) % 3)) > {turn}'
    does = f'if [ "$4" ]; then {numbers}; else cp {made} "$3"; fi'
    program.write_text(STAND_IN.format(folder=tmp_path, does=does))
    program.chmod(0o755)
    with pytest.raises(Failure, match="found no Python with chgnet on the PATH; pip install"):
        convert(source, tmp_path / "a.pt")
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "chgnet" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.touch()
    for off in (1e-2, 0.0):
        for k, one in enumerate(expected):
            arrays = {"atom_energy": one.atom_energy, "forces": one.forces + off * (k == 2)}
            np.savez(tmp_path / f"{k}.npz", **arrays)
        turn.write_text("0")
        if off:
            with pytest.raises(Failure, match=r"is not what it was taken for \(CHGNet\): forces"):
                convert(source, tmp_path / "a.pt")
    report = convert(source, tmp_path / "a.pt")
    assert (report.family, report.engine) == ("CHGNet", "torchscript, float64")
    assert report.told["pairs"] == "bonds up to 3 \u00c5 have angles"
    assert (tmp_path / "words").read_text().split()[1:] == [
        "checkpoint", "numbers.npz", "structure.npz",
    ]  # fmt: skip
    assert caplog.text.count(f"'{source}' is a checkpoint of CHGNet") == 2
    assert "opens it now, which runs any code in it" in caplog.text
    program.write_text("#!/bin/sh\necho no such key >&2; exit 1\n")
    with pytest.raises(Failure, match=r"makes nothing of '.*', a checkpoint of CHGNet:\nno such"):
        convert(source, tmp_path / "a.pt")


def test_active_set(tmp_path, monkeypatch):
    """python-ace is asked for B functions, numbers and gamma; gamma of another kind is refused."""
    source, made, turn = (tmp_path / name for name in ("a.yaml", "made.yace", "turn"))
    active_set, target = tmp_path / "a.asi", tmp_path / "a.yace"
    source.write_text("species:\n- {}\n")
    made.write_text(ace_files.random_text(vectors=1))
    np.savez(active_set.open("wb"), O=np.ones((3, 3)))
    calculator, off = Calculator(made), 0.0
    for k, cluster in enumerate(self_test.clusters(model_file.describe_unopened(made))):
        numbers = reference.evaluate(made, cluster)
        gamma = calculator.get_property("gamma", cluster) * (1 + 2e-6 * (k == 2))
        arrays = {"atom_energy": numbers.atom_energy, "forces": numbers.forces, "gamma": gamma}
        np.savez(tmp_path / f"{k}.npz", **arrays)
        off = max(off, 2e-6 * (k == 2))
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "pyace" / "__init__.py"
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    each = f'n=$(cat {turn}); cp {tmp_path}/$n.npz "$3"; echo $(((n + 1) % 3)) > {turn}'
    does = f'if [ "$6" ]; then {each}; else cp {made} "$3"; fi'
    program.write_text(STAND_IN.format(folder=tmp_path, does=does))
    program.chmod(0o755)
    turn.write_text("0")
    with pytest.raises(Failure, match="found no Python with pyace on the PATH; pip install"):
        convert(source, target, active_set=active_set)
    package.parent.mkdir(parents=True)
    package.touch()
    with pytest.raises(Failure, match=r"gamma differs by 2.*e-06 of the largest from that of the"):
        convert(source, target, active_set=active_set)
    assert (tmp_path / "words").read_text().split()[1:] == [
        "potential.yaml", "numbers.npz", "--active-set", "active_set.asi", "--structure",
        "structure.npz",
    ]  # fmt: skip
    assert not target.exists()
    with np.load(tmp_path / "2.npz") as found:
        arrays = dict(found)
    np.savez(tmp_path / "2.npz", **{**arrays, "gamma": arrays["gamma"] / (1 + off)})
    report = convert(source, target, active_set=active_set)
    assert (report.family, report.model.has_grade) == ("ACE of pacemaker", True)
    assert "from that of the original" in report.told["gamma"]
    (tmp_path / "nep.txt").write_bytes(random_text(HEADS["nep5"]))
    for other in (made, tmp_path / "nep.txt"):
        with pytest.raises(
            Failure, match=r"found an active set, .*, expected one for the .yaml of"
        ):
            convert(other, target, active_set=active_set)
    np.savez(active_set.open("wb"), O=1e16 * np.eye(3))
    with pytest.raises(Failure, match=r"has the identity times 1e\+16 for O, expected the inverse"):
        convert(source, target, active_set=active_set)
    active_set.write_text("no archive")
    with pytest.raises(Failure, match=r"a\.asi' cannot be read as an active set: .*; expected the"):
        convert(source, target, active_set=active_set)


@pytest.mark.parametrize("family", PROGRAMS)
def test_files_for_programs(tmp_path, family, monkeypatch, caplog):
    """Their program is asked, with the words that it knows; without it, it is named."""
    name, file, does = PROGRAMS[family]
    made = save_for_programs(family, tmp_path / file)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    with pytest.raises(Failure, match=f"found no '{name}' on the PATH; pip install"):
        convert(tmp_path / file, tmp_path / "a.pt")
    assert not caplog.text
    program = tmp_path / "bin" / name
    program.write_text(STAND_IN.format(folder=tmp_path, does=does.format(made=made)))
    program.chmod(0o755)
    report = convert(tmp_path / file, tmp_path / "a.pt")
    assert report.family == family.partition(",")[0]
    assert f"{name} opens it now, which runs any code in it" in caplog.text
    parts = " in rounds" if report.family == "NequIP" else ""
    assert report.engine == f"torchscript{parts}, float32"
    assert "108 atoms with 54 neighbors each" in report.told["speed"]
    words = (tmp_path / "words").read_text().split()
    if family == "MACE":
        assert words[1:] == ["--dtype", "float32"]
        convert(tmp_path / file, tmp_path / "a.pt", head="second")
        assert (tmp_path / "words").read_text().split()[1:] == [*words[1:], "--head", "second"]
    elif family == "SevenNet":
        assert words[1] == "-o" and len(words) == 3
        convert(tmp_path / file, tmp_path / "a.pt", head="PBE")
        assert (tmp_path / "words").read_text().split()[3:] == ["-m", "PBE"]
        does = """case $4 in -m) echo "KeyError: 'x'" >&2;;
            *) echo "ValueError: Modal is not given. It has: ['one', 'two']" >&2;; esac; exit 1"""
        program.write_text(STAND_IN.format(folder=tmp_path, does=does))
        for head in ("", "x"):
            with pytest.raises(Failure, match=r"with the heads one, two: found .*, expected one"):
                convert(tmp_path / file, tmp_path / "b.pt", head=head)
    else:
        assert words[2:] == ["--mode", "torchscript", "--device", "cpu", "--target", "ase"]
        with pytest.raises(Failure, match="models of NequIP have no heads"):
            convert(tmp_path / file, tmp_path / "a.pt", head="second")
    program.write_text(STAND_IN.format(folder=tmp_path, does="echo no such head >&2; exit 3"))
    with pytest.raises(Failure, match=f"{name} makes nothing of .*\n.*no such head"):
        convert(tmp_path / file, tmp_path / "b.pt")
    assert not (tmp_path / "b.pt").exists()


def test_python_beside_nequip_compile(tmp_path, monkeypatch):
    """It runs the program in a way that newer releases of torch do not keep it from."""
    made = save_for_programs("NequIP", tmp_path / "model.nequip.zip")
    (tmp_path / "bin").mkdir()
    for name, does in (
        ("nequip-compile", "exit 3"),
        ("python3", f'cp "$1" {tmp_path}/script; cp {made} "$3"'),
    ):
        (tmp_path / "bin" / name).write_text(STAND_IN.format(folder=tmp_path, does=does))
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert convert(tmp_path / "model.nequip.zip", tmp_path / "a.pt").family == "NequIP"
    assert "program._TORCH_GE_2_10 = False" in (tmp_path / "script").read_text()


def test_python_beside_the_command_of_mace(tmp_path, monkeypatch, pwmlff):
    """It runs a script in the place of the command, with charge and spin; files say them."""
    (tmp_path / "model.model").write_bytes(foreign_models.pickled_mace())
    made = save(foreign_models.mace(), tmp_path / "made.pt")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    copies = f'cp "$1" {tmp_path}/script.py; cp {made} "$2-lammps.pt"'
    says = 'echo "noise\ncannot be converted: its X is a Y" >&2; exit 1'
    for program, does in (
        (tmp_path / "bin" / "mace_create_lammps_model", "exit 3"),
        (python, copies),
    ):
        program.write_text(STAND_IN.format(folder=tmp_path, does=does))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    report = convert(tmp_path / "model.model", tmp_path / "a.pt", charge=-1, spin=2)
    words = (tmp_path / "words").read_text().split()
    assert words[2:] == ["--dtype", "float32", "--charge=-1", "--spin=2"]
    assert (tmp_path / "script.py").read_text() == Path(mace_export.__file__).read_text()
    assert (report.told["charge"], report.told["spin"]) == (
        "-1, of the whole system", "2, of the whole system",
    )  # fmt: skip
    card = model_file.describe_unopened(tmp_path / "a.pt").card["converted"]
    assert (card["charge"], card["spin"]) == (-1, 2)
    assert "charge -1, spin 2 of the whole system" in pwmlff("info", "a.pt").output
    python.write_text(STAND_IN.format(folder=tmp_path, does=says))
    with pytest.raises(Failure) as failure:
        convert(tmp_path / "model.model", tmp_path / "b.pt")
    refused = "is a pickled model of MACE that cannot be converted: its X is a Y"
    assert str(failure.value) == f"'{tmp_path}/model.model' {refused}"


@pytest.mark.parametrize("option", ["charge", "spin"])
@pytest.mark.parametrize("file", ["graph.pth", "model.nequip.zip", "nep.txt"])
def test_charge_and_spin_of_other_files(tmp_path, monkeypatch, file, option):
    makes = {
        "graph.pth": lambda path: save(foreign_models.deepmd(), path),
        "model.nequip.zip": lambda path: save_for_programs("NequIP", path),
        "nep.txt": lambda path: path.write_bytes(random_text(HEADS["nep5"])),
    }
    makes[file](tmp_path / file)
    with pytest.raises(
        Failure, match=rf"found --{option} 1 for '.*', expected it for a pickled MACE"
    ):
        convert(tmp_path / file, tmp_path / "a.pt", **{option: 1})


def test_head_of_other_files(tmp_path):
    save(foreign_models.deepmd(), tmp_path / "graph.pth")
    with pytest.raises(Failure, match="for a pickled MACE model or a checkpoint of SevenNet alone"):
        convert(tmp_path / "graph.pth", tmp_path / "a.pt", head="second")


#: By hand from the tables of MatPL: atomic number, radius, mass, electron affinity, Pauling, each
#: less the least of the table, by the range.
PROPERTIES = {
    8: (7 / 108, 35 / 235, 14.99146 / 274.99206, 141000 / 349000, 2.74 / 3.28),
    72: (71 / 108, 130 / 235, 177.48206 / 274.99206, 0.0, 0.6 / 3.28),
}


@pytest.mark.parametrize("embedding", ["a net for each pair", "by type"])
def test_checkpoint_of_matpl(tmp_path, embedding):
    """Energies and forces are those of an evaluation of the arrays by the formulas."""
    rng = np.random.default_rng(5)
    contract = dp_oracle.Contract((8, 72), m2=3)
    arrays = dp_oracle.random_parameters(rng)
    found = foreign_models.matpl_checkpoint(contract, arrays)
    if embedding == "by type":
        contract = dp_oracle.Contract((8, 72), m2=3, type_vector=PROPERTIES)
        nets = {name: v for name, v in arrays.items() if not name.startswith("embedding_net")}
        net = {n: v for n, v in arrays.items() if n.startswith("embedding_net.0")}
        net["embedding_net.0.layers.0.weight"] = rng.normal(0.0, 0.5, (6, 5))
        unused = {
            f"embedding_net.0.layers.0.{name}": np.ones((1, 1)) for name in ("weight", "bias")
        }
        found = foreign_models.matpl_checkpoint(contract, nets | unused)
        found["state_dict"] |= {
            n.replace("net.0", "net.1"): torch.tensor(v) for n, v in net.items()
        }
        found["json_file"]["model"]["descriptor"]["type_embedding"] = {"network_size": [5]}
        found["compress"] = {"order": 5}
        arrays = nets | net
    torch.save(found, tmp_path / "dp_model.ckpt")
    report = convert(tmp_path / "dp_model.ckpt", tmp_path / "a.pt")
    assert report.family == "MatPL or PWMLFF, checkpoint"
    assert report.engine.startswith("fused")
    assert report.told["epoch"] == "7"
    assert ("compression" in report.told) == (embedding == "by type")
    positions = rng.uniform(0.0, 3.0, (5, 3))
    numbers, cell = np.array([8, 72, 8, 8, 72]), 20.0 * np.eye(3)
    expected = dp_oracle.evaluate(arrays, numbers, positions, cell, contract)
    engine = choose(tmp_path / "a.pt", "fused", "exact").engine
    given = engine(Atoms(numbers, positions))
    np.testing.assert_allclose(given.atom_energy, expected["atom_energy"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(given.forces, expected["forces"], rtol=0, atol=1e-10)
    assert np.abs(given.forces).max() > 1e-2


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("zbl", [0.0, 2.4])
def test_nep_checkpoint_of_matpl(tmp_path, prefix: str, zbl: float):
    """It becomes a nep5.txt with the same arrays, which is what MatPL's own nep5.txt holds."""
    model = parse_nep(random_text(HEADS["nep5"]))
    torch.save(foreign_models.matpl_nep_checkpoint(model, zbl, prefix), tmp_path / "nep_model.ckpt")
    report = convert(tmp_path / "nep_model.ckpt", tmp_path / "nep5.txt")
    assert report.model.kind == "NEP"
    found = read_nep(tmp_path / "nep5.txt")
    assert found.invariants == model.invariants
    assert found.zbl_line == ((zbl / 2, zbl) if zbl else ())
    for one, other in zip(found.layers, model.layers, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    for name in ("last", "shift", "c_radial", "c_angular", "q_scaler", "cut_radial", "cut_angular"):
        assert np.array_equal(getattr(found, name), getattr(model, name)), name


def test_nep_that_needs_no_conversion(tmp_path):
    (tmp_path / "nep.txt").write_bytes(random_text(HEADS["nep5"]))
    report = convert(tmp_path / "nep.txt", tmp_path / "a.txt")
    assert "copied" in report.told["note"]
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "nep.txt").read_bytes()
    with pytest.raises(Failure, match="of kind NEP, which the fused engine runs"):
        convert(tmp_path / "nep.txt", tmp_path / "b.txt", compiled=True)


class Anything:
    pass


def test_other_checkpoints_are_named(tmp_path):
    contract = dp_oracle.Contract((8, 72), m2=3)
    good = foreign_models.matpl_checkpoint(
        contract, dp_oracle.random_parameters(np.random.default_rng(5))
    )
    for words, changed in (
        ("it is of kind NN; expected DP or NEP", {"json_file": {"model_type": "NN"}}),
        ("without 'davg'", {"davg": None}),
        ("its statistics are of", {"atom_type_order": np.array([72, 8])}),
        ("more than data in it", {"epoch": Anything()}),
    ):
        found = {name: v for name, v in (good | changed).items() if v is not None}
        torch.save(found, tmp_path / "dp_model.ckpt")
        with pytest.raises(Failure, match=words):
            convert(tmp_path / "dp_model.ckpt", tmp_path / "a.pt")


REFUSED = {
    "activation": (lambda: foreign_models.deepmd(activation="relu"), "function is relu"),
    "exclusion": (lambda: foreign_models.deepmd(no_exclusion=False), "exclude_types of its desc"),
    "no energy": (lambda: foreign_models.deepmd(exclude_types=[1]), "exclude_types of its fitting"),
    "parameters": (lambda: foreign_models.deepmd(numb_fparam=2), "numb_fparam"),
    "messages": (
        lambda: foreign_models.local_deepmd(messages=foreign_models.DescrptBlockOthers),
        "class DescrptDPA1, which passes messages in a way that is not known here",
    ),
    "dipoles": (lambda: foreign_models.local_deepmd(gives="dipole"), "gives dipole, expected"),
    "frames": (lambda: foreign_models.local_deepmd(parameters=1), "with fparam, which the model"),
    "another": (lambda: nn.Linear(2, 2), r"class torch\.nn\.modules\.linear\.Linear, which is not"),
}


def not_a_number(model):
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    return model


def without(model, name):
    delattr(model, name)
    return model


@foreign_models.called("nequip.nn.other", "Other")
class Other(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Fails(foreign_models.Energies):
    def forward(self, data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        data["atomic_energy"] = self.embedding.charge[data["atom_types"] + 7]
        return data


REFUSED |= {
    "head out of range": (lambda: foreign_models.mace(head=5), "of which head 5 is chosen"),
    "head below zero": (lambda: foreign_models.mace(head=-1), "of which head -1 is chosen"),
    "weights of MACE": (lambda: not_a_number(foreign_models.mace()), "that are no numbers"),
    "weights of DeePMD-kit": (lambda: not_a_number(foreign_models.deepmd()), "that are no numbers"),
    "no rounds": (
        lambda: without(foreign_models.mace(), "num_interactions"),
        "taken for a model of MACE, .*no attribute 'num_interactions'",
    ),
    "other NequIP": (Other, "of class nequip.nn.other.Other; expected what nequip-deploy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_converted_is_named(tmp_path, name):
    make, words = REFUSED[name]
    path = save(make(), tmp_path / "graph.pth")
    with pytest.raises(Failure, match=words):
        convert(path, tmp_path / "a.pt")
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph.pth"]


def test_code_that_fails(tmp_path):
    foreign_models.save_nequip(tmp_path / "a.pth", func=Fails())
    with pytest.raises(Failure, match=r"a.pth' .* on a random cluster: .*index") as error:
        convert(tmp_path / "a.pth", tmp_path / "a.pt")
    assert "\n" not in str(error.value)


class Endless(nn.Module):
    """Never ends with more than so many atoms."""

    def __init__(self, most: int):
        super().__init__()
        self.most, self.energies = most, foreign_models.Energies()

    def forward(self, data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        while data["atom_types"].size(0) > self.most:
            self.energies.embedding.charge.abs()
        return self.energies(data)


@pytest.mark.parametrize("most, structure", [(0, "random cluster"), (50, "crystal")])
def test_code_that_never_ends(process, tmp_path, most, structure):
    foreign_models.save_nequip(tmp_path / "a.pth", func=Endless(most))
    found = process("convert", "a.pth", "-o", "a.pt", PWMLFF_TRIAL_SECONDS="2")
    assert found.returncode == 1
    told = f"'a.pth': its forward on a {structure} has not come to an end within 2 seconds"
    assert told in found.words
    assert not (tmp_path / "a.pt").exists()


class Attributes(nn.Module):
    """Has these, and no more."""

    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize(
    "words, attributes",
    [
        ("Attributes, which is not known", {"model_type": 7}),
        ("Attributes, which is not known", {"model_type": "ener"}),
        ("Attributes, which is not known", {"model_type": "NEP", "Rmax": 6.0, "maxNeighborNum": 9}),
        ("which a model of kind DP needs", {"model_type": "DP"}),
        ("which a model of kind DP needs", {"model_type": 7, "Rmax": 6.0, "maxNeighborNum": 9}),
        ("which a model of kind DP needs", {"Rmax": 6.0, "maxNeighborNum": 9}),
    ],
)
def test_which_files_are_of_this_project(tmp_path, words, attributes):
    """Those of a kind that is there, and older ones of kind DP, which do not say it."""
    path = save(Attributes(**attributes), tmp_path / "a.pt")
    with pytest.raises(Failure, match=words):
        convert(path, tmp_path / "b.pt")


@pytest.mark.parametrize("name", ["a.pth", "a.nequip.zip"])
def test_name_of_a_member_that_is_no_text(tmp_path, name):
    """Flag bit 11 of an entry of the central directory says that its name is UTF-8."""
    path = tmp_path / name
    if name == "a.pth":
        foreign_models.save_nequip(path)
    else:
        save_for_programs("NequIP", path)
    contents = bytearray(path.read_bytes())
    entry = contents.rfind(b"PK\x01\x02")
    contents[entry + 9] |= 0x08
    contents[entry + 46] = 0xFF
    path.write_bytes(contents)
    with pytest.raises(Failure, match=f"'{path}' ") as error:
        convert(path, tmp_path / "a.pt")
    assert "\n" not in str(error.value)


def test_types_of_nequip_that_are_no_elements(tmp_path):
    foreign_models.save_nequip(tmp_path / "a.pth", names="O M")
    with pytest.raises(Failure, match="for the types O, M, expected chemical symbols"):
        convert(tmp_path / "a.pth", tmp_path / "a.pt")


def test_other_numbers_are_not_written(tmp_path, monkeypatch):
    """The verification can fail: a reader that takes the wrong cutoff."""
    path = save(foreign_models.mace(), tmp_path / "mace.pt")

    def read(source):
        foreign = conversion.mace.read(source)
        foreign.module.cutoff, foreign.module.interaction_range = 3.9, 7.8
        return foreign

    monkeypatch.setattr(conversion, "READERS", {"MACE": read})
    with pytest.raises(Failure, match=r"energies of atoms differ by .*nothing was written"):
        convert(path, tmp_path / "a.pt")
    assert not (tmp_path / "a.pt").exists()


def test_command(pwmlff, tmp_path):
    save(foreign_models.deepmd(), tmp_path / "graph.pth")
    done = pwmlff("convert", tmp_path / "graph.pth", "-o", tmp_path / "a.pt", "--json")
    assert done.returncode == 0, done.words
    told = done.json
    assert told["model"]["sel"] == [16, 20]
    assert told["output"] == told["model"]["file"] == str(tmp_path / "a.pt")
    again = pwmlff("convert", tmp_path / "a.pt", "-o", tmp_path / "b.pt")
    assert again.returncode == 0, again.words
    assert "needs no conversion: copied" in again.words
    assert (tmp_path / "b.pt").read_bytes() == (tmp_path / "a.pt").read_bytes()


@pytest.mark.parametrize("room", [1000, 8000])
def test_where_a_file_cannot_be_written(tmp_path, room):
    """As on a full disk: the error names the file that was to be, and nothing is left of it."""
    source = save(foreign_models.deepmd(), tmp_path / "graph.pth")
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, kept[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            convert(source, tmp_path / "a.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert caught.value.filename == str(tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.pth"]
