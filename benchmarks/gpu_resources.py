"""Registers, spills and stack of every GPU kernel, as the compiler reports them.

    python benchmarks/gpu_resources.py --arch 80 90

Needs nvcc, but no GPU. A kernel that spills registers to memory is slower than it looks.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")


def plain(mangled: str) -> str:
    """Return the kernel struct of an entry function, like Moments<double>."""
    done = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True)
    launched = re.search(r"run_\w+<(.*)>\(", done.stdout)
    return (launched[1] if launched else done.stdout.strip()).replace("pwmlff::", "")


def report(source: Path, arch: str, folder: Path) -> list[tuple[str, ...]]:
    """Rows of kernel, arch, registers, stack, spill stores and spill loads of one .cu file."""
    command = ["nvcc", "-cubin", f"-arch=sm_{arch}", "-O3", "-std=c++20", "-Xptxas=-v"]
    done = subprocess.run(
        [*command, "-o", str(folder / "kernels.cubin"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"nvcc cannot compile {source}:\n{done.stderr}")
    rows, name, stack = [], "", ("0", "0", "0")
    for line in done.stderr.splitlines():
        if found := ENTRY.search(line):
            name = plain(found[1])
        elif found := STACK.search(line):
            stack = found.groups()
        elif found := USED.search(line):
            rows.append((name, f"sm_{arch}", found[1], *stack))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", nargs="+", default=["80", "90"], help="like 80 90")
    options = parser.parse_args()
    if not shutil.which("nvcc"):
        sys.exit("found no nvcc; put the CUDA toolkit on the PATH")
    table = Table("kernel", "for", "registers", "stack", "spill stores", "spill loads")
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(KERNELS.rglob("*.cu")):
            for arch in options.arch:
                for row in report(source, arch, Path(folder)):
                    table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
