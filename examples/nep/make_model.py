"""A nep.txt of argon, with the energies of a pair potential: python examples/nep/make_model.py.

One radial function, one neuron, no angular part: E_i = tanh(s q)/s with q the sum of g(r) over the
neighbors, and s so small that tanh is its argument. g is half of a Lennard-Jones energy, shifted to
zero at the cutoff (epsilon/k = 120 K, sigma = 3.4 angstrom), as well as 12 Chebyshev polynomials
and the cutoff function of a NEP have it. The form of the file is in docs/nep.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.polynomial.chebyshev import chebvander

CUTOFF, TERMS = 8.0, 12  # angstrom, and Chebyshev polynomials
EPSILON, SIGMA = 0.01034, 3.4  # eV, angstrom
SMALL = 1e-3


def basis(r: np.ndarray) -> np.ndarray:
    """f_k(r), [n, TERMS]."""
    t = r / CUTOFF
    smooth = 0.5 * (1 + np.cos(np.pi * t))
    return 0.5 * smooth[:, None] * (1 + chebvander(2 * (t - 1) ** 2 - 1, TERMS - 1))


def lennard_jones(r: np.ndarray) -> np.ndarray:
    """Energy of a pair, eV."""
    return 4 * EPSILON * ((SIGMA / r) ** 12 - (SIGMA / r) ** 6)


def main() -> None:
    """Fit g and write the file beside this one."""
    r = np.linspace(2.7, CUTOFF, 2000)
    energy = lennard_jones(r) - lennard_jones(CUTOFF)
    weight = EPSILON / (EPSILON + abs(energy))
    c, *_ = np.linalg.lstsq(weight[:, None] * basis(r), weight * energy / 2, rcond=1e-8)
    near = r > 0.95 * SIGMA
    error = abs(2 * basis(r) @ c - energy)[near].max()
    print(f"largest error of a pair beyond {0.95 * SIGMA:.2f} angstrom: {1000 * error:.3f} meV")
    head = f"nep4 1 Ar|cutoff {CUTOFF} 4 500 200|n_max 0 0|basis_size {TERMS - 1} 0"
    head += "|l_max 0 0 0|ANN 1 0"
    numbers = [SMALL, 0.0, 1 / SMALL, 0.0, *c, 1.0]  # w0, b0, w1, bias, c, q_scaler
    text = "\n".join([*head.split("|"), *(f"{number:.15e}" for number in numbers), ""])
    Path(__file__).with_name("nep.txt").write_text(text)


if __name__ == "__main__":
    main()
