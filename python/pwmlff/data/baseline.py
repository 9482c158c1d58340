"""What a model is not to learn, as something else gives it: taken off its labels beforehand.

A baseline is a pair style of LAMMPS, like `zbl 3.0 4.0`, or a calculator of ase, like
`dftd3.ase:DFTD3(method="PBE")`. Energies, forces and virials of a simulation are then those of the
model and of the baseline together, in LAMMPS by *pair_style hybrid/overlay*.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.lammps import Prism
from ase.stress import voigt_6_to_full_3x3_stress

from pwmlff.data.frames import Frames
from pwmlff.evaluation import labeller
from pwmlff.launch import lmp, program
from pwmlff.launch.script import words_alone
from pwmlff.report import Failure, last_line

BATCH = 100  # structures of a run of lmp
#: Module or file and what is called in it; no pair style of LAMMPS has a colon.
CALCULATOR = re.compile(r"[\w./-]+:\w.*", re.DOTALL)


@dataclass(frozen=True)
class Baseline:
    """A pair style with its coefficients, or a calculator; nothing where there are no words.

    Raises:
        Failure: the words are of neither form.
    """

    words: str
    coeff: tuple[str, ...] = ()  # of each command pair_coeff, for types in the model's order

    def __post_init__(self) -> None:
        """Refuse what would be more than words of one line, or than plain values."""
        if self.is_calculator:
            try:
                labeller.parsed(self.words)
            except ValueError as error:
                raise Failure(f"[data] baseline: {error}") from None
        for words in (self.words, *self.coeff):
            words_alone(words, "[data] baseline")

    @property
    def is_calculator(self) -> bool:
        """Whether ase evaluates it."""
        return bool(CALCULATOR.fullmatch(self.words))

    def taken_off(self, frames: Frames, elements: Sequence[int]) -> Frames:
        """The same frames with labels less what the baseline gives; those that lack stay so.

        Args:
            frames: structures with labels.
            elements: atomic numbers of LAMMPS's types in order.

        Raises:
            Failure: the baseline cannot be evaluated.
        """
        structures = [frames.structure(k) for k in range(len(frames))]
        if self.is_calculator:
            results = self._by_ase(structures)
        else:
            results = self._by_lammps(structures, elements)
        energies, forces, virials = zip(*results, strict=True)
        return replace(
            frames,
            energies=frames.energies - np.array(energies),
            forces=frames.forces - np.concatenate(forces),
            virials=frames.virials - np.array(virials),
        )

    def lines(self, model: str, symbols: Sequence[str]) -> list[str]:
        """Lines of an input that run a model with it.

        Args:
            model: what stands behind pair_style, without the name of the style.
            symbols: elements of the types.
        """
        elements = " ".join(symbols)
        if not self.words:
            return [f"pair_style pwmlff {model}", f"pair_coeff * * {elements}"]
        if self.is_calculator:
            return [
                f"pair_style pwmlff {model}",
                f"pair_coeff * * {elements}",
                f"# and with hybrid/overlay the pair style that gives what {self.words} gives",
            ]
        name = self.words.split()[0]
        coeff = [re.sub(r"^(\S+\s+\S+)", rf"\1 {name}", words) for words in self.coeff]
        return [
            f"pair_style hybrid/overlay pwmlff {model} {self.words}",
            f"pair_coeff * * pwmlff {elements}",
            *(f"pair_coeff {words}" for words in coeff),
        ]

    def _by_ase(self, structures: Sequence[Atoms]) -> list[tuple[float, np.ndarray, np.ndarray]]:
        results = []
        try:
            calculator = labeller.make_calculator(self.words)
            for atoms in structures:
                labels = labeller.label(atoms, calculator).calc.results
                virial = np.full((3, 3), np.nan)
                if "stress" in labels:
                    stress = voigt_6_to_full_3x3_stress(labels["stress"])
                    virial = -stress * atoms.get_volume()
                results.append((labels["energy"], labels["forces"], virial))
        except Exception as error:  # whatever a calculator raises
            raise Failure(
                f"[data] baseline '{self.words}' cannot be evaluated: "
                f"{type(error).__name__}: {last_line(error)}"
            ) from error
        return results

    def _by_lammps(
        self, structures: Sequence[Atoms], elements: Sequence[int]
    ) -> list[tuple[float, np.ndarray, np.ndarray]]:
        if not self.coeff:
            raise Failure(
                f"[data] baseline is the pair style '{self.words}', and baseline_coeff is empty: "
                'expected what follows pair_coeff, like ["1 1 72 72", "1 2 72 8", "2 2 8 8"]'
            )
        style = f"pair_style {self.words}\n" + "".join(f"pair_coeff {c}\n" for c in self.coeff)
        lmp_program = program.find()
        results = []
        for begin in range(0, len(structures), BATCH):
            boxes = [lmp.enclosed(atoms) for atoms in structures[begin : begin + BATCH]]
            with tempfile.TemporaryDirectory(prefix="pwmlff-") as name:
                try:
                    measured = lmp.evaluate(lmp_program, Path(name), boxes, elements, style)
                except Failure as failure:
                    raise Failure(f"[data] baseline '{self.words}': {failure}") from failure
            for box, result in zip(boxes, measured, strict=True):
                prism = Prism(box.cell, pbc=box.pbc)
                tensor = np.zeros((3, 3))
                for (i, j), value in zip(lmp.VOIGT, result.virial, strict=True):
                    tensor[i, j] = tensor[j, i] = value
                virial = prism.vector_to_ase(prism.vector_to_ase(tensor).T).T
                results.append((result.energy, prism.vector_to_ase(result.forces), virial))
        return results
