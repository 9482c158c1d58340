#!/usr/bin/env bash
# With more ranks than cores, collectives of MPICH in shared memory cost a hundred times more.
#
# mpich 5.0.2 and mpi4py 4.1.2, one host, twice as many ranks as cores. Each rank calls Allreduce of
# one number again and again.
# One would guess: a rank that waits lets go of its core, at least after a while, so that an
# Allreduce takes about as long as it takes the system to run each rank once.
# Seen: those algorithms look for the others without end, and never let go of the core. A rank whose
# turn it is waits for the end of the time slices of all who only look, milliseconds for a call.
# MPIR_CVAR_ENABLE_HEAVY_YIELD, which is there for this, changes nothing by itself. It does once
# MPIR_CVAR_DEVICE_COLLECTIVES=none has collectives made of messages, which do let go.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && . venv/bin/activate
pip install --quiet 'mpich==5.0.2' 'mpi4py==4.1.2' 'numpy==2.3.5'

cat > reduce.py <<'PROGRAM'
from time import perf_counter

import numpy as np
from mpi4py import MPI

world, one, total = MPI.COMM_WORLD, np.ones(1), np.zeros(1)
calls, start = 0, perf_counter()
while calls < 2000:
    world.Allreduce(one, total)
    calls += 1
    late = np.array([perf_counter() - start > 10.0], dtype=float)
    if calls % 20 == 0 and world.allreduce(late[0]):
        break
if world.rank == 0:
    print(1e6 * (perf_counter() - start) / calls)
PROGRAM

ranks=$((2 * $(nproc)))
yields="env MPIR_CVAR_ENABLE_HEAVY_YIELD=1 MPIR_CVAR_POLLS_BEFORE_YIELD=50"
plain=$(mpirun -np $ranks python reduce.py)
yield=$($yields mpirun -np $ranks python reduce.py)
messages=$($yields MPIR_CVAR_DEVICE_COLLECTIVES=none mpirun -np $ranks python reduce.py)
printf 'ranks: %d\nmicroseconds for a call: %.0f, with yield %.0f, of messages with yield %.0f\n' \
  "$ranks" "$plain" "$yield" "$messages"
python - "$plain" "$yield" "$messages" <<'CHECK'
import sys
plain, by_yield, messages = map(float, sys.argv[1:])
assert plain > 10 * messages, "collectives in shared memory let go of the core now"
assert by_yield > 5 * messages, "the yield helps by itself now"
CHECK
