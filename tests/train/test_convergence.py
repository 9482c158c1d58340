"""Frames whose SCF did not converge are no labels, whoever has written them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from ase.io import iread

from labelled_structures import crystal, labelled, movement, vasprun_head
from pwmlff.data import cache, check, convergence, readers
from pwmlff.learn import labelling
from pwmlff.learn.settings import Label
from pwmlff.report import Failure

HEADER = """\
 vasp.5.4.4.18Apr17
 POTCAR:    PAW_PBE Cu 22Jun2005
 POTCAR:    PAW_PBE Cu 22Jun2005
   VRHFIN =Cu: d10 p1
   TITEL  = PAW_PBE Cu 22Jun2005
   ions per type =               2
   NWRITE =      2    write-flag & timer
   ISPIN  =      1    spin polarized calculation?
   NELM   =     {most};   NELMIN=  2; NELMDL= -5     # of ELM steps
   EDIFF  = 0.1E-05   stopping-criterion for ELM
   EDIFFG = 0.1E-04   stopping-criterion for IOM
"""
ITERATION = """\
--------------------------------------- Iteration {step:6d}({k:4d})  --------------------------
  eigenvalues    EBANDS =       {bands:.8f}
  free energy    TOTEN  =       {energy:.8f} eV
"""
REACHED = "------------------------ aborting loop because EDIFF is reached ------------------\n"
STEP = """\
  FORCE on cell =-STRESS in cart. coord.  units (eV):
  Direction    XX          YY          ZZ          XY          YZ          ZX
  --------------------------------------------------------------------------------------
  Alpha Z     0.25289     0.25289     0.25289
  Ewald      47.11630    41.60743    39.69059     2.02697     0.34861    -1.12592
  Hartree    97.04766    93.84454    93.12867     1.07345     0.64605    -0.69721
  E(xc)     -27.27366   -27.27874   -27.30472     0.01298     0.00844    -0.00959
  Local    -202.72054  -194.50428  -191.25988    -3.08584    -1.18673     1.90936
  n-local   -16.22570   -16.03784   -15.90576     0.00631     0.12203    -0.01242
  augment     0.11047     0.11708     0.10992     0.00053     0.00310    -0.00221
  Kinetic   101.83301   101.47579   101.45984    -0.51090    -0.71501     0.25060
  Fock        0.00000     0.00000     0.00000     0.00000     0.00000     0.00000
  -------------------------------------------------------------------------------------
  Total       0.10000     0.20000     0.30000     0.01000     0.02000     0.03000
  in kB       1.00000     2.00000     3.00000     0.10000     0.20000     0.30000
 VOLUME and BASIS-vectors are now :
 -----------------------------------------------------------------------------
  energy-cutoff  :      400.00
  volume of cell :       64.00
      direct lattice vectors                 reciprocal lattice vectors
     4.000000000  0.000000000  0.000000000     0.250000000  0.000000000  0.000000000
     0.000000000  4.000000000  0.000000000     0.000000000  0.250000000  0.000000000
     0.000000000  0.000000000  4.000000000     0.000000000  0.000000000  0.250000000

 POSITION                                       TOTAL-FORCE (eV/Angst)
 -----------------------------------------------------------------------------------
      0.00000      0.00000      0.00000         0.{step}00000      0.000000      0.000000
      2.00000      2.00000      2.00000        -0.{step}00000      0.000000      0.000000
 -----------------------------------------------------------------------------------
    total drift:                               -0.000923      0.001036      0.001054

  FREE ENERGIE OF THE ION-ELECTRON SYSTEM (eV)
  ---------------------------------------------------
  free  energy   TOTEN  =        {energy:.8f} eV

  energy  without entropy=       {energy:.8f}  energy(sigma->0) =       {energy:.8f}

"""
#: Iterations of each step, what the last one changed the energy and that of the bands by.
OLD = [(4, 1e-8, 1e-8), (6, 1e-3, 1e-8), (6, 1e-8, 1e-3), (6, 1e-8, 1e-8)]
CONVERGED = [True, False, False, True]


def outcar(steps, most=6, words=lambda _: REACHED):
    """As VASP writes it, in short; releases before 6 say that EDIFF is reached in any case."""
    text = HEADER.format(most=most)
    for n, (count, *last) in enumerate(steps, 1):
        for k in range(1, count + 1):
            left = [0.1 / k, 0.1 / k] if k < count else [0.1 / (k - 1) - x for x in last]
            text += ITERATION.format(step=n, k=k, energy=-6.0 - n + left[0], bands=-9.0 + left[1])
        text += words(n - 1) + STEP.format(step=n, energy=-6.0 - n)
    return text


VASPRUN_STEP = """\
 <calculation>{iterations}
  <structure>
   <crystal><varray name="basis"><v>4 0 0</v><v>0 4 0</v><v>0 0 4</v></varray></crystal>
   <varray name="positions"><v>0 0 0</v><v>0.5 0.5 0.5</v></varray>
  </structure>
  <varray name="forces"><v>0.1 0 0</v><v>-0.1 0 0</v></varray>
  <varray name="stress"><v>1 0 0</v><v>0 1 0</v><v>0 0 1</v></varray>
  <energy><i name="e_fr_energy"> {energy} </i><i name="e_0_energy"> {energy} </i></energy>
 </calculation>
"""
ITERATION_OF_XML = """
  <scstep><energy><i name="e_fr_energy"> {0} </i><i name="e_0_energy"> {0} </i></energy></scstep>"""


def vasprun(counts, most=3):
    steps = "".join(
        VASPRUN_STEP.format(
            energy=-7.0 - n,
            iterations="".join(
                ITERATION_OF_XML.format(-7.0 - n + 0.1 / k) for k in range(count, 0, -1)
            ),
        )
        for n, count in enumerate(counts)
    )
    return f"{vasprun_head(most)}{steps}</modeling>\n"


ESPRESSO_HEADER = """\
     Program PWSCF v.6.7MaX starts on  1Feb2021 at 22:29:45
     bravais-lattice index     =            1
     lattice parameter (alat)  =       7.6000  a.u.
     unit-cell volume          =     438.9760 (a.u.)^3
     number of atoms/cell      =            2
     number of atomic types    =            1
     celldm(1)=   7.600000  celldm(2)=   0.000000  celldm(3)=   0.000000
     celldm(4)=   0.000000  celldm(5)=   0.000000  celldm(6)=   0.000000

     crystal axes: (cart. coord. in units of alat)
               a(1) = (   1.000000   0.000000   0.000000 )
               a(2) = (   0.000000   1.000000   0.000000 )
               a(3) = (   0.000000   0.000000   1.000000 )

     site n.     atom                  positions (alat units)
         1           Al  tau(   1) = (   0.0000000   0.0000000   0.0000000  )
         2           Al  tau(   2) = (   0.5000000   0.5000000   0.5000000  )

"""
ESPRESSO_STEP = """\
{mark}    total energy              =     -21.{n}0000000 Ry

     convergence {said}

     Forces acting on atoms (cartesian axes, Ry/au):

     atom    1 type  1   force =     0.0{n}000000    0.00000000    0.00000000
     atom    2 type  1   force =    -0.0{n}000000    0.00000000    0.00000000

"""
ESPRESSO_POSITIONS = """\
ATOMIC_POSITIONS (angstrom)
Al            0.{n}00000000        0.0000000000        0.0000000000
Al            2.0000000000        2.0000000000        2.0000000000

"""


def espresso(converged):
    """A run of dynamics that went on with scf_must_converge = .false."""
    text = ESPRESSO_HEADER
    for n, good in enumerate(converged, 1):
        said = (
            "has been achieved in   8 iterations" if good else "NOT achieved after 100 iterations"
        )
        text += ESPRESSO_POSITIONS.format(n=n) * (n > 1)
        text += ESPRESSO_STEP.format(n=n, mark="!" if good else " ", said=said)
    return text


WORDS = {
    "of old": lambda _: REACHED,
    "of 6": lambda k: (
        REACHED
        if CONVERGED[k]
        else "------------------------ aborting loop EDIFF was not reached (unconverged)  ----\n"
    ),
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("reader", ["vasp-out", "dpdata:vasp/outcar"])
def test_outcar(tmp_path, caplog, words, reader):
    """At the last allowed iteration both energies tell, as the words do only since VASP 6."""
    if reader.startswith("dpdata"):
        pytest.importorskip("dpdata")
    path = tmp_path / "OUTCAR"
    path.write_text(outcar(OLD, words=WORDS[words]))
    frames = readers.read(path, reader)
    assert frames.energies.tolist() == [-7.0, -10.0] and frames.index.tolist() == [0, 3]
    assert frames.forces[:, 0].tolist() == [0.1, -0.1, 0.4, -0.4]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"'{path}' has 2 of 4 frames whose SCF did not converge: 1-2" in warning
    assert "left out; --keep-unconverged takes them" in warning
    caplog.clear()
    every = readers.read(path, reader, keep_unconverged=True)
    assert every.energies.tolist() == [-7.0, -8.0, -9.0, -10.0]
    assert "1-2; they are taken all the same" in caplog.text
    assert readers.read(f"{path}@1:", reader).energies.tolist() == [-10.0]
    with pytest.raises(Failure, match=r"none of 2 frames of .* has a converged SCF.*--keep-unconv"):
        readers.read(f"{path}@1:3", reader)
    # The same as ase's own reader has, where all have converged.
    path.write_text(outcar(OLD[:1] + OLD[3:]))
    own = readers.read(path, reader)
    theirs = [atoms.get_potential_energy() for atoms in iread(path, format="vasp-out")]
    assert own.energies.tolist() == theirs == [-7.0, -8.0]


def test_an_outcar_that_ase_does_not_read(tmp_path):
    """One with a dispersion correction has more words beside each energy."""
    pytest.importorskip("dpdata")
    path = tmp_path / "OUTCAR"
    words = " eV    w/o vdW =       -6.50000000"
    text = outcar(OLD[:1])
    text = text.replace("  energy(sigma->0)", words + "  energy(sigma->0)")
    path.write_text(text.replace(" eV\n\n  energy  without", words + "\n\n  energy  without"))
    with pytest.raises(Failure, match=r"ase cannot read frame 0 .*try --format dpdata:vasp/outcar"):
        readers.read(path)
    assert readers.read(path, "dpdata:vasp/outcar").energies.tolist() == [-7.0]


@pytest.mark.parametrize("reader", ["vasp-xml", "dpdata:vasp/xml"])
def test_vasprun(tmp_path, caplog, reader):
    if reader.startswith("dpdata"):
        pytest.importorskip("dpdata")
    path = tmp_path / "vasprun.xml"
    path.write_text(vasprun([2, 3, 1]))
    assert readers.read(path, reader).energies.tolist() == [-7.0, -9.0]
    assert "has 1 of 3 frames whose SCF did not converge: 1;" in caplog.text
    assert len(readers.read(path, reader, keep_unconverged=True)) == 3


def test_quantum_espresso(tmp_path, caplog):
    path = tmp_path / "pw.out"
    path.write_text(espresso([True, False, True]))
    frames = readers.read(path, "espresso-out")
    assert frames.index.tolist() == [0, 2] and not np.isnan(frames.energies).any()
    assert "has 1 of 3 frames whose SCF did not converge: 1;" in caplog.text
    # Forces of the other are there, and would be labels.
    every = readers.read(path, "espresso-out", keep_unconverged=True)
    assert np.isnan(every.energies).tolist() == [False, True, False]
    assert not np.isnan(every.forces).any()


def test_movement(tmp_path, caplog):
    """Iterations as many as PWmat allows by itself, 100 at first and 40 in later steps."""
    atoms = labelled(crystal())
    path = tmp_path / "MOVEMENT"
    frames = [(0.0, 40), (0.0, 100), (1.0, 39), (2.0, 40), (3.0, 41), (4.0, 100)]
    path.write_text(
        "".join(
            movement(atoms, t).replace("SCF =     9", f"SCF = {count:5d}") for t, count in frames
        )
    )
    assert readers.read(path).index.tolist() == [0, 2, 4]
    assert "has 3 of 6 frames whose SCF did not converge: 1, 3, 5" in caplog.text


@pytest.mark.parametrize(
    "kind, text, expected",
    [
        (
            "dpdata:cp2k/output",
            "  *** SCF run converged in    13 steps ***\n ENERGY| Total FORCE_EVAL ( QS ) energy\n"
            "  *** SCF run NOT converged ***\n ENERGY| Total FORCE_EVAL ( QS ) energy [hartree]\n"
            "  *** SCF run NOT converged ***\n  outer SCF iter =    1 RMS gradient =   0.10E-05\n"
            "  *** SCF run converged in     5 steps ***\n"
            "  outer SCF loop converged in   2 iterations or   25 steps\n ENERGY| Total FORCE_EVAL"
            "\n"
            "  *** SCF run converged in     5 steps ***\n"
            "  outer SCF loop FAILED to converge after   2 iterations or   40 steps\n"
            " ENERGY| Total FORCE_EVAL ( QS ) energy [a.u.]:  -34.49\n",
            [True, False, True, False],
        ),
        (
            "aims-output",
            "          Begin self-consistency loop: Initialization.\n"
            "  Self-consistency cycle converged.\n"
            "  | Total energy corrected        :  -0.3E+04 eV\n"
            "          Begin self-consistency loop: Re-initialization.\n"
            "  Self-consistency cycle not yet converged - restarting mixer to attempt better\n"
            "  | Total energy corrected        :  -0.3E+04 eV\n"
            "          Begin self-consistency loop: Re-initialization.\n",  # cut off
            [True, False],
        ),
        (
            "gaussian-out",
            " SCF Done:  E(RB3LYP) =  -40.5     A.U. after    9 cycles\n"
            " >>>>>>>>>> Convergence criterion not met.\n"
            " SCF Done:  E(RB3LYP) =  -40.4     A.U. after  129 cycles\n",
            [True, False],
        ),
        (
            "orca-output",
            "       *           SCF CONVERGED AFTER  13 CYCLES          *\n"
            "       *        SCF NOT CONVERGED AFTER 125 CYCLES         *\n"
            "FINAL SINGLE POINT ENERGY (Wavefunction not fully converged!)   -76.3\n",
            [True, False],
        ),
        (
            "dpdata:siesta/output",
            "SCF cycle converged after   12 iterations\n"
            "SCF_NOT_CONV: SCF did not converge  in maximum number of steps (required).\n",
            [True, False],
        ),
        (
            "castep-castep",
            " Final energy, E             =  -216.0     eV\n"
            " *Warning* max. SCF cycles performed but system has not reached the groundstate.\n"
            " Final energy, E             =  -215.0     eV\n",
            [True, False],
        ),
    ],
)  # fmt: skip
def test_words_of_other_programs(tmp_path, kind, text, expected):
    (tmp_path / "out").write_text(text)
    assert convergence.outcomes(tmp_path / "out", kind) == expected


def test_abacus(tmp_path):
    """Of the folder of a run; dpdata leaves such frames out by itself, which is told."""
    (tmp_path / "INPUT").write_text("INPUT_PARAMETERS\nsuffix  mine\ncalculation md\n")
    folder = tmp_path / "OUT.mine"
    folder.mkdir()
    (folder / "running_md.log").write_text(
        " charge density convergence is achieved\n !! convergence has not been achieved @_@\n"
        " #SCF IS CONVERGED#\n"
    )
    (folder / "running_scf.log").write_text(" convergence has NOT been achieved!\n")
    good = convergence.outcomes(tmp_path, "dpdata:abacus/lcao/md")
    assert good == [True, False, True]
    with pytest.raises(Failure, match=r"none of 1 frames of .* has a converged SCF"):
        readers.read(tmp_path, "dpdata:abacus/scf")
    own = [readers.Labelled(*[np.zeros((1, 3))] * 4, index=k) for k in range(2)]
    kept = list(readers._judged(own, good, tmp_path, drops=True))
    assert len(kept) == 2 and "stands beside 1 whose SCF did not" in kept[0].odd[0]
    with pytest.raises(Failure, match=r"3 steps, 1 of .* finds 2 frames, expected as many"):
        list(readers._judged(own, good, tmp_path, drops=False))


def test_where_data_are_read(tmp_path, caplog):
    """In a check, a training's cache and the labels of a learning loop."""
    path = tmp_path / "OUTCAR"
    path.write_text(outcar(OLD))
    report = check.check([str(path)])
    assert any("2 of 4 frames whose SCF did not" in problem.text for problem in report.problems)
    assert check.check([str(path)], keep_unconverged=True).counts["files"][str(path)]["frames"] == 4
    options = {"elements": [29], "cutoff": 3.0, "cache": tmp_path / "cache"}
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert len(cache.load(path, **options)[0]) == 2
        assert "2 of 4 frames whose SCF did not converge" in caplog.text
    assert len(cache.load(path, keep_unconverged=True, **options)[0]) == 4

    place = tmp_path / "00000"
    place.mkdir()
    how = Label(command="vasp", output="OUTCAR")
    copper = readers.read(path).atoms(0)
    for steps, good in ((OLD[:1], True), (OLD[:2], False)):  # the last step is the label
        (place / "OUTCAR").write_text(outcar(steps))
        if good:
            labelling.write_result(copper, how, place)
            assert readers.read(tmp_path / "00000.extxyz").energies.tolist() == [-7.0]
        else:
            with pytest.raises(Failure, match="has a converged SCF"):
                labelling.write_result(copper, how, place)
