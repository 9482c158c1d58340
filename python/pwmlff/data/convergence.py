"""Which steps of a program's output have a converged SCF, as its own words tell.

The energy and the forces of a step whose SCF was given up are no labels, and programs write them
all the same. What they write beside them is looked for here, line by line.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path

from ase.io.formats import open_with_compression

#: What is said of a step: `good` or `bad`, of a step of its own, or of all that ends with `end`;
#: after `begin` a step is bad until it is said to be good.
ABACUS = re.compile(
    "(?P<good>charge density convergence is achieved|SCF IS CONVERGED)"
    "|(?P<bad>convergence has (?:not|NOT) been achieved|SCF IS NOT CONVERGED)"
)
AIMS = re.compile(
    r"(?P<good>Self-consistency cycle converged\.)|(?P<begin>Begin self-consistency loop)"
    r"|(?P<end>\| Total energy corrected)"
)
CASTEP = re.compile("(?P<bad>has not reached the groundstate)|(?P<end>Final energy)")
CP2K = re.compile(
    "(?P<good>SCF run converged in|outer SCF loop converged in)"
    r"|(?P<bad>SCF run NOT converged|outer SCF loop FAILED)|(?P<end>ENERGY\| Total FORCE_EVAL)"
)
ESPRESSO = re.compile("(?P<good>convergence has been achieved)|(?P<bad>convergence NOT achieved)")
GAUSSIAN = re.compile("(?P<bad>Convergence criterion not met)|(?P<end>SCF Done:)")
ORCA = re.compile("(?P<good>SCF CONVERGED AFTER)|(?P<bad>SCF NOT CONVERGED AFTER)")
SIESTA = re.compile("(?P<good>SCF cycle converged)|(?P<bad>SCF_NOT_CONV)")
FAILED = re.compile(
    "(?P<bad>was not enough (?:scf|SCF) cycles to converge|Calculation failed to converge)"
)
OUTCAR = re.compile(
    r"\bNELM\s*=\s*(?P<most>\d+)|\bEDIFF\s*=\s*(?P<goal>\S+)|Iteration\s+\d+\(\s*(?P<step>\d+)\)"
    r"|(?P<bad>EDIFF was not reached)|EBANDS\s*=\s*(?P<bands>\S+)"
    r"|free energy\s+TOTEN\s*=\s*(?P<energy>\S+)"
    r"|(?P<end>free  energy\s+TOTEN)"
)


def outcomes(path: Path, kind: str) -> list[bool]:
    """Whether the SCF of each step of a file converged; empty where nothing is known.

    Args:
        path: the file, or the folder of ABACUS or CP2K.
        kind: its format, as ase calls it, or `dpdata:` and dpdata's name.
    """
    name = kind.removeprefix("dpdata:")
    if name in {"vasp-xml", "vasp/xml", "xml"}:
        return _vasprun_converged(path)
    read = next((how for names, how in FORMATS if re.fullmatch(names, name)), None)
    if read is None:
        return []
    result: list[bool] = []
    for file in _files(path, name):
        with (
            open_with_compression(str(file), "rb") as raw,
            TextIOWrapper(raw, encoding="utf-8", errors="replace") as lines,
        ):
            result += read(lines)
    return result


def _files(path: Path, name: str) -> list[Path]:
    """The files of a folder that tell, or the file itself."""
    if not path.is_dir():
        return [path]
    if name.startswith("cp2k"):
        return sorted(path.glob("*.log"))
    if not name.startswith("abacus"):
        return [path / "OUTCAR"] if (path / "OUTCAR").is_file() else []
    text = (path / "INPUT").read_text(errors="replace") if (path / "INPUT").is_file() else ""
    suffix = re.search(r"^\s*suffix\s+(\S+)", text, re.MULTILINE)
    folder = path / f"OUT.{suffix[1] if suffix else 'ABACUS'}"
    return sorted(folder.glob(f"running_*{name.rpartition('/')[2]}.log"))


def _reader(rule: re.Pattern[str]) -> Callable[[Iterable[str]], list[bool]]:
    def read(lines: Iterable[str]) -> list[bool]:
        result: list[bool] = []
        good = True
        for word in _words(rule, lines):
            if word.lastgroup == "end":
                result.append(good)
                good = True
                continue
            good = word.lastgroup == "good"
            if "end" not in rule.groupindex:
                result.append(good)
        return result

    return read


def _words(rule: re.Pattern[str], lines: Iterable[str]) -> Iterator[re.Match[str]]:
    return (word for line in lines if (word := rule.search(line)))


def _outcar_converged(lines: Iterable[str]) -> list[bool]:
    """Of VASP: releases before 6 say 'EDIFF is reached' at the last allowed iteration, too."""
    result = []
    most, goal, step, bad = 60, 1e-4, 0, False
    energies: list[float] = []
    bands: list[float] = []
    for word in _words(OUTCAR, lines):
        if word["most"]:
            most = int(word["most"])
        elif word["goal"]:
            goal = _number(word["goal"], goal)
        elif word["step"]:
            step = int(word["step"])
        elif word["energy"]:
            energies.append(_number(word["energy"]))
        elif word["bands"]:
            bands.append(_number(word["bands"]))
        elif word["bad"]:
            bad = True
        else:
            result.append(not bad and (step < most or _settled(goal, energies, bands)))
            step, bad, energies, bands = 0, False, [], []
    return result


def _vasprun_converged(path: Path) -> list[bool]:
    result = []
    most, goal = 60, 1e-4
    try:
        for _, element in ET.iterparse(path):
            if element.tag == "parameters":
                most = int(_number(element.findtext(".//i[@name='NELM']"), most))
                goal = _number(element.findtext(".//i[@name='EDIFF']"), goal)
            elif element.tag == "calculation":
                steps = element.findall("scstep")
                values = (
                    [_number(step.findtext(f"energy/i[@name='{name}']")) for step in steps]
                    for name in ("e_fr_energy", "bandstr")
                )
                result.append(len(steps) < most or _settled(goal, *values))
                element.clear()
    except ET.ParseError:  # cut off, which its reader judges
        pass
    return result


def _settled(goal: float, *energies: list[float]) -> bool:
    """Whether the last changes are within EDIFF, which VASP asks of both energies."""
    return all(len(each) > 1 and abs(each[-1] - each[-2]) <= goal for each in energies)


def _number(text: str | None, otherwise: float = float("nan")) -> float:
    try:
        return float(text or "")
    except ValueError:
        return otherwise


#: Names of formats, of ase and of dpdata, and what reads their words.
FORMATS: tuple[tuple[str, Callable[[Iterable[str]], list[bool]]], ...] = (
    ("vasp-out|vasp/outcar|outcar", _outcar_converged),
    (r"abacus/.*", _reader(ABACUS)),
    ("aims-output|fhi_aims/.*", _reader(AIMS)),
    ("castep-castep", _reader(CASTEP)),
    ("cp2k/.*", _reader(CP2K)),
    ("espresso-out|qe/pw/scf", _reader(ESPRESSO)),
    ("gaussian-out|gaussian/(?:log|md)", _reader(GAUSSIAN)),
    ("orca-output|orca/spout", _reader(ORCA)),
    ("siesta/.*", _reader(SIESTA)),
    ("abinit-out|nwchem-out", _reader(FAILED)),
)
