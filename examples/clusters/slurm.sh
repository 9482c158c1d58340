#!/bin/bash
# Slurm: two nodes with four GPUs and four ranks each.  sbatch slurm.sh
# A simulation that is longer than the time limit goes on by itself: the job requeues itself until it is finished.
#SBATCH --job-name=pwmlff
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
source "$HOME/pwmlff/bin/activate"   # the environment with pair-pwmlff, on all nodes

# One line for each node: name:ranks. hydra and Open MPI start on the nodes through Slurm's own srun.
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/$/:$SLURM_NTASKS_PER_NODE/" > "hosts.$SLURM_JOB_ID"

# It stops before the time of the job is over, with a restart file and exit code 75; a signal does the same.
pwmlff run -np "$SLURM_NTASKS" --hostfile "hosts.$SLURM_JOB_ID" --bind core --threads 1 --retries 3 -in in.melt &
trap 'kill -TERM $!' TERM
status=0
wait $! || status=$?
while kill -0 $! 2> /dev/null; do wait $! || status=$?; done   # a signal ends the first wait
if [ $status -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
