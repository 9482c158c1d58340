"""Model kinds of this package; each scripts to TorchScript, saves and loads."""

from pwmlff.models.dp import DP, DPConfig, DPInputs, pad_neighbors

__all__ = ["DP", "DPConfig", "DPInputs", "pad_neighbors"]
