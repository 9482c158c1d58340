#!/usr/bin/env bash
# mace-torch 0.3.16: mace_run_train says that it stops for --patience, and goes on to the last epoch.
#
# With --patience N one would guess that a training ends after N epochs whose validation loss is no
# lower. mace/tools/train.py writes "Stopping optimization after N epochs without improvement", and
# then only sets a flag that ranks share. Without --distributed there is no such flag, and the loop
# goes on: the line comes again for each later epoch, and the run takes as long as without.
#
# The training below cannot gain anything, as its rate of learning is 1e-30.
# Seen with mace-torch 0.3.16, torch 2.13.0 on a CPU:
#     --patience=1 --max_num_epochs=5: said 4 times that it stops, last line of an Epoch 4
# Exit status 0 while that is so; 1 where it ends earlier.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 mace-torch==0.3.16
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

for name, seeds in (("train", range(8)), ("valid", range(8, 10))):
    frames = []
    for seed in seeds:
        atoms = bulk("Cu", cubic=True)
        atoms.rattle(0.1, seed=seed)
        found = atoms.copy()
        atoms.calc = EMT()
        found.info["REF_energy"] = atoms.get_potential_energy()
        found.arrays["REF_forces"] = atoms.get_forces()
        frames.append(found)
    write(f"{name}.xyz", frames, format="extxyz")
PYTHON
"$folder/venv/bin/mace_run_train" --name=m --train_file=train.xyz --valid_file=valid.xyz --E0s=average \
  --model=MACE --num_interactions=1 --num_channels=4 --max_L=0 --max_ell=1 --correlation=1 --r_max=4 \
  --batch_size=4 --device=cpu --plot=False --lr=1e-30 --patience=1 --max_num_epochs=5 > said 2>&1
stops=$(grep -c "Stopping optimization after" said)
last=$(grep -oE "Epoch [0-9]+:" said | tail -1)
echo "--patience=1 --max_num_epochs=5: said $stops times that it stops, last line of an ${last%:}"
[ "$stops" -gt 1 ] && [ "$last" = "Epoch 4:" ]
