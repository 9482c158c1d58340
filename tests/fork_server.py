"""Python in a process of its own, without the two seconds that importing torch takes.

A server imports what other packages have, none of ours, and forks for each program. Neither OpenMP
nor a library of ours has begun there, so that a program has the threads of any other process.

    python -I -S fork_server.py SOCKET WORD ...    "python WORD ...": -m MODULE, -c CODE or a file
    python fork_server.py SOCKET                   the server, until its input ends
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

#: What Python or a library reads as it starts: other values need another process.
AT_START = ("PYTHON", "LD_PRELOAD", "MPL", "OMP_", "OPENBLAS_", "MKL_", "TORCH", "HOME")
LATER = ("OMP_NUM_THREADS", "PYTHONPATH")  # these can be given to one that runs
OF_MPIRUN = "PMI_FD"  # the number of the file by which a rank speaks with mpirun
IMPORTED = (
    "torch", "torch.jit", "scipy.integrate", "ase.io", "ase.md", "matplotlib.figure", "typer",
    "typer._adapters", "matplotlib.backends.backend_agg", "rich.console", "rich.table",
    "rich.progress", "psutil",
)  # fmt: skip


def at_start(environment: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(AT_START) and k not in LATER}


# ---- a program: it passes on its files and signals, and ends as its twin does


def program(path: str, words: list[str]) -> int:
    def real() -> None:
        os.execv(sys.executable, [sys.executable, *words])

    if not os.environ.get(LATER[0], "1").isdigit():
        real()
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    contents = json.dumps([words, str(Path.cwd()), dict(os.environ)]).encode()
    files = [0, 1, 2, *map(int, filter(None, [os.environ.get(OF_MPIRUN)]))]
    socket.send_fds(server, [len(contents).to_bytes(4, "little")], files)
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server.sendall(contents)
    answer = server.makefile()
    pid = int(answer.readline())
    if not pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        real()

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in signals:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    code = int(answer.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


# ---- the server


def serve(path: str) -> None:
    """Return in the process of a program, which has become all that it is to be."""
    import importlib

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)  # those that come before all is imported wait
    for name in IMPORTED:
        importlib.import_module(name)
    known = at_start(dict(os.environ))
    while True:
        ready = select.select([listener, 0], [], [], 0.5)[0]
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            sys.exit()
        if listener in ready:
            client, _ = listener.accept()
            if not os.fork():
                listener.close()
                return attend(client, known)
            client.close()


def attend(client: socket.socket, known: dict[str, str]) -> None:
    """Start a program and tell how it ends; end it with the one that has asked for it."""
    head, files, *_ = socket.recv_fds(client, 4, 4)
    size, contents = int.from_bytes(head, "little"), b""
    while len(contents) < size:
        contents += client.recv(size)
    words, folder, environment = json.loads(contents)
    if at_start(environment) != known:
        client.sendall(b"0\n")
        os._exit(0)
    pid = os.fork()
    if not pid:
        client.close()
        return become(words, folder, environment, files)
    for number in files:
        os.close(number)
    with suppress(OSError):
        client.sendall(b"%d\n" % pid)
    process = os.pidfd_open(pid)
    if process not in select.select([process, client], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        client.sendall(b"%d\n" % code)
    os._exit(0)


def become(words: list[str], folder: str, environment: dict[str, str], files: list[int]) -> None:
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    if len(files) > 3:
        environment[OF_MPIRUN] = str(files[3])
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    sys.path[:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        file = open(  # noqa: SIM115  a number
            number, "w" if number else "r", encoding=old.encoding, errors=old.errors,
            buffering=1 if number == 2 or os.isatty(number) else -1, closefd=False,
        )  # fmt: skip
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    if threads := environment.get(LATER[0]):
        import ctypes

        maps = Path("/proc/self/maps").read_text().split()
        ctypes.CDLL(next(x for x in maps if "libgomp" in x)).omp_set_num_threads(int(threads))


def run() -> None:
    """Do as Python does with these words; what is here does not count as the main program."""
    import runpy
    import types

    first, *rest = sys.argv
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(program(sys.argv[1], sys.argv[2:]))
    own = [sys.executable, "-I", "-S", __file__, sys.argv[1], "-m", "pwmlff"]
    serve(sys.argv[1])
    from pwmlff.launch import interpreter

    interpreter.pwmlff = lambda *words: [*own, *words]
    run()
