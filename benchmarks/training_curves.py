"""Draw the validation errors of trainings over their time, to compare them.

python benchmarks/training_curves.py adam/log.jsonl kalman/log.jsonl -o curves.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from pwmlff import picture
from pwmlff.train import record
from pwmlff.train.errors import UNITS


def main() -> None:
    """Draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+", type=Path, help="log.jsonl, named by their folders")
    parser.add_argument("-o", "--output", type=Path, default=Path("curves.png"))
    options = parser.parse_args()
    target = picture.destination(options.output)
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    for quantity, axes in zip(("force", "energy"), figure.subplots(1, 2), strict=True):
        for path in options.logs:
            rows = [row for row in record.read(path) if row.time > 0.0]
            found = [getattr(row, f"{quantity}_valid") for row in rows]
            axes.plot([row.time for row in rows], found, ".-", label=path.parent.name)
        axes.set(xscale="log", yscale="log", xlabel="time, s")
        axes.set_ylabel(f"RMSE of {quantity}, {UNITS['metal'].unit_of(quantity)}")
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    picture.save(figure, target, dpi=110)


if __name__ == "__main__":
    main()
