"""A learning loop in words, and a picture of each round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pwmlff import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = "round.png"  # in the folder of a round
BINS = 60


def training_line(results: dict[str, Any]) -> str:
    """The frames, the errors of all models on frames that validate, and the window."""
    forces = ", ".join(f"{one['force']:.4g}" for one in results["valid"] if "force" in one)
    low, high = results["window"]
    return (
        f"trained on {results['frames']} frames in {results['seconds']:.0f} s; RMSE of forces "
        f"{forces} meV/Å; window {low:.3g} to {high:.3g} eV/Å"
    )


def exploration_line(results: dict[str, Any]) -> str:
    """How many structures were below, in and beyond the window, and what was chosen."""
    died = sum(bool(one["died"]) for one in results["runs"])
    return (
        f"explored {results['structures']} structures in {len(results['runs'])} runs and "
        f"{results['seconds']:.0f} s: {percent(results, 'below')} below the window, "
        f"{percent(results, 'beyond')} beyond it; {results['chosen']} of {results['candidates']} "
        "chosen" + f"; {died} runs died" * bool(died)
    )


def label_line(results: dict[str, Any]) -> str:
    """The error of the models on labels that are new to them."""
    return (
        f"{results['frames']} labels; RMSE of forces there {1000 * results['rmse']:.4g} meV/Å, "
        f"{100 * results['rmse'] / max(results['rms'], 1e-12):.3g} % of their RMS"
        + f"; {len(results['failures'])} without labels"
        * bool(results["failures"])
    )


def percent(results: dict[str, Any], name: str) -> str:
    """A share of the structures that were explored."""
    return f"{100.0 * results[name] / max(1, results['structures']):.3g} %"


def round_picture(folder: Path, results: dict[str, Any]) -> Figure:
    """Deviations, errors against fresh labels, and what came of each exploration.

    Args:
        folder: of the round, with what its stages have stored.
        results: of its stages.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    figure = Figure(figsize=(12.0, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    low, high = results["train"]["window"]
    explored = results["explore"]
    with np.load(folder / "deviations.npz") as stored:
        deviations = [stored[name] for name in stored.files]
    every = np.concatenate([np.empty(0), *deviations])
    positive = every[every > 0.0]
    if len(positive):
        edges = np.geomspace(positive.min(), max(positive.max(), 1.01 * positive.min()), BINS)
        left.hist(positive, edges, color="0.5")
        left.set_xscale("log")
        picture.few_ticks(left.xaxis, edges[-1] / edges[0])
    left.axvspan(low, high, color="C2", alpha=0.2, label=f"window, {explored['chosen']} chosen")
    left.set_xlabel("largest force deviation (eV/Å)")
    left.set_ylabel("structures")
    left.legend(fontsize="small")
    path = folder / "errors.npz"
    if path.exists():
        with np.load(path) as stored:
            middle.plot(stored["deviations"], stored["errors"], ".", markersize=2, color="C0")
        middle.axline((low, low), slope=1.0, color="0.6", linewidth=0.8)
        middle.set_xscale("log")
        middle.set_yscale("log")
        for axis, (begin, end) in (
            (middle.xaxis, middle.get_xlim()),
            (middle.yaxis, middle.get_ylim()),
        ):
            picture.few_ticks(axis, end / begin)
    middle.set_xlabel("deviation of an atom (eV/Å)")
    middle.set_ylabel("error against its fresh label (eV/Å)")
    names = [one["name"] for one in explored["runs"]]
    for color, (begin, end) in {"C2": (0.0, low), "C1": (low, high), "C3": (high, np.inf)}.items():
        counts = [int(((begin <= one) & (one < end)).sum()) for one in deviations]
        offsets = [int((one < begin).sum()) for one in deviations]
        right.barh(range(len(names)), counts, left=offsets, color=color)
    right.set_yticks(range(len(names)), names, fontsize="x-small")
    right.invert_yaxis()
    right.set_xlabel("structures below, in,\nbeyond the window")
    return figure
