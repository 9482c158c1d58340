"""Small C++ programs over parts of the pair style, for what no model file can show."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import torch

from pwmlff import plugin

ROOT = Path(__file__).resolve().parents[1]


def compiled(source: str, folder: Path, *options: str) -> Path:
    """Compile tests/<source> against the installed libraries, to a program or what options say."""
    program = folder / Path(source).stem
    base, ours = Path(torch.__file__).parent, plugin.library()
    includes = [base / "include", base / "include/torch/csrc/api/include", ".", "kernels"]
    libraries = [
        plugin.sister(ours, f"pwmlff_{name}")
        for name in ("archive", "kernels", "models", "placement", "torch")
    ]
    subprocess.run(
        [
            "c++", "-std=c++20", "-O0", *options, f"tests/{source}", "-o", program,
            *[f"-I{folder}" for folder in includes],
            *libraries, base / "lib/libtorch_cpu.so", base / "lib/libc10.so",
            f"-Wl,-rpath,{Path(ours).parent}:{base / 'lib'}", "-ldl",
        ],
        cwd=ROOT, check=True,
    )  # fmt: skip
    return program


def mpi() -> tuple[Path, Path]:
    """The folder with mpi.h, and the library."""
    files = [file.locate() for file in metadata.files("mpich") or []]
    header = next(file for file in files if file.name == "mpi.h")
    library = next(file for file in files if file.name.startswith("libmpi.so"))
    return Path(header).resolve().parent, Path(library).resolve()


def compile_and_run(source: str, folder: Path, *arguments: object) -> list[str]:
    """Compile tests/<source> and return the lines that it prints."""
    program = compiled(source, folder)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()
