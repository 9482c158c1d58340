"""Machine-learned potentials stored as TorchScript, run inside LAMMPS by pair_style pwmlff.

Importing this package loads neither torch nor mpi4py: every ``lmp`` process imports it at start
(see :mod:`pwmlff.plugin`). The parts that need torch are sub-packages:

- :mod:`pwmlff.models`: model kinds in Python, to train, script and save
- :mod:`pwmlff.evaluation.reference`: the plain float64 CPU reference that results are compared with
- :mod:`pwmlff.evaluation.calculator`: an ase calculator, `from pwmlff import Calculator`
- :mod:`pwmlff.evaluation.many`: many structures over threads, `from pwmlff import evaluate`
- :mod:`pwmlff.train`: training, `from pwmlff.train import train`

The `pwmlff` command is :mod:`pwmlff.cli`; `pwmlff.__version__` is the release.
"""

__all__ = ["Calculator", "__version__", "evaluate"]


def __getattr__(name: str) -> object:
    if name == "Calculator":
        from pwmlff.evaluation.calculator import Calculator  # noqa: PLC0415  ase and torch, on first use

        return Calculator
    if name == "evaluate":
        from pwmlff.evaluation.many import evaluate  # noqa: PLC0415  likewise

        return evaluate
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  takes longer than all else here

        return version("pair-pwmlff")
    raise AttributeError(f"module 'pwmlff' has no attribute '{name}'")
