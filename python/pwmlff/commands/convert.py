"""`pwmlff convert`: a model file of another program as one that pair_style pwmlff runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pwmlff.report import Report


def convert(
    model: Annotated[Path, Argument(help="Model file of another program.")],
    output: Annotated[Path, Option("--output", "-o", help="Model file to write.")],
    compile: Annotated[
        bool,
        Option(
            "--compile",
            help="Add machine code, for CPUs like this one, and compare its speed; kind EDGE.",
        ),
    ] = False,
    head: Annotated[
        str, Option(help="Head of a MACE .model, or modality of a SevenNet, that has several.")
    ] = "",
    charge: Annotated[
        int | None,
        Option(help="Charge of the whole system, e, for a MACE .model that embeds it."),
    ] = None,
    spin: Annotated[
        int | None,
        Option(
            help="Spin of the whole system, for a MACE .model that embeds it, as its data have it: "
            "of OMol25 the multiplicity 2S + 1."
        ),
    ] = None,
    active_set: Annotated[
        Path | None,
        Option(
            help="Active set (.asi) of a .yaml of pacemaker or GRACE/FS: the file that is written "
            "tells the extrapolation grade gamma."
        ),
    ] = None,
    elements: Annotated[
        str,
        Option(
            help="Symbols of those of many elements that will be simulated together: lmp then runs "
            "them in the fused engine without loading torch."
        ),
    ] = "",
) -> Report:
    """Make a model file of another program one that pair_style pwmlff runs.

    Says what the file is and proves what it writes against the code of the original; that program
    need not be installed. MatPL, PWMLFF: the .ckpt of a training of a DP, or of a NEP, which
    becomes a nep5.txt. DeePMD-kit: a frozen .pth of se_e2_a, se_atten (DPA-1) or another local
    one. MACE: -lammps.pt. NequIP, Allegro: .nequip.pth. SevenNet: deployed_serial.pt. With the
    commands of MACE, NequIP or SevenNet on the PATH also a .model, a .nequip.zip, a .ckpt and a
    checkpoint .pth. With a Python that has chgnet on the PATH, a .pth.tar of CHGNet; with one that
    has python-ace, the .yaml of pacemaker. A file that needs none of this is copied.

    Example: pwmlff convert graph.pth -o a.pt
    """
    from pwmlff.convert import conversion

    symbols = elements.split()
    return conversion.convert(
        model, output, compiled=compile, head=head, charge=charge, spin=spin,
        active_set=active_set or "", elements=symbols,
    )  # fmt: skip
