"""The models of MACE that standard_cases.py times on a GPU, whose machine may have no MACE.

    python benchmarks/mace_models.py PYTHON FOLDER

PYTHON has mace-torch; FOLDER gets a converted model of each shape of standard_cases.MACE.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from families import make
from pwmlff.convert import convert
from standard_cases import MACE, model_file

#: Their names in other_programs.py.
FAMILIES = {
    "MACE 32x0e+32x1o": "MACE",
    "MACE 128x0e": "MACE, 128x0e",
    "MACE 128x0e+128x1o": "MACE, 128x0e + 128x1o",
}


def main() -> None:
    """Make and convert."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        made = make([FAMILIES[system] for system in MACE], options.python, Path(name))
        for system in MACE:
            source, _ = made[FAMILIES[system]]
            report = convert(source, options.folder / model_file(system))
            print(f"{system}: {report.engine}")


if __name__ == "__main__":
    main()
