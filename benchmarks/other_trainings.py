"""How this project and others train a potential on a CPU; time_to_accuracy.py runs it.

Each follows its own documents and has its own defaults. Set is what has to be set: files, elements,
cores, and how long, as rates of learning fall over the length of a run in most of them. Where a
program counts steps, they come from the seconds of one on two cores of an AMD EPYC (Zen 5), which
a trial corrects.
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.io import read

from pwmlff.train import record

CORES = len(os.sched_getaffinity(0))
ENVIRONMENT = (
    "env",
    f"OMP_NUM_THREADS={CORES}",
    "OMP_WAIT_POLICY=passive",
    "CUDA_VISIBLE_DEVICES=",
)


class Program(ABC):
    """What trains. Errors are RMSEs over all components of forces of the validation file."""

    package: ClassVar[str]  # whose version counts
    calculator: ClassVar[str]  # of other_calculators.py
    own: ClassVar[bool] = False  # of this project
    slack: ClassVar[float] = 1.25  # times its minutes after which it has to end
    counts: ClassVar[bool] = False  # steps in the place of minutes, by the seconds of one elsewhere

    def version(self, python: str) -> str:
        """That of the package which a Python has."""
        code = f"from importlib.metadata import version; print(version('{self.package}'))"
        return subprocess.run(
            [python, "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()

    @abstractmethod
    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """Write what it reads into the folder; the command that runs there.

        Args:
            files: to learn from, and to validate with.
            minutes: that it has.
        """

    @abstractmethod
    def errors(self, folder: Path) -> list[float]:
        """What it has logged so far, meV/angstrom, oldest first."""

    @abstractmethod
    def model(self, folder: Path) -> Path:
        """The best model that it has written."""


def beside(python: str, name: str) -> str:
    """A command of the environment of a Python."""
    return str(Path(python).parent / name)


def both(train: str, export: str) -> str:
    """Lines of a shell that train and then export, after a signal to the training too."""
    return f"{train} & p=$!; trap 'kill $p' TERM; wait $p; wait $p; {export}"


def lines_of(path: Path) -> list[str]:
    """Lines of a log; none if there is no file."""
    return path.read_text().splitlines() if path.exists() else []


def rows(path: Path) -> list[list[str]]:
    """Words of each line of a log that begins with a number."""
    words = [line.split() for line in lines_of(path)]
    return [line for line in words if line and line[0].isdigit()]


def count(path: Path) -> int:
    """Frames of a file."""
    return len(read(path, ":"))


def load(path: Path) -> float:
    """Atoms of a file, over the 96 of a frame that seconds are of."""
    return sum(map(len, read(path, ":"))) / 96


class Pwmlff(Program):
    """This project."""

    package, calculator, own = "pair-pwmlff", "pwmlff", True

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """As README says."""
        learned, unseen = map(str, files)
        words = ["-o", "run", "--max-time", f"{minutes}m", "--set", f'data.valid=["{unseen}"]']
        start = [beside(python, "pwmlff"), "train", "--model", self.kind, "--data", learned]
        return [*start, "--elements", " ".join(elements), *words]

    def errors(self, folder: Path) -> list[float]:
        """Of log.jsonl."""
        path = folder / "run" / record.JSON
        found = [row.force_valid for row in record.read(path)] if path.exists() else []
        return [error for error in found if error is not None]

    def model(self, folder: Path) -> Path:
        """The best one."""
        return folder / "run" / ("best.txt" if self.kind == "nep" else "best.pt")


class TorchNep(Program):
    """NEP4; the rate falls where the loss stays."""

    package = calculator = "torchnep"
    slack = 1.0

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """By train_nep, as it has no command; 600 epochs, of which time leaves a part."""
        (folder / "nep.in").write_text(f"type {len(elements)} {' '.join(elements)}\nepoch 600\n")
        learned, unseen = (repr(str(path)) for path in files)
        (folder / "run.py").write_text(
            f"import torch\ntorch.set_num_threads({CORES})\nfrom torchnep import train_nep\n"
            f"train_nep('nep.in', {learned}, output_dir='output', device='cpu', "
            f"valid_file={unseen})\n"
        )
        return [*ENVIRONMENT, python, "run.py"]

    def errors(self, folder: Path) -> list[float]:
        """Of each epoch."""
        return [1e3 * float(row[7]) for row in rows(folder / "output" / "loss.out") if len(row) > 7]

    def model(self, folder: Path) -> Path:
        """Of the lowest loss."""
        return folder / "output" / "nep_best.txt"


class Neppo(Program):
    """NEP4; the rate falls by a cosine over the steps."""

    package, calculator = "neppo", "calorine"
    counts = True
    STEP = 0.45  # seconds of 32 frames of 96 atoms

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """A folder of GPUMD's files."""
        for name, path in zip(("train.xyz", "test.xyz"), files, strict=True):
            (folder / name).symlink_to(path)
        size = load(files[0]) / count(files[0])
        steps = max(20, round(60.0 * minutes / (self.STEP * size)))
        text = f"type {len(elements)} {' '.join(elements)}\ngeneration {steps}\n"
        (folder / "nep.in").write_text(f"{text}output_interval {min(100, steps)}\n")
        return [*ENVIRONMENT, beside(python, "neppo"), "train", ".", "--device", "cpu"]

    def errors(self, folder: Path) -> list[float]:
        """Of loss.out, whose head names the columns."""
        path = folder / "loss.out"
        head = next((line for line in lines_of(path) if line.startswith("# columns")), "")
        names = head.split()[2:]
        return [
            1e3 * float(row[names.index("rmse_force_test")])
            for row in rows(path)
            if names and len(row) == len(names)
        ]

    def model(self, folder: Path) -> Path:
        """Of the lowest loss of the unseen frames."""
        return folder / "nep_best.txt"


class DeepMd(Program):
    """se_e2_a of its example of water, by TensorFlow; the rate falls over the steps."""

    package, calculator = "deepmd-kit", "deepmd"
    counts = True
    STEP, VALID = 0.043, 0.03  # seconds of 96 atoms, and validated

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """Train, then freeze; validate with all frames once a minute."""
        learned, unseen = (
            _npy(read(path, ":"), elements, folder / name)
            for name, path in zip(("train", "valid"), files, strict=True)
        )
        frames = count(files[1])
        validation = load(files[1]) * self.VALID
        batch = max(n for n in range(1, 13) if frames % n == 0)
        every = max(1, round(max(30.0, 60.0 - validation) / self.STEP))
        share = every * self.STEP / (every * self.STEP + validation)
        steps = max(1, round(60 * minutes * share / self.STEP))
        descriptor = {
            "type": "se_e2_a", "sel": "auto", "rcut_smth": 0.5, "rcut": 6.0, "axis_neuron": 16,
            "neuron": [25, 50, 100], "resnet_dt": False, "type_one_side": True, "seed": 1,
        }  # fmt: skip
        net = {"neuron": [240, 240, 240], "resnet_dt": True, "seed": 1}
        weights = {
            "start_pref_e": 0.02, "limit_pref_e": 1, "start_pref_f": 1000, "limit_pref_f": 1,
            "start_pref_v": 0, "limit_pref_v": 0,
        }  # fmt: skip
        rate = {"type": "exp", "decay_steps": 5000, "start_lr": 0.001, "stop_lr": 3.51e-8}
        training = {
            "training_data": {"systems": learned, "batch_size": "auto"},
            "validation_data": {
                "systems": unseen, "batch_size": batch, "numb_btch": frames // batch,
            },
            "numb_steps": steps, "seed": 10, "disp_file": "lcurve.out",
            "disp_freq": min(every, max(1, steps // 3)), "save_freq": 1000,
        }  # fmt: skip
        model = {"type_map": elements, "descriptor": descriptor, "fitting_net": net}
        text = {"model": model, "learning_rate": rate, "loss": weights, "training": training}
        (folder / "input.json").write_text(json.dumps(text, indent=1))
        dp = beside(python, "dp")
        threads = [f"DP_INTRA_OP_PARALLELISM_THREADS={CORES}", "DP_INTER_OP_PARALLELISM_THREADS=1"]
        line = both(f"'{dp}' --tf train input.json", f"'{dp}' --tf freeze -o frozen_model.pb")
        return [*ENVIRONMENT, *threads, "bash", "-c", line]

    def errors(self, folder: Path) -> list[float]:
        """Of lcurve.out: the mean of the RMSEs of batches of frames, which is a little less."""
        path = folder / "lcurve.out"
        head = next(iter(lines_of(path)), "").split()[1:]
        return [
            1e3 * float(row[head.index("rmse_f_val")])
            for row in rows(path)
            if len(row) == len(head)
        ]

    def model(self, folder: Path) -> Path:
        """The last one."""
        return folder / "frozen_model.pb"


def _npy(frames: list[Atoms], elements: list[str], folder: Path) -> list[str]:
    """Systems of DeePMD-kit, one for each sequence of symbols."""
    groups: dict[tuple[int, ...], list[tuple[Atoms, np.ndarray]]] = {}
    for atoms in frames:
        types = np.array([elements.index(symbol) for symbol in atoms.symbols])
        order = np.argsort(types, kind="stable")
        groups.setdefault(tuple(types[order].tolist()), []).append((atoms, order))
    found = []
    for k, (types, members) in enumerate(groups.items()):
        system = folder / f"{k}"
        (system / "set.000").mkdir(parents=True)
        (system / "type.raw").write_text("\n".join(map(str, types)) + "\n")
        (system / "type_map.raw").write_text("\n".join(elements) + "\n")
        if not members[0][0].pbc.any():
            (system / "nopbc").touch()
        arrays = {
            "coord": [atoms.positions[order].ravel() for atoms, order in members],
            "box": [np.ravel(atoms.cell[:]) for atoms, _ in members],
            "energy": [atoms.get_potential_energy() for atoms, _ in members],
            "force": [atoms.get_forces()[order].ravel() for atoms, order in members],
        }
        for name, values in arrays.items():
            np.save(system / "set.000" / f"{name}.npy", np.array(values, dtype=float))
        found.append(str(system))
    return found


GRACE_INPUT = """seed: 1
cutoff: 7.0
data:
  filename: {learned}
  test_filename: {unseen}
  reference_energy: auto
  save_dataset: False
potential:
  elements: [{elements}]
  param_dtype: float32
  preset: FS
  kwargs: {{lmax: [5, 5, 4, 3], n_rad_max: [20, 15, 10, 5], embedding_size: 64, max_order: 4,
            fs_parameters: [[1.0, 1.0], [1.0, 0.5], [1.0, 2], [1.0, 0.75]]}}
  scale: True
fit:
  loss: {{energy: {{weight: 16, type: huber, delta: 0.01}},
          forces: {{weight: 32, type: huber, delta: 0.01}}}}
  {length}
  optimizer: Adam
  opt_params: {{learning_rate: 0.008, use_ema: True, ema_momentum: 0.99, weight_decay: null,
                clipnorm: 1.0}}
  scheduler: cosine_decay
  scheduler_params: {{minimum_learning_rate: 0.0006666666666666666}}
  compute_convex_hull: False
  batch_size: 16
  test_batch_size: 16
  jit_compile: True
  eval_init_stats: False
  train_max_n_buckets: auto
  test_max_n_buckets: auto
  auto_bucket_max_padding: 0.3
  checkpoint_freq: 2
  progressbar: False
  train_shuffle: True
"""


class Grace(Program):
    """GRACE/FS, "medium" of what gracemaker -t writes, with Adam as its tutorial of FS has it."""

    package, calculator = "tensorpotential", "grace"
    counts = True
    FRAME, VALID = 0.15, 0.05  # seconds of 96 atoms, and validated

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """Train, then export the best, after a signal too."""
        frames = count(files[0])
        epoch = load(files[0]) * self.FRAME + load(files[1]) * self.VALID
        epochs = max(1, int(60.0 * minutes / epoch))
        updates = epochs * math.ceil(frames / 16)  # which are raised to ten epochs
        length = f"target_total_updates: {updates}" if epochs >= 10 else f"maxiter: {epochs}"
        text = GRACE_INPUT.format(
            learned=files[0], unseen=files[1], elements=", ".join(elements), length=length
        )
        (folder / "input.yaml").write_text(text)
        own = beside(python, "gracemaker")
        line = both(f"'{own}' input.yaml", f"'{own}' -r -s -sf input.yaml > export.log 2>&1")
        return [*ENVIRONMENT, f"TF_NUM_INTRAOP_THREADS={CORES}", "bash", "-c", line]

    def errors(self, folder: Path) -> list[float]:
        """Of each epoch, by the average of the parameters."""
        lines = lines_of(folder / "seed" / "1" / "test_metrics.yaml")
        found = [line[2:] for line in lines if line.startswith("- {") and line.endswith("}")]
        return [1e3 * json.loads(line)["rmse/f_comp"] for line in found]

    def model(self, folder: Path) -> Path:
        """What LAMMPS runs."""
        return folder / "seed" / "1" / "saved_model.yaml"


class AceJax(Program):
    """A linear ACE of the order and degree of its README, fitted at once, however long it takes."""

    package = calculator = "ace-jax"
    slack = 3.0

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """One fit."""
        words = ["--order", "3", "--max-degree", "10", "--elements", ",".join(elements)]
        words += ["--train", str(files[0]), "--test", str(files[1]), "--energy-key", "energy"]
        words += ["--force-key", "forces", "--e0", "lsq", "--opt", "lbfgs", "--out", "fit"]
        return [*ENVIRONMENT, "JAX_PLATFORMS=cpu", beside(python, "aj"), "fit", *words]

    def errors(self, folder: Path) -> list[float]:
        """The one of the end."""
        lines = lines_of(folder / "fit" / "progress.jsonl")
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return [
            1e3 * event["test"]["map"]["F"]["rmse"]
            for event in events
            if event.get("event") == "fit" and event.get("status") == "done"
        ]

    def model(self, folder: Path) -> Path:
        """The one of the end."""
        return folder / "fit" / "model.npz"


class Mace(Program):
    """32x0e by the line of its README; Stage Two is the last fifth of the epochs."""

    package, calculator = "mace-torch", "mace"
    counts = True
    FRAME, VALID = 0.2, 0.1  # seconds of 96 atoms, and validated

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """Its command."""
        learned, unseen = map(load, files)
        epoch = learned * self.FRAME + unseen * self.VALID
        epochs = max(1, int(60.0 * minutes / epoch))
        words = [
            "--name=mace", f"--train_file={files[0]}", f"--valid_file={files[1]}",
            "--energy_key=energy", "--forces_key=forces", "--E0s=average", "--model=MACE",
            "--num_channels=32", "--max_L=0", "--r_max=5.0", "--batch_size=10", "--ema",
            "--ema_decay=0.99", "--amsgrad", "--device=cpu", "--default_dtype=float64",
            "--plot=False", f"--max_num_epochs={epochs}",
        ]  # fmt: skip
        if epochs >= 5:
            words += ["--stage_two", f"--start_stage_two={round(0.8 * epochs)}"]
        return [*ENVIRONMENT, beside(python, "mace_run_train"), *words]

    def errors(self, folder: Path) -> list[float]:
        """Of each epoch, by the average of the parameters."""
        found = sorted((folder / "results").glob("mace_run-*_train.txt"))
        lines = [line for path in found for line in lines_of(path)]
        values = [json.loads(line) for line in lines if line.endswith("}")]
        return [
            1e3 * value["rmse_f"]
            for value in values
            if value.get("mode") == "eval" and value.get("epoch") is not None
        ]

    def model(self, folder: Path) -> Path:
        """Of Stage Two, or of the one before."""
        two = folder / "mace_stagetwo.model"
        return two if two.exists() else folder / "mace.model"


class Nequip(Program):
    """The configuration of its tutorial, without compiling; the rate falls where the loss stays."""

    package = calculator = "nequip"

    def setup(
        self, folder: Path, python: str, files: Sequence[Path], elements: list[str], minutes: float
    ) -> list[str]:
        """It ends at its time by itself."""
        (folder / "config.yaml").write_text(
            json.dumps(nequip_tutorial(files, elements, minutes), indent=1)
        )
        words = ["-cp", str(folder), "-cn", "config.yaml"]
        return [*ENVIRONMENT, beside(python, "nequip-train"), *words]

    def errors(self, folder: Path) -> list[float]:
        """Of each validation, by the average of the parameters."""
        path = folder / "run" / "csv" / "metrics.csv"
        if not path.exists():
            return []
        with path.open(newline="") as file:
            found = [row.get("val0_epoch/forces_rmse") for row in csv.DictReader(file)]
        return [1e3 * float(value) for value in found if value]

    def model(self, folder: Path) -> Path:
        """Of the lowest sum of errors."""
        return folder / "run" / "best.ckpt"


def nequip_tutorial(files: Sequence[Path], elements: list[str], minutes: float) -> dict[str, Any]:
    """configs/tutorial.yaml of NequIP with these files; validations go to a table."""
    seconds = round(60 * minutes)
    time = f"00:{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    monitored, nequip = "val0_epoch/weighted_sum", "nequip.data"
    lightning, metrics = "lightning.pytorch", {"total_energy_mae": 1.0, "forces_mae": 1.0}
    loader = {"_target_": "torch.utils.data.DataLoader", "num_workers": 0}
    data = {
        "_target_": f"{nequip}.datamodule.ASEDataModule",
        "seed": 456,
        "train_file_path": str(files[0]),
        "val_file_path": str(files[1]),
        "transforms": [
            {
                "_target_": f"{nequip}.transforms.ChemicalSpeciesToAtomTypeMapper",
                "model_type_names": elements,
            },
            {"_target_": f"{nequip}.transforms.NeighborListTransform", "r_max": 5.0},
        ],
        "train_dataloader": {**loader, "batch_size": 5, "shuffle": True},
        "val_dataloader": {**loader, "batch_size": 10},
        "stats_manager": {
            "_target_": f"{nequip}.CommonDataStatisticsManager",
            "dataloader_kwargs": {"batch_size": 10},
            "type_names": elements,
        },
    }
    trainer = {
        "_target_": "lightning.Trainer",
        "accelerator": "cpu",
        "enable_checkpointing": True,
        "enable_progress_bar": False,
        "max_epochs": 1000,
        "max_time": time,
        "log_every_n_steps": 20,
        "logger": {
            "_target_": f"{lightning}.loggers.CSVLogger",
            "save_dir": "${hydra:runtime.output_dir}",
            "name": "csv",
            "version": "",
            "flush_logs_every_n_steps": 1,
        },
        "callbacks": [
            {
                "_target_": f"{lightning}.callbacks.EarlyStopping",
                "monitor": monitored,
                "min_delta": 1e-3,
                "patience": 20,
            },
            {
                "_target_": f"{lightning}.callbacks.ModelCheckpoint",
                "monitor": monitored,
                "dirpath": "${hydra:runtime.output_dir}",
                "filename": "best",
                "save_last": True,
            },
        ],
    }
    statistics = "${training_data_stats:%s}"
    model = {
        "_target_": "nequip.model.NequIPGNNModel",
        "seed": 456,
        "model_dtype": "float32",
        "type_names": elements,
        "r_max": 5.0,
        "num_bessels": 8,
        "bessel_trainable": False,
        "polynomial_cutoff_p": 6,
        "num_layers": 4,
        "l_max": 1,
        "parity": True,
        "num_features": 32,
        "radial_mlp_depth": 2,
        "radial_mlp_width": 64,
        "avg_num_neighbors": statistics % "num_neighbors_mean",
        "per_type_energy_scales": statistics % "per_type_forces_rms",
        "per_type_energy_shifts": statistics % "per_atom_energy_mean",
        "per_type_energy_scales_trainable": False,
        "per_type_energy_shifts_trainable": False,
        "pair_potential": {
            "_target_": "nequip.nn.pair_potential.ZBL",
            "units": "metal",
            "chemical_species": elements,
        },
    }
    module = {
        "_target_": "nequip.train.EMALightningModule",
        "ema_decay": 0.999,
        "loss": {
            "_target_": "nequip.train.EnergyForceLoss",
            "per_atom_energy": True,
            "coeffs": {"total_energy": 1.0, "forces": 1.0},
        },
        "optimizer": {"_target_": "torch.optim.Adam", "lr": 0.01},
        "lr_scheduler": {
            "scheduler": {
                "_target_": "torch.optim.lr_scheduler.ReduceLROnPlateau",
                "factor": 0.6,
                "patience": 5,
                "threshold": 0.2,
                "min_lr": 1e-6,
            },
            "monitor": monitored,
            "interval": "epoch",
            "frequency": 1,
        },
        "model": model,
    }
    for name in ("val", "train", "test"):
        module[f"{name}_metrics"] = {
            "_target_": "nequip.train.EnergyForceMetrics",
            "coeffs": {**metrics, "forces_rmse": None},
        }
    return {
        "run": ["train"],
        "cutoff_radius": 5.0,
        "model_type_names": elements,
        "chemical_species": elements,
        "monitored_metric": monitored,
        "hydra": {"run": {"dir": "run"}, "job_logging": {"root": {"level": "INFO"}}},
        "data": data,
        "trainer": trainer,
        "training_module": module,
    }


PROGRAMS: dict[str, Program] = {
    "pwmlff-nep": Pwmlff("nep"),
    "pwmlff-dp": Pwmlff("dp"),
    "torchnep": TorchNep(),
    "neppo": Neppo(),
    "deepmd": DeepMd(),
    "grace": Grace(),
    "ace-jax": AceJax(),
    "mace": Mace(),
    "nequip": Nequip(),
}
