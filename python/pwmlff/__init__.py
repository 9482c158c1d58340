"""Machine-learned potentials stored as TorchScript, run inside LAMMPS by pair_style pwmlff.

Importing this package loads neither torch nor mpi4py: every ``lmp`` process imports it at start
(see :mod:`pwmlff.plugin`). The parts that need torch are sub-packages:

- :mod:`pwmlff.models`: model kinds in Python, to train, script and save
- :mod:`pwmlff.reference`: the plain float64 CPU reference that results are compared with
- :mod:`pwmlff.calculator`: an ase calculator, `from pwmlff import Calculator`

The `pwmlff` command is :mod:`pwmlff.cli`.
"""

__all__ = ["Calculator"]


def __getattr__(name: str) -> object:
    if name == "Calculator":
        from pwmlff.calculator import Calculator  # noqa: PLC0415  ase and torch, on first use

        return Calculator
    raise AttributeError(f"module 'pwmlff' has no attribute '{name}'")
