"""What is compiled and needs no torch, by its C interfaces.

Model files with what pair_style pwmlff would evaluate them by are :class:`ModelHandle`
(models/c_interface.h); the parts of a NEP are :func:`nep_parts` and :class:`NepTraining`
(kernels/nep/c_interface.h). All errors are ValueError with the text of the library.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pwmlff import plugin


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
        for name in ("energy", "atom_energy", "force", "virial", "atom_virial", "gamma")
    )


class _Array(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("size", ctypes.c_uint64))


#: Numbers and arrays of a NEP (kernels/nep/network.h), by the names there.
_NEP_NUMBERS = (
    "nradial", "nangular", "kradial", "kangular", "l_max", "nhidden0", "nhidden1", "temperature",
)  # fmt: skip
_NEP_LISTS: dict[str, type[ctypes.Array[Any]]] = {
    "invariant": ctypes.c_int32 * 6, "neighbors": ctypes.c_double * 2,
}  # fmt: skip
_NEP_ARRAYS = (
    "atom_type", "cut_radial", "cut_angular", "c_radial", "c_angular", "q_scaler", "weight0",
    "bias0", "weight1", "bias1", "last", "shift", "zbl_table", "zbl_line",
    "unused",
)  # fmt: skip


class _NepArrays(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in _NEP_NUMBERS),
        *_NEP_LISTS.items(),
        *((name, _Array) for name in _NEP_ARRAYS),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    """libpwmlff_models, and behind it libpwmlff_kernels."""
    library = plugin.opened(plugin.sister(torch_library(), "pwmlff_models"))
    for name in ("error", "describe_model"):
        getattr(library, f"pwmlff_{name}").restype = ctypes.c_char_p
    for name in ("read_nep", "make_nep_training"):
        getattr(library, f"pwmlff_{name}").restype = ctypes.c_void_p
    library.pwmlff_nep_training_size.restype = ctypes.c_uint64
    return library


def _error() -> ValueError:
    return ValueError(_library().pwmlff_error().decode(errors="replace"))


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _array(values: Any, kind: Any = np.float64) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=kind)


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
        facts: of what evaluates it `name`, `description`, `passed_over`, `has_atom_virial` and
            `has_grade`.

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
        if self._library.pwmlff_set_neighbors(self._handle, *sizes, *map(_address, arrays)):
            raise _error()

    def evaluate(
        self, x: np.ndarray, nthreads: int, atom_virial: bool, gamma: bool
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Evaluate the rows that were set last, at least one of them a center.

        Args:
            x: [nrows, 3] positions.
            nthreads: of the CPU.
            atom_virial, gamma: whether they are wanted, of a model that has them.

        Returns:
            Energy of all centers; energies [ncenters]; forces [nrows, 3], of a model with edges all
            on centers; virial [9] xx yy zz xy xz yz yx zx zy; virials of rows [nrows, 6]; gamma
            [ncenters]. None for the last two where they are not wanted.
        """
        n, ncenters = self._nrows, self._ncenters
        energy, energies, forces = np.empty(1), np.empty(ncenters), np.empty((n, 3))
        virial = np.empty(9)
        virials = np.empty((n, 6)) if atom_virial else None
        grades = np.empty(ncenters) if gamma else None
        arrays = energy, energies, forces, virial, virials, grades
        results = _Results(*(None if array is None else array.ctypes.data for array in arrays))
        positions, threads = _array(x), ctypes.c_int(nthreads)
        if self._library.pwmlff_evaluate_model(
            self._handle, _address(positions), threads, ctypes.byref(results)
        ):
            raise _error()
        return float(energy[0]), energies, forces, virial, virials, grades


def looks_like_nep(contents: bytes) -> bool:
    """Whether a file begins as a nep.txt does."""
    return bool(_library().pwmlff_looks_like_nep(contents, ctypes.c_uint64(len(contents))))


def nep_parts(text: bytes) -> dict[str, Any]:
    """The parts of a nep.txt by their names in kernels/nep/network.h, arrays without shape.

    Raises:
        ValueError: it is damaged or no local potential; the text goes on after the name of the
            file.
        ImportError: nothing is compiled.
    """
    library, found = _library(), _NepArrays()
    model = library.pwmlff_read_nep(text, ctypes.c_uint64(len(text)))
    if not model:
        raise _error()
    library.pwmlff_nep_arrays_of(ctypes.c_void_p(model), ctypes.byref(found))
    parts: dict[str, Any] = {name: getattr(found, name) for name in _NEP_NUMBERS}
    parts |= {name: list(getattr(found, name)) for name in _NEP_LISTS}
    for name in _NEP_ARRAYS:
        array, kind = getattr(found, name), np.int32 if name == "atom_type" else np.float64
        size = array.size * np.dtype(kind).itemsize
        parts[name] = np.frombuffer(ctypes.string_at(array.values, size), kind).copy()
    library.pwmlff_free_nep(ctypes.c_void_p(model))
    return parts


class NepTraining:
    """A NEP in training (kernels/nep/nep_training.h); not for two threads at once.

    Args:
        parts: of the model, as :func:`nep_parts` has them; without temperature.
        single: whether in float32.
        present: [species] those that occur in structures.

    Attributes:
        nparameters: how many there are.

    Raises:
        ValueError: the kernels cannot train it.
    """

    def __init__(self, parts: Mapping[str, Any], single: bool, present: np.ndarray) -> None:
        self._library, given = _library(), _NepArrays()
        held = []
        for name in _NEP_NUMBERS:
            setattr(given, name, parts[name])
        for name, kind in _NEP_LISTS.items():
            setattr(given, name, kind(*parts[name]))
        for name in _NEP_ARRAYS:
            array = _array(parts[name], np.int32 if name == "atom_type" else np.float64)
            held.append(array)
            setattr(given, name, _Array(array.ctypes.data, array.size))
        species = _array(present, np.int32)
        made = self._library.pwmlff_make_nep_training(
            ctypes.byref(given), ctypes.c_int(single), _address(species)
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
        self._call("set", _array(parameters))

    def describe(self, frame: NepFrame, width: int) -> np.ndarray:
        """Descriptors before scaling, [n, width]."""
        q = np.zeros((len(frame), width))
        self._call("describe", *frame.arguments, q)
        return q

    def evaluate(self, frame: NepFrame) -> tuple[float, np.ndarray, np.ndarray]:
        """Energy, forces [n, 3] and virial [3, 3]."""
        energy, forces, virial = np.zeros(1), np.zeros((len(frame), 3)), np.zeros((3, 3))
        self._call("evaluate", *frame.arguments, energy, forces, virial)
        return float(energy[0]), forces, virial

    def gradient(self, frame: NepFrame, a: float, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The gradient of a E + v . F + w : W by the parameters."""
        result = np.zeros(self.nparameters)
        arrays = _array(v), _array(w), result
        self._call("add_gradient", *frame.arguments, ctypes.c_double(a), *arrays)
        return result

    def _call(self, name: str, *arguments: Any) -> None:
        passed = (_address(x) if isinstance(x, np.ndarray) else x for x in arguments)
        if getattr(self._library, f"pwmlff_nep_training_{name}")(self._training, *passed):
            raise _error()


class NepFrame:
    """A structure as :class:`NepTraining` takes it.

    Args:
        species: [n] index into the model's elements.
        rij: [edges, 3] in the order of centers, then species of neighbors.
        j: [edges] the atom at the other end.
        count: [n, species] edges.
    """

    def __init__(
        self, species: np.ndarray, rij: np.ndarray, j: np.ndarray, count: np.ndarray
    ) -> None:
        arrays = (
            _array(species, np.int32), _array(rij), _array(j, np.int32), _array(count, np.int32)
        )  # fmt: skip
        self.arguments = (ctypes.c_int(len(species)), *arrays)
        self._natoms = len(species)

    def __len__(self) -> int:
        """How many atoms it has."""
        return self._natoms
