#!/bin/bash
# Slurm: two nodes with four GPUs and four ranks each.  sbatch slurm.sh
#SBATCH --job-name=pwmlff
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120

set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
source "$HOME/pwmlff/bin/activate"   # the environment with pair-pwmlff, on all nodes

# One line for each node: name:ranks. hydra and Open MPI start on the nodes through Slurm's own srun.
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/$/:$SLURM_NTASKS_PER_NODE/" > "hosts.$SLURM_JOB_ID"

pwmlff run -np "$SLURM_NTASKS" --hostfile "hosts.$SLURM_JOB_ID" --bind core --threads 1 \
  --log-dir "logs.$SLURM_JOB_ID" --retries 3 -in in.melt &
run=$!
trap 'kill -TERM $run' TERM   # 120 seconds before the end: all ranks get the signal
wait $run || wait $run        # the first wait ends with the signal
