"""Machine-learned potentials stored as TorchScript, run inside LAMMPS by pair_style pwmlff.

Importing this package loads neither torch nor mpi4py: every ``lmp`` process imports it at start
(see :mod:`pwmlff.plugin`). The parts that need torch are sub-packages:

- :mod:`pwmlff.models`: model kinds in Python, to train, script and save
- :mod:`pwmlff.reference`: the plain float64 CPU reference that results are compared with
"""
