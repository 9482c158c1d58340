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
from os import PathLike, fspath
from pathlib import Path
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


def name_of_folder(path: str | os.PathLike[str]) -> str:
    """What a folder is that was given in the place of a model file: goes on after its name.

    Raises:
        ImportError: pair-pwmlff is not compiled.
    """
    buffer = ctypes.create_string_buffer(_TEXT)
    named = _compiled().pwmlff_name_of_folder
    named.restype = None
    named(os.fsencode(path), buffer, ctypes.c_int(_TEXT))
    return buffer.value.decode(errors="replace")


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


#: Types of elements by what their storages are called, where that is another name.
_DTYPES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as the tables of an archive describe it."""

    storage: str  # class of the storage, like DoubleStorage
    archive: zipfile.ZipFile = field(repr=False)  # what holds the storage
    member: str  # of that archive
    offset: int  # in its storage, in elements
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # in elements

    @property
    def dtype(self) -> str:
        """Name of the type of its elements, as torch has it."""
        name = self.storage.removesuffix("Storage")
        return _DTYPES.get(name, name.lower())

    def integers(self) -> list[int]:
        """Elements of a tensor of integers, row by row."""
        if not re.fullmatch(r"u?int\d+", self.dtype):
            raise ValueError(f"found a tensor of {self.storage}, expected one of integers")
        kind = np.dtype(self.dtype).newbyteorder("<")
        stored = np.frombuffer(self.archive.read(self.member), kind)[self.offset :]
        steps = [step * stored.itemsize for step in self.stride]
        # check() has seen that it lies within its storage.
        values = np.lib.stride_tricks.as_strided(stored, self.shape, steps, writeable=False)
        return [int(value) for value in values.ravel()]


def read(contents: bytes) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """Read the tables of an archive that :func:`check` has found sound, without running its code.

    Returns:
        Attributes and class constants of the module, where tensors are StoredTensor, and the
        parameters of the module and of all that it holds, by name.

    Raises:
        ValueError: they cannot be read without running code of the file; the text goes on after
            the name of the file.
    """
    try:
        archive, root = _opened(contents)
        module = _Unpickler(archive, root).load()
    except _UNREADABLE as error:
        raise ValueError(f"has tables that cannot be read: {error}") from error
    if not isinstance(module, _Object) or not isinstance(module.state, dict):
        raise ValueError(
            "makes its attributes by code of its own, so only running it (--trust) can tell"
        )
    classes = _classes(archive, f"{root}/code/")
    constants, _ = classes.get(module.class_name, _NOTHING_DECLARED)
    return {**constants, **module.state}, dict(_parameters(module, classes))


def _opened(contents: bytes) -> tuple[zipfile.ZipFile, str]:
    """An archive, and the folder that all its members are in."""
    archive = zipfile.ZipFile(io.BytesIO(contents))
    return archive, archive.namelist()[0].split("/")[0]


#: What zipfile and an unpickler raise on what torch does not write.
_UNREADABLE = (
    pickle.UnpicklingError, zipfile.BadZipFile, NotImplementedError, AttributeError, EOFError,
    IndexError, KeyError, TypeError, ValueError,
)  # fmt: skip


def companion(path: str | PathLike[str]) -> Path:
    """The file beside a nep.txt with what that has no place for, by the names of extra files."""
    return Path(f"{fspath(path)}.json")


def extra_of_companion(path: str | PathLike[str], name: str) -> dict[str, Any] | None:
    """The same as :func:`extra_json` of a nep.txt."""
    try:
        if companion(path).stat().st_size > _LARGEST_CARD:
            return None
        return _table(json.loads(companion(path).read_bytes())[name])
    except (*_UNREADABLE, OSError, RecursionError):
        return None


def _table(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) and _depth(value) <= _DEEPEST_CARD else None


def extra_json(contents: bytes, name: str) -> dict[str, Any] | None:
    """A table in JSON, of what torch calls extra files, in an archive that is sound.

    Any program may have written it: the values can be of any type. None where there is none that
    can be read.
    """
    try:
        archive, root = _opened(contents)
        member = archive.getinfo(f"{root}/extra/{name}")
        if member.file_size > _LARGEST_CARD:
            return None
        return _table(json.loads(archive.read(member)))
    except (*_UNREADABLE, RecursionError):
        return None


def _depth(value: Any) -> int:
    """Levels of tables and lists in each other, and of what is in them."""
    entries = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, entries), default=0) if isinstance(value, dict | list) else 1


class _Object:
    """Stands for what a pickle makes of a class or a function, which is not called."""

    class_name: ClassVar[str] = ""
    state: Any = None

    def __new__(cls, *arguments: Any) -> Any:
        if cls.class_name.startswith("torch._utils._rebuild_tensor"):
            (storage, archive, member), offset, shape, stride = arguments[:4]
            return StoredTensor(storage, archive, member, offset, tuple(shape), tuple(stride))
        if cls.class_name.startswith(("torch.jit._pickle.", "torch._utils._rebuild_parameter")):
            return arguments[0]  # the value, and its type
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Reads data.pkl; imports nothing."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{root}/data.pkl")))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        """A class that keeps its arguments, whatever the name."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        return type(name, (_Object,), {"class_name": f"{module}.{name}"})

    def persistent_load(self, identifier: Any) -> tuple[str, zipfile.ZipFile, str]:
        """Class of a storage and the member that holds it."""
        _, storage, key, *_ = identifier
        return storage.__name__, self._archive, f"{self._root}/data/{key}"


#: What the text of a class declares: constants, and names of parameters.
_Class = tuple[dict[str, Any], list[str]]
_NOTHING_DECLARED: _Class = ({}, [])


def _classes(archive: zipfile.ZipFile, folder: str) -> dict[str, _Class]:
    """Classes of an archive by their whole name, from the bodies in its code, one level deep."""
    classes = {}
    for member in archive.namelist():
        if not (member.startswith(folder) and member.endswith(".py")):
            continue
        module = member.removeprefix(folder).removesuffix(".py").replace("/", ".")
        text = archive.read(member).decode(errors="replace")
        for name, body in re.findall(r"^class (\w+)\(.*\):\n((?:  .*\n|\n)*)", text, re.MULTILINE):
            constants = re.findall(r"^  (\w+) : Final\[.*\] = (.*)$", body, re.MULTILINE)
            parameters = re.search(r"^  __parameters__ = (\[.*\])$", body, re.MULTILINE)
            classes[f"{module}.{name}"] = (
                {constant: _literal(value) for constant, value in constants},
                list((parameters and _literal(parameters[1])) or ()),
            )
    return classes


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _parameters(root: _Object, classes: dict[str, _Class]) -> Iterator[tuple[str, StoredTensor]]:
    """Parameters of a module and of what it holds, each once."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in seen or not isinstance(module.state, dict):
            continue
        seen.add(id(module))
        _, names = classes.get(module.class_name, _NOTHING_DECLARED)
        for name, value in module.state.items():
            if isinstance(value, StoredTensor) and name in names and id(value) not in seen:
                seen.add(id(value))
                yield f"{prefix}{name}", value
            elif isinstance(value, _Object):
                waiting.append((f"{prefix}{name}.", value))
