"""What each step of training does with a whole gradient: kernels/optimizer/steps.h and muon.h.

Equal numbers give equal bits on all processors, and whatever the number of threads and ranks.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from pwmlff import plugin


class AdamConstants(ctypes.Structure):
    """Constants of a step of Adam, as the header has them."""

    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in ("beta1", "beta2", "eps", "shrink", "factor", "rate", "root")
    )


class MuonConstants(ctypes.Structure):
    """Constants of a step of Muon, as the header has them."""

    _fields_ = tuple((name, ctypes.c_double) for name in ("beta", "shrink", "factor", "rate"))


@functools.cache
def library() -> ctypes.CDLL:
    """Open what is compiled.

    Raises:
        ImportError: nothing is.
    """
    lib = plugin.open_library("pwmlff_optimizer", "train")
    lib.pwmlff_square.restype = ctypes.c_double
    return lib


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Where an array begins."""
    return ctypes.c_void_p(array.ctypes.data)


def adam(
    x: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, constants: AdamConstants
) -> None:
    """Change x, m and v in place; all are contiguous float64 [n]."""
    arrays = (pointer(a) for a in (x, gradient, m, v))
    library().pwmlff_adam_step(ctypes.c_int64(x.size), *arrays, ctypes.byref(constants))


def muon(
    places: np.ndarray,
    old: np.ndarray,
    gradient: np.ndarray,
    m: np.ndarray,
    x: np.ndarray,
    constants: MuonConstants,
) -> None:
    """Change the matrices in x; all are contiguous float64 [n], places int64 [nmatrices, 3]."""
    arrays = (pointer(a) for a in (places, old, gradient, m, x))
    library().pwmlff_muon_step(ctypes.c_int64(len(places)), *arrays, ctypes.byref(constants))


def orthogonal(matrix: np.ndarray) -> np.ndarray:
    """U D V^T of contiguous float64 U S V^T, with numbers of about 1 in D: muon.h."""
    rows, columns = matrix.shape
    result = np.empty_like(matrix)
    arrays = (pointer(matrix), pointer(result))
    library().pwmlff_orthogonal(ctypes.c_int64(rows), ctypes.c_int64(columns), *arrays)
    return result


def average(path: np.ndarray, x: np.ndarray, decay: float) -> None:
    """Let path = decay path + (1 - decay) x, in place; both are contiguous float64 [n]."""
    arrays = (pointer(path), pointer(x))
    library().pwmlff_average(ctypes.c_int64(x.size), *arrays, ctypes.c_double(decay))


def square(x: np.ndarray) -> float:
    """Sum of the squares of contiguous float64 [n]."""
    return float(library().pwmlff_square(ctypes.c_int64(x.size), pointer(x)))


def sum_rows(rows: np.ndarray) -> np.ndarray:
    """Add rows [nrows, n], float32 or float64, nrows > 0, in float64 in the order of a binary tree.

    Neighbors are added in pairs, then pairs of these; a row without a neighbor goes on as it is.
    """
    rows = np.ascontiguousarray(rows)
    nrows, n = rows.shape
    total = np.empty(n)
    kind = "float" if rows.dtype == np.float32 else "double"
    add = getattr(library(), f"pwmlff_sum_rows_{kind}")
    add(ctypes.c_int64(nrows), ctypes.c_int64(n), pointer(rows), pointer(total))
    return total
