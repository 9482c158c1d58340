"""The training itself: steps, validations, checkpoints, until the time or the epochs are over.

Every rank holds the same parameters and makes the same steps. A step has a batch of frames, of
which each rank evaluates its part. The gradients of the frames are added up in one order
(:func:`pwmlff.train.comm.ordered_sum`). So any number of ranks and threads gives the same bits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pwmlff.data import statistics
from pwmlff.data.offsets import Offsets
from pwmlff.report import Failure
from pwmlff.train import checkpoint, comm, errors
from pwmlff.train.config import Config
from pwmlff.train.learner import Learner
from pwmlff.train.prepare import Dataset
from pwmlff.train.record import Display, LogRow, TrainingLog, duration
from pwmlff.train.trainable import Predictions

log = logging.getLogger(__name__)

SAMPLE = 64  # training frames that a validation looks at
VALIDATIONS = 40  # of a run, where it is not said how often
COSTLIEST = 0.1  # share of the time that validations may take then
#: Validations that a moving average of scores has at most, and within what part of the run.
AVERAGED, WINDOW = 4, 0.1
LEAVING = 2.0  # seconds to load the command, before its clock runs, to report and to leave
FEW = 100  # steps in max_time, which is said to be too short then
END = 0.25  # share of max_time that what comes after the last step may take
BEST, LAST = "best", "last"
EARLIER = "an earlier model"
OVERFITTED = 0.9  # part of the last errors of forces, below which earlier ones show a turn
TINY = 1e-12  # least ratio of errors that a score tells from 0
#: What a training that goes on has to have in common with its checkpoint.
IDENTITY = {
    "names": "the parameters",
    "model": "the model",
    "data": "the data to learn from, with the hash",
    "valid": "the data to validate with, with the hash",
}


@dataclass
class Progress:
    """Where a training is; goes into checkpoints."""

    step: int = 0
    seconds: float = 0.0  # of the commands so far, each from its beginning
    stepping: float = 0.0  # of these in steps
    fraction: float = 0.0  # of max_time that is over
    max_time: float = 0.0  # that `fraction` is of
    costs: dict[str, float] = field(default_factory=dict)  # seconds of what the end will do
    left_out: list[str] = field(default_factory=list)  # of that, as it takes too long
    best: float = float("inf")  # lowest of the scores that validations count by
    mean: float = float("inf")  # the same without those whose last layers are solved for
    scores: list[tuple[float, float]] = field(default_factory=list)  # newest: part of run, score
    lowest: float = float("inf")  # RMSE of forces that were validated, before the end
    kept: int = 0  # step of the model that is kept as the best
    stale: int = 0  # validations since `mean` was lower than before
    next_validation: int = 0  # epoch
    validated: float = 0.0  # `stepping` at the last validation; the following is since then
    atoms: int = 0
    loss: float = 0.0  # sum over the steps
    steps: int = 0

    def judge(self, score: float, part: float, doubt: float | None) -> bool:
        """Whether a validation is the best so far.

        It counts by the mean score of the newest AVERAGED validations within WINDOW. While steps
        are large, energies swing, and a few frames have small errors by chance in one of many
        validations.

        Args:
            score: of the validation.
            part: of the run that is over.
            doubt: of the one that no step follows, standard error of its score. It counts alone, as
                last layers are solved for. Few frames do not tell it from a score that is lower by
                less than this, and then it is taken (the rule of one standard error, Breiman et al.
                1984, Classification and Regression Trees). None of others.
        """
        if doubt is None:
            recent = [pair for pair in self.scores if pair[0] > part - WINDOW]
            self.scores = [*recent[1 - AVERAGED :], (part, score)]
            score = math.fsum(one for _, one in self.scores) / len(self.scores)
            self.stale = 0 if score < self.mean else self.stale + 1
            self.mean = min(self.mean, score)
        better = score < self.best + (doubt or 0.0)
        self.best = min(self.best, score)
        if better:
            self.kept = self.step
        return better


@dataclass(frozen=True)
class Verdict:
    """What the model is that would be saved; errors and predictions on rank 0 alone."""

    train: errors.Errors | None  # on some frames that are learned from
    valid: errors.Errors | None  # on those that validate
    learned: Predictions | None  # the same frames, as predicted
    judged: Predictions | None
    score: float
    doubt: float  # of the score, its standard error
    force: float  # RMSE where it is judged; infinite without


#: Called on rank 0 with what a model is now, of BEST and LAST, and its errors on frames that it
#: learned from and on the others.
Keep = Callable[[Sequence[str], errors.Errors | None, errors.Errors | None], None]


class Trainer:
    """One model in training.

    Args:
        config: all that was asked for.
        learner: the model.
        valid: what validates; None where nothing does.
        ranks: who takes part.
        folder: for checkpoints.
        keep: writes model files.
        asked: whether somebody has asked this rank to stop; rank 0 is listened to.
        extras: what the end does on rank 0 where there is time for it, by name.
        began: when the command began, by time.monotonic(); now when None.
        offsets: of the virials of the frames, which validations move; None for none.
    """

    def __init__(
        self,
        config: Config,
        learner: Learner,
        valid: Dataset | None,
        ranks: comm.Communicator,
        folder: Path,
        keep: Keep,
        asked: Callable[[], bool] = lambda: False,
        extras: Mapping[str, Callable[[], None]] | None = None,
        began: float | None = None,
        offsets: Offsets | None = None,
    ) -> None:
        self.config, self.learner, self.valid = config, learner, valid
        self.ranks, self.folder, self.keep, self.asked = ranks, folder, keep, asked
        self.extras, self.began = extras or {}, time.monotonic() if began is None else began
        self.offsets = offsets or Offsets({})
        self.judged: Predictions | None = None  # of what validates, when it was last judged
        self.progress = Progress(max_time=config.run.max_time)
        self._order: tuple[int, np.ndarray] | None = None  # an epoch, and its frames
        nframes = len(learner.frames)
        self.batches = config.run.steps_of_epoch(nframes)
        chosen = np.random.default_rng((config.run.seed, 1)).permutation(nframes)[:SAMPLE]
        self.sample = np.sort(chosen)
        every = Dataset(learner.frames, learner.model.edges)
        self._edges_of_sample = every.select(self.sample).edges

    # ---- where it is

    @property
    def epoch(self) -> float:
        """Passes over the data."""
        return self.progress.step / self.batches

    def progress_of_run(self) -> float:
        """Part of the run that is over, 0 to 1; the same on all ranks."""
        epochs = self.config.run.epochs
        by_steps = self.progress.step / (epochs * self.batches) if epochs else 0.0
        return min(1.0, max(by_steps, self.progress.fraction))

    def _left(self) -> float:
        """Seconds of max_time for steps: without what comes after the last one."""
        return 60.0 * self.config.run.max_time - self._ending() - self.progress.seconds

    def _ending(self) -> float:
        """Seconds of what comes after the last step; steps get the rest of max_time at least."""
        return min(LEAVING + sum(self.progress.costs.values()), self._longest_end())

    def _longest_end(self) -> float:
        """Seconds that what comes after the last step may take; any without max_time."""
        return END * 60.0 * self.config.run.max_time or np.inf

    def _pass(self, seconds: float, step: float) -> None:
        """Let time go by.

        Args:
            seconds: since it was last told.
            step: of these in a step; no other one is begun that would end too late.
        """
        progress = self.progress
        progress.seconds += seconds
        progress.stepping += step
        if self.config.run.max_time:
            # What is left of the run is spread over steps in what is left of the time, so that
            # neither a validation nor a second start nor new knowledge of the end makes it jump.
            left = self._left()
            part = step / (left + step) if left > step else 1.0
            progress.fraction += part * (1.0 - progress.fraction)

    def batch(self, step: int) -> np.ndarray:
        """Frames of a step: those of an epoch in an order of its own."""
        epoch, k = divmod(step, self.batches)
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng((self.config.run.seed, 0, epoch))
            self._order = epoch, rng.permutation(len(self.learner.frames))
        size = self.config.run.batch
        return self._order[1][k * size : (k + 1) * size]

    @property
    def sampled(self) -> Dataset:
        """Some frames that are learned from, with the labels that they have now."""
        return Dataset(self.learner.frames.select(self.sample), self._edges_of_sample)

    # ---- what it does

    def run(self, record: TrainingLog | None, display: Display | None) -> str:
        """Train to the end.

        Args:
            record, display: of rank 0; None on the others.

        Returns:
            Why it is the end: "epochs", "time", "patience" or "asked".
        """
        progress, run = self.progress, self.config.run
        # One clock for all, that of rank 0: the rate of learning depends on it.
        clock = saved = time.monotonic()
        progress.seconds += self.ranks.broadcast(saved - self.began)
        stopped = self._end_of_run()
        if progress.costs and run.max_time:
            self._log_plan()
        while not stopped:
            begun = time.monotonic()
            self.step()
            now = time.monotonic()
            news = (now - clock, now - begun, self.asked(), now - saved)
            seconds, step, asked, unsaved = self.ranks.broadcast(news)
            clock = now
            self._pass(seconds, step)
            if display is not None:
                display.step(self.progress_of_run(), **self._latest())
            stopped = "asked" if asked else self._end_of_run()
            if self._is_due(stopped):
                first = not progress.costs
                self.validate(record, display, stopped not in ("", "asked"))
                if first and run.max_time and not stopped:
                    self._try_the_end()
            if unsaved >= 60.0 * run.checkpoint_every and not stopped:
                self.save()
                saved = time.monotonic()
        progress.seconds += self.ranks.broadcast(time.monotonic() - clock)
        self.save()
        if stopped == "asked" and progress.steps and self.ranks.rank == 0:
            self.keep((LAST,), None, None)
        if stopped == "time" and progress.step < FEW and self.ranks.rank == 0:
            log.warning(
                "max_time is too short: %d steps were made, in %.0f of %.0f s; reading, the first "
                "validation and the end took the others",
                *(progress.step, progress.stepping, progress.seconds),
            )
        return stopped

    def _end_of_run(self) -> str:
        """Why the step that was done was the last one that nobody has asked for; empty if not."""
        progress, patience = self.progress, self.config.run.patience
        if patience and progress.stale >= patience:
            return "patience"
        if self.progress_of_run() < 1.0:
            return ""
        return "time" if progress.fraction >= 1.0 else "epochs"

    def _is_due(self, stopped: str) -> bool:
        """Whether to validate after a step.

        Args:
            stopped: as `run` returns it; empty where the training goes on.
        """
        next_validation = self.progress.next_validation
        if stopped == "asked":
            # Whoever asks has little time, and a training that goes on is to be as undisturbed;
            # but there is to be a model.
            return next_validation == 0
        if stopped or self.epoch < next_validation:
            return bool(stopped)
        # One that begins too late would be followed by another one, beyond the time.
        return not self.config.run.max_time or self._left() > self.progress.costs.get(
            "validation", 0.0
        )

    def _try_the_end(self) -> None:
        """Do once what comes after the last step, to know how long it takes. Collective.

        What does not fit into the longest end is left out of it.
        """
        own, progress = self.ranks.rank == 0, self.progress
        most = self._longest_end() - LEAVING

        def timed(work: Callable[[], object]) -> float:
            began = time.monotonic()
            work()
            return float(self.ranks.broadcast(time.monotonic() - began))

        if progress.costs["validation"] > 0.5 * most:  # the first one compiles and loads
            progress.costs["validation"] = timed(self._validate_again)
        progress.costs["checkpoint"] = timed(self.save)
        progress.costs["last layers"] = timed(self._refit)
        for name, work in self.extras.items():
            left = most - sum(progress.costs.values())
            cost = timed(work if own else lambda: None) if left > 0.0 else np.inf
            if cost <= left:
                progress.costs[name] = cost
            else:
                progress.left_out.append(name)
        self._log_plan()

    def _validate_again(self) -> None:
        """What a validation does, for its time."""
        self._predictions()
        if self.ranks.rank == 0:
            self.keep((LAST,), None, None)

    def _refit(self, start: np.ndarray | None = None) -> None:
        """Solve for the last layers, where that does not take most of the longest end."""
        self.learner.refit(0.5 * self._longest_end(), start)

    def finish(self) -> None:
        """Do what is left after the training, on rank 0, as far as there is time for it."""
        for name, work in self.extras.items():
            if name not in self.progress.left_out:
                work()

    def _log_plan(self) -> None:
        """Say how max_time is spent, once that is known."""
        if self.ranks.rank == 0:
            limit = 60.0 * self.config.run.max_time
            log.info(
                "ends %s after its start: steps until %s, and %.0f s for %s",
                *map(duration, (limit, limit - self._ending())),
                self._ending(),
                ", ".join(self.progress.costs),
            )
            if self.progress.left_out:
                log.warning("max_time is too short for: %s", ", ".join(self.progress.left_out))

    def step(self) -> None:
        """Move the parameters once."""
        progress = self.progress
        batch = self.batch(progress.step)
        try:
            loss = self.learner.step(batch, self.progress_of_run())
        except Failure as error:  # of all ranks, as they have the same numbers
            where = f"epoch {self.epoch:.2f}, step {progress.step + 1}"
            raise comm.SharedFailure(f"{where}: {error}") from error
        progress.step += 1
        progress.steps += 1
        progress.loss += loss
        progress.atoms += int(self.learner.frames.natoms[batch].sum())

    def _latest(self) -> dict[str, Any]:
        """Where it is, and what a row of the log tells of the steps since the last one."""
        progress = self.progress
        seconds = progress.stepping - progress.validated
        return {
            "epoch": self.epoch,
            "step": progress.step,
            "loss": progress.loss / max(1, progress.steps),
            "atoms_per_second": progress.atoms / seconds if seconds > 0.0 else None,
        }

    def validate(
        self, record: TrainingLog | None, display: Display | None, last: bool = False
    ) -> None:
        """Judge the model, keep it, and see whether steps are computed closely enough.

        Args:
            record, display: of rank 0; None on the others.
            last: whether no step follows: the last layers are solved for then.
        """
        progress = self.progress
        comm.same_everywhere(self.ranks, self.learner.parameters)
        if last:
            self._refit()
        began = time.monotonic()
        found = self._verdict()
        if last:
            found = self._better(found)
        elif self.valid is not None and len(self.learner.model.last_layers):
            self._remember(found)
        self.judged = found.judged
        self.learner.refine(self.sample, None if found.learned is None else found.learned[1])
        if not np.isfinite(found.score):
            raise comm.SharedFailure(
                f"epoch {self.epoch:.2f}: the errors of the model are no numbers: lower "
                "learning_rate, or look for bad labels with pwmlff data check"
            )
        doubt = found.doubt if last else None
        better = progress.judge(found.score, self.progress_of_run(), doubt)
        if self.ranks.rank == 0:
            now = {"time": progress.seconds, "learning_rate": self.learner.learning_rate}
            now |= self._latest()
            row = LogRow.from_errors(train=found.train, valid=found.valid, **now)
            if record is not None:
                record.add(row)
            if display is not None:
                display.row(row)
            self.keep((BEST, LAST) if better else (LAST,), found.train, found.valid)
        progress.loss, progress.steps, progress.atoms = 0.0, 0, 0
        progress.validated = progress.stepping
        cost = self.ranks.broadcast(time.monotonic() - began)
        progress.costs["validation"] = cost
        progress.next_validation = int(self.epoch) + self._interval(cost)

    def _verdict(self) -> Verdict:
        """Of the model that would be saved now. Collective."""
        learned, judged = self._predictions()
        train = valid = None
        if learned is not None:
            train = self._errors(self.sampled, learned)
            if self.valid is not None and judged is not None:
                valid = self._errors(self.valid, judged)
        best = valid or train
        rmse = self._learned(best) if best else {}  # of rank 0
        numbers = self.score(rmse), self._doubt(rmse), rmse.get("force", math.inf)
        return Verdict(train, valid, learned, judged, *self.ranks.broadcast(numbers))

    def _remember(self, newest: Verdict) -> None:
        """Keep the newest model where its forces are the best so far; else plan to go back."""
        progress = self.progress
        if newest.force < progress.lowest:
            progress.lowest, self.learner.earlier = newest.force, self.learner.averaged()
        progress.costs.pop(EARLIER, None)
        if progress.lowest < OVERFITTED * newest.force:  # neither is finite without labels
            costs = (progress.costs.get(name, 0.0) for name in ("last layers", "validation"))
            progress.costs[EARLIER] = sum(costs)

    def _better(self, newest: Verdict) -> Verdict:
        """The newest model, or the earlier one whose validated forces were far better. Collective.

        Where a model learns too much of few data, unseen forces are best early, and energies are
        not learned yet: last layers are solved for then, too. Its score may be worse by the doubt.
        """
        learner = self.learner
        if EARLIER not in self.progress.costs:
            return newest
        kept = learner.refitted, learner.shift, learner.usual
        self._refit(learner.earlier)
        earlier = self._verdict()
        if (
            earlier.force < OVERFITTED * newest.force
            and earlier.score < newest.score + newest.doubt
        ):
            if self.ranks.rank == 0:
                log.info(
                    "the model learned too much of its frames: an earlier one, with errors of "
                    "unseen forces of %.3g instead of %.3g, is the last and best model",
                    *(earlier.force, newest.force),
                )
            return earlier
        learner.refitted, learner.shift, learner.usual = kept
        return newest

    def _errors(self, data: Dataset, predicted: Predictions) -> errors.Errors:
        """Of the model that would be saved now, which has these predictions."""
        born = self.learner.born_charges(data.frames, data.edges)
        return errors.compute(data.frames, *predicted, self.config.model.units, born)

    def _predictions(self) -> tuple[Predictions | None, Predictions | None]:
        """Align energies and offsets of virials, and predict. Collective.

        Returns:
            On rank 0, what the model gives for `sampled` and for what validates; None elsewhere,
            and where nothing validates.
        """
        sampled = self.sampled
        predicted = judged = None
        if self.ranks.rank == 0:
            predicted = self.learner.predict(sampled.frames, sampled.edges)
        energies = self.learner.align(self.sample, None if predicted is None else predicted[0])
        if predicted is not None and energies is not None:
            predicted = (energies, *predicted[1:])
            if self.valid is not None:
                judged = self.learner.predict(self.valid.frames, self.valid.edges)
        if self.offsets.values:
            pairs = (sampled, predicted), (self.valid, judged)
            given = ((data.frames, p[2]) for data, p in pairs if data is not None and p is not None)
            self.offsets.put(self.ranks.broadcast(self.offsets.moved(given)))
        return predicted, judged

    def score(self, rmse: Mapping[str, float]) -> float:
        """How good a model with these errors is, see :func:`score_of`; no number without errors."""
        return score_of(rmse, self._untaught) if rmse else math.nan

    def _learned(self, judged: errors.Errors) -> dict[str, float]:
        """RMSEs of what the model learns, by quantity; labels of Born charges may weigh nothing."""
        rmse = {name: measure.rmse for name, measure in judged.measures.items()}
        return {k: v for k, v in rmse.items() if k != "born" or self.config.nep.born}

    def _doubt(self, rmse: Mapping[str, float]) -> float:
        """Standard error of the score, for k frames 1 / sqrt(k) in the logarithm of the energies.

        That is a half of the score, or a third.
        """
        nframes = len((self.valid or self.sampled).frames)
        return 1.0 / max(2, len(counted(rmse))) / math.sqrt(max(1, nframes))

    @cached_property
    def _untaught(self) -> dict[str, float]:
        """RMSEs of a model that knows no neighbors on what judges, as they are reported."""
        judge = self.valid or self.sampled
        frames, edges = judge.frames, judge.edges
        share = statistics.shares(frames, edges)
        known = errors.among_others(frames, np.isfinite(frames.energies))
        per_atom = frames.energies_per_atom[known]
        energies = frames.natoms * (share @ statistics.fitted(share[known], per_atom))
        zeros = np.zeros_like(frames.forces), np.zeros_like(frames.virials)
        born = statistics.charges_of_elements(frames)
        baseline = errors.compute(frames, energies, *zeros, self.config.model.units, born)
        return {name: m.rmse for name, m in baseline.measures.items()}

    def _interval(self, cost: float) -> int:
        """Epochs to the next validation: as told, or VALIDATIONS in all and not too costly."""
        run, progress = self.config.run, self.progress
        if run.validate_every:
            return run.validate_every
        if run.epochs and not run.max_time:
            return max(1, run.epochs // VALIDATIONS)
        wanted = max(60.0 * run.max_time / VALIDATIONS, cost / COSTLIEST)
        return max(1, round(wanted * self.epoch / max(progress.stepping, 1e-9)))

    # ---- checkpoints

    def _meta(self) -> dict[str, Any]:
        """What a checkpoint holds beside arrays."""
        model, edges = self.config.model, self.learner.model.edges
        of_config = {name: getattr(model, name) for name in ("rmin", "m2", "max_neighbor", "units")}
        elements = [int(z) for z in edges.elements]
        return {
            "progress": vars(self.progress),
            "names": self.learner.model.names,
            "model": {"elements": elements, "cutoff": edges.cutoff, **of_config},
            "data": self.learner.frames.fingerprint,
            "valid": self.valid.frames.fingerprint if self.valid else None,
            "virial_offsets": list(self.offsets.values.values()),
        }

    def save(self) -> None:
        """Write a checkpoint. Collective."""
        comm.by_rank_0(
            self.ranks,
            lambda: checkpoint.save(
                self.folder, self.progress.step, self.learner.state(), self._meta()
            ),
        )

    def resume(self) -> bool:
        """Go on from the newest sound checkpoint; whether there is one. Collective.

        Raises:
            Failure: it is of another model, or none can be used.
        """
        saved = comm.by_rank_0(self.ranks, lambda: checkpoint.latest(self.folder))
        if saved is None:
            return False
        if self.ranks.rank == 0:
            for text in saved.skipped:
                log.warning("%s", text)
        own = self._meta()
        # Releases that did not keep what validates would go on with any.
        meta = {"valid": own["valid"], "virial_offsets": [], **saved.meta}
        compared = [(what, meta[name], own[name]) for name, what in IDENTITY.items()]
        offsets = (len(one["virial_offsets"]) for one in (meta, own))
        for what, there, here in (*compared, ("offsets of virials, of sources", *offsets)):
            if there != here:
                raise comm.SharedFailure(
                    f"the checkpoint '{saved.path}' is of another training: {what} {there!s:.200}, "
                    f"expected {here!s:.200}; go on with what it was begun with (run.toml beside "
                    "it), choose another folder (-o), or start from its best.pt with --finetune"
                )
        self.learner.restore(saved.arrays)
        self.offsets.put(dict(zip(self.offsets.values, meta["virial_offsets"], strict=True)))
        self.progress = progress = Progress(**meta["progress"])
        if (limit := self.config.run.max_time) != progress.max_time:
            progress.fraction *= min(1.0, progress.max_time / limit) if limit else 0.0
            progress.max_time = limit
        return True


def counted(rmse: Collection[str]) -> list[str]:
    """Those quantities that a score has, of those that there are errors of."""
    return [name for name in ("energy", "force", "born") if name in rmse] or list(rmse)


def score_of(rmse: Mapping[str, float], untaught: Mapping[str, float]) -> float:
    """How good a model is, whenever it is judged; the best has the lowest.

    The mean logarithm of its errors of energies, forces and Born charges, as far as it learns from
    labels of them, over those of a model that knows no neighbors. Virials count where there are no
    others. Errors beyond those count like them: energies swing while forces are learned, and a
    model that has learned nothing is not to win by that.

    Args:
        rmse: of the quantities that have labels, as they are reported.
        untaught: the same of a model that knows no neighbors.
    """
    names = counted(rmse)
    if not all(np.isfinite(rmse[name]) for name in names):
        return float("nan")
    ratios = [rmse[name] / untaught[name] if untaught[name] > 0.0 else 1.0 for name in names]
    return float(np.mean(np.log(np.clip(ratios, TINY, 1.0))))
