"""Plain float64 PyTorch evaluation of model files: what every other engine is compared with."""

from pwmlff.evaluation.reference.core import Result, evaluate

__all__ = ["Result", "evaluate"]
