"""`pwmlff run`: lmp under mpirun, watched, and started again where it died.

    pwmlff run -np 8 --hostfile hosts --retries 3 -in in.x

The same command starts a simulation and goes on with it: what has been is in run.json of --log-dir,
which one `pwmlff run` has at a time. A start that is not the first sets the variable `restart` to
the newest complete restart file of this simulation; the input decides what that means:

    if "$(is_defined(variable,restart))" then "read_restart ${restart}" else "read_data x.data"

pair_style pwmlff gives signs of life and stops where that is wanted (pair_pwmlff/supervision.h):
after a signal or before a time limit it ends with a restart file, and the exit code is 75.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Context, Option

from pwmlff.commands import doctor
from pwmlff.commands.base import Bind, Hostfile, Hosts, Lmp, Mpirun, MpirunOptions, Plugin
from pwmlff.commands.options import seconds_of
from pwmlff.commands.ranks import RanksReport
from pwmlff.launch import mpirun as launcher
from pwmlff.launch import program, rank_survey
from pwmlff.launch.restarts import base_file
from pwmlff.launch.script import Script, without_restart
from pwmlff.report import Failure, Report, console

TIME = "like 90s, 20m, 2h or 23:50:00; a plain number is of seconds."


def run(
    context: Context,
    np: Annotated[int, Option("-np", "--np", min=1, help="Number of ranks.")] = 1,
    hosts: Hosts = "",
    hostfile: Hostfile = None,
    log_dir: Annotated[Path, Option(help="Folder for what each rank writes.")] = Path("logs"),
    merge_stderr: Annotated[
        bool, Option("--merge-stderr", help="Write stderr of a rank to its stdout.")
    ] = False,
    bind: Bind = None,
    retries: Annotated[
        int, Option(min=0, help="Starts from the newest restart file after a rank died.")
    ] = 0,
    resume: Annotated[
        str,
        Option(
            help="Go on with what an earlier start left unfinished: auto, never, or from a file."
        ),
    ] = "auto",
    changed: Annotated[
        list[Path] | None,
        Option(help="File that the input reads, to go on with as it is now; may be given again."),
    ] = None,
    hang_timeout: Annotated[
        str,
        Option(
            help=f"Time without a sign of life that ends a start, 0 for never, {TIME}",
            show_default="10m, 30m before the first forces",
        ),
    ] = "",
    hang: Annotated[str, Option(hidden=True)] = "",
    time_limit: Annotated[
        str,
        Option(help=f"Time before whose end to stop, {TIME}", show_default="that of the Slurm job"),
    ] = "",
    drop_hosts: Annotated[
        bool, Option("--drop-hosts", help="Go on without a host that cannot be reached.")
    ] = False,
    min_ranks: Annotated[int, Option(min=1, help="Ranks to go on with, with --drop-hosts.")] = 1,
    threads: Annotated[int, Option(min=1, help="OpenMP threads of each rank.")] = 1,
    preflight: Annotated[bool, Option(help="Look first whether it can run.")] = True,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the command, no more.")] = False,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
    mpirun_options: MpirunOptions = "",
) -> Report:
    """Run lmp under mpirun: look first, watch, and start again where a rank died.

    All other words are for lmp. The mpirun line is shown, to be taken over. The same command goes
    on with what was stopped: by a signal or a time limit, with exit code 75, or by a fault.

    Example: pwmlff run -np 8 --hostfile hosts --bind core --retries 3 -in in.x
    """
    from pwmlff.launch import run_state, supervisor

    launcher.require_one_task()
    machines, extra = launcher.hosts_of(hosts, hostfile), shlex.split(mpirun_options)
    arguments, restart = without_restart(context.args)
    script = Script(arguments)
    starter, lmp_program = launcher.find(mpirun), program.find(lmp, plugin)
    environment = {"OMP_NUM_THREADS": str(threads), **lmp_program.environment}
    wish = launcher.Wish(
        [lmp_program.path], np, machines, bind, log_dir, merge_stderr, environment, extra
    )
    if restart is not None and resume in supervisor.RESUME:
        resume = restart
    patience = hang_timeout or hang
    plan = supervisor.Plan(
        script,
        wish,
        retries,
        resume,
        seconds_of("--hang-timeout", patience) if patience else None,
        seconds_of("--time-limit", time_limit) if time_limit else None,
        drop_hosts,
        min_ranks,
        changed or (),
    )
    if retries:
        script.require_restartable()
    named = None if plan.resume in supervisor.RESUME else plan.resume
    if named is not None and not base_file(named).is_file():
        raise Failure(f"found no restart file '{named}' to go on from")
    screen = console(stderr=True)
    if dry_run:
        command = plan.command(starter, log_dir, 0, named)
        screen.print(Text(shlex.join(command)), soft_wrap=True)
        return supervisor.RunReport([run_state.Attempt(command, named, 0.0)], str(log_dir))
    if preflight:
        machine = doctor.Machine(lmp, mpirun, 1 if machines else np, plugin, script.plugin())
        used, odd = look(machine, wish, script)
        screen.print(Text(used), soft_wrap=True)
        for text in odd:
            screen.print(Text(f"warning: {text}", "yellow"))
    return supervisor.run(plan, starter)


def look(machine: doctor.Machine, wish: launcher.Wish, script: Script) -> tuple[str, list[str]]:
    """Look whether the run can start; return which devices it will use, and what is odd.

    Raises:
        Failure: it cannot.
    """
    # Threads and cores are those of each node: the ranks of this one are not known here.
    names = [name for name in doctor.CHEAP if not (name == "threads" and wish.hosts)]
    examined = doctor.examine(machine, names)
    wrong = [check.text for check in examined.checks if check.status == doctor.ERROR]
    placed = rank_survey.survey(
        replace(wish, logs=None), script.device_policy(), path=machine.mpirun_path
    )
    replicas = rank_survey.replicas_of(script.partitions, len(placed))
    rank_report = RanksReport(placed, False, replicas)
    wrong += rank_report.errors
    if wrong:
        raise Failure("\n".join(["this run would fail:", *wrong]))
    odd = [check.text for check in examined.checks if check.remedy]
    if wish.hosts and (visible := os.environ.get("CUDA_VISIBLE_DEVICES")):
        odd.append(f"CUDA_VISIBLE_DEVICES={visible} of this host holds on all; unset it else")
    return rank_survey.in_one_line(rank_report.ranks), odd + rank_report.warnings
