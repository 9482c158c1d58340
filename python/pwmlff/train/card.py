"""What a trained model file carries for people: data, errors, versions, configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ase.data import chemical_symbols

from pwmlff.data.frames import Frames
from pwmlff.models.saving import origin
from pwmlff.train.config import Config
from pwmlff.train.errors import UNITS, Errors


def make(
    config: Config,
    train: Frames,
    valid: Frames | None = None,
    *,
    train_errors: Errors | None = None,
    valid_errors: Errors | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The card of a model.

    Args:
        config: that it was trained by.
        train, valid: structures that it learned from and was validated with.
        train_errors, valid_errors: its errors on them.
        more: plain values, like step=1000.
    """
    return {
        **origin(),
        "units": config.model.units,
        "data": {"train": _described(train), "valid": _described(valid)},
        "errors": {
            "reported_in": UNITS[config.model.units].reported_in,
            "train": _measures(train_errors),
            "valid": _measures(valid_errors),
        },
        "configuration": asdict(config),
        **more,
    }


def _described(frames: Frames | None) -> dict[str, Any] | None:
    if frames is None:
        return None
    return {
        "sha256": frames.fingerprint,
        "frames": len(frames),
        "atoms": len(frames.numbers),
        "elements": [chemical_symbols[z] for z in frames.elements],
        "files": list(frames.files),
        "groups": {name: count for name, count in frames.group_sizes.items() if count},
    }


def _measures(errors: Errors | None) -> dict[str, dict[str, float]] | None:
    if errors is None:
        return None
    return {q: {"rmse": m.rmse, "mae": m.mae} for q, m in errors.measures.items()}
