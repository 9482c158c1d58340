#!/usr/bin/env bash
# examples/clusters/slurm.sh, as it is, under a Slurm of one node that this script sets up: a job that is longer than its time limit
# stops before it, requeues itself, and ends with the energy of a run that nothing has disturbed. Six minutes.
#
#   benchmarks/slurm_check.sh          as root; Debian: apt install slurm-wlm
#
# PYTHON names another interpreter than python3, in whose environment pair-pwmlff is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "skipped: slurmd has to be started as root"; exit 77; }
for program in munged slurmctld slurmd; do
  command -v $program > /dev/null || { echo "skipped: no $program; apt install slurm-wlm"; exit 77; }
done

bin=$(dirname "$(command -v "${PYTHON:-python3}")")
tree=$PWD
scratch=$(mktemp -d)
daemons=()
finish() {
  kill "${daemons[@]}" 2> /dev/null || true
  wait 2> /dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT
mkdir -p "$scratch"/{state,spool,home/pwmlff/bin,work}
chmod 755 "$scratch"
host=$(hostname -s)

cat > "$scratch/slurm.conf" <<END
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge.socket
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=60 OverSubscribe=FORCE:4
END
export SLURM_CONF=$scratch/slurm.conf

dd if=/dev/urandom of="$scratch/munge.key" bs=128 count=1 status=none
chmod 400 "$scratch/munge.key"
start() { "$@" > "$scratch/$1.out" 2>&1 & daemons+=($!); }
start munged --foreground --force --key-file="$scratch/munge.key" --socket="$scratch/munge.socket" \
  --pid-file="$scratch/munged.pid" --seed-file="$scratch/munged.seed" --log-file="$scratch/munged.log"
sleep 1
start slurmctld -D
start slurmd -D
for _ in $(seq 60); do sinfo -h -o %T 2> /dev/null | grep -q idle && break; sleep 1; done
sinfo -h -o %T | grep -q idle || { tail -n 20 "$scratch"/*.log "$scratch"/*.out; exit 1; }

# slurm.sh takes its environment from ~/pwmlff/bin/activate, and runs in.melt beside it: as many steps as take 80 seconds, so short
# that rounding does not grow beyond what is compared.
printf 'export PATH=%s:$PATH SLURM_CONF=%s\n' "$bin" "$SLURM_CONF" > "$scratch/home/pwmlff/bin/activate"
input() { sed "s,\.\./lj,$tree/examples/lj,g; s/index 2000/index $1/; s/^restart .*/restart 100000 melt.*.restart/; s/^thermo .*/&\nthermo_modify format float %.17g\ntimestep 0.0005/" "$tree/examples/clusters/in.melt"; }
quiet() { (cd "$scratch/quiet" && env -u SLURM_CONF PATH="$bin:$PATH" pwmlff run --no-preflight --resume never -np 2 --json -in in.melt); }
mkdir "$scratch/quiet"
input 400 > "$scratch/quiet/in.melt"
steps=$(quiet 2> /dev/null | "$bin/python3" -c 'import json, sys; print(int(80 * 400 / json.load(sys.stdin)["attempts"][0]["seconds"]))')
input "$steps" | tee "$scratch/quiet/in.melt" > "$scratch/work/in.melt"
echo "$steps steps"

cd "$scratch/work"
export HOME=$scratch/home
job=$(sbatch --parsable --export=ALL --nodes=1 --ntasks-per-node=2 --gpus-per-node=0 --time=1 --output=job.out "$tree/examples/clusters/slurm.sh")
began=$(date +%s)
echo "job $job"
for _ in $(seq 420); do
  state=$(scontrol -o show job "$job" | sed 's/.*JobState=\([A-Z]*\).*/\1/')
  case $state in COMPLETED | FAILED | TIMEOUT | CANCELLED | NODE_FAIL) break ;; esac
  sleep 1
done
cat job.out
echo "state $state after $(($(date +%s) - began)) s; $(scontrol -o show job "$job" | grep -o 'Restarts=[0-9]*')"
[ "$state" = COMPLETED ]
[ "$(scontrol -o show job "$job" | sed 's/.*Restarts=\([0-9]*\).*/\1/')" -ge 1 ]

quiet > "$scratch/quiet/out" 2>&1
"$bin/python3" - "$scratch/work" "$scratch/quiet" <<'END'
import sys
from pathlib import Path

from pwmlff.launch.lmp import Thermo

last = []
for folder in map(Path, sys.argv[1:]):
    logs = sorted(folder.glob("log.lammps*"), key=lambda path: path.stat().st_mtime)
    last.append(Thermo(logs[-1]).columns()["E_pair"][-1])
print("energies at the end:", *last)
assert abs(last[0] - last[1]) <= 1e-8 * abs(last[1])
END
