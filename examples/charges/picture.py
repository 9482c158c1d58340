"""Draw what make_model.py leaves in its folder: forces, charges and the infrared spectrum.

python examples/charges/picture.py --folder charges --out docs/charges.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ase.io import read
from matplotlib.figure import Figure
from scipy.constants import speed_of_light
from scipy.signal import periodogram

from pwmlff import Calculator

STEP = 0.002  # ps, between two rows of current.txt
WIDTH = 10.0  # 1/cm, of the spectrum's lines


def spectrum(current: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wave numbers in 1/cm, and the power of a current [steps, 3], added up and smoothed.

    The absorption is proportional to it where the quantum correction is that of a harmonic
    oscillator (Ramirez et al. 2004, doi:10.1063/1.1774986).
    """
    frequency, power = periodogram(current, fs=1e12 / STEP, axis=0, window="hann")
    wave = frequency / (100.0 * speed_of_light)
    kernel = np.exp(-0.5 * ((wave - wave[len(wave) // 2]) / WIDTH) ** 2)
    return wave, np.convolve(power.sum(axis=1), kernel / kernel.sum(), mode="same")


def draw(folder: Path) -> Figure:
    """Three panels."""
    figure = Figure(figsize=(10.0, 3.1), layout="constrained")
    parity, charges, infrared = figure.subplots(1, 3)

    frames = read(folder / "unseen.extxyz", ":")
    labels = np.concatenate([atoms.get_forces() for atoms in frames])
    found: dict[str, np.ndarray] = {}
    for name, color in (("without", "C1"), ("with", "C0")):
        calculator = Calculator(folder / name / "best.txt")
        forces = np.concatenate([calculator.get_property("forces", atoms) for atoms in frames])
        error = 1000.0 * np.sqrt(((forces - labels) ** 2).mean())
        parity.plot(
            labels.ravel(), (forces - labels).ravel(), ".", color=color, markersize=1.0,
            rasterized=True, label=f"{name} charges, RMSE {error:.0f} meV/Å",
        )  # fmt: skip
    parity.set(title="unseen frames", xlabel="force, label (eV/Å)", ylabel="error (eV/Å)")
    parity.legend(fontsize="small", markerscale=8)

    for atoms in frames:
        values = calculator.get_property("charges", atoms)
        born = calculator.get_property("born_effective_charges", atoms)
        for z, own, dynamic in zip(atoms.symbols, values, born, strict=True):
            found.setdefault(f"{z}, charge", []).append(own)
            found.setdefault(f"{z}, Born", []).append(np.trace(dynamic) / 3)
    for label, values in found.items():
        charges.hist(values, bins=40, density=True, histtype="step", label=label)
    for formal in (-2.0, 4.0):
        charges.axvline(formal, color="0.7", linewidth=0.8)
    charges.set(title="charges; lines: the teacher's", xlabel="charge (e)", yticks=[])
    charges.legend(fontsize="small")

    current = np.loadtxt(folder / "current.txt")[:, 1:]
    wave, power = spectrum(current)
    infrared.plot(wave, power / power.max())
    infrared.set(title="infrared, 300 K", xlabel="wave number (1/cm)", xlim=(0, 1000), yticks=[])
    infrared.set_ylabel("absorption (arbitrary units)")
    return figure


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default="charges", help="what make_model.py made")
    parser.add_argument("--out", type=Path, default="charges.png", help="picture to write")
    options = parser.parse_args()
    draw(options.folder).savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
