"""A neuroevolution potential (NEP) in training: made for the data, and learned from by gradients.

    model = NepModel(initial(NepForm(), frames, edges, seed=1), frames, edges)
    energies, forces, virials = model.evaluate(batch)
    gradient = model.pullback(a, v, w)
    model.save("nep.txt", model.parameters, None)

Energies, forces and gradients are those of kernels/families/nep, without torch. What learns:
the networks, the shifts, the coefficients c and the charges; root_epsilon where there are labels of
Born charges. q_scaler and ZBL stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

import numpy as np
from ase.data import chemical_symbols

from pwmlff.data import statistics
from pwmlff.data.frames import Frames
from pwmlff.data.neighbors import Edges
from pwmlff.evaluation.archive import companion
from pwmlff.evaluation.nep_file import (
    INVARIANTS,
    Nep,
    nep_text,
    parse_nep,
    universal_zbl,
    write_nep,
)
from pwmlff.models.saving import write_companion
from pwmlff.native import NepFrame, NepTraining
from pwmlff.report import Failure
from pwmlff.train import comm
from pwmlff.train.config import NepForm
from pwmlff.train.last_layer import Layered
from pwmlff.train.trainable import Predictions

_T = TypeVar("_T")
#: Energy, forces, virial, and Born charges where they were wanted.
_Result = tuple[float, np.ndarray, np.ndarray, np.ndarray | None]
#: Standard deviation of the weights of the first layer at first: y is about 1 wide.
_FIRST_WEIGHTS = 0.5
#: Of a descriptor over the data, below which rounding alone has left it: symmetry lets it vanish.
_SMALLEST_SPREAD = 1e-10
_SIGNED = 5  # frames that tell the sign of charges
#: Of Pauling's scale, by atomic number; of noble gases without one that of their neighbors.
_ELECTRONEGATIVITY = (
    0, 2.20, 3.5, 0.98, 1.57, 2.04, 2.55, 3.04, 3.44, 3.98, 3.9, 0.93, 1.31, 1.61, 1.90, 2.19, 2.58,
    3.16, 3.1, 0.82, 1.00, 1.36, 1.54, 1.63, 1.66, 1.55, 1.83, 1.88, 1.91, 1.90, 1.65, 1.81, 2.01,
    2.18, 2.55, 2.96, 3.00, 0.82, 0.95, 1.22, 1.33, 1.6, 2.16, 1.9, 2.2, 2.28, 2.20, 1.93, 1.69,
    1.78, 1.96, 2.05, 2.1, 2.66, 2.60, 0.79, 0.89, 1.10, 1.12, 1.13, 1.14, 1.13, 1.17, 1.2, 1.20,
    1.1, 1.22, 1.23, 1.24, 1.25, 1.1, 1.27, 1.3, 1.5, 2.36, 1.9, 2.2, 2.20, 2.28, 2.54, 2.00, 1.62,
    1.87, 2.02, 2.0, 2.2, 2.2, 0.7, 0.9, 1.1, 1.3, 1.5, 1.38, 1.36, 1.28, *[1.3] * 24,
)  # fmt: skip
#: Of the charges of atoms at first, e.
_FIRST_CHARGES = 0.3


def of_file(path: str | PathLike[str], elements: Sequence[int]) -> Nep:
    """The model of a nep.txt to go on from, as far as it is for these elements.

    Args:
        elements: atomic numbers, in the order of the new model; all of the file's if empty.

    Raises:
        Failure: it cannot be read, is not for an element, or of a form that is not trained.
    """
    try:
        model = parse_nep(Path(path).read_bytes())
    except OSError as error:
        raise Failure(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise Failure(f"cannot go on from '{path}', which {error}") from error
    if missing := [chemical_symbols[z] for z in elements if z not in model.elements]:
        known = " ".join(chemical_symbols[z] for z in model.elements)
        raise Failure(
            f"[model] elements has {' '.join(missing)}, and '{path}' is for {known}; expected some "
            "of these"
        )
    if model.temperature:
        raise Failure(
            f"'{path}' has the temperature as a descriptor, which labelled structures do not have; "
            "expected a NEP without"
        )
    try:
        if elements:
            model = model.restricted([model.elements.index(z) for z in elements])
        nep_text(model)
    except ValueError as error:
        raise Failure(f"cannot go on from '{path}': {error}") from error
    return model


def _compiled(model: Nep, single: bool, present: np.ndarray) -> NepTraining:
    """A model without temperature in the kernels, for [S] the species that occur in structures."""
    try:
        return NepTraining(model.contents(), single, present)
    except ValueError as error:
        raise Failure(f"cannot train this NEP: {error}") from error


def _frame(frames: Frames, edges: Edges, k: int) -> NepFrame:
    """A frame as the kernels take it."""
    atoms = slice(int(frames.first[k]), int(frames.first[k + 1]))
    rows = slice(int(edges.first[k]), int(edges.first[k + 1]))
    alone = frames.natoms[k] == 1 and not frames.pbc[k].all()  # without a charge in any box
    return NepFrame(
        edges.types[atoms],
        edges.rij[rows],
        edges.j[rows],
        edges.count[atoms],
        frames.positions[atoms],
        np.eye(3) if alone else frames.cells[k],
    )


def initial(shape: NepForm, frames: Frames, edges: Edges, seed: int) -> Nep:
    """A model with random parameters.

    The last layer of an element that the data have no atom of is zero and stays so, which tells a
    reader of the file: nep.txt has no other place for it.

    Shifts are energies of single atoms that fit the data best. q_scaler is 1/(max - min) of each
    descriptor over the data, as GPUMD has it.

    Args:
        shape: of the model.
        frames, edges: that it will learn from.
        seed: of the parameters.
    """
    rng, s = np.random.default_rng(seed), edges.ntypes
    nradial, nangular = (n + 1 for n in shape.n_max)
    kradial, kangular = (k + 1 for k in shape.basis_size)
    l_max, *flags = shape.l_max
    invariants = tuple(name for name, flag in zip(INVARIANTS, flags, strict=False) if flag)
    width = nradial + nangular * (l_max + len(invariants))
    elements = tuple(int(z) for z in edges.elements)
    zbl = (shape.zbl / 2, shape.zbl) if shape.zbl else ()
    model = Nep(
        elements=elements,
        cut_radial=np.full((s, s), shape.cutoff[0]),
        cut_angular=np.full((s, s), shape.cutoff[1]),
        l_max=l_max,
        invariants=invariants,
        temperature=False,
        layers=(
            (
                rng.normal(0, _FIRST_WEIGHTS, (s, shape.neuron, width)),
                rng.normal(0, 1, (s, shape.neuron)),
            ),
        ),
        last=rng.normal(0, 1 / np.sqrt(shape.neuron), (s, shape.neuron))
        * np.isin(edges.elements, frames.elements)[:, None],
        shift=statistics.shifts(frames, edges),
        c_radial=rng.normal(0, 1 / np.sqrt(kradial), (s, s, nradial, kradial)),
        c_angular=rng.normal(0, 1 / np.sqrt(kangular), (s, s, nangular, kangular)),
        q_scaler=np.ones(width),
        zbl=universal_zbl(zbl, elements) if zbl else None,
        zbl_line=zbl,
    )
    if shape.charge:
        model = with_charges(model, shape.charge, rng)
    compiled = _compiled(model, False, np.ones(s))
    every = (compiled.describe(_frame(frames, edges, k), width) for k in range(len(frames)))
    extremes = np.array([[q.min(axis=0), q.max(axis=0)] for q in every if len(q)])
    spread = extremes[:, 1].max(axis=0) - extremes[:, 0].min(axis=0)
    return replace(model, q_scaler=1 / np.where(spread > _SMALLEST_SPREAD, spread, 1.0))


def with_charges(model: Nep, mode: int, rng: np.random.Generator) -> Nep:
    """The same with small charges by chance, of elements that it has data of.

    Raises:
        Failure: it has other charges, or two hidden layers.
    """
    if model.charge_mode and model.charge_mode != mode:
        raise Failure(
            f"[nep] charge is {mode}, and the model to go on from has charges of mode "
            f"{model.charge_mode}; expected the same, or 0"
        )
    if model.charge_mode:
        return model
    if len(model.layers) > 1:
        raise Failure("found two hidden layers to go on from, expected one in a model with charges")
    charge = rng.normal(0, _FIRST_CHARGES / np.sqrt(model.last.shape[1]), model.last.shape)
    known = (model.last != 0.0).any(axis=1, keepdims=True)
    return replace(model, charge_mode=mode, last_charge=charge * known)


def require_boxes(frames: Frames) -> None:
    """Refuse frames that charges cannot take; an atom alone has none.

    Raises:
        Failure: several atoms are in no box that is periodic in all directions, or their charges
            do not add up to zero.
    """
    charged = np.flatnonzero(frames.total_charges)
    if len(charged):
        k = charged[0]
        raise Failure(
            f"{frames.where(k)} says that its total charge is {frames.total_charges[k]:g} e, but "
            f"charges of a NEP add up to zero; leave {len(charged)} such frames out"
        )
    boxed = frames.pbc.all(axis=1) & (frames.volumes > 0.0)
    open_frames = np.flatnonzero(~boxed & (frames.natoms > 1))
    if len(open_frames):
        k = open_frames[0]
        raise Failure(
            f"{frames.where(k)} is periodic along "
            f"{frames.pbc[k].tolist()}, but charges need a box that is periodic in all directions; "
            f"leave {len(open_frames)} such frames out"
        )


class NepModel(Layered):
    """A NEP, the frames that it learns from, and its parameters as one vector.

    Args:
        model: at first; without temperature.
        frames, edges: all that it learns from, with neighbors by its elements.
        precision: of the steps, "float32" or "float64".
        version: of its files, 4 or 5.
        neutral: weight in the loss of the squared mean charge of a frame, before it is taken off.
        born: weight in the loss of the squared errors of Born charges.
        of_frame: [nframes] weights of the frames, beside their own; all alike when None.
        keep_signs: whether charges have signs that mean something, as those of a file.
        threads: of this rank, each of which takes some frames; they change no bit of a result.
        ranks: who takes part; this one alone when None.

    Raises:
        Failure: the edges are for other elements, or end before the cutoff; or charges cannot take
            a frame (:func:`require_boxes`).
    """

    suffix: ClassVar[str] = ".txt"
    groups: ClassVar = {"embedding": "c_*", "fitting": "[wblrs]*"}

    def __init__(
        self,
        model: Nep,
        frames: Frames,
        edges: Edges,
        precision: str = "float32",
        threads: int = 1,
        ranks: comm.Communicator | None = None,
        version: int = 5,
        neutral: float = 0.0,
        born: float = 0.0,
        of_frame: np.ndarray | None = None,
        keep_signs: bool = False,
    ) -> None:
        if tuple(edges.elements) != model.elements or edges.cutoff < model.cutoff:
            raise Failure(
                f"edges are for the elements {list(edges.elements)} and the cutoff {edges.cutoff}, "
                f"expected {list(model.elements)} and {model.cutoff}"
            )
        self.model, self.frames, self.edges = model, frames, edges
        if model.charge_mode:
            require_boxes(frames)
        labelled = model.charge_mode and frames.has_born.any()
        self.born = born if labelled else 0.0
        self.of_frame = np.ones(len(frames)) if of_frame is None else of_frame
        self.precision, self.version, self.threads = precision, version, threads
        self.neutral, self.keep_signs = neutral, keep_signs or self.born > 0.0
        self.ranks = ranks or comm.Serial()
        self.names, self.shapes, arrays = _named(model)
        self.parameters = np.concatenate([array.ravel() for array in arrays])
        place = self.parts(np.arange(len(self.parameters)))
        shifts = [k for k, name in enumerate(self.names) if name.startswith("shift.")]
        self.energy_biases = np.concatenate([place[k] for k in shifts])
        last = [k for k, name in enumerate(self.names) if name.startswith("last.")]
        pairs = zip(last, shifts, strict=True)
        self.last_layers = [np.concatenate([place[k], place[shift]]) for k, shift in pairs]
        self._pool = ThreadPoolExecutor(threads)
        self._steps = self._step_kernels()
        self._batch = np.zeros(0, int)
        self._nbatch = 0
        self._born: list[np.ndarray | None] = []  # slopes of the loss by Born charges

    def _compiled(self, single: bool, present: np.ndarray) -> list[NepTraining]:
        """The kernels of each thread, for species that occur."""
        return [_compiled(self.model, single, present) for _ in range(self.threads)]

    def _step_kernels(self) -> list[NepTraining]:
        present = np.bincount(self.edges.types, minlength=self.edges.ntypes) > 0
        return self._compiled(self.precision == "float32", present)

    def evaluate(self, batch: np.ndarray) -> Predictions:
        """Predictions for this rank's part of a batch, whose frames the threads share."""
        self._nbatch = len(batch)
        self._batch = np.asarray(batch)[comm.owned(self.ranks, self._nbatch)]
        shares = np.zeros(len(self.frames))
        if self.born > 0.0:
            shares[batch] = self.frames.shares("born", batch, self.of_frame, self.born)
        results = self._evaluated(
            self._steps, self.parameters, self.frames, self.edges, self._batch, shares > 0.0
        )
        self._born = []
        for k, (*_, born) in zip(self._batch, results, strict=True):
            slope = None
            if born is not None:
                error = born - self.frames.born[self.frames.rows(k)]
                slope = 2.0 * shares[k] / error.size * error
            self._born.append(slope)
        return _predictions(results)

    def pullback(self, a: np.ndarray, v: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Gradient of S over all ranks: rows of frames, added up in one order."""
        of_frames = np.split(v, np.cumsum(self.frames.natoms[self._batch])[:-1])
        strains = np.zeros((len(self._batch), 3, 3)) if w is None else w

        def row(compiled: NepTraining, index: int) -> np.ndarray:
            frame = _frame(self.frames, self.edges, self._batch[index])
            several = self.frames.natoms[self._batch[index]] > 1
            neutral = self.neutral / self._nbatch * several
            slopes = a[index], of_frames[index], strains[index], neutral, self._born[index]
            return compiled.gradient(frame, *slopes)

        rows = self._shared_out(self._steps, row, len(self._batch))
        mine = np.reshape(rows, (len(self._batch), len(self.parameters))).astype(np.float64)
        return comm.ordered_sum(self.ranks, self._nbatch, mine)

    def predict(self, parameters: np.ndarray, frames: Frames, edges: Edges) -> Predictions:
        """Predictions in float64 of the model that would be saved."""
        if self.model.charge_mode:
            require_boxes(frames)
        return self._exactly(parameters, frames, edges, np.arange(len(frames)))

    def predictions(self, parameters: np.ndarray, chosen: np.ndarray) -> Predictions:
        """Predictions in float64 for some of its frames."""
        return self._exactly(parameters, self.frames, self.edges, chosen)

    def _exactly(
        self, parameters: np.ndarray, frames: Frames, edges: Edges, chosen: np.ndarray
    ) -> Predictions:
        exact = self._compiled(False, np.ones(edges.ntypes))
        none = np.zeros(len(frames), dtype=bool)
        return _predictions(self._evaluated(exact, parameters, frames, edges, chosen, none))

    def energies_and_gradients(
        self, parameters: np.ndarray, chosen: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Energies in float64, and their derivatives by some parameters."""
        exact = self._compiled(False, np.ones(self.edges.ntypes))
        for kernels in exact:
            kernels.set_parameters(parameters)

        def row(kernels: NepTraining, index: int) -> tuple[float, np.ndarray]:
            frame = _frame(self.frames, self.edges, chosen[index])
            energy, forces, virial, _ = kernels.evaluate(frame, False)
            gradient = kernels.gradient(frame, 1.0, np.zeros_like(forces), np.zeros_like(virial))
            return energy, np.take(gradient, places)

        rows = self._shared_out(exact, row, len(chosen))
        return np.array([energy for energy, _ in rows]), np.array(
            [gradient for _, gradient in rows]
        )

    def born_charges(
        self, parameters: np.ndarray, frames: Frames, edges: Edges
    ) -> np.ndarray | None:
        """Born charges in float64, as of any model."""
        chosen = np.flatnonzero(frames.has_born)
        if not self.model.charge_mode or not len(chosen):
            return None
        exact = self._compiled(False, np.ones(edges.ntypes))
        results = self._evaluated(exact, parameters, frames, edges, chosen, frames.has_born)
        born = np.full((len(frames.numbers), 3, 3), np.nan)
        for k, (*_, found) in zip(chosen.tolist(), results, strict=True):
            born[frames.rows(k)] = found
        return born

    def _evaluated(
        self,
        compiled: list[NepTraining],
        parameters: np.ndarray,
        frames: Frames,
        edges: Edges,
        chosen: np.ndarray,
        with_born: np.ndarray,
    ) -> list[_Result]:
        for kernels in compiled:
            kernels.set_parameters(parameters)

        def evaluated(kernels: NepTraining, index: int) -> _Result:
            k = chosen[index]
            return kernels.evaluate(_frame(frames, edges, k), bool(with_born[k]))

        return self._shared_out(compiled, evaluated, len(chosen))

    def _shared_out(
        self, compiled: list[NepTraining], work: Callable[[NepTraining, int], _T], n: int
    ) -> list[_T]:
        """Results of n frames, each by a thread that has the next kernels for itself."""
        free: SimpleQueue[NepTraining] = SimpleQueue()
        for kernels in compiled:
            free.put(kernels)

        def one_after_another(index: int) -> _T:
            kernels = free.get()
            try:
                return work(kernels, index)
            finally:
                free.put(kernels)

        return list(self._pool.map(one_after_another, range(n)))

    def save(
        self, path: str | PathLike[str], parameters: np.ndarray, card: Mapping[str, Any] | None
    ) -> None:
        """Write a nep.txt, and beside it the card, for which that has no place."""
        companion(path).unlink(missing_ok=True)  # of an older model
        model = _with_parameters(self.model, parameters)
        write_nep(self._with_signs(model), path, self.version)
        if card is not None:
            write_companion(path, card)

    def _with_signs(self, model: Nep) -> Nep:
        """The same with electronegative atoms negative, or with the signs that labels have.

        Energies, forces and virials are the same for charges of the other sign, all at once, and
        Born charges with the other sign of root_epsilon, which is a positive number.
        """
        frames, edges, charge = self.frames, self.edges, model.last_charge
        if charge is None:
            return model
        if model.root_epsilon < 0.0:
            charge = -charge
            model = replace(model, last_charge=charge, root_epsilon=-model.root_epsilon)
        mixed = [k for k in range(len(frames)) if len({*frames.numbers[frames.rows(k)]}) > 1]
        if self.keep_signs or not mixed:
            return model
        kernels = _compiled(model, False, np.ones(edges.ntypes))
        sign = 0.0
        for k in mixed[:_SIGNED]:
            charges = kernels.charges(_frame(frames, edges, k))
            pull = np.array([_ELECTRONEGATIVITY[z] for z in frames.numbers[frames.rows(k)]])
            sign -= charges @ (pull - pull.mean())
        return replace(model, last_charge=-charge) if sign < 0 else model

    def take_signs(self) -> None:
        """Give charges the signs of labels of Born charges, before a training."""
        labelled = np.flatnonzero(self.frames.has_born)[:_SIGNED]
        if not self.born or not len(labelled):
            return
        kernels = _compiled(self.model, False, np.ones(self.edges.ntypes))
        agreement = 0.0
        for k in labelled:
            *_, born = kernels.evaluate(_frame(self.frames, self.edges, k), born=True)
            agreement += float((born * self.frames.born[self.frames.rows(k)]).sum())
        if agreement < 0.0:
            for name, part in zip(self.names, self.parts(self.parameters), strict=True):
                if name.startswith("last_charge."):
                    part[:] = -part

    def free(self, freeze: Sequence[str]) -> np.ndarray:
        """As of any model; nothing but labels of Born charges tells the dielectric constant."""
        free = super().free(freeze)
        if self.model.charge_mode and not self.born:
            self.parts(free)[self.names.index("root_epsilon")][:] = False
        return free

    def state(self) -> dict[str, np.ndarray]:
        """What does not learn, but is of the data."""
        return {"q_scaler": self.model.q_scaler.copy()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self.model = replace(self.model, q_scaler=np.array(arrays["q_scaler"]))
        self._steps = self._step_kernels()


def _predictions(results: Sequence[_Result]) -> Predictions:
    forces = np.concatenate([np.zeros((0, 3)), *(forces for _, forces, *_ in results)])
    virials = np.reshape([virial for _, _, virial, _ in results], (len(results), 3, 3))
    return np.array([energy for energy, *_ in results]), forces, virials


def _named(model: Nep) -> tuple[list[str], list[tuple[int, ...]], list[np.ndarray]]:
    """Names, shapes and arrays of each element, and of each pair: weight0.Hf, c_radial.Hf.O."""
    symbols = [chemical_symbols[z] for z in model.elements]
    names, arrays = [], []
    for name, whole in model.learned().items():
        if name == "root_epsilon":
            names.append(name)
            arrays.append(whole)
            continue
        for a, of_center in zip(symbols, whole, strict=True):
            if name.startswith("c_"):
                names += [f"{name}.{a}.{b}" for b in symbols]
                arrays += list(of_center)
            else:
                names.append(f"{name}.{a}")
                arrays.append(of_center)
    return names, [np.shape(array) for array in arrays], [np.asarray(x) for x in arrays]


def _with_parameters(model: Nep, parameters: np.ndarray) -> Nep:
    """The model with this vector of parameters."""
    old: dict[str, Any] = model.learned()
    parts = np.split(parameters, np.cumsum([array.size for array in old.values()])[:-1])
    named = zip(old, parts, strict=True)
    new: dict[str, Any] = {name: part.reshape(old[name].shape) for name, part in named}
    layers = tuple((new.pop(f"weight{k}"), new.pop(f"bias{k}")) for k in range(len(model.layers)))
    if "root_epsilon" in new:
        new["root_epsilon"] = float(new["root_epsilon"][0])
    return replace(model, layers=layers, **new)
