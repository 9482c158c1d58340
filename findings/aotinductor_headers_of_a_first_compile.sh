#!/usr/bin/env bash
# AOTInductor of torch 2.13.0 compiles headers ahead, which makes the first model of a machine slower.
#
# aot_inductor.precompile_headers is on by default. One would guess that it saves time. It does where
# the compiled headers are in the cache, /tmp/torchinductor_USER by default. The first package has to
# compile two of them, one for the wrapper (-O1) and one for the kernels (-O3). Each is used once, for
# a wrapper and a kernel file. So with an empty cache a package takes longer than without, as for each
# job of a cluster, container or run of CI.
#
# Seen with torch 2.13.0, GNU 12.2.0 and two linear layers, on a CPU with AVX2, seconds of g++:
#     headers ahead, empty cache: 35.7
#     headers ahead, another model with that cache: 12.8
#     no headers ahead, empty cache: 17.6
# Exit status 0 while the first takes more than the last by a tenth, and the second less.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
cd "$folder"
cat > compile.py <<'PYTHON'
import subprocess
import sys
import time

import torch
from torch._inductor import aoti_compile_and_package, cpu_vec_isa

width, ahead, package = int(sys.argv[1]), sys.argv[2] == "ahead", sys.argv[3]
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
exported = torch.export.export(model.eval(), (torch.ones(4, width),))
cpu_vec_isa.valid_vec_isa_list()  # compiles a test of its own in an empty cache
usual, spent = subprocess.run, 0.0


def timed(command, *words, **named):
    global spent
    begin = time.perf_counter()
    done = usual(command, *words, **named)
    spent += time.perf_counter() - begin
    return done


subprocess.run = timed
settings = {"aot_inductor.precompile_headers": ahead}
with torch.no_grad():
    aoti_compile_and_package(exported, package_path=package, inductor_configs=settings)
print(f"{spent:.1f}")
PYTHON
compiled() {  # cache, width, whether headers are compiled ahead
  TORCHINDUCTOR_CACHE_DIR="$folder/$1" "$folder/venv/bin/python" compile.py "$2" "$3" "$folder/$1-$2.pt2" 2> "$folder/said" ||
    { cat "$folder/said"; exit 2; }
}
first=$(compiled ahead 8 ahead)
second=$(compiled ahead 9 ahead)
without=$(compiled without 8 "not")
echo "headers ahead, empty cache: $first"
echo "headers ahead, another model with that cache: $second"
echo "no headers ahead, empty cache: $without"
python3 -c 'import sys; a, b, c = map(float, sys.argv[1:]); sys.exit(not (a > 1.1 * c and b < c))' \
  "$first" "$second" "$without"
