"""What a training is told: run.toml, checked key by key, as frozen dataclasses.

    config = Config.read("run.toml", ["run.epochs=20"])
    config.model.rmax

A key that is not given has its default. What the classes below say of a key (default, range,
meaning) is what the messages and :func:`reference_page` say of it (:mod:`pwmlff.toml_keys`).
"""

# ruff: noqa: RUF009  (key returns a field)

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, get_type_hints

from ase.data import atomic_numbers

from pwmlff.data import readers
from pwmlff.evaluation.nep_file import is_nep
from pwmlff.report import Failure
from pwmlff.toml_keys import Faults, RawSections, Sections, did_you_mean, key, plain
from pwmlff.train.adam import AdamOptions, Schedule
from pwmlff.train.muon import DECAY, MOMENTUM, PEAK

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


@dataclass(frozen=True)
class Data:
    """Labelled structures. Names of files hold from the folder in which the command runs."""

    train: tuple[str, ...] = key(
        (), "files to learn from; `FILE@0:100:2` takes some of the frames", shown="required"
    )
    valid: tuple[str, ...] = key((), "files to validate with")
    valid_fraction: float = key(
        -1.0,
        "share of the frames of `train` to validate with instead; 0: none",
        least=0,
        most=0.9,
        shown="0.1, or 0 with `valid`",
    )
    shift_sources: bool = key(
        False,
        "take off what energies of atoms in files and groups have above those of the first one, as "
        "structures tell that are alike",
    )
    format: str = key("", "of all files; as their names and contents say if empty")
    energy: str = key(
        readers.FREE,
        "of frames with two: the free energy, which forces belong to, or that at sigma -> 0",
        choices=(readers.FREE, readers.ZERO),
    )
    keep_unconverged: bool = key(
        False, "take frames whose SCF did not converge, too, where files tell"
    )
    map: dict[str, str] = key(
        {}, 'elements of what files call their atoms, like `{ Fe1 = "Fe" }`; any name will do'
    )
    baseline: str = key(
        "",
        "what the model is not to learn, and is taken off the labels: a pair style of LAMMPS like "
        "`zbl 3.0 4.0`, or a calculator of ase like `dftd3.ase:DFTD3(method='PBE')`",
    )
    baseline_coeff: tuple[str, ...] = key(
        (),
        "of that pair style, what follows pair_coeff, like `1 2 72 8`; types are the elements of "
        "the model in turn",
    )
    cache: str = key("auto", "`auto`, `none`, or the folder for what was read and computed")
    group_weights: dict[str, float] = key(
        {}, "weights of groups of frames in the loss, by name; 1 where not named", least=0
    )
    virial_offset: str = key(
        "auto",
        "a constant of a source on the diagonal of its virials that is no derivative of the "
        "energy: `fit` takes it off and learns it along, for each source; `leave-out` leaves the "
        "virials of sources with one out; `none` looks for none; `auto` looks at MOVEMENT alone, "
        "and fits it where there is one. All but `none` leave out virials that are wrong",
        choices=("auto", "none", "fit", "leave-out"),
    )
    seed: int = key(1, "of the choice of frames that validate", least=0)


@dataclass(frozen=True)
class Model:
    """The potential."""

    kind: str = key(
        "",
        "dp: a Deep Potential; nep: a neuroevolution potential; edge: `module`",
        choices=("dp", "nep", "edge"),
        shown="that of `finetune` or `module`, else dp",
    )
    elements: tuple[str, ...] = key(
        (),
        "chemical symbols, in the order of the model's types",
        shown="required without `finetune` or `module`",
    )
    rmax: float = key(6.0, "cutoff, angstrom", least=0.01, most=100)
    rmin: float = key(0.5, "where the switch to zero begins, angstrom", least=0)
    embedding: tuple[int, ...] = key((25, 25, 25), "widths of the embedding nets", least=1)
    fitting: tuple[int, ...] = key((50, 50, 50), "hidden widths of the fitting nets", least=1)
    m2: int = key(16, "axis width of the descriptor", least=1)
    max_neighbor: int = key(
        0, "neighbor slots per element; 0: 1.5 times what the data need", least=0, most=10000
    )
    repulsion: str = key(
        "auto",
        "below 0.9 of the closest distances in the data: `zbl` for all pairs of elements, `none`, "
        "or `auto`: in a Deep Potential zbl for those that come no closer than 0.6 of the sum of "
        "their covalent radii, and with `finetune` for those that have it in that file; in a NEP "
        "what `[nep] zbl` says, or that file",
        choices=("auto", "zbl", "none"),
    )
    units: str = key("metal", "of the structures and the model", choices=("metal", "lj"))
    module: str = key(
        "", "`my_model.py:Model`: train this module of kind EDGE instead of a Deep Potential"
    )
    arguments: dict[str, Any] = key({}, "what the class of `module` is made with")
    finetune: str = key(
        "",
        "model file to start from, which gives elements and sizes; `{model}` in it stands for the "
        "names a, b, ... of the models of an ensemble",
    )
    freeze: tuple[str, ...] = key(
        (), "what stays as it is: `embedding`, `fitting`, or names of parameters with `*`"
    )
    seed: int = key(1, "of the random parameters; the models of an ensemble count on", least=0)


@dataclass(frozen=True)
class NepForm:
    """The form of a NEP, by the words of nep.in of GPUMD; other kinds of models take none of it."""

    cutoff: Pair = key((6.0, 5.0), "radial and angular, angstrom", least=0.01, most=100)
    n_max: tuple[int, int] = key(
        (4, 4), "functions beyond the first one, radial and angular", least=0, most=19
    )
    basis_size: tuple[int, int] = key(
        (16, 12), "functions that these are combined of, beyond the first one", least=0, most=100
    )
    l_max: tuple[int, ...] = key(
        (4, 2, 1),
        "largest degree, then whether there are invariants 222, 1111, 112, 123, 233, 134 of it",
        least=0,
        most=8,
    )
    neuron: int = key(30, "width of the hidden layer", least=1, most=10000)
    zbl: float = key(
        0.0,
        "outer radius of the screened repulsion of nuclei, angstrom; 0: none",
        least=0,
        most=100,
    )
    charge: int = key(
        0,
        "1 or 2: atoms have charges, with or without Ewald's sum in real space; 0: none",
        least=0,
        most=2,
    )
    neutral: float = key(
        0.1,
        "weight in the loss of the squared mean charge of a frame, in e^2, before it is taken off",
        least=0,
    )
    born: float = key(
        0.1,
        "weight in the loss of the squared errors of Born charges, in e^2, where data have them",
        least=0,
    )
    version: int = key(
        5, "of the file: 5, or 4 for programs that read no nep5, like calorine", least=4, most=5
    )


@dataclass(frozen=True)
class Loss:
    """Weights of the squared errors.

    For a frame of n atoms, the energy gives ((E - E')/n)^2, in (eV/atom)^2. The force gives the
    mean over its 3n components, in (eV/Å)^2. The virial gives the mean over the 9 components
    divided by n, in (eV/atom)^2. The loss of a batch has, of each, the mean over the frames with
    that label, by the weights of their groups. Weights go from the first number to the second as
    the rate of learning falls. They go most of the way where it is below a tenth of the largest.
    """

    energy: Pair = key((0.02, 40.0), "weight at the start and at the end", least=0)
    force: Pair = key((1.0, 1.0), "likewise", least=0)
    virial: Pair = key((0.02, 0.1), "likewise", least=0)
    huber: float = key(
        0.0, "error beyond which it counts linearly, in eV/atom and eV/Å; 0: nowhere", least=0
    )


@dataclass(frozen=True)
class Optimizer:
    """How the parameters are moved."""

    name: str = key("", "the method", choices=("muon", "adam"), shown="muon, or adam with `module`")
    learning_rate: float = key(
        -1.0,
        "after the warm-up",
        above=0,
        most=1,
        shown=f"{PEAK:g}, or {Schedule.peak:g} with `adam`",
    )
    final_learning_rate: float = key(
        -1.0, "at the end", least=0, most=1, shown=f"{Schedule.final:g} times `learning_rate`"
    )
    warmup: float = key(
        Schedule.warmup, "share of the run in which the rate rises from a tenth", least=0, most=1
    )
    decay: float = key(
        Schedule.decay, "share of the run, at its end, in which the rate falls", least=0, most=1
    )
    ema: float = key(
        0.999,
        "decay per step of the average of the parameters that is validated and saved, of the last "
        "ninth of the steps at most; 0: none",
        least=0,
        below=1,
    )
    clip: float = key(0.0, "largest norm of the gradient; 0: any", least=0)
    betas: Pair = key(
        (-1.0, -1.0),
        "decay of the moments",
        least=0,
        below=1,
        shown=f"[{MOMENTUM}, {AdamOptions.beta2}], or [{AdamOptions.beta1}, {AdamOptions.beta2}] "
        "with `adam`",
    )
    weight_decay: float = key(
        -1.0,
        f"of the parameters, decoupled; -1: {DECAY:g} over the steps of an epoch, and none with "
        "`adam` or `finetune`",
        least=-1,
    )
    noise: float = key(
        0.0,
        "added to matrices of weights in each step, over their root mean square, at the largest "
        "rate of learning; 0: none",
        least=0,
    )


@dataclass(frozen=True)
class Run:
    """How long, in what precision, on how many cores."""

    batch: int = key(4, "frames of a step, of all ranks together", least=1)
    epochs: int = key(0, "passes over the data; 0: as long as `max_time`", least=0)
    max_time: float = key(
        0.0,
        "minutes from the start of the command to its end; 0: as long as `epochs`",
        least=0,
        shown=f"0, or {DEFAULT_MINUTES:g} if `epochs` is 0 too",
    )
    precision: str = key("float32", "of a step", choices=("float32", "float64"))
    threads: int = key(
        0,
        "of a rank; 0: `OMP_NUM_THREADS`, else the cores of the node, shared by its ranks",
        least=0,
    )
    device: str = key("cpu", "of steps: cpu, cuda (GPUs in turn), cuda:N, or auto")
    validate_every: int = key(0, "epochs between validations; 0: as is worth it", least=0)
    patience: int = key(0, "validations without gain before the end; 0: any number", least=0)
    checkpoint_every: float = key(5.0, "minutes", above=0)
    models: int = key(1, "of an ensemble, with seeds that count on", least=1)
    seed: int = key(1, "of the order of the frames", least=0)
    nodes: int = key(
        64, "of the splines of the embedding nets at first; doubled where too few", least=4
    )
    tensorboard: bool = key(False, "write events for TensorBoard, where it is installed")

    def steps_of_epoch(self, nframes: int) -> int:
        """Batches of so many frames, of which the last may have fewer."""
        return -(-nframes // self.batch)


@dataclass(frozen=True)
class Output:
    """Where results go."""

    folder: str = key(".", "for models, log, checkpoints and pictures; made if need be")


@dataclass(frozen=True)
class Config:
    """All that a training is told.

    Raises:
        Failure: (from what reads it) a key or section is unknown, a value is of another type or out
            of range, or two contradict each other. The text says what was found and expected.
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
        return SECTIONS.text(self)


SECTIONS = Sections(get_type_hints(Config))
#: Keys of [optimizer] that were those of the Kalman filter alone.
FILTER = (
    *("block", "p0", "lambda", "nu", "noise_energy", "noise_force", "noise_virial", "groups"),
    "matpl",
)
INTRODUCTION = """\
# Keys of run.toml

What [pwmlff train](training.md) reads; `--set section.key=value` stands above it. All
keys are optional but where it says so. This page is made from the code that checks them:
`python -m pwmlff.train.config > docs/run_toml.md`."""
#: Options of the command, and the keys that they stand for.
OPTIONS = {
    "model": "model.kind",
    "data": "data.train",
    "valid": "data.valid",
    "energy": "data.energy",
    "shift_sources": "data.shift_sources",
    "keep_unconverged": "data.keep_unconverged",
    "map": "data.map",
    "elements": "model.elements",
    "output": "output.folder",
    "max_time": "run.max_time",
    "epochs": "run.epochs",
    "models": "run.models",
    "finetune": "model.finetune",
    "module": "model.module",
    "device": "run.device",
}


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

    def raw() -> RawSections:
        result = {} if toml is None else SECTIONS.raw(toml)
        for name, value in options.items():
            if value is not None and value is not False and value not in ("", [], (), {}):
                SECTIONS.put(result, OPTIONS[name].split("."), plain(value), "the command")
        return result

    return _resolved(Config(**SECTIONS.laid_over(raw, settings, _without_filter)))


def _without_filter(raw: RawSections) -> None:
    """Leave out keys of the Kalman filter, which run.toml of other trainings of old releases has.

    Raises:
        Failure: the filter is asked for.
    """
    table = raw.get("optimizer", {})
    name, _ = table.get("name", ("", ""))
    words = ["name"] * (name == "kalman") + [word for word in table if word in FILTER]
    if name == "kalman" or (words and not name):
        sources = ", ".join(dict.fromkeys(table[word][1] for word in words))
        raise Failure(
            f"{sources}: [optimizer] has {', '.join(words)} of the Kalman filter, which this "
            "release does not have, expected name muon or adam and no key of the filter. Muon, "
            "the default, takes its place (docs/coming_from_matpl.md)"
        )
    for word in words:
        del table[word]


def _resolved(config: Config) -> Config:
    """The same with defaults that depend on other keys; checks of keys against each other."""
    data, model, loss, run = config.data, config.model, config.loss, config.run
    faults = Faults()
    if not data.train:
        faults.add("[data] train is empty, expected files to learn from, or --data FILE")
    if data.valid_fraction < 0.0:
        data = replace(data, valid_fraction=0.0 if data.valid else 0.1)
    elif data.valid and data.valid_fraction > 0.0:
        faults.add(
            f"[data] has valid and valid_fraction {data.valid_fraction:g}, expected one of them"
        )
    with faults.collected():
        model = replace(model, elements=_elements(model.elements))
    if not model.elements and not model.finetune and not model.module:
        faults.failures.append(MissingElements(data))
    with faults.collected():
        model = _with_kind(model, config.nep)
    if loss.energy == loss.force == loss.virial == (0.0, 0.0):
        faults.add("[loss] has no weight above 0, expected one to learn by")
    if run.epochs == 0 and run.max_time == 0.0:
        run = replace(run, max_time=DEFAULT_MINUTES)
    optimizer = config.optimizer
    if optimizer.warmup + optimizer.decay > 1.0:
        faults.add(
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
        name=name,
        learning_rate=rate,
        betas=betas,
        final_learning_rate=final if final >= 0.0 else Schedule.final * rate,
    )
    if model.module and name == "muon":
        faults.add(
            "[optimizer] name is 'muon' and [model] module is given: a module of kind EDGE trains "
            "with adam"
        )
    faults.say()
    return replace(config, data=data, model=model, run=run, optimizer=optimizer)


def _elements(words: Iterable[str]) -> tuple[str, ...]:
    """Chemical symbols; one string may hold several."""
    symbols = [symbol for word in words for symbol in re.split(r"[\s,]+", word) if symbol]
    for symbol in symbols:
        if symbol not in atomic_numbers or symbol == "X":
            hint = did_you_mean(symbol, [s for s in atomic_numbers if s != "X"])
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


def _with_kind(model: Model, shape: NepForm) -> Model:
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
        if model.repulsion != "auto" and shape.zbl:
            raise Failure(
                f"[model] repulsion is '{model.repulsion}' and [nep] zbl is {shape.zbl:g}, "
                "expected one of them: make repulsion auto, or leave zbl out"
            )
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


def reference_page() -> str:
    """All sections and keys as a page of the documentation, in Markdown."""
    return SECTIONS.page(INTRODUCTION.splitlines())


if __name__ == "__main__":
    sys.stdout.write(reference_page())
