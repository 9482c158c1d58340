"""Training of a module of kind EDGE, whatever is in it: autograd, twice, through its forward.

    module = load_module("my_model.py:Model", {"width": 16})
    trainee = EdgeTrainee(module, frames, edges, precision="float32")
    trainee.step(batch, rate, weights)

Frames of a batch are one graph without edges between them, and images are folded onto the atoms, so
forces are complete. With g_ij = dE/dr_ij, r_ij = x_j - x_i: F_k = sum_j g_kj - sum_i g_ik, and the
virial of a frame is -sum r_ij (x) g_ij.

The energy of single atoms of each type, which no module should have to learn, is added to what the
module gives. It starts from what the data say, and its change is learned; the file holds both.

Ranks, and the threads of each, take the gradients of their frames of a batch, which are added up.
"""

from __future__ import annotations

import copy
import fnmatch
import importlib.util
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pwmlff.data import statistics
from pwmlff.data.frames import Frames, rows_of
from pwmlff.data.neighbors import Edges
from pwmlff.evaluation import model_file, trial
from pwmlff.models import save_model
from pwmlff.report import Failure
from pwmlff.train import comm
from pwmlff.train.adam import AdamOptions, averaging

_Module = TypeVar("_Module", bound=nn.Module)

#: Edges that are evaluated together where no gradient by parameters is wanted.
CHUNK_EDGES = 500_000


class Weights(Protocol):
    """Weights of the squared errors in the loss, as [loss] of run.toml says."""

    @property
    def energy(self) -> float:
        """Of energies per atom."""

    @property
    def force(self) -> float:
        """Of components of forces."""

    @property
    def virial(self) -> float:
        """Of components of virials per atom."""

    @property
    def huber(self) -> float:
        """Error beyond which the loss goes on as a line; 0 for never."""


@dataclass(frozen=True)
class Sums:
    """Of one step over all ranks: the loss, and squared errors with the number of each."""

    loss: float
    energy: float  # of energies per atom, (eV/atom)^2
    force: float  # of components, (eV/angstrom)^2
    virial: float  # of components per atom, (eV/atom)^2
    energies: int
    forces: int
    virials: int


NSUMS = len(fields(Sums))


# ---- modules


def load_module(
    spec: str, arguments: Mapping[str, Any] | None = None, seed: int = 1
) -> tuple[nn.Module, model_file.ModelInfo]:
    """Make a module of a class in a file, and try whether it keeps to the model contract.

    Args:
        spec: `my_model.py:Model`. The file is executed; what lies beside it can be imported.
        arguments: of the class.
        seed: of its random parameters.

    Returns:
        The module, and what it says of itself.

    Raises:
        Failure: the file or the class is not there or fails, or the module does not keep to the
            contract.
    """
    name, _, class_name = spec.rpartition(":")
    if not name or not class_name.isidentifier():
        raise Failure(f"[model] module is '{spec}', expected FILE:CLASS like my_model.py:Model")
    path = Path(name)
    if not path.is_file():
        raise Failure(f"found no file '{name}' of [model] module '{spec}'")
    kind = getattr(_executed(path), class_name, None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise Failure(f"'{name}' has no class {class_name} that is a torch.nn.Module")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = kind(**(arguments or {}))
        except Exception as error:  # whatever the code of users raises
            raise Failure(
                f"{class_name} of '{name}' with the arguments {dict(arguments or {})} fails: "
                f"{type(error).__name__}: {error}"
            ) from error
    return module, require_contract(module, spec)


def _executed(path: Path) -> Any:
    """The Python module of a file."""
    # The class is looked for by this name when it is scripted.
    name = f"pwmlff_module_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise Failure(f"'{path}' is no Python file: expected a name that ends in .py")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    # Behind all others: no file beside it stands in for one of Python's own.
    sys.path.append(str(path.resolve().parent))
    try:
        found.loader.exec_module(module)
    except Exception as error:  # whatever the code of users raises
        del sys.modules[name]
        raise Failure(f"'{path}' fails: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def require_contract(module: nn.Module, name: str) -> model_file.ModelInfo:
    """Script a module and evaluate it once, as lmp would.

    Args:
        module: of kind EDGE; it stays as it is.
        name: of it, for messages.

    Raises:
        Failure: it cannot be scripted, an attribute is missing or wrong, or its forward does not
            keep to the contract.
    """
    with tempfile.TemporaryDirectory(prefix="pwmlff-") as folder:
        path = Path(folder, "model.pt")
        try:
            save_model(module, path)
        except OSError:  # a full disk
            raise
        except Exception as error:  # TorchScript has many, and code of users any
            raise Failure(f"'{name}' cannot be scripted: {str(error).strip()}") from error
        try:
            scripted, info = model_file.open_model(path)
        except Failure as failure:
            raise Failure(str(failure).replace(str(path), name)) from failure
    if info.kind != "EDGE":
        raise Failure(
            f"'{name}' is of kind {info.kind}, expected a module with model_type = \"EDGE\""
        )
    if problem := trial.edges(scripted, info):
        raise Failure(f"'{name}' does not keep to the model contract: {problem}")
    return info


class WithEnergyShift(nn.Module):
    """A module of kind EDGE, and the energy of a single atom of each type added to it.

    Args:
        model: the module.
        info: what it says of itself.

    Attributes:
        energy_shift: [ntypes], a parameter; zero at first.
    """

    def __init__(self, model: nn.Module, info: model_file.ModelInfo) -> None:
        super().__init__()
        self.model_type, self.units = "EDGE", info.units
        self.cutoff, self.interaction_range = info.cutoff, info.interaction_range
        self.atom_type = list(info.atom_type)
        self.model = model
        self.energy_shift = nn.Parameter(torch.zeros(len(info.atom_type), dtype=torch.float64))

    def forward(self, edge_vec: Tensor, edge_index: Tensor, types: Tensor, nlocal: int) -> Tensor:
        """Energies of the first nlocal atoms."""
        energies: Tensor = self.model(edge_vec, edge_index, types, nlocal)
        return energies + self.energy_shift[types[:nlocal]]


# ---- graphs


class Graph(NamedTuple):
    """Some frames as one graph; no edge leads from one to another."""

    edge_vec: Tensor  # [E, 3] x_j - x_i
    edge_index: Tensor  # int64 [2, E] center, neighbor; edges are ordered by center
    types: Tensor  # int64 [n]
    frame: Tensor  # int64 [n] which of the frames an atom is of
    nframes: int


def graph_of(
    frames: Frames, edges: Edges, chosen: Sequence[int] | np.ndarray, dtype: torch.dtype
) -> Graph:
    """The graph of some frames, on the CPU.

    Args:
        frames, edges: all frames and their neighbors.
        chosen: frames, in the order of the graph.
        dtype: of edge_vec.
    """
    atoms, rows = rows_of(frames.first, chosen), rows_of(edges.first, chosen)
    natoms = frames.natoms[chosen]
    frame = np.repeat(np.arange(len(chosen)), natoms)
    begin = np.cumsum(natoms) - natoms
    center = np.repeat(np.arange(len(atoms)), edges.count[atoms].sum(axis=1))
    neighbor = edges.j[rows] + begin[frame[center]]
    return Graph(
        torch.from_numpy(edges.rij[rows]).to(dtype),
        torch.from_numpy(np.stack((center, neighbor)).astype(np.int64)),
        torch.from_numpy(edges.types[atoms].astype(np.int64)),
        torch.from_numpy(frame.astype(np.int64)),
        len(chosen),
    )


class Derivatives(nn.Module):
    """Energies of frames [F], forces [n, 3] and virials [F, 3, 3] of a module of kind EDGE.

    In training mode the results can be differentiated by the parameters. Sums are of the type of
    the graph.

    Args:
        model: the module.
        dtype: in which it computes; that of the graph when None.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
        """Evaluate a graph."""
        natoms = len(graph.types)
        dtype = graph.edge_vec.dtype
        vectors = graph.edge_vec.detach().to(self.dtype or dtype).requires_grad_()
        with torch.enable_grad():  # afterwards as before, whatever the module leaves
            atom_energy = self.model(vectors, graph.edge_index, graph.types, natoms)
            slope = None
            if atom_energy.requires_grad:
                (slope,) = torch.autograd.grad(
                    atom_energy.sum(), vectors, create_graph=self.training, allow_unused=True
                )
        if slope is None:  # no edges, or energies that no edge changes
            slope = torch.zeros_like(vectors)
        slope, atom_energy = slope.to(dtype), atom_energy.to(dtype)
        i, j = graph.edge_index[0], graph.edge_index[1]
        zero = slope.new_zeros
        forces = zero(natoms, 3).index_add(0, i, slope).index_add(0, j, -slope)
        outer = graph.edge_vec.unsqueeze(2) * slope.unsqueeze(1)
        virial = zero(graph.nframes, 3, 3).index_add(0, graph.frame[i], -outer)
        energy = atom_energy.new_zeros(graph.nframes).index_add(0, graph.frame, atom_energy)
        return energy, forces, virial


def predict(
    module: nn.Module,
    frames: Frames,
    edges: Edges,
    dtype: torch.dtype = torch.float64,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Evaluate a module of kind EDGE; energies of atoms and slopes are added up in float64.

    Args:
        module: in eval mode, on the CPU.
        frames, edges: structures and neighbors, by the module's elements and cutoff.
        dtype: in which the module computes.
        threads: that evaluate frames.

    Returns:
        Energies [nframes], forces [natoms, 3] and virials [nframes, 3, 3], as in `Frames`.

    Raises:
        Failure: a result is no number; the text names the frame.
    """
    energy, forces = np.empty(len(frames)), np.empty((len(frames.numbers), 3))
    virial = np.empty((len(frames), 3, 3))
    derivatives = Derivatives(module, dtype).eval()

    def evaluate(some: range) -> None:
        # The optimizing executor of TorchScript specializes for sizes, which change.
        with torch.jit.optimized_execution(False):
            found = derivatives(graph_of(frames, edges, some, torch.float64))
        span = slice(some.start, some.stop)
        atoms = slice(int(frames.first[some.start]), int(frames.first[some.stop]))
        energy[span], forces[atoms], virial[span] = (x.detach().numpy() for x in found)

    most = min(CHUNK_EDGES, -(-len(edges) // threads))
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(evaluate, edges.chunks(most)):
            pass
    finite = np.isfinite(energy) & np.isfinite(virial).all(axis=(1, 2))
    rows = np.flatnonzero(~np.isfinite(forces).all(axis=1))
    finite[np.searchsorted(frames.first, rows, side="right") - 1] = False
    if not finite.all():
        raise Failure(
            f"{frames.where(int(np.argmin(finite)))}: the model gives an energy, force or virial "
            "that is no number; look for overlapping atoms or a division by zero in it"
        )
    return energy, forces, virial


# ---- training


class EdgeTrainee:
    """A module of kind EDGE, the frames that it learns from, and AdamW that moves it.

    Args:
        module: what learns; a copy of it is trained.
        frames, edges: all that it learns from, with neighbors by its elements and cutoff.
        ranks: who takes part; all have the same frames.
        options: of AdamW and of the average of the parameters.
        precision: of the steps, "float32" or "float64"; what is judged and saved is float64.
        freeze: names of parameters that stay as they are; `*` stands for any letters.
        of_frame: [nframes] weights of the frames; 1 when None.
        energy_shift: [ntypes] energies of single atoms to start from; from the data when None.
        device: where steps are computed.
        threads: of this rank, each of which takes some frames of a batch.

    Raises:
        Failure: the module does not keep to the contract, a name to freeze is of no parameter, or
            there is nothing to learn.
    """

    def __init__(
        self,
        module: nn.Module,
        frames: Frames,
        edges: Edges,
        *,
        ranks: comm.Communicator | None = None,
        options: AdamOptions | None = None,
        precision: str = "float32",
        freeze: Sequence[str] = (),
        of_frame: np.ndarray | None = None,
        energy_shift: np.ndarray | None = None,
        device: str | torch.device = "cpu",
        threads: int = 1,
    ) -> None:
        self.info = require_contract(module, type(module).__name__)
        if list(edges.elements) != list(self.info.atom_type) or edges.cutoff != self.info.cutoff:
            raise ValueError(
                f"edges are for the elements {list(edges.elements)} and the cutoff {edges.cutoff}, "
                f"expected {list(self.info.atom_type)} and {self.info.cutoff}"
            )
        self.frames, self.edges = frames, edges
        self.ranks = ranks or comm.Serial()
        self.options, self.device = options or AdamOptions(), torch.device(device)
        self.threads, self._pool = threads, ThreadPoolExecutor(threads)
        self.dtype = getattr(torch, precision)
        self.of_frame = np.ones(len(frames)) if of_frame is None else np.asarray(of_frame, float)
        if energy_shift is None:
            energy_shift = statistics.shifts(frames, edges)[0]
        self.energy_shift = np.asarray(energy_shift, dtype=np.float64)
        # Whatever the steps are computed in, the model that is judged is this one.
        self._judged = WithEnergyShift(copy.deepcopy(module), self.info).to(torch.float64).eval()
        # That of this one is the change of the energies of single atoms.
        learning = WithEnergyShift(copy.deepcopy(module), self.info)
        self.module = _converted(learning, self.device, self.dtype).train()
        self._freeze(freeze)
        self._derivatives = Derivatives(self.module).train()
        self.optimizer = torch.optim.AdamW(
            self._free,
            lr=0.0,
            betas=(self.options.beta1, self.options.beta2),
            eps=self.options.eps,
            weight_decay=self.options.weight_decay,
        )
        self.steps = 0
        self._path = torch.zeros(self._vector().numel(), dtype=torch.float64)

    def _freeze(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if not fnmatch.filter(self.names, pattern):
                raise Failure(
                    f"[model] freeze has '{pattern}', which no parameter is called; they are named "
                    f"{', '.join(self.names[:8])}"
                )
        for name, parameter in zip(self.names, self.module.parameters(), strict=True):
            free = not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            parameter.requires_grad_(free and parameter.requires_grad)
        if not self._free:
            raise Failure("found no parameter that may change, expected one or more to learn")

    @property
    def _free(self) -> list[nn.Parameter]:
        return [p for p in self.module.parameters() if p.requires_grad]

    # ---- parameters

    @property
    def names(self) -> list[str]:
        """Of the parameters, in the order of the vector: `energy_shift`, then the module's own."""
        return [name.removeprefix("model.") for name, _ in self.module.named_parameters()]

    @property
    def parameters(self) -> np.ndarray:
        """All parameters, float64 [nparameters]; `energy_shift` is the change that was learned."""
        return self._vector().numpy()

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        self._put(self.module, torch.from_numpy(np.array(values, dtype=np.float64)))

    def averaged(self) -> np.ndarray:
        """The parameters that are judged and saved: their average, where that is asked for."""
        if self.options.average is None or self.steps == 0:
            return self.parameters
        return self._path.numpy().copy()

    def _vector(self) -> Tensor:
        parts = [p.detach().double().flatten() for p in self.module.parameters()]
        return torch.cat(parts).cpu()

    @staticmethod
    def _put(module: nn.Module, values: Tensor) -> None:
        parameters = list(module.parameters())
        sizes = [p.numel() for p in parameters]
        with torch.no_grad():
            for parameter, part in zip(parameters, values.split(sizes), strict=True):
                parameter.copy_(part.view_as(parameter))

    # ---- steps

    def step(self, batch: Sequence[int] | np.ndarray, rate: float, weights: Weights) -> Sums:
        """Move the parameters once. Collective.

        The loss of a frame is the sum of its errors as [loss] of run.toml has them; that of the
        batch is, for each quantity, the mean over the frames that have the label, by their weights.

        Args:
            batch: frames of the step on all ranks.
            rate: of learning.
            weights: of the errors, the same on all ranks.

        Raises:
            Failure: the gradient is no number; on all ranks.
        """
        batch = np.asarray(batch, dtype=np.int64)
        slots = comm.owned(self.ranks, len(batch))
        mine = np.arange(slots.start, slots.stop)
        parts = [part for part in np.array_split(mine, self.threads) if len(part)]
        rows = list(self._pool.map(lambda part: self._row(batch, part, weights), parts))
        sizes = [p.numel() for p in self._free]
        row = np.sum(rows, axis=0) if rows else np.zeros(sum(sizes) + NSUMS)
        row = comm.ordered_sum(self.ranks, self.ranks.size, row[None])
        gradient = torch.from_numpy(row[:-NSUMS]).to(self.device, self.dtype)
        for parameter, part in zip(self._free, gradient.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter).clone()
        self._require_finite()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.steps += 1
        if self.options.average is not None:
            self._path.lerp_(self._vector(), 1.0 - averaging(self.options.average, self.steps))
        of_batch, energy, force, virial, *numbers = row[-NSUMS:].tolist()
        return Sums(of_batch, energy, force, virial, *map(int, numbers))

    def _row(self, batch: np.ndarray, mine: np.ndarray, weights: Weights) -> np.ndarray:
        """The gradient of some frames' share in the loss of a batch, and the numbers of Sums.

        Args:
            batch, mine, weights: as `_loss` takes them.

        Returns:
            float64 [nfree + NSUMS], to be added up over all frames.
        """
        loss, sums = self._loss(batch, mine, weights)
        gradients = torch.autograd.grad(loss, self._free, allow_unused=True)
        parts = [
            torch.zeros(p.numel()) if g is None else g.flatten().cpu()
            for p, g in zip(self._free, gradients, strict=True)
        ]
        return np.concatenate([torch.cat(parts).double().numpy(), sums])

    def _loss(
        self, batch: np.ndarray, mine: np.ndarray, weights: Weights
    ) -> tuple[Tensor, np.ndarray]:
        """Share of some frames in the loss of a batch, and the numbers of Sums.

        Args:
            batch: frames of the step on all ranks.
            mine: places in it that are computed here.
            weights: of the errors.
        """
        chosen = batch[mine]
        graph = self._moved(graph_of(self.frames, self.edges, chosen, self.dtype))
        energy, forces, virial = self._derivatives(graph)
        labels = self._labels(chosen)
        natoms = torch.from_numpy(self.frames.natoms[chosen]).double().to(self.device)
        frame = graph.frame
        differences = {
            "energy": (energy.double() - labels["energy"]) / natoms,
            "force": forces.double() - labels["force"],
            "virial": (virial.double() - labels["virial"]) / natoms[:, None, None],
        }
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        squares, numbers = [], []
        for quantity, difference in differences.items():
            weight = getattr(weights, quantity)
            factor = self.frames.shares(quantity, batch, self.of_frame, weight)[mine]
            factor = torch.from_numpy(factor).to(self.device)
            there = labels[quantity].isfinite()
            if quantity == "force":
                factor = (factor / natoms)[frame]
            # Where there is no label, 0 and not 0 times NaN, whose gradient would be NaN.
            error = torch.where(there, difference, 0.0)
            value = _huber(error, weights.huber).reshape(len(error), -1).mean(1)
            loss = loss + (factor * value).sum()
            squares.append(float(error.detach().square().sum()))
            numbers.append(int(there.sum()))
        return loss, np.array([float(loss.detach()), *squares, *numbers])

    def _labels(self, chosen: np.ndarray) -> dict[str, Tensor]:
        """Labels of some frames, NaN where there is none; energies less those of atoms."""
        frames = self.frames
        atoms = rows_of(frames.first, chosen)
        frame = np.repeat(np.arange(len(chosen)), frames.natoms[chosen])
        shift = np.bincount(frame, self.energy_shift[self.edges.types[atoms]], len(chosen))
        labels = {
            "energy": frames.energies[chosen] - shift,
            "force": frames.forces[atoms],
            "virial": frames.virials[chosen],
        }
        return {name: torch.from_numpy(values).to(self.device) for name, values in labels.items()}

    def _moved(self, graph: Graph) -> Graph:
        edge_vec, edge_index, types, frame = (x.to(self.device) for x in graph[:4])
        return Graph(edge_vec, edge_index, types, frame, graph.nframes)

    def _require_finite(self) -> None:
        """Clip the gradient; refuse one that is no number."""
        gradients = [p.grad for p in self._free if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not norm.isfinite():
            raise Failure(
                f"step {self.steps + 1}: the gradient of the loss is {float(norm)}; learn at a "
                "lower rate, in float64, or look for a division by zero in the module"
            )
        if self.options.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._free, self.options.clip, norm)

    # ---- what comes of it

    def judged(self) -> nn.Module:
        """The averaged model in float64 and eval mode, energies of single atoms included."""
        buffers = dict(self.module.named_buffers())
        with torch.no_grad():
            for name, buffer in self._judged.named_buffers():
                buffer.copy_(buffers[name])
            self._put(self._judged, torch.from_numpy(self.averaged()))
            self._judged.energy_shift.add_(torch.from_numpy(self.energy_shift))
        return self._judged

    def evaluate(self, frames: Frames, edges: Edges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Energies, forces and virials of the model that would be saved now, as :func:`predict`."""
        return predict(self.judged(), frames, edges, threads=self.threads)

    def save(
        self, path: str | PathLike[str], card: Mapping[str, Any] | None = None
    ) -> str | PathLike[str]:
        """Write the model file, as :func:`pwmlff.models.save_model` does."""
        return save_model(self.judged(), path, card)

    # ---- checkpoints

    def state(self) -> dict[str, np.ndarray]:
        """All that steps depend on, as arrays; the same on all ranks."""
        found = {f"module/{k}": v for k, v in self.module.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer/{index}/{k}": v for k, v in moments.items()}
        found["average"] = self._path
        arrays = {name: value.detach().cpu().numpy().copy() for name, value in found.items()}
        shift = self.energy_shift.copy()
        return {**arrays, "energy_shift": shift, "steps": np.array(self.steps)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state.

        Raises:
            Failure: it is one of another module.
        """
        own = self.module.state_dict()
        saved = {k.removeprefix("module/"): v for k, v in arrays.items() if k.startswith("module/")}
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        if {name: value.shape for name, value in saved.items()} != shapes:
            raise Failure(
                f"the checkpoint holds {', '.join(sorted(saved))}, expected {', '.join(own)} with "
                "the same shapes: it is of another module"
            )
        self.module.load_state_dict({k: torch.tensor(v) for k, v in saved.items()})
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in arrays.items():
            if name.startswith("optimizer/"):
                _, index, key = name.split("/")
                moments.setdefault(int(index), {})[key] = torch.tensor(value)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self._path = torch.tensor(arrays["average"])
        self.energy_shift = np.array(arrays["energy_shift"])
        self.steps = int(arrays["steps"])

    def start_from(self, path: str | PathLike[str]) -> None:
        """Take parameters and buffers of a model file of the same module, for fine-tuning.

        Raises:
            Failure: the file is of another module, or cannot be used.
        """
        module, info = model_file.open_model(path)
        own = self.module.model.state_dict()
        plain = dict(module.state_dict())
        # A file of ours has the module as a part, and the energies of single atoms beside it.
        part = {n.removeprefix("model."): v for n, v in plain.items() if n.startswith("model.")}
        none = torch.zeros(len(self.info.atom_type), dtype=torch.float64)
        for found, shift in ((plain, none), (part, plain.get("energy_shift", none))):
            same = {n: v.shape for n, v in found.items()} == {n: v.shape for n, v in own.items()}
            if same and info.atom_type == self.info.atom_type:
                self.module.model.load_state_dict(found)
                self.module.energy_shift.data.zero_()
                self.energy_shift = shift.detach().double().numpy()
                break
        else:
            raise Failure(
                f"'{path}' holds {', '.join(sorted(plain)) or 'no parameters'} for the elements "
                f"{' '.join(info.elements)}, expected {', '.join(sorted(own))} for "
                f"{' '.join(self.info.elements)}: it is of another module"
            )
        # Another setting of the calculation behind the data moves the energies of all atoms.
        left = self.frames.energies - self.evaluate(self.frames, self.edges)[0]
        change, _ = statistics.shifts(replace(self.frames, energies=left), self.edges)
        self.energy_shift = self.energy_shift + change


def _converted(module: _Module, device: torch.device, dtype: torch.dtype) -> _Module:
    """The module with all floating-point tensors there and of that type, plain attributes too."""
    for part in module.to(device, dtype).modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(part, name, value.to(device, dtype))
    return module


def _huber(error: Tensor, delta: float) -> Tensor:
    """error^2, or beyond delta the line that goes on there."""
    if delta <= 0.0:
        return error.square()
    size = error.abs()
    return torch.where(size <= delta, error.square(), delta * (2.0 * size - delta))
