"""What bounds of a training, deviation and gamma are worth at temperatures never trained on.

    python benchmarks/temperatures.py --out FOLDER

Runs the teacher of examples/hfo2 for 100 frames at each of 300, 1000 and 2000 K, trains four Deep
Potentials with the defaults, and prints of 60 frames at each of 600, 1500 and 2500 K what
benchmarks/uncertainty.py prints of a file. What is there already is not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from training_defaults import hfo2_example
from uncertainty import told

LEARNED, UNSEEN = (300.0, 1000.0, 2000.0), (600.0, 1500.0, 2500.0)  # K
MODELS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, train and test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--max-time", default="5m", help="of the training")
    options = parser.parse_args(arguments)
    example, out = hfo2_example(), options.out
    out.mkdir(parents=True, exist_ok=True)
    files = {"train": LEARNED, **{f"unseen-{T:.0f}": (T,) for T in UNSEEN}}
    for number, (name, temperatures) in enumerate(files.items()):
        if not (out / f"{name}.extxyz").exists():
            states = [
                example.State(T=T, seed=20 + 10 * number + k) for k, T in enumerate(temperatures)
            ]
            frames = 100 if name == "train" else 60
            example.draw(states, frames, out / f"{name}.extxyz")
    if not (out / "models").exists():
        words = ["pwmlff", "train", "--data", "train.extxyz", "--elements", "Hf O", "-o", "models"]
        example.run(out, *words, "--models", str(MODELS), "--max-time", options.max_time)
    models = [out / "models" / f"{name}.pt" for name in "abcd"[:MODELS]]
    for name in files:
        if name != "train":
            print(told(models, str(out / f"{name}.extxyz")))


if __name__ == "__main__":
    main()
