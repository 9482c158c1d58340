"""Commands as jobs of a cluster's scheduler, by psij (https://exaworks.org/psij-python).

It speaks to Slurm, PBS, LSF, Cobalt and Flux in one way, starts no service, and finds its jobs
again by their numbers: a loop that was killed goes on with those in the queue. dpdispatcher moves
files to other machines besides, and keeps a database of its own; parsl and submitit start Python
functions, which a label is not. Jobs run in folders that nodes and this machine share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psutil

from pwmlff.files import PATIENCE, write_whole
from pwmlff.learn.processes import Ended, Stopped, Task
from pwmlff.learn.settings import Label
from pwmlff.report import Failure

POLL = 1.0  # seconds
LOCAL = "local"  # psij's name of this machine
NOTE = "job"  # file with the number of a job, in its folder
LONGEST = timedelta(days=1)  # of a job where no time is given


def run(tasks: Sequence[Task], how: Label, asked: Callable[[], bool]) -> list[Ended]:
    """Run all as jobs and return what came of each, in their order.

    Raises:
        Failure: psij is not installed, or does not know the scheduler.
        Stopped: the end was asked for; jobs stay in the queue and are found again.
    """
    try:
        import psij  # noqa: PLC0415  an optional dependency
    except ImportError:
        raise Failure(
            f"[label] scheduler is '{how.scheduler}', and psij is not installed: pip install "
            "'pair-pwmlff[cluster]'"
        ) from None
    known = sorted(psij.JobExecutor.get_executor_names())
    if how.scheduler not in known:
        raise Failure(f"[label] scheduler is '{how.scheduler}', expected one of {', '.join(known)}")
    executor = psij.JobExecutor.get_instance(how.scheduler)
    jobs = [_begun(psij, executor, task, how) for task in tasks]
    late: set[int] = set()
    while not all(job is None or job.status.final for job in jobs):
        if asked():
            raise Stopped("stopped; jobs stay in the queue, and the same command finds them again")
        for k, (task, job) in enumerate(zip(tasks, jobs, strict=True)):
            if how.scheduler == LOCAL and job is not None and _is_late(task, job):
                late.add(k)
                _cancel(executor, job)
        time.sleep(POLL)
    ended = []
    for k, (task, job) in enumerate(zip(tasks, jobs, strict=True)):
        (task.folder / NOTE).unlink(missing_ok=True)
        output = task.output.read_text(errors="replace") if task.output.exists() else ""
        code: int | None = None if k in late else 0
        if code == 0 and job is not None and job.status.state != psij.JobState.COMPLETED:
            code = job.status.exit_code or 1
            output = output or str(job.status.message or job.status.state)
        ended.append(Ended(code, output))
    return ended


def _is_late(task: Task, job: Any) -> bool:
    """Whether a job here has taken its time, which psij's executor does not look at."""
    if not task.timeout or job.status.final:
        return False
    with suppress(psutil.Error):
        began = psutil.Process(int(job.native_id)).create_time()
        return time.time() - began > task.timeout
    return False


def _cancel(executor: Any, job: Any) -> None:
    """End a job here and what it has started, and wait for that."""
    with suppress(psutil.Error):
        process = psutil.Process(int(job.native_id))
        executor.cancel(job)  # by a thread of psij's, which waits for the process, too
        deadline = time.monotonic() + PATIENCE
        while process.is_running() and time.monotonic() < deadline:
            time.sleep(POLL / 10)


def _begun(psij: Any, executor: Any, task: Task, how: Label) -> Any:
    """A new job, or the one that an earlier start has submitted; None where that is gone."""
    note = task.folder / NOTE
    if note.exists():
        job = psij.Job()
        try:
            number = note.read_text().strip()
            # The number of a process may be that of another one by now.
            if how.scheduler == LOCAL and psutil.Process(int(number)).cwd() != str(task.folder):
                return None
            executor.attach(job, number)
        except Exception:  # noqa: BLE001  it has left the queue: what it has left in its folder tells
            return None
        return job
    job = psij.Job(
        psij.JobSpec(
            executable=task.command[0],
            arguments=list(task.command[1:]),
            directory=task.folder,
            stdout_path=task.output,
            stderr_path=task.output.with_suffix(".err"),
            resources=psij.ResourceSpecV1(process_count=how.processes),
            attributes=psij.JobAttributes(
                duration=timedelta(seconds=task.timeout) if task.timeout else LONGEST,
                queue_name=how.queue or None,
            ),
            launcher="single",
        )
    )
    executor.submit(job)
    write_whole(note, str(job.native_id).encode())
    return job
