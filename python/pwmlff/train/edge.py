"""Training of a module of kind EDGE, whatever is in it: autograd, twice, through its forward.

    module, info = load_module("my_model.py:Model", {"width": 16})
    model = TrainableModule(module, frames, edges)
    energies, forces, virials = model.evaluate(batch)
    gradient = model.pullback(a, v, w)

Frames of a batch are one graph without edges between them, and images are folded onto the atoms, so
forces are complete. With g_ij = dE/dr_ij, r_ij = x_j - x_i: F_k = sum_j g_kj - sum_i g_ik, and the
virial of a frame is -sum r_ij (x) g_ij.

The energy of single atoms of each type, which no module should have to learn, is added to what the
module gives. It starts from what the data say, and its change is learned; the file holds both.

Ranks, and the threads of each, take the gradients of their frames of a batch, which are added up.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pwmlff.data import statistics
from pwmlff.data.frames import Frames, rows_of
from pwmlff.data.neighbors import Edges
from pwmlff.evaluation import model_file, trial
from pwmlff.evaluation.edge_graph import taken
from pwmlff.models import save_model
from pwmlff.report import Failure
from pwmlff.train import comm
from pwmlff.train.checkpoint import subset
from pwmlff.train.trainable import Predictions, Trainable, read, write

_Module = TypeVar("_Module", bound=nn.Module)

#: Edges that are evaluated together where no gradient by parameters is wanted.
CHUNK_EDGES = 500_000


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
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Failure(f"'{path}' is no Python file: expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Behind all others: no file beside it stands in for one of Python's own.
    sys.path.append(str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
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
    if names := taken(scripted):
        raise Failure(
            f"'{name}' takes {' and '.join(sorted(names))}, which a training does not make; "
            "expected forward(edge_vec, edge_index, types, nlocal) alone"
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
    frames: Frames,
    edges: Edges,
    chosen: Sequence[int] | np.ndarray,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> Graph:
    """The graph of some frames.

    Args:
        frames, edges: all frames and their neighbors.
        chosen: frames, in the order of the graph.
        dtype: of edge_vec.
        device: of all.
    """
    atoms, rows = rows_of(frames.first, chosen), rows_of(edges.first, chosen)
    natoms = frames.natoms[chosen]
    frame = np.repeat(np.arange(len(chosen)), natoms)
    begin = np.cumsum(natoms) - natoms
    center = np.repeat(np.arange(len(atoms)), edges.count[atoms].sum(axis=1))
    neighbor = edges.j[rows] + begin[frame[center]]
    integers = np.stack((center, neighbor)), edges.types[atoms], frame
    index, types, frame_of_atom = (
        torch.from_numpy(x.astype(np.int64)).to(device) for x in integers
    )
    edge_vec = torch.from_numpy(edges.rij[rows]).to(dtype).to(device)
    return Graph(edge_vec, index, types, frame_of_atom, len(chosen))


def derivatives(
    module: nn.Module, graph: Graph, dtype: torch.dtype, create_graph: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Energies of frames [F], forces [n, 3] and virials [F, 3, 3] of a module of kind EDGE.

    Args:
        module: the module.
        graph: the frames; sums are of its type.
        dtype: in which the module computes.
        create_graph: whether results are to be differentiated by the parameters.
    """
    vectors = graph.edge_vec.detach().to(dtype).requires_grad_()
    with torch.enable_grad():  # afterwards as before, whatever the module leaves
        atom_energy = module(vectors, graph.edge_index, graph.types, len(graph.types))
        slope = None
        if atom_energy.requires_grad:
            (slope,) = torch.autograd.grad(
                atom_energy.sum(), vectors, create_graph=create_graph, allow_unused=True
            )
    if slope is None:  # no edges, or energies that no edge changes
        slope = torch.zeros_like(vectors)
    slope, atom_energy = (x.to(graph.edge_vec.dtype) for x in (slope, atom_energy))
    zero, (i, j) = slope.new_zeros, graph.edge_index
    forces = zero(len(graph.types), 3).index_add(0, i, slope).index_add(0, j, -slope)
    outer = graph.edge_vec.unsqueeze(2) * slope.unsqueeze(1)
    virial = zero(graph.nframes, 3, 3).index_add(0, graph.frame[i], -outer)
    energy = zero(graph.nframes).index_add(0, graph.frame, atom_energy)
    return energy, forces, virial


def predict(
    module: nn.Module,
    frames: Frames,
    edges: Edges,
    dtype: torch.dtype = torch.float64,
    threads: int = 1,
) -> Predictions:
    """Evaluate a module of kind EDGE; energies of atoms and slopes are added up in float64.

    Args:
        module: on the CPU; it is in eval mode afterwards.
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
    module.eval()

    def evaluate(some: range) -> None:
        # The optimizing executor of TorchScript specializes for sizes, which change.
        with torch.jit.optimized_execution(False):
            graph = graph_of(frames, edges, some, torch.float64)
            predictions = derivatives(module, graph, dtype, create_graph=False)
        span = slice(some.start, some.stop)
        atoms = slice(int(frames.first[some.start]), int(frames.first[some.stop]))
        energy[span], forces[atoms], virial[span] = (x.detach().numpy() for x in predictions)

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


class TrainableModule(Trainable):
    """A module of kind EDGE, the frames that it learns from, and its parameters as one vector.

    The vector begins with the change of the energies of single atoms (`energy_shift`). Steps are
    computed in the precision and on the device that are asked for; what is judged and saved is
    float64.

    Args:
        module: what learns; a copy of it is trained.
        frames, edges: all that it learns from, with neighbors by its elements and cutoff.
        precision: of the steps, "float32" or "float64".
        threads: of this rank, each of which takes some frames of a batch.
        ranks: who takes part, all with the same frames; this one alone when None.
        device: where steps are computed.
        info: of :func:`load_module`; the module is tried here when None.

    Raises:
        Failure: the module does not keep to the contract.
        ValueError: the edges are those of another one.
    """

    def __init__(
        self,
        module: nn.Module,
        frames: Frames,
        edges: Edges,
        precision: str = "float32",
        threads: int = 1,
        ranks: comm.Communicator | None = None,
        device: str | torch.device = "cpu",
        info: model_file.ModelInfo | None = None,
    ) -> None:
        self.info = info or require_contract(module, type(module).__name__)
        if list(edges.elements) != list(self.info.atom_type) or edges.cutoff != self.info.cutoff:
            raise ValueError(
                f"edges are for the elements {list(edges.elements)} and the cutoff {edges.cutoff}, "
                f"expected {list(self.info.atom_type)} and {self.info.cutoff}"
            )
        self.frames, self.edges, self.threads = frames, edges, threads
        self.ranks, self.device = ranks or comm.Serial(), torch.device(device)
        self.dtype = getattr(torch, precision)
        self.energy_biases = np.zeros(0, int)
        self.energy_shift = statistics.shifts(frames, edges)  # [ntypes] of single atoms
        self._pool = ThreadPoolExecutor(threads)
        # Whatever the steps are computed in, the model that is judged is this one.
        self._judged = WithEnergyShift(copy.deepcopy(module), self.info).to(torch.float64).eval()
        # That of this one is the change of the energies of single atoms.
        learning = WithEnergyShift(copy.deepcopy(module), self.info)
        self.module = _converted(learning, self.device, self.dtype).train()
        named = list(self.module.named_parameters())
        self.names = [name.removeprefix("model.") for name, _ in named]
        self.shapes = [tuple(p.shape) for _, p in named]
        self.parameters = read(self.module)
        self._outputs: list[tuple[Tensor, Tensor, Tensor]] = []  # of each thread, by `evaluate`

    def free(self, freeze: Sequence[str]) -> np.ndarray:
        """Which parameters learn: all that the module lets, but what is frozen."""
        free, parameters = super().free(freeze), list(self.module.parameters())
        for parameter, part in zip(parameters, self.parts(free), strict=True):
            np.logical_and(part, parameter.requires_grad, out=part)
            parameter.requires_grad_(bool(part.any()))
        return free

    # ---- steps

    def evaluate(self, batch: np.ndarray) -> Predictions:
        """Predictions for this rank's part of a batch, whose frames the threads share."""
        chosen = np.asarray(batch, dtype=np.int64)[comm.owned(self.ranks, len(batch))]
        write(self.module, self.parameters)
        parts = [part for part in np.array_split(chosen, self.threads) if len(part)]
        self._outputs = list(self._pool.map(self._evaluated, parts))
        empty = np.zeros(0), np.zeros((0, 3)), np.zeros((0, 3, 3))
        of_parts = [[x.detach().cpu().numpy() for x in tensors] for tensors in self._outputs]
        energy, forces, virials = map(np.concatenate, zip(empty, *of_parts, strict=True))
        return energy + self._single_atom_energies(chosen), forces, virials

    def _evaluated(self, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        graph = graph_of(self.frames, self.edges, chosen, self.dtype, self.device)
        energy, forces, virials = derivatives(self.module, graph, self.dtype, create_graph=True)
        return energy.double(), forces.double(), virials.double()

    def _single_atom_energies(self, chosen: np.ndarray) -> np.ndarray:
        """What the energies of single atoms are in those of frames, before they change."""
        atoms = rows_of(self.frames.first, chosen)
        frame = np.repeat(np.arange(len(chosen)), self.frames.natoms[chosen])
        energies = self.energy_shift[self.edges.types[atoms]]
        result: np.ndarray = np.bincount(frame, energies, len(chosen))
        return result

    def pullback(self, a: np.ndarray, v: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
        """Gradient of S over all ranks, by autograd in the threads that have evaluated."""
        outputs, self._outputs = self._outputs, []
        frames, atoms = (np.cumsum([len(one[k]) for one in outputs])[:-1] for k in (0, 1))
        slopes = [np.split(a, frames), np.split(v, atoms)]
        slopes += [] if w is None else [np.split(w, frames)]
        rows = self._pool.map(self._gradient, outputs, zip(*slopes, strict=True))
        total = np.sum([np.zeros(len(self.parameters)), *rows], axis=0)
        return comm.ordered_sum(self.ranks, self.ranks.size, total[None])

    def _gradient(self, predictions: Sequence[Tensor], slopes: Sequence[np.ndarray]) -> np.ndarray:
        """Gradient of S of the frames of one thread, zero for what is frozen."""
        s = torch.zeros((), dtype=torch.float64, device=self.device)
        for values, slope in zip(predictions, slopes, strict=False):  # virials last, if they count
            s = s + (torch.from_numpy(slope).to(self.device) * values).sum()
        gradient, parameters = np.zeros(len(self.parameters)), list(self.module.parameters())
        free = [k for k, p in enumerate(parameters) if p.requires_grad]
        gradients = torch.autograd.grad(s, [parameters[k] for k in free], materialize_grads=True)
        parts = self.parts(gradient)
        for k, part in zip(free, gradients, strict=True):
            parts[k][:] = part.double().flatten().cpu().numpy()
        return gradient

    # ---- what comes of it

    def judged(self, parameters: np.ndarray) -> nn.Module:
        """The model in float64 and eval mode, energies of single atoms included."""
        buffers = dict(self.module.named_buffers())
        with torch.no_grad():
            for name, buffer in self._judged.named_buffers():
                buffer.copy_(buffers[name])
            write(self._judged, parameters)
            self._judged.energy_shift.add_(torch.from_numpy(self.energy_shift))
        return self._judged

    def save(
        self, path: str | PathLike[str], parameters: np.ndarray, card: Mapping[str, Any] | None
    ) -> None:
        """Write a model file."""
        save_model(self.judged(parameters), path, card)

    def predict(self, parameters: np.ndarray, frames: Frames, edges: Edges) -> Predictions:
        """Predictions of the model that would be saved, as :func:`predict`."""
        return predict(self.judged(parameters), frames, edges, threads=self.threads)

    # ---- checkpoints

    def state(self) -> dict[str, np.ndarray]:
        """The buffers of the module, and the energies of single atoms at first; copies."""
        buffers = self.module.named_buffers()
        arrays = {f"buffer/{name}": value.detach().cpu().numpy().copy() for name, value in buffers}
        return {**arrays, "energy_shift": self.energy_shift.copy()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from a state.

        Raises:
            Failure: it is one of another module.
        """
        saved, own = subset("buffer/", arrays), dict(self.module.named_buffers())
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        if {name: value.shape for name, value in saved.items()} != shapes:
            raise Failure(
                f"the checkpoint holds the buffers {', '.join(sorted(saved)) or 'none'}, expected "
                f"{', '.join(own) or 'none'} with the same shapes: it is of another module"
            )
        for name, buffer in own.items():
            buffer.copy_(torch.tensor(saved[name]))
        self.energy_shift = np.array(arrays["energy_shift"])

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
        for state, shift in ((plain, none), (part, plain.get("energy_shift", none))):
            same = {n: v.shape for n, v in state.items()} == {n: v.shape for n, v in own.items()}
            if same and info.atom_type == self.info.atom_type:
                self.module.model.load_state_dict(state)
                self.module.energy_shift.data.zero_()
                self.energy_shift = shift.detach().double().numpy()
                break
        else:
            raise Failure(
                f"'{path}' holds {', '.join(sorted(plain)) or 'no parameters'} for the elements "
                f"{' '.join(info.elements)}, expected {', '.join(sorted(own))} for "
                f"{' '.join(self.info.elements)}: it is of another module"
            )
        self.parameters = read(self.module)
        self.energy_shift = self.energy_shift + self.lacking_energies()


def _converted(module: _Module, device: torch.device, dtype: torch.dtype) -> _Module:
    """The module with all floating-point tensors there and of that type, plain attributes too."""
    for part in module.to(device, dtype).modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(part, name, value.to(device, dtype))
    return module
