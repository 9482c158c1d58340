"""Model files before torch sees them: whether they are sound, and what their own tables say.

Nothing of a file is run here. The checks are those of the pair style (kernels/archive), opened
without torch.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import io
import json
import os
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pwmlff.plugin import open_library

#: Member of an archive that tells how the model was made, among what torch calls extra files.
CARD = "pwmlff.json"
_LARGEST_CARD = 4 << 20  # bytes
_DEEPEST_CARD = 20  # tables in each other
_TEXT = 1024  # bytes for a message


@functools.cache
def _compiled() -> ctypes.CDLL:
    compiled = open_library("pwmlff_archive", "open model files")
    message = (ctypes.c_char_p, ctypes.c_int)
    compiled.pwmlff_check_model_archive.argtypes = (ctypes.c_char_p, ctypes.c_uint64, *message)
    compiled.pwmlff_model_class.argtypes = (ctypes.c_char_p, ctypes.c_uint64, *message)
    compiled.pwmlff_check_limits.argtypes = (
        ctypes.c_double, ctypes.c_double, ctypes.POINTER(ctypes.c_double),
        ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64), ctypes.c_int, *message,
    )  # fmt: skip
    compiled.pwmlff_begin_time_limit.argtypes = (ctypes.c_char_p,)
    compiled.pwmlff_begin_time_limit.restype = ctypes.c_void_p
    compiled.pwmlff_end_time_limit.argtypes = (ctypes.c_void_p,)
    compiled.pwmlff_end_time_limit.restype = None
    return compiled


class OtherFileError(ValueError):
    """A zip file is sound, but no TorchScript archive."""


def _ask(function: Callable[..., int], *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(_TEXT)
    failed = function(*arguments, buffer, _TEXT)
    text = buffer.value.decode(errors="replace")
    if failed:
        raise OtherFileError(text) if failed > 0 else ValueError(text)
    return text


def check(contents: bytes) -> None:
    """Check that the contents of a file are a sound TorchScript archive.

    Raises:
        OtherFileError: they are a sound zip file of another kind, like what torch.save writes.
        ValueError: they are not; the text goes on after the name of the file ("is damaged: ...").
        ImportError: pair-pwmlff is not compiled.
    """
    _ask(_compiled().pwmlff_check_model_archive, contents, len(contents))


def class_name(contents: bytes) -> str:
    """Name of the Python class of the module in an archive that :func:`check` has found sound."""
    return _ask(_compiled().pwmlff_model_class, contents, len(contents))


def check_limits(
    cutoff: float,
    interaction_range: float,
    max_neighbor: float | None,
    atom_type: Sequence[int],
    ntypes: float | None = None,
) -> None:
    """Check that a simulation can have what a model says of itself.

    Args:
        cutoff: length of an edge, angstrom or reduced.
        interaction_range: how far the energy of an atom reaches, likewise.
        max_neighbor: of one element; None where there is no such limit.
        atom_type: atomic numbers, 64 bits.
        ntypes: how many there are, where the file says it besides.

    Raises:
        ValueError: it cannot; the text goes on after the name of the file ("has cutoff ...").
        ImportError: pair-pwmlff is not compiled.
    """
    given = [
        None if value is None else ctypes.byref(ctypes.c_double(value))
        for value in (max_neighbor, ntypes)
    ]
    numbers = (ctypes.c_int64 * len(atom_type))(*atom_type)
    check = _compiled().pwmlff_check_limits
    _ask(check, cutoff, interaction_range, *given, numbers, len(atom_type))


@contextlib.contextmanager
def time_limit(what: str) -> Iterator[None]:
    """For code of a model file, which may go on without an end and cannot be interrupted.

    Where it takes longer than PWMLFF_TRIAL_SECONDS, or 300, this process ends with status 1 and a
    line on stderr.

    Args:
        what: of the line: "'a.pt': its forward".

    Raises:
        ImportError: pair-pwmlff is not compiled.
    """
    limit = _compiled().pwmlff_begin_time_limit(os.fsencode(what))
    try:
        yield
    finally:
        _compiled().pwmlff_end_time_limit(limit)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as the tables of an archive describe it.

    Attributes:
        storage: class of the storage, like DoubleStorage.
        member: name of the member that holds the storage.
        offset, shape, stride: of the tensor in its storage, in elements.
    """

    storage: str
    member: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=object))


@dataclass(frozen=True)
class Tables:
    """What a TorchScript archive says of its module, without running code of it.

    Attributes:
        attributes: its attributes and class constants; tensors are StoredTensor.
        parameters: those of the module and of all that it holds, by name.
    """

    attributes: dict[str, Any]
    parameters: dict[str, StoredTensor]
    _archive: zipfile.ZipFile = field(repr=False)

    def integers(self, tensor: StoredTensor) -> list[int]:
        """Elements of a tensor of integers, row by row."""
        dtype = {"LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2",
                 "CharStorage": "i1", "ByteStorage": "u1"}.get(tensor.storage)  # fmt: skip
        if dtype is None:
            raise ValueError(f"found a tensor of {tensor.storage}, expected one of integers")
        stored = np.frombuffer(self._archive.read(tensor.member), dtype)[tensor.offset :]
        steps = [step * stored.itemsize for step in tensor.stride]
        # check() has seen that it lies within its storage.
        values = np.lib.stride_tricks.as_strided(stored, tensor.shape, steps, writeable=False)
        return [int(value) for value in values.ravel()]


def read(contents: bytes) -> Tables:
    """Read the tables of an archive that :func:`check` has found sound.

    Raises:
        ValueError: they cannot be read without running code of the file; the text goes on after
            the name of the file.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(contents))
        root = archive.namelist()[0].split("/")[0]
        module = _Tables(io.BytesIO(archive.read(f"{root}/data.pkl")), f"{root}/data/").load()
    except _UNREADABLE as error:
        raise ValueError(f"has tables that cannot be read: {error}") from error
    if not isinstance(module, _Object) or not isinstance(module.state, dict):
        raise ValueError(
            "makes its attributes by code of its own, so only running it (--trust) can tell"
        )
    classes = _Classes(archive, root)
    return Tables(
        {**classes.class_of(module).constants, **module.state},
        dict(_parameters(module, classes)),
        archive,
    )


#: What zipfile and an unpickler raise on what torch does not write.
_UNREADABLE = (
    pickle.UnpicklingError, zipfile.BadZipFile, NotImplementedError, AttributeError, EOFError,
    IndexError, KeyError, TypeError, ValueError,
)  # fmt: skip


def card(contents: bytes) -> dict[str, Any] | None:
    """What an archive that :func:`check` has found sound says of how the model was made.

    Any program may have written it: the values can be of any type. None where there is none that
    can be read.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(contents))
        root = archive.namelist()[0].split("/")[0]
        member = archive.getinfo(f"{root}/extra/{CARD}")
        if member.file_size > _LARGEST_CARD:
            return None
        value = json.loads(archive.read(member))
    except (*_UNREADABLE, RecursionError):
        return None
    return value if isinstance(value, dict) and _depth(value) <= _DEEPEST_CARD else None


def _depth(value: Any) -> int:
    """Levels of tables and lists in each other, counted to just beyond what a card may have."""
    depth, level = 0, [value]
    while level and depth <= _DEEPEST_CARD:
        entries: list[Any] = []
        for entry in level:
            if isinstance(entry, dict | list):
                entries += entry.values() if isinstance(entry, dict) else entry
        depth, level = depth + 1, entries
    return depth


class _Object:
    """Stands for what a pickle makes of a class or a function, which is not called."""

    class_name: ClassVar[str] = ""
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any) -> Any:
        self = super().__new__(cls)
        self.arguments, self.state = arguments, None
        if cls.class_name.startswith("torch._utils._rebuild_tensor"):
            (storage, member), offset, shape, stride = arguments[:4]
            return StoredTensor(storage, member, offset, tuple(shape), tuple(stride))
        if cls.class_name.startswith(("torch.jit._pickle.", "torch._utils._rebuild_parameter")):
            return arguments[0]  # the value, and its type
        return self

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Tables(pickle.Unpickler):
    """Reads data.pkl; imports nothing."""

    def __init__(self, stream: io.BytesIO, folder: str) -> None:
        super().__init__(stream)
        self._folder = folder

    def find_class(self, module: str, name: str) -> Any:
        """A class that keeps its arguments, whatever the name."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        return type(name, (_Object,), {"class_name": f"{module}.{name}"})

    def persistent_load(self, identifier: Any) -> tuple[str, str]:
        """Class of a storage and the member that holds it."""
        _, storage, key, *_ = identifier
        return storage.__name__, f"{self._folder}{key}"


@dataclass(frozen=True)
class _Class:
    """What the text of a class declares."""

    constants: dict[str, Any] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()


class _Classes:
    """Classes of an archive, from the text of its code."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        self._archive, self._root = archive, root
        self._files: dict[str, dict[str, _Class]] = {}

    def class_of(self, thing: _Object) -> _Class:
        """The class of an object; one without declarations where the archive has no text of it."""
        module, _, name = thing.class_name.rpartition(".")
        if module not in self._files:
            try:
                text = self._archive.read(f"{self._root}/code/{module.replace('.', '/')}.py")
            except KeyError:
                text = b""
            self._files[module] = dict(_declared(text.decode(errors="replace")))
        return self._files[module].get(name, _Class())


def _declared(text: str) -> Iterator[tuple[str, _Class]]:
    """Classes of a file of code: what stands in their bodies, one level deep."""
    for name, body in re.findall(r"^class (\w+)\(.*\):\n((?:  .*\n|\n)*)", text, re.MULTILINE):
        constants = {
            constant: _literal(value)
            for constant, value in re.findall(r"^  (\w+) : Final\[.*\] = (.*)$", body, re.MULTILINE)
        }
        declared = re.search(r"^  __parameters__ = (\[.*\])$", body, re.MULTILINE)
        parameters = _literal(declared[1]) if declared else []
        yield name, _Class(constants, tuple(parameters or ()))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _parameters(root: _Object, classes: _Classes) -> Iterator[tuple[str, StoredTensor]]:
    """Parameters of a module and of what it holds, each once."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in seen or not isinstance(module.state, dict):
            continue
        seen.add(id(module))
        names = classes.class_of(module).parameters
        for name, value in module.state.items():
            if isinstance(value, StoredTensor) and name in names and id(value) not in seen:
                seen.add(id(value))
                yield f"{prefix}{name}", value
            elif isinstance(value, _Object):
                waiting.append((f"{prefix}{name}.", value))
