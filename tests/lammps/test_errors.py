"""Bad input: one clear message, a non-zero exit of mpirun, no hang, nothing overwritten."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch

import foreign_models
from edge_models import LennardJones
from harness import ENGINES, ON_DEVICE, Lammps
from systems import SYSTEMS, crystal

BINARY = SYSTEMS["two elements, triclinic"]
SETUP = """
units metal
read_data atoms.data
pair_style pwmlff model.pt
pair_coeff * * O Hf
run 0
"""


class NoAttributes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class OtherSignature(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.atom_type = [8, 72]
        self.Rmax = 3.5
        self.maxNeighborNum = 40

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return positions.sum()


class OtherKind(OtherSignature):
    def __init__(self):
        super().__init__()
        self.model_type = "NEP"


@pytest.fixture
def engine() -> str:
    """What users have who say nothing."""
    return "automatic"


def prepare(lammps: Lammps) -> Lammps:
    """A folder in which SETUP runs, with good and bad model files."""
    model = BINARY.model(isotropic=True)
    lammps.save(model)
    lammps.save(replace(BINARY, rmax=3.2).model(), "cutoff.pt", record=False)
    lammps.save(replace(BINARY, elements=(8, 22)).model(), "elements.pt", record=False)
    lammps.data(crystal(1), [8, 72])
    (lammps.folder / "model_devi.out").write_text("of an earlier run\n")
    return lammps


@pytest.fixture
def folder(lammps: Lammps) -> Lammps:
    return prepare(lammps)


def fails(lammps: Lammps, text: str, *words: str) -> None:
    """Run on two ranks and look for the words in the error message.

    What all ranks know is said once; what a rank finds in its own atoms, it says for itself.
    """
    run = lammps(text, ranks=2)
    assert run.returncode != 0, run.output
    errors = [line for line in run.output.splitlines() if "ERROR" in line]
    assert len(errors) == 1 or all("on proc" in error for error in errors), run.output
    for error in errors:
        for word in words:
            assert word in error, error
    assert (lammps.folder / "model_devi.out").read_text() == "of an earlier run\n"


def test_setup_is_sound(folder: Lammps):
    """The inputs below differ from one that runs by their fault alone."""
    folder.run(SETUP, ranks=2)


KEYWORDS = "out_freq, out_file, out_append, engine, precision, device"
STYLES = {
    "nothing": ("", ["pair_style pwmlff"]),
    "file missing": ("absent.pt", ["absent.pt", "cannot read"]),
    "no file": ("out_freq 10", ["no model file"]),
    "count too high": ("2 model.pt", ["number of models is 2", "1 model file"]),
    "count too low": ("1 model.pt model.pt", ["found 'model.pt' after 1 model"]),
    "count zero": ("0 model.pt", ["number of models is 0"]),
    "count below zero": ("-1 model.pt", ["number of models is -1"]),
    "unknown keyword": (
        "1 model.pt out_frq 10",
        ["'out_frq'", KEYWORDS],
    ),
    "unknown keyword without count": (
        "model.pt out_frq 10",
        ["'out_frq'", KEYWORDS],
    ),
    "charges that are not there": (
        "model.pt kspace pppm",
        ["the keyword kspace, but no model has charges", "leave it out"],
    ),
    "method of charges": ("model.pt kspace msm", ["kspace is 'msm', expected ewald or pppm"]),
    "mesh": ("model.pt pppm_mesh 8 8 0", ["pppm_mesh is 0, expected at least 1"]),
    "accuracy of a mesh": ("model.pt kspace_accuracy 0", ["kspace_accuracy is 0, expected more"]),
    "value missing": ("model.pt out_freq", ["out_freq"]),
    "value forgotten": ("model.pt out_file engine fused", ["out_file has no value", "'engine'"]),
    "value not a number": ("model.pt out_freq often", ["often"]),
    "value out of range": ("model.pt out_freq 0", ["out_freq is 0"]),
    "append neither yes nor no": ("model.pt out_append often", ["often"]),
    "append to another file": ("2 model.pt model.pt out_append yes", ["no model deviation file"]),
    "unknown engine": ("model.pt engine steam", ["'steam'", "auto, fused or torchscript"]),
    "unknown precision": ("model.pt precision half", ["'half'", "exact, double or mixed"]),
    "unknown device": ("model.pt device tpu", ["'tpu'", "auto, cpu, gpu or numbers of GPUs"]),
    "device list": ("model.pt device 0,", ["'0,'", "like 0,1"]),
    "different cutoffs": ("model.pt cutoff.pt", ["cutoff", "'cutoff.pt' has 3.2", "3.5"]),
    "different elements": ("model.pt elements.pt", ["elements", "O Ti", "O Hf"]),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, str]:
    """What is said of each of STYLES and FILES."""
    lammps = prepare(Lammps(tmp_path_factory.mktemp("errors"), ENGINES["automatic"]))
    good, cases = (lammps.folder / "model.pt").read_bytes(), {"sound": SETUP}
    for name, (arguments, _) in STYLES.items():
        cases[name] = SETUP.replace("pwmlff model.pt", f"pwmlff {arguments}")
    for k, (name, (write, _)) in enumerate(FILES.items()):
        write(lammps.folder / f"bad{k}.pt", good)
        cases[name] = SETUP.replace("pwmlff model.pt", f"pwmlff bad{k}.pt")
    found = lammps.errors(cases)
    assert (lammps.folder / "model_devi.out").read_text() == "of an earlier run\n"
    assert not found["sound"]
    return found


def assert_told(told: dict[str, str], case: str, *words: str) -> None:
    assert told[case].count("ERROR") == 1, told[case]
    for word in words:
        assert word in told[case], told[case]


@pytest.mark.parametrize("case", STYLES)
def test_pair_style(told, case):
    assert_told(told, case, *STYLES[case][1])


def text_file(path, _):
    path.write_text("not a model\n")


def truncated(path, good):
    path.write_bytes(good[: len(good) // 2])


def damaged(path, good):
    """One bit of a tensor, which torch would take."""
    place = good.index(b"FB") + 100
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])


def nep(path, _):
    path.write_text("nep4 2 O Hf\ncutoff 6 5 100 80\n")


def written(contents):
    return lambda path, _: path.write_bytes(contents)


def checkpoint(path, _):
    torch.save({"json_file": {"model_type": "DP"}, "epoch": 3}, path)


def pickled(path, _):
    torch.save({"weight": torch.zeros(3)}, path)


def scripted(module, **attributes):
    def write(path, _):
        made = module()
        for name, value in attributes.items():
            setattr(made, name, value)
        torch.jit.script(made).save(path)

    return write


def of_deepmd(path, _):
    foreign_models.save(foreign_models.deepmd(), path)


def empty(path, _):
    path.touch()


def folder_instead(path, _):
    path.mkdir()


def saved_model(path, _):
    path.mkdir()
    (path / "saved_model.pb").touch()


FILES = {
    "empty": (empty, ["is empty"]),
    "folder": (folder_instead, ["is a folder"]),
    "GRACE": (saved_model, ["saved model of TensorFlow, as GRACE", "pair_style grace"]),
    "NEP of another kind": (
        written(b"nep4_vdw 1 Si\n"),
        [
            "is a NEP that is not evaluated here: line 1 says 'nep4_vdw', which has dispersion by "
            "charges of its own; run it with GPUMD"
        ],
    ),
    "SNAP": (written(b"# of Ta\n1 31\nTa 0.5 1\n-2.92\n"), ["run it with pair_style snap"]),
    "not a zip": (text_file, ["not a TorchScript archive"]),
    "truncated": (truncated, ["is damaged", "truncated"]),
    "damaged": (damaged, ["is damaged", "/data/0' does not have the contents", "copy or export"]),
    "NEP": (nep, ["cannot be read as a NEP", "in line 2"]),
    "checkpoint": (checkpoint, ["checkpoint of MatPL", "pwmlff convert"]),
    "state dict": (pickled, ["not a TorchScript module"]),
    "no attributes": (
        scripted(NoAttributes),
        ["of class test_errors.NoAttributes, has", "no attribute atom_type, Rmax, maxNeighborNum"],
    ),
    "operator of another program": (
        of_deepmd,
        ["EnergyModel: Unknown builtin op: deepmd::tabulate_fusion_se_a", "'pwmlff convert'"],
    ),
    "cutoff infinite": (scripted(OtherSignature, Rmax=math.inf), ["cutoff inf", "0.01 to 100"]),
    "cutoff tiny": (scripted(OtherSignature, Rmax=1e-12), ["cutoff 1e-12"]),
    "neighbors beyond memory": (
        scripted(OtherSignature, maxNeighborNum=2**40),
        ["maxNeighborNum 1099511627776"],
    ),
    "elements of 64 bits": (scripted(OtherSignature, atom_type=[2**32 + 8]), ["[4294967304]"]),
    "element 119": (scripted(OtherSignature, atom_type=[8, 119]), ["1 to 118"]),
    "elements of fractions": (
        scripted(OtherSignature, atom_type=torch.tensor([8.5])),
        ["atom_type", "expected a list of integers"],
    ),
    "range infinite": (
        scripted(LennardJones, units="metal", interaction_range=math.inf),
        ["interaction_range inf"],
    ),
    "range of a million cutoffs": (
        scripted(LennardJones, units="metal", interaction_range=2.5e6),
        ["interaction_range 2500000", "2.5, to 100"],
    ),
    "cutoff tiny, edges": (scripted(LennardJones, cutoff=1e-12), ["cutoff 1e-12"]),
    "a billion elements": (
        scripted(OtherSignature, ntypes=10**9),
        ["ntypes 1000000000, expected 2"],
    ),
    "wrong signature": (scripted(OtherSignature), ["wrong signature", "positions"]),
    "other kind": (scripted(OtherKind), ["model_type 'NEP'"]),
}


@pytest.mark.parametrize("case", FILES)
def test_model_file(told, case):
    assert_told(told, case, f"bad{[*FILES].index(case)}.pt", *FILES[case][1])


class Endless(LennardJones):
    def forward(
        self, edge_vec: torch.Tensor, edge_index: torch.Tensor, types: torch.Tensor, nlocal: int
    ) -> torch.Tensor:
        step = 0
        while step < nlocal:
            step -= 1
        return torch.zeros(nlocal, dtype=edge_vec.dtype)


def test_code_that_never_ends(folder: Lammps):
    """That code cannot be interrupted: the rank ends, and mpirun the others."""
    torch.jit.script(Endless()).save(folder.folder / "bad.pt")
    text = SETUP.replace("pwmlff model.pt", "pwmlff bad.pt").replace("* * O Hf", "* * Ar Ar")
    text = text.replace("units metal", "units lj")
    run = folder(text, ranks=2, PWMLFF_TRIAL_SECONDS="2")
    assert run.returncode != 0
    assert "'bad.pt': its forward on a test cluster has not come to an end within 2" in run.output


COMMANDS = {
    "unknown element": ("* * O Hf", "* * O Ti", ["'Ti'", "O Hf"]),
    "no element": ("* * O Hf", "* * O Xx", ["'Xx'", "O Hf"]),
    "too few elements": ("* * O Hf", "* * O", ["1 element", "2 atom types"]),
    "too many elements": ("* * O Hf", "* * O Hf O", ["3 element", "2 atom types"]),
    "pairs of types": ("* * O Hf", "1 2 O Hf", ["* * for pair style pwmlff"]),
    "type without a model": ("* * O Hf", "* * O NULL", ["pair coeffs are not set"]),
    "newton off": ("units metal", "units metal\nnewton off", ["newton"]),
    "no atom IDs": (
        "read_data atoms.data",
        "atom_modify id no\nregion box block 0 4 0 4 0 4\ncreate_box 2 box\nmass * 1.0\n"
        "create_atoms 1 single 1 1 1",
        ["atom IDs"],
    ),
    "reduced units": ("units metal", "units lj", ["units metal", "units lj"]),
    "other units": ("units metal", "units si", ["units metal", "units si"]),
    "overlapping atoms": (
        "run 0",
        "set atom 3 x 1.0 y 1.0 z 1.0\nset atom 4 x 1.0 y 1.0 z 1.0\nrun 0",
        ["non-finite", "step 0", "atom"],
    ),
    "other models without pair_coeff": (
        "run 0",
        "run 0\npair_style pwmlff cutoff.pt\nrun 0",
        ["pair coeffs are not set"],
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_command(folder: Lammps, case):
    good, bad, words = COMMANDS[case]
    assert good in SETUP
    fails(folder, SETUP.replace(good, bad), *words)


def test_more_neighbors_than_the_list_of_lammps_holds(folder: Lammps):
    """Which LAMMPS itself finds after it has written them where there is no room."""
    lammps_list = ("pwmlff model.pt", "pwmlff wide.pt neighbors lammps")
    folder.save(replace(BINARY, rmax=100.0, max_neighbor=10000).model(isotropic=True), "wide.pt")
    text = SETUP.replace(*lammps_list)
    fails(folder, text, "'wide.pt' has a cutoff of 100", "neigh_modify one ", " page ")
    # With room for them, that there are too many of one element for the model.
    room = "neigh_modify one 1000000 page 10000000\nrun 0"
    fails(folder, text.replace("run 0", room), "allows 10000", "density")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_overlapping_atoms_are_named(folder: Lammps, device):
    """Not a neighbor of theirs, whose force is no number either. A GPU looks for them itself."""
    setup = SETUP.replace(
        "run 0", "set atom 5 x 0.1 y 0.1 z 0.1\nset atom 3 x 0.1 y 0.1 z 0.1\nrun 0"
    ).replace("model.pt", f"model.pt device {device}")
    run = folder(setup, ranks=2, **(ON_DEVICE if device == "gpu" else {}))
    named = re.findall(r"non-finite energy or force for atom (\d+) at step 0", run.output)
    assert named and set(named) <= {"3", "5"}


def test_stress_of_atoms_without_the_fused_engine(folder: Lammps):
    text = SETUP.replace("model.pt", "model.pt engine torchscript").replace(
        "run 0", "compute s all stress/atom NULL\ndump 1 all custom 1 dump.txt c_s[1]\nrun 0"
    )
    fails(folder, text, "per-atom virial", "torchscript")


def test_reduced_model_in_metal_units(folder: Lammps):
    folder.save(replace(BINARY, units="lj").model())
    fails(folder, SETUP, "model.pt", "is in units lj", "units metal")


def test_too_many_neighbors(folder: Lammps):
    folder.save(replace(BINARY, max_neighbor=4).model())
    fails(folder, SETUP, "atom ", "neighbors of element", "allows 4")


def test_deviation_file_not_writable(folder: Lammps):
    text = SETUP.replace("pwmlff model.pt", "pwmlff model.pt model.pt out_file absent/devi.out")
    fails(folder, text, "absent/devi.out", "out_file")
