"""What a model file says of itself."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from ase.data import chemical_symbols

from pwmlff.report import Failure

#: Attributes that hold the cutoff and the largest number of neighbours of one element, by kind.
LIMITS = {"DP": ("Rmax", "maxNeighborNum"), "EDGE": ("cutoff", None)}


@dataclass(frozen=True)
class ModelInfo:
    """Attributes of a model file; lengths in angstrom, or reduced where units is "lj"."""

    file: str
    sha256: str
    bytes: int
    kind: str
    units: str
    atom_type: tuple[int, ...]  # atomic numbers, in the order of the model's types
    cutoff: float
    interaction_range: float  # beyond the cutoff where messages are passed
    max_neighbor: int | None  # of one element; None where the kind has no limit
    nparameters: int
    dtype: str  # of the parameters
    sizes: dict[str, Any] = field(default_factory=dict)  # widths of the networks of a DP

    @property
    def elements(self) -> list[str]:
        """Chemical symbols, in the order of the model's types."""
        return [chemical_symbols[z] for z in self.atom_type]


def load(path: str | PathLike[str]) -> torch.jit.ScriptModule:
    """Load a TorchScript file on the CPU.

    Raises:
        Failure: there is no such file, or torch cannot load it.
    """
    path = fspath(path)
    if not Path(path).is_file():
        raise Failure(f"found no model file '{path}'")
    with contextlib.suppress(ImportError):
        import pwmlff.kernels  # noqa: F401, PLC0415  older exports call ops that it brings
    try:
        with warnings.catch_warnings():
            # The files are TorchScript: that torch has other formats by now is no news to users.
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(path, "cpu").eval()
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Failure(
            f"'{path}' cannot be loaded: {reason}; expected a file saved by torch.jit.save"
        ) from error


def describe(path: str | PathLike[str], module: torch.jit.ScriptModule) -> ModelInfo:
    """Read the attributes of a loaded file.

    Raises:
        Failure: the kind is unknown or an attribute is missing.
    """
    path = fspath(path)
    kind = getattr(module, "model_type", "DP")  # older DP files do not say
    if kind not in LIMITS:
        raise Failure(f"'{path}' is of model_type '{kind}', expected {' or '.join(LIMITS)}")
    cutoff, limit = LIMITS[kind]
    needed = [name for name in (cutoff, limit, "atom_type") if name]
    missing = [name for name in needed if not hasattr(module, name)]
    if missing:
        raise Failure(f"'{path}' has no attribute {', '.join(missing)}; a {kind} model needs it")
    contents = Path(path).read_bytes()
    parameters = dict(module.named_parameters())
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in parameters.values()})
    return ModelInfo(
        file=path,
        sha256=hashlib.sha256(contents).hexdigest(),
        bytes=len(contents),
        kind=kind,
        units=getattr(module, "units", "metal"),
        atom_type=tuple(int(z) for z in module.atom_type),
        cutoff=float(getattr(module, cutoff)),
        interaction_range=float(getattr(module, "interaction_range", getattr(module, cutoff))),
        max_neighbor=int(getattr(module, limit)) if limit else None,
        nparameters=sum(p.numel() for p in parameters.values()),
        dtype=", ".join(dtypes) or "none",
        sizes=_sizes(module, parameters) if kind == "DP" else {},
    )


def _sizes(module: torch.jit.ScriptModule, parameters: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Widths of the first embedding and fitting net, and the axis width."""
    sizes: dict[str, Any] = {}
    for net in ("embedding", "fitting"):
        widths: list[int] = []
        while (name := f"{net}_net.0.layers.{len(widths)}.weight") in parameters:
            widths.append(parameters[name].shape[-1])
        sizes[net] = widths
    sizes["m2"] = int(module.M2) if hasattr(module, "M2") else None
    return sizes


def ensemble_conflicts(models: list[ModelInfo]) -> list[str]:
    """What keeps files from being an ensemble: other elements, cutoff or units than the first."""
    first = models[0]
    conflicts = []
    for other in models[1:]:
        for what in ("elements", "cutoff", "units"):
            found, expected = getattr(other, what), getattr(first, what)
            if found != expected:
                conflicts.append(
                    f"{what}: '{other.file}' has {_text(found)}, '{first.file}' has "
                    f"{_text(expected)}"
                )
    return conflicts


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
