#!/usr/bin/env bash
# NequIP 0.19.1: best.ckpt of a training that validates within epochs cannot be opened.
#
# Lightning's val_check_interval below 1 validates several times in an epoch, which large data want.
# One would guess that best.ckpt is then as good as with one validation an epoch. But Lightning saves
# it right after the validation, while nequip's EMALightningModule still has the averaged weights in
# the place of the trained ones. The checkpoint says that it holds no averages. The training ends
# well; each later use of the file (nequip-package, nequip-compile, the calculator) fails.
#
# Seen with nequip 0.19.1 and torch 2.13.0 on a CPU, packaging best.ckpt:
#     val_check_interval 1.0: exit code 0
#     val_check_interval 0.5: exit code 1, AssertionError: EMA module loaded in a state where it does
#         not contain EMA weights -- the checkpoint file is likely corrupted.
# With save_on_train_epoch_end: true of ModelCheckpoint the second one opens as well.
# Exit status 0 while that is so; 1 where best.ckpt of both opens, or of neither.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 nequip==0.19.1
cd "$folder"
PATH="$folder/venv/bin:$PATH" "$folder/venv/bin/python" - <<'PYTHON'
import json
import subprocess
from pathlib import Path

from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

for name, seeds in (("train", range(8)), ("valid", range(8, 10))):
    frames = []
    for seed in seeds:
        atoms = bulk("Cu", cubic=True)
        atoms.rattle(0.1, seed=seed)
        atoms.calc = EMT()
        labels = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **labels)
        frames.append(atoms)
    write(f"{name}.xyz", frames, format="extxyz")

DATA, LIGHTNING = "nequip.data", "lightning.pytorch"
metrics = {"_target_": "nequip.train.EnergyForceMetrics", "coeffs": {"forces_mae": 1.0}}
loader = {"_target_": "torch.utils.data.DataLoader", "batch_size": 1}
data = {
    "_target_": f"{DATA}.datamodule.ASEDataModule", "seed": 1,
    "train_file_path": "train.xyz", "val_file_path": "valid.xyz",
    "transforms": [
        {"_target_": f"{DATA}.transforms.ChemicalSpeciesToAtomTypeMapper", "model_type_names": ["Cu"]},
        {"_target_": f"{DATA}.transforms.NeighborListTransform", "r_max": 4.0},
    ],
    "train_dataloader": loader, "val_dataloader": loader,
    "stats_manager": {
        "_target_": f"{DATA}.CommonDataStatisticsManager", "type_names": ["Cu"],
        "dataloader_kwargs": {"batch_size": 1},
    },
}
module = {
    "_target_": "nequip.train.EMALightningModule", "ema_decay": 0.9,
    "loss": {
        "_target_": "nequip.train.EnergyForceLoss", "coeffs": {"total_energy": 1.0, "forces": 1.0},
    },
    "val_metrics": metrics, "train_metrics": metrics, "test_metrics": metrics,
    "optimizer": {"_target_": "torch.optim.Adam", "lr": 0.01},
    "model": {
        "_target_": "nequip.model.NequIPGNNModel", "seed": 1, "model_dtype": "float32",
        "type_names": ["Cu"], "r_max": 4.0, "num_layers": 1, "l_max": 1, "num_features": 4,
        "avg_num_neighbors": 12.0,
    },
}
found = {}
for interval in (1.0, 0.5):
    run = f"run{interval}"
    trainer = {
        "_target_": "lightning.Trainer", "accelerator": "cpu", "max_epochs": 1,
        "val_check_interval": interval, "enable_progress_bar": False, "logger": False,
        "callbacks": [{
            "_target_": f"{LIGHTNING}.callbacks.ModelCheckpoint", "dirpath": run, "filename": "best",
            "monitor": "val0_epoch/weighted_sum",
        }],
    }
    config = {
        "run": ["train"], "hydra": {"run": {"dir": run}}, "data": data, "trainer": trainer,
        "training_module": module,
    }
    Path(f"{run}.yaml").write_text(json.dumps(config))
    words = ["nequip-train", "-cp", str(Path.cwd()), "-cn", run]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    words = ["nequip-package", "build", f"{run}/best.ckpt", f"{run}.nequip.zip"]
    done = subprocess.run(words, capture_output=True, text=True)
    found[interval] = done.returncode
    last = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    print(f"val_check_interval {interval}: exit code {done.returncode}", *last, sep=", ")
assert found == {1.0: 0, 0.5: 1}, "changed"
PYTHON
