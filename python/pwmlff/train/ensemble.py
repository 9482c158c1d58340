"""The models of an ensemble, each trained by a command of its own."""

from __future__ import annotations

import json
import signal
import string
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from pwmlff.evaluation import model_file
from pwmlff.launch import interpreter
from pwmlff.models.saving import copy_model
from pwmlff.report import INTERRUPTED, console, explain
from pwmlff.threads import available
from pwmlff.train import comm, evaluate, prepare, uncertainty
from pwmlff.train.config import Config
from pwmlff.train.hardware import device_of_member, threads_of
from pwmlff.train.outcome import Trained, TrainReport
from pwmlff.train.start import Options, Stop, claimed, write_configuration

LEAVING = 4.0  # seconds for what remains to be done when all models of an ensemble are there
#: Exit codes of a process that a signal has ended.
ENDED_BY_SIGNAL = (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)


def member_name(k: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    prefix, digit = divmod(k, len(string.ascii_lowercase))
    return (member_name(prefix - 1) if prefix else "") + string.ascii_lowercase[digit]


#: In the name of the model file to start from: the name of each model of an ensemble.
MEMBER = "{model}"


def _member(config: Config, k: int, threads: int, max_time: float) -> Config:
    """Configuration of one model of an ensemble: other seeds, a folder and a time of its own."""
    finetune = config.model.finetune.replace(MEMBER, member_name(k))
    return replace(
        config,
        model=replace(config.model, seed=config.model.seed + k, finetune=finetune),
        run=replace(
            config.run,
            seed=config.run.seed + k,
            models=1,
            threads=threads,
            max_time=max_time,
            device=device_of_member(config.run.device, k),
        ),
        output=replace(config.output, folder=str(Path(config.output.folder) / member_name(k))),
    )


def train(
    config: Config, options: Options, ranks: comm.Communicator, stop: Stop, handles: Sequence[int]
) -> TrainReport:
    """Train models side by side, each in a process of its own: none needs to know of the others.

    On one rank the processes are started here; on several each rank trains its share. All inherit
    the handles.
    """
    n = config.run.models
    if ranks.size > n:
        raise comm.SharedFailure(
            f"found {ranks.size} ranks for {n} models, expected at most {n}: each model of an "
            "ensemble trains on one rank; start fewer, or train one model on all (--models 1)"
        )
    folder = Path(config.output.folder)

    def begin() -> None:
        for k in range(n):
            with claimed(folder / member_name(k), options):
                pass
        write_configuration(config)

    comm.by_rank_0(ranks, begin)
    mine = range(ranks.rank, n, ranks.size)
    together = min(n, available()) if ranks.size == 1 else 1
    threads = threads_of(config.run, ranks, together)
    members = [_member(config, k, threads, _share(config, options, ranks, together)) for k in mine]
    results = _in_processes(members, options, together, stop, handles)
    parts = ranks.allgather(dict(zip(mine, results, strict=True)))
    trained, failures, unbegun = [], [], []
    for k, result in sorted(pair for part in parts for pair in part.items()):
        name = member_name(k)
        if isinstance(result, Trained):
            target = folder / f"{name}{Path(result.file).suffix}"
            if ranks.rank == 0:
                copy_model(Path(result.file), target)
            trained.append(replace(result, file=str(target)))
        elif result is None:
            unbegun.append(name)
        else:
            failures.append(f"model {name}: {result}")
    if ranks.rank == 0 and len(trained) > 1:
        _calibrate(config, [Path(one.file) for one in trained])
    units, failed = config.model.units, tuple(failures)
    baseline = (config.data.baseline, config.data.baseline_coeff)
    return TrainReport(trained, {}, units, str(folder), failed, baseline, tuple(unbegun))


def _calibrate(config: Config, models: Sequence[Path]) -> None:
    """Keep what the frames that validate tell of deviations and errors, if there are any."""
    infos = [model_file.describe_unopened(path) for path in models]
    elements = infos[0].atom_type
    _, valid, _ = prepare.labelled(config, elements, infos[0].cutoff, comm.Serial())
    if valid is None:
        return
    frames = valid.frames
    threads = available()
    forces = [
        evaluate.predict_by(path, info, elements, frames, threads)[2][1]
        for path, info in zip(models, infos, strict=True)
    ]
    disagreement = uncertainty.disagreement(frames, forces)
    uncertainty.keep(Path(config.output.folder), models, frames, *disagreement)


def _share(config: Config, options: Options, ranks: comm.Communicator, together: int) -> float:
    """Minutes of one model of an ensemble, of which some train at a time; 0 for no limit."""
    if not config.run.max_time:
        return 0.0
    assert options.began is not None
    turns = -(-config.run.models // (ranks.size * together))
    spent = time.monotonic() - options.began + LEAVING
    return max(1e-3, (config.run.max_time - spent / 60.0) / turns)


def _in_processes(
    members: Sequence[Config], options: Options, together: int, stop: Stop, handles: Sequence[int]
) -> list[Trained | str | None]:
    """What came of each member, its error, or None where the end was asked for before it began."""
    lock = threading.Lock()
    running: list[subprocess.Popen[str]] = []
    shown: set[str] = set()  # lines: the head of the table stands above the rows of all
    ended = False  # somebody asked to stop

    def started(member: Config) -> subprocess.Popen[str] | None:
        command = interpreter.pwmlff("train", "--json", "--communication", "serial")
        command += ["--resume"] if options.resume else []
        with lock:  # all that run are told to stop, and none begins after that
            if ended:
                return None
            process = subprocess.Popen(
                interpreter.ending_with_parent([*command, str(write_configuration(member))]),
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            return process

    def result_of(member: Config) -> Trained | str | None:
        try:
            process = started(member)
        except OSError as error:
            return explain(error)[0]
        if process is None:
            return None
        result = _result(process, Path(member.output.folder).name, shown)
        # One that was still reading has nothing to keep, and ends at once.
        early = stop.asked() and process.returncode in ENDED_BY_SIGNAL
        return None if early and isinstance(result, str) else result

    stop.listen()
    with ThreadPoolExecutor(together) as pool:
        futures = [pool.submit(result_of, member) for member in members]
        while wait(futures, timeout=0.2).not_done:
            if stop.asked() and not ended:
                with lock:
                    ended = True
                    for process in running:
                        process.send_signal(signal.SIGTERM)
    return [future.result() for future in futures]


def _result(process: subprocess.Popen[str], name: str, shown: set[str]) -> Trained | str:
    """Show what a member says that none has said yet; what came of it, or its error."""
    screen = console(stderr=True)
    assert process.stdout is not None and process.stderr is not None  # both are pipes
    for line in process.stderr:
        if line not in shown:
            shown.add(line)
            screen.print(Text(f"{name}: {line.rstrip()}"))
    output = process.stdout.read()
    code = process.wait()
    try:
        parsed = json.loads(output)
    except ValueError:
        return f"ended with {code}"
    models = parsed.get("models") or []
    return Trained(**models[0]) if models else parsed.get("error", f"ended with {code}")
