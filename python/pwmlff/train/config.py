"""What a training is told: run.toml, checked key by key, as frozen dataclasses.

    config = Config.read("run.toml", ["run.epochs=20"])
    config.model.rmax

A key that is not given has its default. What the classes below say of a key (default, range,
meaning) is what the messages and :func:`reference_page` say of it.
"""

# ruff: noqa: RUF009  (_key returns a field)

from __future__ import annotations

import difflib
import inspect
import json
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ase.data import atomic_numbers

from pwmlff.data import readers
from pwmlff.evaluation.nep_file import is_nep
from pwmlff.report import Failure
from pwmlff.train.adam import AdamOptions, Schedule
from pwmlff.train.kalman import MATPL_BLOCK, MATPL_LAMBDA0, GroupOptions, KalmanOptions
from pwmlff.train.muon import MOMENTUM, PEAK

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Minutes of a training that is told neither epochs nor a time.
DEFAULT_MINUTES = 20.0

Pair = tuple[float, float]


class MissingElements(Failure):
    """Nothing says what elements a model is for."""

    def __init__(self, data: Data) -> None:
        super().__init__(
            "[model] elements is empty, expected chemical symbols like [\"Hf\", \"O\"], or "
            "--elements Hf O"
        )  # fmt: skip
        self.data = data


#: Ends of the range of a key: in words, and whether a value is on the right side.
LIMITS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "most": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def _key(
    default: Any, meaning: str, *, choices: Sequence[str] = (), shown: str = "", **limits: float
) -> Any:  # as what dataclasses.field returns is declared
    """A key: its default, its range (of each number of a list) by LIMITS, and what it means."""
    metadata = {"meaning": meaning, "choices": choices, "shown": shown, "limits": limits}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Data:
    """Labelled structures. Names of files hold from the folder in which the command runs."""

    train: tuple[str, ...] = _key(
        (), "files to learn from; `FILE@0:100:2` takes some of the frames", shown="required"
    )
    valid: tuple[str, ...] = _key((), "files to validate with")
    valid_fraction: float = _key(
        -1.0,
        "share of the frames of `train` to validate with instead; 0: none",
        least=0,
        most=0.9,
        shown="0.1, or 0 with `valid`",
    )
    shift_sources: bool = _key(
        False,
        "take off what energies of atoms in files and groups have above those of the first one, as "
        "structures tell that are alike",
    )
    format: str = _key("", "of all files; as their names and contents say if empty")
    energy: str = _key(
        readers.FREE,
        "of frames with two: the free energy, which forces belong to, or that at sigma -> 0",
        choices=(readers.FREE, readers.ZERO),
    )
    cache: str = _key("auto", "`auto`, `none`, or the folder for what was read and computed")
    group_weights: dict[str, float] = _key(
        {}, "weights of groups of frames in the loss, by name; 1 where not named", least=0
    )
    virial_offset: str = _key(
        "auto",
        "a constant of a source on the diagonal of its virials that is no derivative of the "
        "energy: `fit` takes it off and learns it along, for each source; `leave-out` leaves the "
        "virials of sources with one out; `none` looks for none; `auto` looks at MOVEMENT alone, "
        "fits it where there is one, and leaves virials out whose sign or unit is wrong",
        choices=("auto", "none", "fit", "leave-out"),
    )
    seed: int = _key(1, "of the choice of frames that validate", least=0)


@dataclass(frozen=True)
class Model:
    """The potential."""

    kind: str = _key(
        "",
        "dp: a Deep Potential; nep: a neuroevolution potential; edge: `module`",
        choices=("dp", "nep", "edge"),
        shown="that of `finetune` or `module`, else dp",
    )
    elements: tuple[str, ...] = _key(
        (),
        "chemical symbols, in the order of the model's types",
        shown="required without `finetune` or `module`",
    )
    rmax: float = _key(6.0, "cutoff, angstrom", least=0.01, most=100)
    rmin: float = _key(0.5, "where the switch to zero begins, angstrom", least=0)
    embedding: tuple[int, ...] = _key((25, 25, 25), "widths of the embedding nets", least=1)
    fitting: tuple[int, ...] = _key((50, 50, 50), "hidden widths of the fitting nets", least=1)
    m2: int = _key(16, "axis width of the descriptor", least=1)
    max_neighbor: int = _key(
        0, "neighbor slots per element; 0: as the data need", least=0, most=10000
    )
    units: str = _key("metal", "of the structures and the model", choices=("metal", "lj"))
    module: str = _key(
        "", "`my_model.py:Model`: train this module of kind EDGE instead of a Deep Potential"
    )
    arguments: dict[str, Any] = _key({}, "what the class of `module` is made with")
    finetune: str = _key("", "model file to start from, which gives elements and sizes")
    freeze: tuple[str, ...] = _key(
        (), "what stays as it is: `embedding`, `fitting`, or names of parameters with `*`"
    )
    seed: int = _key(1, "of the random parameters; the models of an ensemble count on", least=0)


@dataclass(frozen=True)
class NepForm:
    """The form of a NEP, by the words of nep.in of GPUMD; other kinds of models take none of it."""

    cutoff: Pair = _key((6.0, 5.0), "radial and angular, angstrom", least=0.01, most=100)
    n_max: tuple[int, int] = _key(
        (4, 4), "functions beyond the first one, radial and angular", least=0, most=19
    )
    basis_size: tuple[int, int] = _key(
        (8, 8), "functions that these are combined of, beyond the first one", least=0, most=100
    )
    l_max: tuple[int, ...] = _key(
        (4, 2, 1),
        "largest degree, then whether there are invariants 222, 1111, 112, 123, 233, 134 of it",
        least=0,
        most=8,
    )
    neuron: int = _key(30, "width of the hidden layer", least=1, most=10000)
    zbl: float = _key(
        0.0,
        "outer radius of the screened repulsion of nuclei, angstrom; 0: none",
        least=0,
        most=100,
    )
    version: int = _key(
        5, "of the file: 5, or 4 for programs that read no nep5, like calorine", least=4, most=5
    )


@dataclass(frozen=True)
class Loss:
    """Weights of the squared errors.

    Of a frame of n atoms: energy ((E - E')/n)^2, in (eV/atom)^2; force, the mean over its 3n
    components, in (eV/Å)^2; virial, the mean over the 9 components divided by n, in
    (eV/atom)^2. The loss of a batch has, of each, the mean over the frames with that label, by the
    weights of their groups. Weights go from the first number to the second as the rate of learning
    falls, most of the way where it is below a tenth of the largest.
    """

    energy: Pair = _key((0.02, 40.0), "weight at the start and at the end", least=0)
    force: Pair = _key((1.0, 1.0), "likewise", least=0)
    virial: Pair = _key((0.02, 0.1), "likewise", least=0)
    huber: float = _key(
        0.0, "error beyond which it counts linearly, in eV/atom and eV/Å; 0: nowhere", least=0
    )


@dataclass(frozen=True)
class Optimizer:
    """How the parameters are moved."""

    name: str = _key(
        "", "the method", choices=("muon", "adam", "kalman"), shown="muon, or adam with `module`"
    )
    learning_rate: float = _key(
        -1.0,
        "muon, adam: after the warm-up",
        above=0,
        most=1,
        shown=f"{PEAK:g}, or {Schedule.peak:g} with `adam`",
    )
    final_learning_rate: float = _key(
        -1.0,
        "muon, adam: at the end",
        least=0,
        most=1,
        shown=f"{Schedule.final:g} times `learning_rate`",
    )
    warmup: float = _key(
        Schedule.warmup,
        "muon, adam: share of the run in which the rate rises from a tenth",
        least=0,
        most=1,
    )
    decay: float = _key(
        Schedule.decay,
        "muon, adam: share of the run, at its end, in which the rate falls",
        least=0,
        most=1,
    )
    ema: float = _key(
        -1.0,
        "decay per step of the average of the parameters that is validated and saved, of the last "
        "ninth of the steps at most; 0: none",
        least=0,
        below=1,
        shown="0.999, or 0 with `kalman`",
    )
    clip: float = _key(0.0, "muon, adam: largest norm of the gradient; 0: any", least=0)
    betas: Pair = _key(
        (-1.0, -1.0),
        "muon, adam: decay of the moments",
        least=0,
        below=1,
        shown=f"[{MOMENTUM}, {AdamOptions.beta2}], or [{AdamOptions.beta1}, {AdamOptions.beta2}] "
        "with `adam`",
    )
    weight_decay: float = _key(
        AdamOptions.weight_decay, "muon, adam: of the parameters, decoupled", least=0
    )
    block: int = _key(
        0,
        "kalman: largest block of the covariance",
        least=0,
        shown=f"{KalmanOptions.block}, or {MATPL_BLOCK} with `matpl`",
    )
    p0: float = _key(KalmanOptions.p0, "kalman: covariance at the start", above=0)
    lambda_: float = _key(
        0.0,
        "kalman: memory at the start; 1 forgets nothing",
        least=0,
        most=1,
        shown=f"{KalmanOptions.lambda0:g}, or {MATPL_LAMBDA0} with `matpl`",
    )
    nu: float = _key(KalmanOptions.nu, "kalman: how the memory grows to 1", above=0, most=1)
    noise_energy: float = _key(
        0.003, "kalman: variance of the noise of energies, in the square of their unit", least=0
    )
    noise_force: float = _key(0.1, "kalman: likewise of forces", least=0)
    noise_virial: float = _key(0.003, "kalman: likewise of virials", least=0)
    groups: int = _key(GroupOptions.groups, "kalman: updates by forces per frame", least=1)
    matpl: bool = _key(False, "kalman: scale as MatPL does")


@dataclass(frozen=True)
class Run:
    """How long, in what precision, on how many cores."""

    batch: int = _key(4, "frames of a step, of all ranks together", least=1)
    epochs: int = _key(0, "passes over the data; 0: as long as `max_time`", least=0)
    max_time: float = _key(
        0.0,
        "minutes from the start of the command to its end; 0: as long as `epochs`",
        least=0,
        shown=f"0, or {DEFAULT_MINUTES:g} if `epochs` is 0 too",
    )
    precision: str = _key("float32", "of a step", choices=("float32", "float64"))
    threads: int = _key(
        0,
        "of a rank; 0: `OMP_NUM_THREADS`, else the cores of the node, shared by its ranks",
        least=0,
    )
    device: str = _key("cpu", "of steps: cpu, cuda (GPUs in turn), cuda:N, or auto")
    validate_every: int = _key(0, "epochs between validations; 0: as is worth it", least=0)
    patience: int = _key(0, "validations without gain before the end; 0: any number", least=0)
    checkpoint_every: float = _key(5.0, "minutes", above=0)
    models: int = _key(1, "of an ensemble, with seeds that count on", least=1)
    seed: int = _key(1, "of the order of the frames", least=0)
    nodes: int = _key(
        64, "of the splines of the embedding nets at first; doubled where too few", least=4
    )
    tensorboard: bool = _key(False, "write events for TensorBoard, where it is installed")


@dataclass(frozen=True)
class Output:
    """Where results go."""

    folder: str = _key(".", "for models, log, checkpoints and pictures; made if need be")


@dataclass(frozen=True)
class Config:
    """All that a training is told.

    Raises:
        Failure: (from what reads it) a key or section is unknown, a value has another type or is
            out of range, or two do not go together; the text says what was found and expected.
    """

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    nep: NepForm = field(default_factory=NepForm)
    loss: Loss = field(default_factory=Loss)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: Run = field(default_factory=Run)
    output: Output = field(default_factory=Output)

    @classmethod
    def read(cls, path: str | PathLike[str], settings: Sequence[str] = ()) -> Config:
        """From a file, with `section.key=value` of the command laid over it."""
        return from_command(toml=path, settings=settings)

    def as_toml(self) -> str:
        """The complete configuration as text that :meth:`read` takes."""
        lines: list[str] = []
        for section in SECTIONS:
            values = getattr(self, section)
            lines += [f"[{section}]"]
            for key in fields(values):
                text = f"{_name(key.name)} = {_toml(getattr(values, key.name))}"
                lines += [f"{text}  # {key.metadata['meaning']}"]
            lines += [""]
        return "\n".join(lines)


#: Classes of the sections.
SECTIONS: dict[str, type[Any]] = get_type_hints(Config)
#: Options of the command, and the keys that they stand for.
OPTIONS = {
    "model": "model.kind",
    "data": "data.train",
    "valid": "data.valid",
    "energy": "data.energy",
    "shift_sources": "data.shift_sources",
    "elements": "model.elements",
    "output": "output.folder",
    "max_time": "run.max_time",
    "epochs": "run.epochs",
    "models": "run.models",
    "finetune": "model.finetune",
    "module": "model.module",
    "device": "run.device",
}
#: By section and key, values and where they come from.
_Given = dict[str, dict[str, tuple[Any, str]]]


def from_command(
    *, toml: str | PathLike[str] | None = None, settings: Sequence[str] = (), **options: Any
) -> Config:
    """The configuration that a command asks for.

    Args:
        toml: a file; nothing but defaults when None.
        settings: of `--set`, as `section.key=value`, the value as in TOML; a bare word is a string.
        options: of the command, by their names in OPTIONS; each that is given stands above the
            file, and `settings` above all.

    Raises:
        Failure: as :class:`Config` says, or the file cannot be read.
    """
    given = {} if toml is None else _of_file(toml)
    for name, value in options.items():
        if value is not None and value is not False and value not in ("", [], ()):
            _put(given, OPTIONS[name].split("."), _plain(value), "the command")
    for setting in settings:
        _put(given, *_setting(setting), f"--set {setting}")
    sections = {name: _section(name, kind, given.get(name, {})) for name, kind in SECTIONS.items()}
    return _resolved(Config(**sections))


def _of_file(path: str | PathLike[str]) -> _Given:
    source = f"'{fspath(path)}'"
    try:
        tables = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        raise Failure(f"cannot read {source}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Failure(f"{source} is no TOML file: {error}") from error
    given: _Given = {}
    for section, table in tables.items():
        _require_section(section, source)
        if not isinstance(table, dict):
            raise Failure(
                f"{source}: {section} is {_repr(table)}, expected a section [{section}] with keys"
            )
        given[section] = {key: (value, source) for key, value in table.items()}
    return given


def _plain(value: Any) -> Any:
    """A value as TOML has it: names of files are strings."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return fspath(value) if isinstance(value, PathLike) else value


def _setting(text: str) -> tuple[tuple[str, ...], Any]:
    """Path of the key and value of `section.key=value`."""
    name, equals, value = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not equals or len(path) < 2 or not all(path):
        raise Failure(f"--set is '{text}', expected section.key=value like run.epochs=20")
    value = value.strip()
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        parsed = tomllib.loads(f"value = {value}")
        if parsed.keys() == {"value"}:
            return path, parsed["value"]
    if not value or value[0] in "[{\"'" or "\n" in value:
        raise Failure(
            f"--set is '{text}': the value is not TOML, expected a number, true, a word, or a list "
            "like [25,25]"
        )
    return path, value


def _put(given: _Given, path: Sequence[str], value: Any, source: str) -> None:
    """Set a value, or an entry of one that is a table."""
    section, key, *rest = path
    _require_section(section, source)
    table = given.setdefault(section, {})
    if rest:
        entries, _ = table.get(key, ({}, ""))
        if not isinstance(entries, dict) or len(rest) > 1:
            raise Failure(f"{source}: [{section}] {key} has no '{'.'.join(rest)}'")
        value = {**entries, rest[0]: value}
    table[key] = value, source


def _require_section(section: str, source: str) -> None:
    if section not in SECTIONS:
        raise Failure(
            f"{source}: there is no section [{section}], expected one of "
            f"{', '.join(f'[{name}]' for name in SECTIONS)}{_did_you_mean(section, SECTIONS)}"
        )


def _section(name: str, kind: type[Any], given: Mapping[str, tuple[Any, str]]) -> Any:
    """The values of a section, checked one by one."""
    known = {_name(entry.name): entry for entry in fields(kind)}
    hints = get_type_hints(kind)
    values = {}
    for key, (value, source) in given.items():
        if key not in known:
            raise Failure(f"{source}: [{name}] has no key '{key}'{_hint(name, key, known)}")
        entry = known[key]
        where = f"{source}: [{name}] {key}"
        values[entry.name] = _checked(where, value, hints[entry.name], entry.metadata)
    return kind(**values)


def _name(attribute: str) -> str:
    """Key of an attribute; those that are words of Python have an underscore behind them."""
    return attribute.rstrip("_")


def _hint(section: str, key: str, known: Iterable[str]) -> str:
    """What may have been meant, in this section or another."""
    for name, kind in SECTIONS.items():
        if name != section and key in {_name(entry.name) for entry in fields(kind)}:
            return f"; did you mean '{key}' of [{name}]?"
    return _did_you_mean(key, known) or f", expected one of {', '.join(known)}"


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that is most like another one, whatever the case; empty if none is."""
    words = {one.lower(): one for one in known}
    matches = difflib.get_close_matches(word.lower(), words, n=1)
    return f"; did you mean '{words[matches[0]]}'?" if matches else ""


#: Types of values, for messages and the page.
_NAMES = {
    str: "a string", int: "an integer", float: "a number", bool: "a boolean",
    list: "a list", tuple: "a list", dict: "a table",
}  # fmt: skip


def _noun(kind: type) -> str:
    return _NAMES[kind].split()[-1]


def _repr(value: Any) -> str:
    """A value and its type, for a message."""
    return f"{value!r:.60} ({_NAMES.get(type(value), type(value).__name__)})"


def _checked(where: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """A value of the type of its key, within its range."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _checked_list(where, value, arguments, metadata)
    if origin is not dict:
        return _checked_one(where, value, kind, metadata)
    if not isinstance(value, dict):
        raise Failure(f"{where} is {_repr(value)}, expected a table like {{ name = value }}")
    if arguments[1] is Any:
        _require_writable(where, value)
        return value
    return {
        name: _checked_one(f"{where}.{name}", entry, arguments[1], metadata)
        for name, entry in value.items()
    }


def _checked_list(where: str, value: Any, kinds: Sequence[Any], metadata: Mapping[str, Any]) -> Any:
    pair = kinds[-1] is not Ellipsis
    # One file needs no brackets, and one weight is that of the start and the end.
    one = str if kinds[0] is str else (int, float) if pair else ()
    if isinstance(value, one) and not isinstance(value, bool):
        value = [value, value] if pair else [value]
    if not isinstance(value, list | tuple):
        raise Failure(f"{where} is {_repr(value)}, expected a list of {_noun(kinds[0])}s")
    if pair and len(value) != len(kinds):
        raise Failure(f"{where} has {len(value)} entries, expected {len(kinds)}")
    return tuple(
        _checked_one(f"{where}[{k}]", entry, kinds[0], metadata) for k, entry in enumerate(value)
    )


def _checked_one(where: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    expected = f"{'true or false' if kind is bool else _NAMES[kind]}{_range(metadata)}"
    accepted = (int, float) if kind is float else kind
    # A boolean is an integer of Python, but none of TOML.
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise Failure(f"{where} is {_repr(value)}, expected {expected}")
    if isinstance(value, str):
        _require_writable(where, value)
        if metadata["choices"] and value not in metadata["choices"]:
            hint = _did_you_mean(value, metadata["choices"])
            raise Failure(f"{where} is '{value}', expected{_range(metadata)}{hint}")
    if kind is float:
        if not abs(value) <= sys.float_info.max:
            raise Failure(f"{where} is {value!r:.60}, expected a finite number")
        value = float(value)
    for name, limit in metadata["limits"].items():
        if not LIMITS[name][1](value, limit):
            raise Failure(f"{where} is {value}, expected {expected}")
    return value


def _require_writable(where: str, value: Any) -> None:
    """Refuse what cannot be written back as TOML."""
    try:
        _toml(value).encode()
    except (UnicodeEncodeError, TypeError):
        raise Failure(
            f"{where} is {_repr(value)}, expected text in UTF-8, numbers, booleans, lists and "
            "tables of them"
        ) from None


def _range(metadata: Mapping[str, Any]) -> str:
    """The range of a key in words, with a blank or comma before it; empty where there is none."""
    if metadata["choices"]:
        return f" one of {', '.join(metadata['choices'])}"
    words = [f"{LIMITS[name][0]} {limit:g}" for name, limit in metadata["limits"].items()]
    return f", {' and '.join(words)}" if words else ""


def _resolved(config: Config) -> Config:
    """The same with defaults that depend on other keys; checks of keys against each other."""
    data, model, loss, run = config.data, config.model, config.loss, config.run
    if not data.train:
        raise Failure("[data] train is empty, expected files to learn from, or --data FILE")
    if data.valid_fraction < 0.0:
        data = replace(data, valid_fraction=0.0 if data.valid else 0.1)
    elif data.valid and data.valid_fraction > 0.0:
        raise Failure(
            f"[data] has valid and valid_fraction {data.valid_fraction:g}, expected one of them"
        )
    model = replace(model, elements=_elements(model.elements))
    if not model.elements and not model.finetune and not model.module:
        raise MissingElements(data)
    model = _of_kind(model, config.nep)
    if loss.energy == loss.force == loss.virial == (0.0, 0.0):
        raise Failure("[loss] has no weight above 0, expected one to learn by")
    if run.epochs == 0 and run.max_time == 0.0:
        run = replace(run, max_time=DEFAULT_MINUTES)
    optimizer = config.optimizer
    if optimizer.warmup + optimizer.decay > 1.0:
        raise Failure(
            f"[optimizer] warmup is {optimizer.warmup:g} and decay {optimizer.decay:g}, expected "
            "shares of the run that add up to at most 1"
        )
    name = optimizer.name or ("adam" if model.module else "muon")
    rate, final = optimizer.learning_rate, optimizer.final_learning_rate
    if rate < 0.0:
        rate = PEAK if name == "muon" else Schedule.peak
    betas = optimizer.betas
    if max(betas) < 0.0:
        betas = MOMENTUM if name == "muon" else AdamOptions.beta1, AdamOptions.beta2
    optimizer = replace(
        optimizer,
        block=optimizer.block or (MATPL_BLOCK if optimizer.matpl else KalmanOptions.block),
        lambda_=optimizer.lambda_ or (MATPL_LAMBDA0 if optimizer.matpl else KalmanOptions.lambda0),
        name=name,
        learning_rate=rate,
        betas=betas,
        final_learning_rate=final if final >= 0.0 else Schedule.final * rate,
        ema=optimizer.ema if optimizer.ema >= 0.0 else 0.999 * (name != "kalman"),
    )
    if name == "kalman" and (loss.huber or data.group_weights):
        raise Failure(
            "[optimizer] name is 'kalman', and [loss] huber or [data] group_weights is given: the "
            "filter weighs by its noises alone; leave them out, or choose muon"
        )
    if model.module and name == "muon":
        raise Failure(
            "[optimizer] name is 'muon' and [model] module is given: a module of kind EDGE trains "
            "with adam or kalman"
        )
    return replace(config, data=data, model=model, run=run, optimizer=optimizer)


def _elements(words: Iterable[str]) -> tuple[str, ...]:
    """Chemical symbols; one string may hold several."""
    symbols = [symbol for word in words for symbol in re.split(r"[\s,]+", word) if symbol]
    for symbol in symbols:
        if symbol not in atomic_numbers or symbol == "X":
            hint = _did_you_mean(symbol, [s for s in atomic_numbers if s != "X"])
            raise Failure(f"[model] elements has '{symbol}', expected chemical symbols{hint}")
        if symbols.count(symbol) > 1:
            raise Failure(f"[model] elements has '{symbol}' {symbols.count(symbol)} times")
    return tuple(symbols)


def _check_network(model: Model) -> None:
    if not model.rmin < model.rmax:
        raise Failure(
            f"[model] rmin is {model.rmin:g} and rmax is {model.rmax:g}, expected rmin below rmax"
        )
    for name in ("embedding", "fitting"):
        if not getattr(model, name):
            raise Failure(f"[model] {name} is empty, expected one or more widths like [25, 25]")
    if model.m2 > model.embedding[-1]:
        raise Failure(
            f"[model] m2 is {model.m2}, expected at most the last width of embedding, "
            f"{model.embedding[-1]}"
        )


def _of_kind(model: Model, shape: NepForm) -> Model:
    """The same with its kind, after checks of what belongs to that."""
    default = "edge" if model.module else "dp"
    if model.finetune and is_nep(model.finetune):
        default = "nep"
    kind = model.kind or default
    if bool(model.module) != (kind == "edge"):
        raise Failure(
            f"[model] kind is '{kind}' and module is '{model.module}', expected kind edge with a "
            "module, and no other"
        )
    if kind == "dp":
        _check_network(model)
    if kind == "nep":
        _check_shape(shape)
    return replace(model, kind=kind)


def _check_shape(shape: NepForm) -> None:
    l_max, *flags = shape.l_max or (0,)
    if not 2 <= len(flags) <= 6:
        raise Failure(
            f"[nep] l_max has {len(shape.l_max)} numbers, expected the largest degree and 2 to 6 "
            "flags, like [4, 2, 1]"
        )
    if (l_max or any(flags)) and shape.cutoff[1] > shape.cutoff[0]:
        raise Failure(
            f"[nep] cutoff is {shape.cutoff[0]:g} {shape.cutoff[1]:g}, expected a radial one that "
            "is not below the angular one"
        )


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        entries = (f"{_toml_key(key)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {', '.join(entries)} }}" if value else "{}"
    if isinstance(value, float):  # also inf and nan
        return repr(value)
    if isinstance(value, str | int):
        # A basic string of TOML is one of JSON, but that DEL is escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"TOML text of {type(value).__name__} is not made here")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def reference_page() -> str:
    """All sections and keys as a page of the documentation, in Markdown."""
    lines = [
        "# Keys of run.toml",
        "",
        "What [pwmlff train](training.md) reads; `--set section.key=value` stands above it. All",
        "keys are optional but where it says so. This page is made from the code that checks them:",
        "`python -m pwmlff.train.config > docs/run_toml.md`.",
        "",
    ]
    for section, kind in SECTIONS.items():
        lines += [f"## [{section}]", "", inspect.getdoc(kind) or "", ""]
        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        hints = get_type_hints(kind)
        for entry in fields(kind):
            name, metadata = entry.name, entry.metadata
            default = metadata["shown"] or f"`{_toml(getattr(kind(), name))}`"
            bounds = _range(metadata).strip(" ,")
            words = metadata["meaning"] + (f" ({bounds})" if bounds else "")
            lines += [f"| `{_name(name)}` | {_type(hints[name])} | {default} | {words} |"]
        lines += [""]
    return "\n".join(lines)


def _type(kind: Any) -> str:
    first, *others = get_args(kind) or [kind]
    if get_origin(kind) is tuple:
        return f"list of {_noun(first)}s" if others == [...] else f"2 {_noun(first)}s"
    return _noun(get_origin(kind) or kind)


if __name__ == "__main__":
    sys.stdout.write(reference_page())
