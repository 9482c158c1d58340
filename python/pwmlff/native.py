"""What is compiled and needs no torch, by its C interfaces.

Model files with what pair_style pwmlff would evaluate them by are :class:`ModelHandle`
(models/model_interface.h). Networks and engines by themselves are :class:`Network` and
:class:`NetworkEngine` (kernels/core/network_interface.h), and :class:`NepTraining`
(kernels/families/nep/training_interface.h). All errors are ValueError with the text of the library.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pwmlff import arrays, plugin
from pwmlff.arrays import Arrays


def torch_library() -> str:
    """Path of libpwmlff_torch; the environment variable PWMLFF_MODELS_LIB names another.

    Raises:
        ImportError: nothing is compiled, or this process has one of another release already.
    """
    plugin_path = plugin.library()
    default = plugin_path and plugin.sister(plugin_path, "pwmlff_torch")
    path = os.environ.get("PWMLFF_MODELS_LIB", default)
    if path is None:
        raise ImportError("found no compiled pair-pwmlff: install it with pip to have its kernels")
    # torch takes the operators of one library, which registers itself with one library of models.
    # Those of a plugin may serve us, if they are the same.
    for name in ("pwmlff_torch", "pwmlff_models"):
        loaded = plugin.in_process(name)
        if loaded is None:
            continue
        found = plugin.sister(loaded, "pwmlff_torch")
        if os.path.realpath(found) == os.path.realpath(path):
            return path
        ours, theirs = plugin.origin(path), plugin.origin(loaded)
        if not ours or ours != theirs:
            raise ImportError(
                f"this process has '{loaded}' of {theirs or 'another release'} already, and "
                f"'{path}' is {ours or 'of another release'}: use one of them here (import pwmlff "
                "and plugin load would have to be of one installation), or two processes"
            )
        return found
    return path


class _Options(ctypes.Structure):
    _fields_ = (
        ("engine", ctypes.c_char_p), ("precision", ctypes.c_char_p),
        ("gpu", ctypes.c_int32), ("gpu_demanded", ctypes.c_int32),
        ("present", ctypes.c_void_p), ("nspecies", ctypes.c_int32),
    )  # fmt: skip


class _Results(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "energy", "atom_energy", "force", "virial", "atom_virial", "gamma", "charge", "born"
        )
    )  # fmt: skip


class _NepFrame(ctypes.Structure):
    _fields_ = (
        ("natoms", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("species", "rij", "j", "count", "x", "cell")),
    )


class _EngineSettings(ctypes.Structure):
    _fields_ = (
        ("precision", ctypes.c_char_p), ("present", ctypes.c_void_p),
        ("device", ctypes.c_char_p), ("chunk_bytes", ctypes.c_uint64),
    )  # fmt: skip


class _EngineResults(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "energy", "atom_energy", "force", "virial", "atom_virial", "centroid_virial", "grade"
        )
    )  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    """libpwmlff_models, and behind it libpwmlff_kernels."""
    library = plugin.opened(plugin.sister(torch_library(), "pwmlff_models"))
    for name in (
        "error",
        "describe_model",
        "describe_network",
        "describe_engine",
        "family_of_file",
    ):
        getattr(library, f"pwmlff_{name}").restype = ctypes.c_char_p
    for name in ("read_network", "network_arrays", "make_engine", "make_nep_training"):
        getattr(library, f"pwmlff_{name}").restype = ctypes.c_void_p
    library.pwmlff_nep_training_size.restype = ctypes.c_uint64
    return library


def _error() -> ValueError:
    return ValueError(_library().pwmlff_error().decode(errors="replace"))


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _array(values: Any, kind: Any = np.float64) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=kind)


def _call(name: str, handle: ctypes.c_void_p, *arguments: Any) -> None:
    """Call a function of what the library holds, with addresses of arrays; its error is raised."""
    passed = (_address(x) if isinstance(x, np.ndarray) else x for x in arguments)
    if getattr(_library(), f"pwmlff_{name}")(handle, *passed):
        raise _error()


class TorchNeeded(Exception):
    """TorchScript has to run: `import pwmlff.kernels` makes that possible, for a second try."""


class ModelHandle:
    """An open model file, and what evaluates it; one thread may use it at a time.

    Args:
        file: its name, for messages.
        contents: of the file.
        engine: auto, fused or torchscript.
        precision: of the fused engine: exact, double or mixed.
        present: [species of the file] whether it takes part.
        gpu: index among the visible GPUs; -1 for the CPU, or for what stands in for a GPU.
        gpu_demanded: an error rather than the CPU instead.

    Attributes:
        facts: of what evaluates it `name`, `description`, `passed_over`, `has_atom_virial`,
            `has_grade` and `has_charges`.

    Raises:
        ValueError: the file is damaged, or what is asked for cannot run it.
        TorchNeeded: it is to run by TorchScript, and pwmlff.kernels is not imported.
        ImportError: nothing is compiled, or this process has another release already.
    """

    def __init__(
        self,
        file: str,
        contents: bytes,
        engine: str,
        precision: str,
        present: Sequence[int],
        gpu: int,
        gpu_demanded: bool,
    ) -> None:
        self._library = _library()
        flags, self._handle = _array(present, np.int32), ctypes.c_void_p()
        options = _Options(
            engine.encode(), precision.encode(), gpu, gpu_demanded, flags.ctypes.data, len(flags)
        )
        failed = self._library.pwmlff_open_model(
            os.fsencode(file), contents, ctypes.c_uint64(len(contents)), ctypes.byref(options),
            ctypes.byref(self._handle),
        )  # fmt: skip
        if failed:
            raise TorchNeeded if failed > 0 else _error()
        described = self._library.pwmlff_describe_model(self._handle)
        self.facts: dict[str, Any] = json.loads(described.decode(errors="surrogateescape"))
        self._ncenters = self._nrows = 0

    def __del__(self) -> None:
        """Close it."""
        if getattr(self, "_handle", None):
            self._library.pwmlff_free_model(self._handle)

    def set_neighbors(
        self,
        species: np.ndarray,
        first: np.ndarray,
        candidate: np.ndarray,
        home: np.ndarray,
        ncenters: int,
    ) -> None:
        """Take over a list of rows, of which the centers are the first; arrays of int32.

        Args:
            species: [nrows] index into the model's elements; -1 takes no part.
            first: [ncenters*nspecies + 1] where the candidates of a center and a species begin.
            candidate: rows, all neighbors within the cutoff and any beyond.
            home: [nrows] the center of which a row is a periodic image; of a center itself.
            ncenters: number of centers.
        """
        arrays = [_array(given, np.int32) for given in (species, first, candidate, home)]
        self._ncenters, self._nrows = ncenters, len(species)
        sizes = ctypes.c_int(ncenters), ctypes.c_int(self._nrows)
        _call("set_neighbors", self._handle, *sizes, *arrays)

    def evaluate(
        self,
        x: np.ndarray,
        cell: np.ndarray | None,
        nthreads: int,
        atom_virial: bool,
        gamma: bool,
        born: bool,
    ) -> ModelResult:
        """Evaluate the rows that were set last, at least one of them a center.

        Args:
            x: [nrows, 3] positions.
            cell: [3, 3] of a box that is periodic along all its edges; None for another one.
            nthreads: of the CPU.
            atom_virial, gamma, born: whether they are wanted, of a model that has them.
        """
        n, ncenters = self._nrows, self._ncenters
        has_charges = self.facts["has_charges"]
        values = ModelResult(
            np.empty(1),
            np.empty(ncenters),
            np.empty((n, 3)),
            np.empty(9),
            np.empty((n, 6)) if atom_virial else None,
            np.empty(ncenters) if gamma else None,
            np.empty(ncenters) if has_charges else None,
            np.empty((n, 9)) if born and has_charges else None,
        )
        results = _Results(*(None if array is None else array.ctypes.data for array in values))
        threads = ctypes.c_int(nthreads)
        edges = None if cell is None else _array(cell)
        _call("evaluate_model", self._handle, _array(x), edges, threads, ctypes.byref(results))
        return values


class ModelResult(NamedTuple):
    """Shapes, units and signs as in kernels/core/evaluation.h; None for what was not wanted."""

    energy: np.ndarray  # [1] of all centers
    atom_energy: np.ndarray  # [ncenters]
    force: np.ndarray  # [nrows, 3], of a model with edges all on centers
    virial: np.ndarray  # [9] xx yy zz xy xz yz yx zx zy
    atom_virial: np.ndarray | None  # [nrows, 6]
    gamma: np.ndarray | None  # [ncenters]
    charge: np.ndarray | None  # [ncenters] of a model that has them
    born: np.ndarray | None  # [nrows, 9] likewise


def family_of(contents: bytes) -> str:
    """The family of models of which contents are a file of its own, as "nep" of nep.txt; or ""."""
    name = _library().pwmlff_family_of_file(contents, ctypes.c_uint64(len(contents)))
    return (name or b"").decode()


class Network:
    """A model as numbers (kernels/core/family.h).

    Args:
        contents: of :func:`pwmlff.arrays.written`, or of a file.
        family: of which they are a file, as "nep" of nep.txt; empty for arrays.

    Attributes:
        facts: kind, atom_type, cutoff, nparameters, has_charges, has_grade, takes_temperature,
            without_data and warnings.

    Raises:
        ValueError: they are damaged, or no model that the fused engines run; the text goes on after
            the name of the file.
        ImportError: nothing is compiled.
    """

    def __init__(self, contents: bytes, family: str = "") -> None:
        self._library, size = _library(), ctypes.c_uint64(len(contents))
        made = self._library.pwmlff_read_network(family.encode() or None, contents, size)
        if not made:
            raise _error()
        self.handle = ctypes.c_void_p(made)
        described = self._library.pwmlff_describe_network(self.handle)
        self.facts: dict[str, Any] = json.loads(described.decode(errors="surrogateescape"))

    def __del__(self) -> None:
        """Free what the library holds."""
        if hasattr(self, "handle"):
            self._library.pwmlff_free_network(self.handle)

    def arrays(self) -> Arrays:
        """What it is made of."""
        size = ctypes.c_uint64()
        start = self._library.pwmlff_network_arrays(self.handle, ctypes.byref(size))
        return arrays.read(ctypes.string_at(start, size.value))


class EngineResult(NamedTuple):
    """Shapes, units and signs as in kernels/core/evaluation.h; None for what was not wanted."""

    energy: float
    atom_energy: np.ndarray  # [ncenters]
    force: np.ndarray  # [nrows, 3]
    virial: np.ndarray  # [9] xx yy zz xy xz yz yx zx zy
    atom_virial: np.ndarray | None  # [nrows, 6]
    centroid_virial: np.ndarray | None  # [nrows, 9]
    grade: np.ndarray | None  # [ncenters] of each atom alone


class NetworkEngine:
    """A fused engine by itself, for training, tests and benchmarks; for one thread at a time.

    Args:
        network: that it evaluates.
        precision: exact, double or mixed; plain for the plain evaluation of a NEP.
        present: [species] whether it takes part.
        device: empty for the engine for CPUs; else of the one for GPUs: cuda:N, or cpu and
            cpu:lanes, where the code for GPUs runs on the CPU (kernels/core/device.h).
        chunk_bytes: of the device for arrays over edges; 0 for the usual.

    Raises:
        ValueError: there is no such engine for this network.
    """

    def __init__(
        self,
        network: Network,
        precision: str,
        present: Sequence[int],
        device: str = "",
        chunk_bytes: int = 0,
    ) -> None:
        self._library = _library()
        flags = _array(present, np.int32)
        self._nspecies = len(flags)
        settings = _EngineSettings(
            precision.encode(), flags.ctypes.data, device.encode(), chunk_bytes
        )
        made = self._library.pwmlff_make_engine(network.handle, ctypes.byref(settings))
        if not made:
            raise _error()
        self._engine = ctypes.c_void_p(made)
        self._ncenters = self._nrows = 0

    def __del__(self) -> None:
        """Free what the library holds."""
        if hasattr(self, "_engine"):
            self._library.pwmlff_free_engine(self._engine)

    @property
    def facts(self) -> dict[str, Any]:
        """`processor`, `table_bytes`, `table_error`, `has_grade`, and `seconds` of each kernel."""
        described = self._library.pwmlff_describe_engine(self._engine)
        return dict(json.loads(described.decode()))

    def measure(self, enabled: bool) -> None:
        """Measure how long each kernel of a device takes from now on, or no longer."""
        self._library.pwmlff_measure_engine(self._engine, ctypes.c_int(enabled))

    def set_neighbors(self, species: np.ndarray, first: np.ndarray, candidate: np.ndarray) -> None:
        """Take over rows, of which the centers are the first, and their candidates.

        Args:
            species: [nrows] index into the model's elements; -1 takes no part.
            first: [ncenters*nspecies + 1] where the candidates of a center and a species begin.
            candidate: rows, all neighbors within the cutoff and any beyond.

        Raises:
            ValueError: the list is none.
        """
        arrays = [_array(given, np.int32) for given in (species, first, candidate)]
        ncenters, rest = divmod(len(first) - 1, self._nspecies)
        if rest or ncenters < 0 or arrays[1][-1] > len(candidate):
            raise ValueError(
                f"first has {len(first)} entries up to {first[-1:]}, expected ncenters*"
                f"{self._nspecies} + 1 of them, up to at most {len(candidate)} candidates"
            )
        sizes = ctypes.c_int(ncenters), ctypes.c_int(len(species))
        _call("set_engine_neighbors", self._engine, *sizes, *arrays)
        self._ncenters, self._nrows = ncenters, len(species)

    def find_neighbors(
        self, x: np.ndarray, species: np.ndarray, ncenters: int, distance: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Have the device find all rows closer than a distance; returns first and candidate."""
        positions, kinds = _array(x), _array(species, np.int32)
        first, candidate = (ctypes.POINTER(ctypes.c_int32)() for _ in range(2))
        sizes = ctypes.c_int(ncenters), ctypes.c_int(len(kinds))
        found = ctypes.byref(first), ctypes.byref(candidate)
        reach = ctypes.c_double(distance)
        _call("find_engine_neighbors", self._engine, *sizes, positions, kinds, reach, *found)
        self._ncenters, self._nrows = ncenters, len(kinds)
        starts = np.ctypeslib.as_array(first, (ncenters * self._nspecies + 1,)).copy()
        if not candidate:  # a null pointer: there are none
            return starts, np.empty(0, np.int32)
        return starts, np.ctypeslib.as_array(candidate, (starts[-1],)).copy()

    def evaluate(
        self,
        x: np.ndarray,
        nthreads: int = 1,
        atom_virial: bool = False,
        centroid_virial: bool = False,
        grade: bool = False,
        temperature: float = 0.0,
    ) -> EngineResult:
        """Evaluate the rows that were set or found last.

        Args:
            x: [nrows, 3] positions.
            nthreads: of the CPU; a device has its own.
            atom_virial, centroid_virial, grade: whether they are wanted.
            temperature: K, for networks that take it.

        Raises:
            ValueError: the engine cannot evaluate them.
        """
        positions = _array(x)
        if positions.shape != (self._nrows, 3):
            raise ValueError(f"x has shape {positions.shape}, expected {(self._nrows, 3)}")
        n, rows = self._ncenters, self._nrows
        wanted = {
            "energy": (1,), "atom_energy": (n,), "force": (rows, 3), "virial": (9,),
            "atom_virial": (rows, 6) if atom_virial else None,
            "centroid_virial": (rows, 9) if centroid_virial else None,
            "grade": (n,) if grade else None,
        }  # fmt: skip
        values = {
            name: None if shape is None else np.empty(shape) for name, shape in wanted.items()
        }
        addresses = (None if array is None else array.ctypes.data for array in values.values())
        results = _EngineResults(*addresses)
        numbers = ctypes.c_int(nthreads), ctypes.c_double(temperature)
        _call("evaluate_engine", self._engine, positions, *numbers, ctypes.byref(results))
        energy = values.pop("energy")
        return EngineResult(float(energy[0]), **values)  # type: ignore[index,arg-type]


class NepTraining:
    """A NEP in training (kernels/families/nep/nep_training.h); not for two threads at once.

    Args:
        contents: arrays of a NEP without temperature (kernels/families/nep/nep_arrays.h).
        single: whether in float32.
        present: [species] those that occur in structures.

    Attributes:
        nparameters: how many there are.

    Raises:
        ValueError: the kernels cannot train it.
    """

    def __init__(self, contents: bytes, single: bool, present: np.ndarray) -> None:
        self._library, species = _library(), _array(present, np.int32)
        made = self._library.pwmlff_make_nep_training(
            contents, ctypes.c_uint64(len(contents)), ctypes.c_int(single), _address(species)
        )
        if not made:
            raise _error()
        self._training = ctypes.c_void_p(made)
        self.nparameters = int(self._library.pwmlff_nep_training_size(self._training))

    def __del__(self) -> None:
        """Free what the library holds."""
        if hasattr(self, "_training"):
            self._library.pwmlff_free_nep_training(self._training)

    def set_parameters(self, parameters: np.ndarray) -> None:
        """Take parameters [nparameters]."""
        _call("nep_training_set", self._training, _array(parameters))

    def describe(self, frame: NepFrame, width: int) -> np.ndarray:
        """Descriptors before scaling, [n, width]."""
        q = np.zeros((len(frame), width))
        _call("nep_training_describe", self._training, frame.argument, q)
        return q

    def charges(self, frame: NepFrame) -> np.ndarray:
        """Charges [n] of a model that has them, before their mean is taken off."""
        charges = np.zeros(len(frame))
        _call("nep_training_charges", self._training, frame.argument, charges)
        return charges

    def evaluate(
        self, frame: NepFrame, born: bool = False
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray | None]:
        """Energy, forces [n, 3], virial [3, 3], and Born charges [n, 3, 3] where wanted."""
        energy, forces, virial = np.zeros(1), np.zeros((len(frame), 3)), np.zeros((3, 3))
        charges = np.zeros((len(frame), 3, 3)) if born else None
        results = energy, forces, virial, charges
        _call("nep_training_evaluate", self._training, frame.argument, *results)
        return float(energy[0]), forces, virial, charges

    def gradient(
        self,
        frame: NepFrame,
        a: float,
        v: np.ndarray,
        w: np.ndarray,
        neutral: float = 0.0,
        born: np.ndarray | None = None,
    ) -> np.ndarray:
        """The gradient of a E + v . F + w : W + born : Z by the parameters.

        Args:
            frame: the structure.
            a, v, w: weights.
            neutral: of the square of the mean charge before it is taken off.
            born: of Born charges Z [n, 3, 3]; None for none.
        """
        result = np.zeros(self.nparameters)
        rates = ctypes.c_double(a), _array(v), _array(w), ctypes.c_double(neutral)
        slopes = None if born is None else _array(born)
        _call("nep_training_add_gradient", self._training, frame.argument, *rates, slopes, result)
        return result


class NepFrame:
    """A structure as :class:`NepTraining` takes it.

    Args:
        species: [n] index into the model's elements.
        rij: [edges, 3] in the order of centers, then species of neighbors.
        j: [edges] the atom at the other end.
        count: [n, species] edges.
        positions: [n, 3], and
        cell: [3, 3] of the box, for models with charges.
    """

    def __init__(
        self,
        species: np.ndarray,
        rij: np.ndarray,
        j: np.ndarray,
        count: np.ndarray,
        positions: np.ndarray,
        cell: np.ndarray,
    ) -> None:
        self._arrays = (
            _array(species, np.int32), _array(rij), _array(j, np.int32), _array(count, np.int32),
            _array(positions), _array(cell),
        )  # fmt: skip
        self._natoms = len(species)
        addresses = (array.ctypes.data for array in self._arrays)
        self._frame = _NepFrame(self._natoms, *addresses)
        self.argument = ctypes.byref(self._frame)

    def __len__(self) -> int:
        """How many atoms it has."""
        return self._natoms
