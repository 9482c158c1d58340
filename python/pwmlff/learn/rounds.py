"""Train an ensemble, explore with it, label what it doubts, and train again.

Each stage leaves what it has made in the folder of its round, whole, and is noted in state.json
then; a stage that was killed is done again, trainings and labels from where they were. So a loop
whose trainings are counted in epochs comes to the same models however often it is killed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.io import read

from pwmlff import picture
from pwmlff.data import descriptors, extxyz, readers
from pwmlff.data.check import check
from pwmlff.data.frames import Frames
from pwmlff.data.labelled import Labelled, gathered
from pwmlff.evaluation import many, model_file
from pwmlff.files import named, remove_scratch, write_whole
from pwmlff.launch import interpreter
from pwmlff.learn import account, explore, labelling
from pwmlff.learn.processes import Task, Workshop
from pwmlff.learn.settings import Learning
from pwmlff.learn.state import LEAST_STEPS, State
from pwmlff.learn.verdict import LearnReport
from pwmlff.models.saving import copy_model
from pwmlff.report import Failure, explain
from pwmlff.threads import available
from pwmlff.train import uncertainty
from pwmlff.train.config import Config, from_command
from pwmlff.train.ensemble import MEMBER, member_name
from pwmlff.train.start import write_configuration

log = logging.getLogger(__name__)

LEAST_FORCE = 0.5  # eV/angstrom, that a window is in proportion to
MOST_CANDIDATES = 2000  # that are compared with each other
SETTINGS = "learn.toml"  # with every default
ODD_LABELS = ("not finite", "forces", "energy", "sources", "duplicate with another energy")


class Rounds:
    """A learning loop in its folder.

    Args:
        config: what it is told.
        asked: whether the end was asked for.
        reserve: minutes of the time that are to be left after the last training, by the state.
        shop: that has the folder already, and stays open.

    Raises:
        Failure: a training or an exploration is not possible, another process has the folder,
            or it holds something else.
    """

    def __init__(
        self,
        config: Learning,
        asked: Callable[[], bool],
        reserve: Callable[[State], float] = lambda _: 0.0,
        shop: Workshop | None = None,
    ) -> None:
        self.config, self.reserve = config, reserve
        self.folder = Path(config.loop.folder)
        self.elements = [atomic_numbers[symbol] for symbol in config.start.elements]
        run = _trainable(config)
        self.learns_born = _learns_born(run)
        self._reading: dict[str, Any] = {
            "format": run.data.format or None,
            "keep_unconverged": run.data.keep_unconverged,
            "kinds": run.data.map,
        }
        explore.require_possible(config.explore, self.elements)
        self.shop, self._closes = shop or Workshop(self.folder, asked), shop is None
        for place in (self.folder, *filter(Path.is_dir, self.folder.iterdir())):
            remove_scratch(place)
        self.state = State.read(self.folder)
        self.jobs = config.loop.jobs or available()
        self.labels_at_once = config.label.jobs or self.jobs
        self._mark = time.monotonic()
        text, path = config.as_toml().encode(), self.folder / SETTINGS
        if path.exists() and path.read_bytes() != text:
            log.warning("settings are not those of the last start; they hold from now on")
        write_whole(path, text)

    def run(self) -> LearnReport:
        """Do what is left to do.

        Raises:
            Failure: a training fails, or no structure gets labels; what is done stays.
            Stopped: the end was asked for.
        """
        try:
            if not self.state.end:
                self._first_labels()
            while not self.state.end:
                self._round(len(self._complete()))
            self._last_training()
        finally:
            try:
                self._note()
            finally:
                if self._closes:
                    self.shop.close()
        report = LearnReport(
            str(self.folder),
            self.state,
            [str(path) for path in self.models()],
            elements=self.config.start.elements,
        )
        if not report.converged:
            report = replace(report, contradictions=self._contradictions())
        return report

    def models(self) -> list[Path]:
        """Those of the last training, in the folder of the loop."""
        return [self.folder / Path(name).name for name in self.state.rounds[-1]["train"]["models"]]

    def _complete(self) -> list[dict[str, Any]]:
        return [one for one in self.state.rounds if "label" in one]

    def _note(self) -> None:
        """Count the time and write the state."""
        now = time.monotonic()
        self.state.seconds += now - self._mark
        self._mark = now
        self.state.write(self.folder)

    def _left(self, last: bool) -> float:
        """Minutes of the budget; for what comes before the last training, or for that."""
        if not self.config.loop.max_time:
            return np.inf
        spent = (self.state.seconds + time.monotonic() - self._mark) / 60.0
        left = self.config.loop.max_time - spent - self.reserve(self.state)
        return left if last else left - self._last_minutes()

    def _last_minutes(self) -> float:
        """That the last training takes: as told, or as the longest one took."""
        took: list[float] = [
            one["train"]["seconds"] / 60.0 for one in self.state.rounds if "train" in one
        ]
        train = self.config.train
        if train.last_minutes:
            return train.last_minutes
        return max(train.minutes, *took) if took else train.minutes

    def round_folder(self, number: int) -> Path:
        """Folder of a round."""
        return self.folder / f"round-{number:03d}"

    def _data(self, number: int) -> list[str]:
        """Files that a round trains on."""
        files = list(self.config.start.data)
        if self.state.first:
            files.append(str(self.folder / "first" / "labelled.extxyz"))
        files += [
            str(self.round_folder(k) / "labelled.extxyz")
            for k in range(number)
            if self.state.rounds[k]["label"]["frames"]
        ]
        return files

    def _frames(self, number: int) -> Frames:
        """What these files hold, as trainings read them."""
        return readers.read(self._data(number), **self._reading)

    def _first_labels(self) -> None:
        """Label structures near those to start from, where there are no data."""
        start = self.config.start
        if start.data or self.state.first:
            return
        rng = np.random.default_rng(self.config.loop.seed)
        structures = [
            self._disturbed(atoms, rng)
            for name in start.structures
            for atoms in readers.structures(name)
            for _ in range(start.frames)
        ]
        log.info("labels of %d first structures", len(structures))
        labels = self._labelled(structures, self.folder / "first", "first")
        self.state.first = labels
        self._note()

    def _disturbed(self, atoms: Atoms, rng: np.random.Generator) -> Atoms:
        """A structure with its atoms and its cell off by chance."""
        start = self.config.start
        moved: Atoms = atoms.copy()
        if moved.pbc.all():
            strain = start.strain * rng.standard_normal((3, 3))
            moved.set_cell(np.array(moved.cell) @ (np.eye(3) + (strain + strain.T) / 2), True)
        moved.positions += start.rattle * rng.standard_normal((len(moved), 3))
        return moved

    def _labelled(self, structures: Sequence[Atoms], folder: Path, group: str) -> dict[str, Any]:
        """Label structures into a file of the folder; what there is to tell of it."""
        labels = labelling.make(
            structures, self.elements, self.config.label, folder / "labels", self.shop,
            self.labels_at_once, born=self.learns_born,
        )  # fmt: skip
        for atoms in labels.frames:
            atoms.info["config_type"] = group
        extxyz.write_whole(folder / "labelled.extxyz", labels.frames)
        for failure in labels.failures:
            log.warning("no labels for %s", failure)
        return {
            "frames": len(labels.frames),
            "failures": labels.failures,
            "seconds_each": labels.seconds,
        }

    def _round(self, number: int) -> None:
        """Do what is left of a round, or find that it is the last."""
        folder = self.round_folder(number)
        folder.mkdir(exist_ok=True)
        if len(self.state.rounds) == number:
            self.state.rounds.append({})
        stages = self.state.rounds[number]
        if "train" not in stages:
            stages["train"] = self._trained(number, last=False)
            self._keep(stages["train"])
            log.info("round %d: %s", number, account.training_line(stages["train"]))
            self._note()
        if "explore" not in stages:
            stages["explore"] = self._explored(number, stages["train"])
            log.info("round %d: %s", number, account.exploration_line(stages["explore"]))
            self._note()
        explored = stages["explore"]
        share = explored["below"] / max(1, explored["structures"])
        died = any(one["died"] for one in explored["runs"])
        if number >= max(one.first_round for one in self.config.explore):
            if share >= self.config.loop.converged and not died:
                self.state.end = "converged"
            elif not explored["chosen"]:
                self.state.end = "no structure in the window"
        if self.state.end or not explored["chosen"]:
            stages["label"] = {"frames": 0, "failures": []}
        if "label" not in stages:
            chosen = read(folder / "chosen.extxyz", index=":")
            assert isinstance(chosen, list)  # as ase gives for a slice
            stages["label"] = self._labelled(chosen, folder, f"round-{number}")
            stages["label"] |= self._judged(number)
            log.info("round %d: %s", number, account.label_line(stages["label"]))
        self._draw(number)
        if not self.state.end and number + 1 >= self.config.loop.rounds:
            self.state.end = f"{self.config.loop.rounds} rounds"
        as_long = stages["train"]["seconds"] + explored["seconds"]
        if not self.state.end and 60.0 * self._left(last=False) < as_long:
            self.state.end = "the time was up"
        self._note()

    def _last_training(self) -> None:
        """Train with the labels that came last, or for longer."""
        train, last = self.config.train, self.state.rounds[-1]
        if "label" not in last:
            return
        if not (last["label"]["frames"] or train.last_epochs or train.last_minutes):
            return
        number = len(self.state.rounds)
        self.round_folder(number).mkdir(exist_ok=True)
        results = self._trained(number, last=True)
        self._keep(results)
        self.state.rounds.append({"train": results})
        log.info("at last: %s", account.training_line(results))

    def _keep(self, results: dict[str, Any]) -> None:
        """Copy models to where users look for them."""
        for name in results["models"]:
            copy_model(Path(name), self.folder / Path(name).name)

    def _trained(self, number: int, last: bool) -> dict[str, Any]:
        """Train for as long as told, and in a round for longer where that is a handful of steps.

        Raises:
            Failure: a training fails, or there is no time for more than a handful of steps, and
                no model yet.
        """
        began, train = time.monotonic(), self.config.train
        minutes = (last and train.last_minutes) or max(
            [
                train.minutes,
                *(stages["train"].get("minutes", 0.0) for stages in self.state.rounds[:number]),
            ]
        )
        while True:
            folder, trained = self._report(self._training(number, last, minutes))
            steps = min(model["steps"] for model in trained)
            few = steps < LEAST_STEPS and any(model["stopped"] == "time" for model in trained)
            left = self._left(last)
            # A time that only run.toml has is the user's own.
            if last or not few or not minutes or (number and left < minutes):
                break
            if left < minutes:
                raise Failure(
                    f"the training in '{folder}' made {steps} steps in {minutes:.3g} minutes, "
                    f"expected {LEAST_STEPS} or more before labels are spent on what its models "
                    f"doubt; {max(0.0, left):.2g} minutes are left for that: give the loop more "
                    "time (max_time), or take fewer frames or a smaller model; the same command "
                    "goes on"
                )
            log.info("round %d: %d steps in %.3g minutes; twice the time", number, steps, minutes)
            minutes *= 2.0
        return {
            "models": [str(model["file"]) for model in trained],
            "frames": len(self._frames(number)),
            "valid": [model["valid"] or model["train"] for model in trained],
            "window": self._window(),
            "minutes": minutes,
            "steps": steps,
            "seconds": time.monotonic() - began,
        }

    def _report(self, config: Config) -> tuple[Path, list[dict[str, Any]]]:
        """The folder of a training, or of what is left of it, and what it tells of each model."""
        path = write_configuration(config)
        words = ["train", "--resume", "--json", "--communication", "serial", str(path)]
        output = path.parents[1] / "train.json"
        (end,) = self.shop.run([Task(interpreter.pwmlff(*words), self.folder, output)], 1)
        report = json_in(end.text)
        if end.code != 0 or not report.get("models"):
            errors = report.get("failures") or [report.get("error") or end.text.strip()[-300:]]
            raise Failure(f"the training in '{path.parent}' failed: {'; '.join(map(str, errors))}")
        return path.parent, report["models"]

    def _training(self, number: int, last: bool, minutes: float) -> Config:
        """What `pwmlff train` is told in a round."""
        train, start = self.config.train, self.config.start
        epochs = (train.last_epochs if last else 0) or train.epochs
        previous = self.state.rounds[number - 1]["train"]["models"][0] if number else None
        suffix = Path(previous).suffix if previous else ""
        finetune = (
            str(self.round_folder(number - 1) / "train" / f"{MEMBER}{suffix}") if previous else None
        )
        return from_command(
            toml=train.run or None,
            settings=train.set,
            data=self._data(number),
            valid=list(start.valid),
            elements=" ".join(start.elements),
            output=str(self.round_folder(number) / "train"),
            models=train.models,
            epochs=epochs or None,
            max_time=max(0.1, min(minutes, self._left(last))) if minutes else None,
            finetune=finetune,
            model="nep" if suffix == ".txt" else "",
        )

    def _window(self) -> list[float]:
        """As told, or by the data to start with: later ones hold what models have gone wrong in."""
        low, high = self.config.choose.window
        if high:
            return [low, high]
        sizes = self._frames(0).force_sizes
        forces = sizes[np.isfinite(sizes)]
        rms = float(np.sqrt(np.square(forces).mean())) if len(forces) else 0.0
        return [share * max(rms, LEAST_FORCE) for share in self.config.choose.relative]

    def _explored(self, number: int, trained: dict[str, Any]) -> dict[str, Any]:
        began, folder = time.monotonic(), self.round_folder(number)
        wanted = explore.runs(self.config.explore, number)
        low, high = trained["window"]
        results = explore.explore(
            wanted,
            [Path(name) for name in trained["models"]],
            self.elements,
            (low, high),
            self.config.loop.seed + 1000 * number,
            folder / "explore",
            self.shop,
            self.jobs,
            self.config.choose.closest,
            60.0 * self._left(last=False) / 2.0,  # the other half is for labels
        )
        deviations = {f"{k}": run.deviations for k, run in enumerate(results)}
        _save(folder / "deviations.npz", deviations)
        candidates = [atoms for run in results for atoms in run.candidates]
        closest = self.config.choose.closest
        sound = [atoms for atoms in candidates if explore.apart(atoms, closest)]
        chosen = self._choose(sound, number)
        extxyz.write_whole(folder / "chosen.extxyz", chosen)
        every = np.concatenate([np.empty(0), *(run.deviations for run in results)])
        return {
            "runs": [
                {
                    "name": run.name,
                    "structures": len(run.deviations),
                    "largest": float(run.deviations.max(initial=0.0)),
                    "died": run.died,
                }
                for run in results
            ],
            "structures": len(every),
            "below": int((every < low).sum()),
            "beyond": int((every >= high).sum()),
            "candidates": len(candidates),
            "unsound": len(candidates) - len(sound),
            "chosen": len(chosen),
            "pace": max((run.pace for run in results if np.isfinite(run.pace)), default=0.0),
            "seconds": time.monotonic() - began,
        }

    def _choose(self, candidates: Sequence[Atoms], number: int) -> list[Atoms]:
        """Those farthest from each other and from the data."""
        step = -(-len(candidates) // MOST_CANDIDATES)
        some = list(candidates)[:: max(1, step)]
        if not some:
            return []
        frames = gathered([_unlabelled(atoms) for atoms in some], "candidates", "candidates")
        known = self._frames(number)
        described = [
            descriptors.describe_frames(one, self.elements, self.config.choose.cutoff)
            for one in (frames, known)
        ]
        points, there = descriptors.scaled(*described)
        rows, _ = descriptors.farthest(points, self._most(), there)
        return [some[k] for k in rows]

    def _most(self) -> int:
        """Labels that a round may have; one for each job where nothing tells how long they take."""
        choose = self.config.choose
        minutes = min(choose.minutes or np.inf, self._left(last=False))
        if np.isinf(minutes):
            return choose.most
        labelled = [self.state.first, *(one["label"] for one in self._complete())]
        took = [one["seconds_each"] for one in labelled if one.get("seconds_each")]
        fit = int(60.0 * minutes / took[-1]) if took else 0
        return min(choose.most, max(self.labels_at_once, fit))

    def _judged(self, number: int) -> dict[str, Any]:
        """Errors of the models of a round on labels that they have not seen."""
        path = self.round_folder(number) / "labelled.extxyz"
        frames = readers.read(path)
        structures = [frames.structure(k) for k in range(len(frames))]
        forces = [
            np.concatenate([one.forces for one in many.evaluate(name, structures)])
            for name in self.state.rounds[number]["train"]["models"]
        ]
        deviations, errors = uncertainty.disagreement(frames, forces)
        both = {"deviations": deviations, "errors": errors}
        _save(self.round_folder(number) / "errors.npz", both)
        return {
            "rmse": float(np.sqrt(np.square(errors).mean() / 3)),
            "rms": float(np.sqrt(np.square(frames.force_sizes).mean() / 3)),
        }

    def _draw(self, number: int) -> None:
        """One picture of the round."""
        figure = account.round_picture(self.round_folder(number), self.state.rounds[number])
        path = self.round_folder(number) / account.PICTURE
        try:
            picture.save(figure, path, dpi=120)
        except OSError as error:  # all else of the round is there
            log.warning("%s", explain(error)[0])

    def _contradictions(self) -> list[str]:
        """What `pwmlff data check` says of all labels together."""
        files = self._data(len(self._complete()))
        report = check(files, elements=self.config.start.elements, **self._reading)
        return [one.text for one in report.problems if one.kind in ODD_LABELS]


def _trainable(config: Learning) -> Config:
    """What trainings are told beside their data, if they can be, before anything is labelled.

    Raises:
        Failure: run.toml or a key of it cannot be used, there is a baseline, or energies are to be
            others than those that labels get.
    """
    elements = " ".join(config.start.elements)
    names = ["any"]
    run = from_command(
        toml=config.train.run or None, settings=config.train.set, data=names, elements=elements
    )
    if run.data.baseline:
        raise Failure(
            f"[train] has data.baseline '{run.data.baseline}', which explorations lack: leave it "
            "out of a learning loop"
        )
    if run.data.energy != readers.FREE:
        raise Failure(
            f"[train] has data.energy '{run.data.energy}', and labels of a learning loop are free "
            "energies: leave it out, or start from data with one energy of each frame"
        )
    return run


def _learns_born(run: Config) -> bool:
    """Whether models learn Born charges, where labels have them."""
    if run.model.kind != "nep" or not run.nep.born:
        return False
    start = run.model.finetune.replace(MEMBER, member_name(0))
    return run.nep.charge > 0 or bool(start and model_file.describe_unopened(start).has_charges)


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    with named(path):
        np.savez(path, **arrays)


def _unlabelled(atoms: Atoms) -> Labelled:
    return Labelled(atoms.numbers, atoms.positions, np.array(atoms.cell), atoms.pbc, 0)


def json_in(text: str) -> dict[str, Any]:
    """The report that stands behind what else was said; nothing where there is none."""
    begin = text.find("{\n")
    try:
        parsed = json.loads(text[begin:]) if begin >= 0 else {}
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
