"""Adam on one flat vector of parameters, a schedule of learning rates, an average of the path.

Per step t = 1, 2, ... with gradient g and rate r, element by element
(doi:10.48550/arXiv.1412.6980; decay of weights as in doi:10.48550/arXiv.1711.05101):

    g <- g min(1, clip / |g|)
    x <- x (1 - r weight_decay)
    m <- beta1 m + (1 - beta1) g
    v <- beta2 v + (1 - beta2) g^2
    x <- x - r / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pwmlff.report import Failure
from pwmlff.train import steps

WINDOW = 9.0  # steps so far over those that an average remembers at most


@dataclass(frozen=True)
class Schedule:
    """Learning rate over a run: warm up, stay, decay.

    With f in [0, 1] the part of the run that is done, by steps or by time:

    - f < warmup: peak (start + (1 - start) f / warmup);
    - f <= 1 - decay: peak;
    - beyond, with u = (f - 1 + decay) / decay from 0 to 1: peak (final + (1 - final) (1 - u)).
    """

    peak: float = 2e-3
    warmup: float = 0.01  # part of the run
    decay: float = 0.6  # part of the run, at its end
    start: float = 0.1  # first rate over the peak
    final: float = 0.005  # last rate over the peak

    def learning_rate(self, progress: float) -> float:
        """Rate of the next step, where a part of the run is done; beyond 1 as at 1.

        On several ranks all must give the same number: what one of them has read from a clock.
        """
        progress = min(max(progress, 0.0), 1.0)
        if progress < self.warmup:
            return self.peak * (self.start + (1 - self.start) * progress / self.warmup)
        decayed = progress - (1 - self.decay)
        if decayed <= 0:
            return self.peak
        left = 1 - min(decayed / self.decay, 1.0)
        return self.peak * (self.final + (1 - self.final) * left)


@dataclass(frozen=True)
class AdamOptions:
    """Constants of Adam."""

    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0  # of a step, over its rate
    clip: float | None = None  # largest norm of the whole gradient; None: any


class _Path:
    """Numbers of n parameters that go on from step to step.

    Args:
        n: how many parameters.
        names: of arrays [n] of such numbers.
        other: what a checkpoint with other arrays is.
    """

    def __init__(self, n: int, names: Sequence[str], mismatch: str) -> None:
        self.n, self.steps = n, 0
        self._arrays = {name: np.zeros(n) for name in names}
        self._mismatch = mismatch

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs; copies."""
        arrays = {name: array.copy() for name, array in self._arrays.items()}
        return {"steps": np.array(self.steps), **arrays}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from :meth:`state`, to the last bit.

        Raises:
            Failure: it is of another number of parameters, or lacks something.
        """
        shapes = {name: list(state[name].shape) for name in self._arrays if name in state}
        if "steps" not in state or shapes != {name: [self.n] for name in self._arrays}:
            raise Failure(
                f"found a state with {shapes or 'no arrays'}, expected {', '.join(self._arrays)} "
                f"[{self.n}]: the checkpoint is {self._mismatch}"
            )
        self.steps = int(state["steps"])
        for name, array in self._arrays.items():
            array[:] = state[name]


class Average(_Path):
    """Moving average of the parameters along the path of any optimizer.

    In step t it is y <- a y + (1 - a) x, a = min(decay, (t - 1) / (t + 8)): at most that of the
    last ninth of the path, so the beginning is forgotten in short runs too, without a bias to it.

    Args:
        n: how many parameters.
        decay: of the weight of a step with each later one, 0 to below 1, like 0.999.
    """

    def __init__(self, n: int, decay: float) -> None:
        super().__init__(n, ["path"], "of another model, or was written without an average")
        self.decay = decay

    def add(self, parameters: np.ndarray) -> None:
        """Take in the parameters [n] after a step."""
        decay = min(self.decay, self.steps / (self.steps + WINDOW))
        self.steps += 1
        steps.average(self._arrays["path"], parameters, decay)

    def value(self, parameters: np.ndarray) -> np.ndarray:
        """The average [n]; a copy of the present parameters before the first step."""
        return (self._arrays["path"] if self.steps else parameters).copy()


class Adam(_Path):
    """Adam for n parameters.

    Args:
        n: how many.
        options: the constants.
        free: bool [n], the parameters that may change; None: all. What is frozen neither changes
            nor counts in the norm of the gradient.
        undecayed: numbers of parameters whose size says nothing, like energies of single atoms.
    """

    def __init__(
        self,
        n: int,
        options: AdamOptions | None = None,
        free: np.ndarray | None = None,
        undecayed: np.ndarray | None = None,
    ) -> None:
        super().__init__(n, ["m", "v"], "of another model or optimizer")
        self.options = options or AdamOptions()
        self._frozen = np.flatnonzero(~free) if free is not None else np.zeros(0, int)
        self._undecayed = np.zeros(0, int) if undecayed is None else undecayed

    def step(self, parameters: np.ndarray, gradient: np.ndarray, rate: float) -> float:
        """Change the parameters in place.

        Args:
            parameters: float64 [n].
            gradient: [n] of the loss; not changed.
            rate: of :meth:`Schedule.learning_rate`.

        Returns:
            Norm of the gradient before it is clipped.

        Raises:
            Failure: the gradient is not finite; nothing has changed then.
        """
        assert gradient.shape == parameters.shape == (self.n,)
        o, g = self.options, np.ascontiguousarray(gradient, dtype=float)
        if len(self._frozen):
            g = g.copy()
            g[self._frozen] = 0.0
        norm = math.sqrt(steps.square(g))
        if not math.isfinite(norm):
            raise Failure(
                f"found a gradient of norm {norm} in step {self.steps + 1}, expected a finite one: "
                "lower the rate, clip the norm, or look for bad labels with pwmlff data check"
            )
        self.steps += 1
        frozen_values = parameters[self._frozen]
        constants = steps.AdamConstants(
            beta1=o.beta1,
            beta2=o.beta2,
            eps=o.eps,
            shrink=1.0 - rate * o.weight_decay,
            factor=1.0 if o.clip is None or norm <= o.clip else o.clip / norm,
            rate=rate / (1.0 - o.beta1**self.steps),
            root=1.0 / math.sqrt(1.0 - o.beta2**self.steps),
        )
        lost = (1.0 - constants.shrink) * parameters[self._undecayed]
        self._change(parameters, g, constants, rate)
        parameters[self._undecayed] += lost
        parameters[self._frozen] = frozen_values  # from the decay of the weights
        return norm

    def _change(
        self,
        parameters: np.ndarray,
        gradient: np.ndarray,
        constants: steps.AdamConstants,
        rate: float,
    ) -> None:
        """Change the parameters and the moments in place, also what is frozen."""
        moments = self._arrays.values()
        steps.call("adam_step", self.n, parameters, gradient, *moments, constants)
