"""Model kinds of this package; each scripts to TorchScript, saves and loads."""

from pwmlff.evaluation.padding import DPInputs, pad_neighbors
from pwmlff.models.dp import DP, DPConfig
from pwmlff.models.saving import save_model

__all__ = ["DP", "DPConfig", "DPInputs", "pad_neighbors", "save_model"]
