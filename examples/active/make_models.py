"""Ten minutes of active learning, and what came of it at a temperature that it never saw.

    python examples/active/make_models.py --out active

Runs the loop of learn.toml from eight rattled crystals on, and tests the models of its first and
its last training on a run of the teacher at 1500 K. The loop explores at 300, 1000 and 2000 K.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ase.build import bulk
from ase.io import write
from rich.logging import RichHandler

log = logging.getLogger("active")

HERE = Path(__file__).resolve().parent


def of_hfo2() -> ModuleType:
    """The script of examples/hfo2, which runs the teacher."""
    path = HERE.parent / "hfo2" / "make_models.py"
    spec = importlib.util.spec_from_file_location("make_models_hfo2", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def error(model: Path, folder: Path) -> tuple[float, float]:
    """RMSE of forces on the unseen run in meV/angstrom, and energies in meV/atom."""
    words = ["pwmlff", "test", str(model), "unseen.extxyz", "--json"]
    log.info("%s", shlex.join(words))
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    errors = json.loads(done.stdout)["models"][0]["errors"]
    return errors["force"]["rmse"], errors["energy"]["rmse"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the crystal, run the loop, and test its models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default="active", help="folder to write")
    parser.add_argument("--frames", type=int, default=40, help="of the unseen run")
    parser.add_argument("--set", action="append", default=[], help="key of learn.toml")
    options = parser.parse_args(arguments)
    handler = RichHandler(show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    for name in ("learn.toml", "teacher.py"):
        shutil.copy(HERE / name, out)
    write(out / "hfo2.cif", bulk("HfO2", "fluorite", a=5.07, cubic=True).repeat(2))
    if not (out / "unseen.extxyz").exists():
        hfo2 = of_hfo2()
        hfo2.draw([hfo2.State(T=1500.0, seed=31)], options.frames, out / "unseen.extxyz")
    settings = [word for text in options.set for word in ("--set", text)]
    log.info("pwmlff learn learn.toml %s", shlex.join(settings))
    subprocess.run(["pwmlff", "learn", "learn.toml", *settings], cwd=out, check=True)
    first = error(Path("learn/round-000/train/a.pt"), out)
    last = error(Path("learn/a.pt"), out)
    log.info(
        "at 1500 K, first round and last: forces %.1f and %.1f meV/angstrom (%.1f times less), "
        "energies %.2f and %.2f meV/atom",
        *(first[0], last[0], first[0] / last[0], first[1], last[1]),
    )


if __name__ == "__main__":
    main()
