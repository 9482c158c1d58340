"""What each step of training does with a whole gradient: kernels/optimizer/steps.h and muon.h.

Equal numbers give equal bits on all processors, and whatever the number of threads and ranks.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

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


def call(function: str, *arguments: Any) -> Any:
    """Call pwmlff_FUNCTION with integers (int64_t), numbers (double), arrays and structures."""
    return getattr(library(), f"pwmlff_{function}")(*map(_passed, arguments))


def _passed(value: Any) -> Any:
    match value:
        case np.ndarray():
            return ctypes.c_void_p(value.ctypes.data)
        case int() | np.integer():
            return ctypes.c_int64(int(value))
        case float():
            return ctypes.c_double(value)
    return ctypes.byref(value)


def orthogonal(matrix: np.ndarray) -> np.ndarray:
    """U D V^T of contiguous float64 U S V^T, with numbers of about 1 in D: muon.h."""
    result = np.empty_like(matrix)
    call("orthogonal", *matrix.shape, matrix, result)
    return result


def average(path: np.ndarray, x: np.ndarray, decay: float) -> None:
    """Let path = decay path + (1 - decay) x, in place; both are contiguous float64 [n]."""
    call("average", x.size, path, x, float(decay))


def square(x: np.ndarray) -> float:
    """Sum of the squares of contiguous float64 [n]."""
    return float(call("square", x.size, x))


def sum_rows(rows: np.ndarray) -> np.ndarray:
    """Add rows [nrows, n], float32 or float64, nrows > 0, in float64 in the order of a binary tree.

    Neighbors are added in pairs, then pairs of these; a row without a neighbor goes on as it is.
    """
    rows = np.ascontiguousarray(rows)
    total = np.empty(rows.shape[1])
    kind = "float" if rows.dtype == np.float32 else "double"
    call(f"sum_rows_{kind}", *rows.shape, rows, total)
    return total
