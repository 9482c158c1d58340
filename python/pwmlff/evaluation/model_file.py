"""What a model file says of itself."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ase.data import atomic_numbers, chemical_symbols

from pwmlff import native
from pwmlff.evaluation import ace_file, archive, nep_file
from pwmlff.evaluation.ace_file import Ace
from pwmlff.evaluation.nep_file import Nep
from pwmlff.report import Failure

if TYPE_CHECKING:
    import torch

#: Attributes that hold the cutoff and the largest number of neighbors of one element, by kind.
LIMITS = {"DP": ("Rmax", "maxNeighborNum"), "EDGE": ("cutoff", None)}
#: Kinds that other programs write too, with attributes of their own: an optional one of ours that
#: has another type is theirs and passed over, and so is `dtype`.
OF_OTHER_PROGRAMS = ("DP",)
UNITS = ("metal", "lj")
PRECISIONS = ("exact", "double", "mixed")  # of the fused engine
#: What the attribute `dtype` of a model can be, but for a torch.dtype, of which scripting makes a
#: number.
DTYPES = {
    "float64": "float64", 7: "float64", None: "float64", "float32": "float32", 6: "float32",
}  # fmt: skip


@dataclass(frozen=True)
class ModelInfo:
    """Attributes of a model file; lengths in angstrom, or reduced where units is "lj"."""

    file: str
    sha256: str
    bytes: int
    kind: str
    units: str
    atom_type: tuple[int, ...]  # atomic numbers, in the order of the model's types
    cutoff: float
    interaction_range: float  # beyond the cutoff where messages are passed
    max_neighbor: int | None  # of one element; None where the kind has no limit
    sel: tuple[int, ...]  # by element, where all of them count in a DP, else empty
    nparameters: int
    dtype: str  # of the parameters; empty where there is none
    sizes: dict[str, Any] = field(default_factory=dict)  # widths of the networks of a DP
    card: dict[str, Any] | None = None  # how it was made, of unknown types; None: it does not say
    takes_temperature: bool = False  # as a descriptor
    has_charges: bool = False  # so that structures have to be periodic
    #: inner and outer radius of ZBL of a DP for each pair of types, center first; empty without
    zbl_radii: list[list[float]] = field(default_factory=list)
    has_grade: bool = False  # whether it tells gamma, as some of kind DP and ACE do
    without_data: tuple[int, ...] = ()  # elements that its training had no atom of, if it says so

    @property
    def limit(self) -> int | None:
        """Neighbors that any element may have; None where the kind has no limit."""
        return min(self.sel, default=self.max_neighbor)

    @property
    def scripted(self) -> bool:
        """Whether the file is TorchScript, with code of its own, and not numbers as in nep.txt."""
        return self.kind in LIMITS

    @property
    def counts_present(self) -> bool:
        """Whether energies depend on which elements take part, as in DPs of PWMLFF and MatPL."""
        return self.kind == "DP" and not self.sel

    @property
    def elements(self) -> list[str]:
        """Chemical symbols, in the order of the model's types."""
        return [chemical_symbols[z] for z in self.atom_type]

    @property
    def elements_without_data(self) -> list[str]:
        """Chemical symbols of those that its training had no atom of."""
        return [chemical_symbols[z] for z in self.without_data]

    @property
    def reach(self) -> str:
        """Cutoff, and the interaction range where it is larger."""
        further = self.interaction_range > self.cutoff
        return f"{self.cutoff:g}" + f", interaction range {self.interaction_range:g}" * further

    def of_card(self, kind: Any, *path: str) -> Any:
        """An entry of nested tables of the card, if it is there and of that type."""
        value: Any = self.card
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value if type(value) is kind else None

    @property
    def isolated_atoms(self) -> dict[str, tuple[float, float]]:
        """Energies of isolated atoms by chemical symbol: of its training's data, and its own."""
        energies = {}
        for symbol in self.elements:
            pair = [
                self.of_card(float, "isolated_atoms", symbol, name) for name in ("data", "model")
            ]
            if None not in pair:
                energies[symbol] = (pair[0], pair[1])
        return energies

    def numbers_of(self, symbols: Sequence[str]) -> list[int]:
        """Atomic numbers of the option `--elements`, in the order of the model; all if empty.

        Raises:
            Failure: one of them is no element of the model.
        """
        numbers = [atomic_numbers.get(symbol, 0) for symbol in symbols]
        if not set(numbers) <= set(self.atom_type):
            raise Failure(
                f"--elements names {' '.join(symbols)}; '{self.file}' has {' '.join(self.elements)}"
            )
        return [z for z in self.atom_type if z in numbers or not numbers]


def read(path: str | PathLike[str]) -> bytes:
    """Contents of a model file that is a sound TorchScript archive.

    Raises:
        Failure: there is no such file, or it is damaged or something else.
    """
    path, contents = fspath(path), read_any(path)
    try:
        archive.check(contents)
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    return contents


class NoFileError(Failure, FileNotFoundError):
    """There is no model file of this name: of both kinds, for commands and for callers."""


def read_any(path: str | PathLike[str]) -> bytes:
    """Contents of a file, whatever it is.

    Raises:
        NoFileError: there is none.
        Failure: it is a folder.
        OSError: it cannot be read.
    """
    if Path(path).is_dir():
        raise Failure(f"'{fspath(path)}' {archive.name_of_folder(path)}")
    if not Path(path).is_file():
        raise NoFileError(f"found no model file '{fspath(path)}'")
    return Path(path).read_bytes()


def load(path: str | PathLike[str]) -> torch.jit.ScriptModule:
    """Load a TorchScript file on the CPU.

    Raises:
        Failure: there is no such file, it is not a sound archive, or torch cannot load it.
    """
    return load_contents(path, read(path))


def load_contents(path: str | PathLike[str], contents: bytes) -> torch.jit.ScriptModule:
    """The same from what :func:`read` has given; path is for messages.

    Raises:
        Failure: torch cannot load it.
    """
    import torch  # noqa: PLC0415  slow to import

    with contextlib.suppress(ImportError):
        import pwmlff.kernels  # noqa: F401, PLC0415  older exports call ops that it brings
    try:
        with warnings.catch_warnings(), archive.time_limit(f"'{fspath(path)}': loading it"):
            # The files are TorchScript: that torch has other formats by now is no news to users.
            warnings.simplefilter("ignore", DeprecationWarning)
            # What was checked is what is loaded.
            module: torch.jit.ScriptModule = torch.jit.load(io.BytesIO(contents), "cpu")
        return module.eval()
    except (RuntimeError, ValueError, torch.jit.Error) as error:
        reason = str(error).strip().split("\n")[0]
        if reason.startswith("Unknown builtin op"):
            reason += " 'pwmlff convert' is for files of other programs"
        raise Failure(
            f"'{fspath(path)}' is sound, but torch cannot load it, of class "
            f"{archive.class_name(contents)}: {reason}"
        ) from error


def kind_of(module: torch.nn.Module) -> str:
    """The attribute `model_type`; "DP" for a module that does not have it, as a text."""
    return _kind(getattr(module, "model_type", None))


def _kind(declared: Any) -> str:
    return declared if isinstance(declared, str) else "DP"  # older DP files do not say


def is_ours(module: torch.nn.Module) -> bool:
    """Whether a module says that it keeps a contract of this project.

    It says so by a known kind in `model_type`. Where that is no text, as in older files of kind DP,
    the attributes say so that a DP has to have.
    """
    if isinstance(getattr(module, "model_type", None), str):
        return kind_of(module) in LIMITS
    return all(hasattr(module, name) for name in LIMITS["DP"] if name)


def dtype_of(module: torch.nn.Module) -> torch.dtype:
    """The type in which a module computes: what its attribute `dtype` says, else float64.

    It is an attribute of the kinds that are written for this project alone; what else may be in it
    is for :func:`open_model` to refuse.
    """
    import torch  # noqa: PLC0415  slow to import

    ours = kind_of(module) not in OF_OTHER_PROGRAMS
    known = _known_dtype(getattr(module, "dtype", None)) if ours else None
    return torch.float32 if known == "float32" else torch.float64


def _known_dtype(declared: Any) -> str | None:
    if type(declared).__module__ == "torch":  # torch.float32
        declared = str(declared).removeprefix("torch.")
    known = declared is None or type(declared) in (str, int)
    return DTYPES.get(declared) if known else None


def slots_by_type(value: Any, ntypes: int, max_neighbor: int) -> tuple[int, ...]:
    """Slots of each type of a DP from its attribute `sel`.

    Empty where that holds something else than ntypes numbers from 1 to max_neighbor: files of other
    programs may, and all types have max_neighbor then.
    """
    if _is_tensor(value) and not value.is_floating_point():
        value = value.flatten().tolist()
    if not isinstance(value, list | tuple) or len(value) != ntypes:
        return ()
    if any(type(slots) is not int or not 1 <= slots <= max_neighbor for slots in value):
        return ()
    return tuple(value)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # without it, there is none
    return torch is not None and isinstance(value, torch.Tensor)


def type_vectors(module: torch.nn.Module) -> dict[int, list[float]]:
    """The vector of each element of a DP with type embedding; else empty, as in other programs."""
    vectors: Any = getattr(module, "type_vector", None)
    return dict(vectors) if isinstance(vectors, Mapping) else {}


def zbl_radii(value: Any, ntypes: int) -> list[list[float]]:
    """Inner and outer radius of ZBL for each pair of types of a DP from its attribute `zbl_radii`.

    Empty where there is none, or something else, as there may be in files of other programs.
    """
    if not isinstance(value, list) or len(value) != ntypes**2:
        return []
    if any(not isinstance(pair, list) or [*map(type, pair)] != [float] * 2 for pair in value):
        return []
    return [list(pair) for pair in value]


def to_its_dtype(module: torch.nn.Module) -> torch.dtype:
    """Bring a module into the type in which it computes, and say which that is.

    What computes in float64 does so whatever the file holds, as in the pair style; float32 stays.
    """
    import torch  # noqa: PLC0415  slow to import

    dtype = dtype_of(module)
    if dtype == torch.float64:
        module.to(dtype)
    return dtype


_NEEDED: Any = object()


class _Attributes:
    """Attributes of a model, each of the type that is asked for.

    One with a default is optional: None stands for it, too, and for kinds of other programs a value
    of another type does.

    Args:
        path: of the file, for messages.
        get: the value of an attribute, or the default that is given to it.
    """

    def __init__(self, path: str, get: Callable[[str, Any], Any]) -> None:
        self._path, self._get = path, get
        self.kind = _kind(get("model_type", None))

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that are not there."""
        return [name for name in names if self._get(name, _NEEDED) is _NEEDED]

    def number(self, name: str, default: Any = _NEEDED) -> Any:
        """A float; an integer is one too."""
        value = self._get(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._other(name, value, "a number", default)
        return float(value)

    def any(self, name: str) -> Any:
        """Whatever it is; None without."""
        return self._get(name, None)

    def text(self, name: str, default: str) -> str:
        """A string."""
        value = self._get(name, default)
        return value if isinstance(value, str) else self._other(name, value, "a string", default)

    def integers(self, name: str, default: Any = _NEEDED) -> Any:
        """A list, a tuple or a tensor of integers."""
        value = self._get(name, default)
        if value is default:
            return value
        if _is_tensor(value):
            if not (value.is_floating_point() or value.is_complex()):
                return [int(entry) for entry in value.flatten().tolist()]
        elif isinstance(value, archive.StoredTensor):
            with contextlib.suppress(ValueError):
                return value.integers()
        if not isinstance(value, list | tuple) or any(type(z) is not int for z in value):
            return self._other(name, value, "a list of integers", default)
        return list(value)

    def dtype(self) -> None:
        """Raise Failure for a `dtype` that is none in which a model of the kind computes."""
        value = self._get("dtype", None)
        if self.kind not in OF_OTHER_PROGRAMS and _known_dtype(value) is None:
            self._wrong_type("dtype", value, "'float64' or 'float32'")

    def _other(self, name: str, value: Any, expected: str, default: Any) -> Any:
        """What stands for a value of another type than expected."""
        if default is _NEEDED or not (value is None or self.kind in OF_OTHER_PROGRAMS):
            self._wrong_type(name, value, expected)
        return default

    def _wrong_type(self, name: str, value: Any, expected: str) -> NoReturn:
        raise Failure(
            f"attribute {name} of '{self._path}' is {type(value).__name__} {str(value)[:40]!r}, "
            f"expected {expected}"
        )


def open_model(path: str | PathLike[str]) -> tuple[torch.jit.ScriptModule, ModelInfo]:
    """Load a file and read its attributes, all of the same contents.

    Raises:
        Failure: as :func:`load`, or the kind is unknown, or an attribute is missing or is not what
            a simulation can have.
    """
    path, contents = fspath(path), read(path)
    module = load_contents(path, contents)

    parameters = {
        name: (tuple(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in module.named_parameters()
    }
    attributes = _Attributes(path, lambda name, default: getattr(module, name, default))
    info = _describe(path, contents, attributes, parameters)
    if info.sel and not attributes.integers("sel", ()):
        module.sel = list(info.sel)  # a training of an older release did not write it
    return module, info


def open_any(path: str | PathLike[str]) -> tuple[torch.jit.ScriptModule | Nep | Ace, ModelInfo]:
    """The same of a file of any kind: a nep.txt or .yace is text, and no code of it runs.

    Raises:
        Failure: as :func:`open_model`, or the file is none that is evaluated, or of a family of
            which there is no reference in Python.
    """
    contents = read_any(path)
    if not (family := native.family_of(contents)):
        return open_model(path)
    network, info = _of_family(fspath(path), contents, family)
    if family == "ace":
        return ace_file.of_network(network), info
    if family != "nep":
        raise Failure(f"'{info.file}' is of kind {info.kind}, of which Python has no reference")
    return nep_file.of_network(network), info


def describe(path: str | PathLike[str]) -> ModelInfo:
    """The attributes alone, also of a file of which there is no reference.

    Raises:
        Failure: as :func:`open_model`, or the file is none that is evaluated.
    """
    contents = read_any(path)
    if family := native.family_of(contents):
        return _of_family(fspath(path), contents, family)[1]
    return open_model(path)[1]


def describe_unopened(path: str | PathLike[str]) -> ModelInfo:
    """Read the attributes of a file from its own tables, without running code of it.

    Raises:
        Failure: as :func:`open_any`, or only its own code could tell.
    """
    if family := native.family_of(contents := read_any(path)):
        return _of_family(fspath(path), contents, family)[1]
    path, contents = fspath(path), read(path)
    try:
        attributes, tensors = archive.read(contents)
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    parameters = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    return _describe(path, contents, _Attributes(path, attributes.get), parameters)


def _of_family(path: str, contents: bytes, family: str) -> tuple[native.Network, ModelInfo]:
    try:
        network = native.Network(contents, family)
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    facts = network.facts
    return network, ModelInfo(
        file=path,
        sha256=hashlib.sha256(contents).hexdigest(),
        bytes=len(contents),
        kind=facts["kind"],
        units="metal",
        atom_type=tuple(facts["atom_type"]),
        cutoff=facts["cutoff"],
        interaction_range=facts["cutoff"],
        max_neighbor=None,
        sel=(),
        nparameters=facts["nparameters"],
        dtype="float64",
        card=archive.extra_of_companion(path, archive.CARD),
        takes_temperature=facts["takes_temperature"],
        has_charges=facts["has_charges"],
        has_grade=facts["has_grade"],
        without_data=tuple(facts["without_data"]),
    )


def _describe(
    path: str,
    contents: bytes,
    attributes: _Attributes,
    parameters: dict[str, tuple[tuple[int, ...], str]],
) -> ModelInfo:
    kind = attributes.kind
    if kind not in LIMITS:
        raise Failure(f"'{path}' is of model_type '{kind}', expected {' or '.join(LIMITS)}")
    cutoff_name, limit = LIMITS[kind]
    missing = attributes.missing(filter(None, ("atom_type", cutoff_name, limit)))
    if missing:
        raise Failure(
            f"'{path}', of class {archive.class_name(contents)}, has no attribute "
            f"{', '.join(missing)}, which a model of kind {kind} needs; see the model contract in "
            "the documentation, or 'pwmlff convert' for files of other programs"
        )
    units = attributes.text("units", "metal")
    if units not in UNITS:
        raise Failure(f"'{path}' is in units '{units}', expected {' or '.join(UNITS)}")
    attributes.dtype()
    cutoff = attributes.number(cutoff_name)
    reach = attributes.number("interaction_range", cutoff) if kind == "EDGE" else cutoff
    max_neighbor = attributes.number(limit) if limit else None
    atom_type = attributes.integers("atom_type")
    ntypes = attributes.number("ntypes", None) if kind == "DP" else None
    try:
        archive.check_limits(cutoff, reach, max_neighbor, atom_type, ntypes)
    except ValueError as error:
        raise Failure(f"'{path}' {error}") from error
    card = archive.extra_json(contents, archive.CARD)
    return ModelInfo(
        file=path,
        sha256=hashlib.sha256(contents).hexdigest(),
        bytes=len(contents),
        kind=kind,
        units=units,
        atom_type=tuple(atom_type),
        cutoff=cutoff,
        interaction_range=reach,
        max_neighbor=None if max_neighbor is None else int(max_neighbor),
        sel=_slots(attributes, len(atom_type), int(max_neighbor or 0), card)
        if kind == "DP"
        else (),
        nparameters=sum(math.prod(shape) for shape, _ in parameters.values()),
        dtype=", ".join(sorted({dtype for _, dtype in parameters.values()})),
        sizes=_sizes(attributes, parameters) if kind == "DP" else {},
        card=card,
        zbl_radii=zbl_radii(attributes.any("zbl_radii"), len(atom_type)) if kind == "DP" else [],
        has_grade=kind == "DP"
        and math.prod(getattr(attributes.any("grade_mean"), "shape", (0,))) > 0,
        without_data=tuple(z for z in atom_type if chemical_symbols[z] in _untrained(card)),
    )


def _untrained(card: dict[str, Any] | None) -> list[Any]:
    """Symbols of elements that a training had no atom of, as its card has them."""
    symbols = (card or {}).get("without_data")
    return symbols if isinstance(symbols, list) else []


def _slots(
    attributes: _Attributes, ntypes: int, max_neighbor: int, card: dict[str, Any] | None
) -> tuple[int, ...]:
    """Slots of each type of a DP, where those of all types count; else empty.

    In a training of this project they do, whose files did not say so by `sel` in older releases.
    """
    sel = slots_by_type(attributes.integers("sel", ()), ntypes, max_neighbor)
    trained_here = isinstance((card or {}).get("configuration"), dict)
    return sel or (max_neighbor,) * ntypes * trained_here


def _sizes(
    attributes: _Attributes, parameters: dict[str, tuple[tuple[int, ...], str]]
) -> dict[str, Any]:
    """Widths of the first embedding and fitting net, and the axis width."""
    sizes: dict[str, Any] = {}
    for net in ("embedding", "fitting"):
        widths: list[int] = []
        while (name := f"{net}_net.0.layers.{len(widths)}.weight") in parameters:
            shape, _ = parameters[name]
            widths.append(shape[-1] if shape else 1)
        sizes[net] = widths
    axis = attributes.number("M2", None)
    sizes["m2"] = int(axis) if axis is not None and math.isfinite(axis) else None
    return sizes


def ensemble_conflicts(models: list[ModelInfo]) -> list[str]:
    """What keeps files from being an ensemble: other elements, cutoff or units than the first."""

    def value(model: ModelInfo, what: str) -> Any:
        if what == "elements":  # in any order
            return " ".join(chemical_symbols[z] for z in sorted(model.atom_type))
        return getattr(model, what)

    first, *others = models
    return [
        f"{what}: '{other.file}' has {value(other, what)}, '{first.file}' has {value(first, what)}"
        for other in others
        for what in ("elements", "cutoff", "units")
        if value(other, what) != value(first, what)
    ]
