"""`pwmlff run`: lmp under mpirun, watched, and started again where it died.

    pwmlff run -np 8 --hostfile hosts --retries 3 -in in.x

The same command starts a simulation and goes on with it: what has been is in D/run.json (D is
--log-dir, which one `pwmlff run` has at a time). Each rank writes to a file in D, in D/retry.1
after the first restart, and so on; what they are called is up to mpirun
(:mod:`pwmlff.launch.mpirun`).

A start that is not the first sets the variable `restart` to the newest complete restart file that
this simulation has written; the input decides what that means:

    if "$(is_defined(variable,restart))" then "read_restart ${restart}" else "read_data x.data"

pair_style pwmlff gives signs of life and stops where that is wanted (pair_pwmlff/supervision.h):
after a signal or before a time limit it ends with a restart file, and the exit code is 75.
"""

from pwmlff.launch.supervisor import Options, RunReport, run, seconds_of

__all__ = ["Options", "RunReport", "run", "seconds_of"]
