"""`pwmlff info`: what model files hold, what will run them, whether they are an ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument, Option

from pwmlff import plugin
from pwmlff.report import Failure, Report, facts, plain

if TYPE_CHECKING:
    import torch

    from pwmlff.evaluation import model_file

NOT_RUN = "not tried, as that runs the code of the file: --trust does"


@dataclass(frozen=True)
class Described:
    """One file, and the engine that pair_style pwmlff takes for it."""

    model: model_file.ModelInfo
    engine: str | None  # None where the code of the file was not run
    reason: str  # why it is not the fused engine, or why it is not known


@dataclass(frozen=True)
class InfoReport(Report):
    """What `pwmlff info` found."""

    files: list[Described]
    failures: list[str]
    conflicts: list[str]

    @property
    def ok(self) -> bool:
        """Whether all files can be used, and together."""
        return not self.failures and not self.conflicts

    def data(self) -> dict[str, Any]:
        """For JSON."""
        models = [
            {**plain(f.model), "elements": f.model.elements, "engine": f.engine, "reason": f.reason}
            for f in self.files
        ]
        return {
            "models": models,
            "failures": self.failures,
            "ensemble_conflicts": self.conflicts,
            "plugin": plugin.origin(plugin.library()),
        }

    def show(self) -> RenderableType:
        """One column for each file."""
        columns = [_column(file) for file in self.files]
        details = [_details(file.model) for file in self.files]
        for name in details[0] if details else ():
            if any(texts[name] for texts in details):
                for column, texts in zip(columns, details, strict=True):
                    column[name] = texts[name]
        lines = [Text(text, "red") for text in self.failures]
        lines += [Text(f"no ensemble: {text}", "red") for text in self.conflicts]
        if len(self.files) > 1 and not lines:
            lines.append(Text("the files can run as an ensemble", "green"))
        if origin := plugin.origin(plugin.library()):
            lines.append(Text(f"with {origin}", "dim"))
        return Group(*([facts(*columns)] if columns else []), *lines)


def _column(described: Described) -> dict[str, str]:
    model, sizes = described.model, described.model.sizes
    neighbors = f"at most {model.max_neighbor} of an element" if model.max_neighbor else "any"
    if len({*model.sel}) > 1:
        most = zip(model.sel, model.elements, strict=True)
        neighbors = "at most " + ", ".join(f"{n} {element}" for n, element in most)
    nets = [
        f"{net} {'-'.join(map(str, sizes[net]))}, " for net in ("embedding", "fitting") if sizes
    ]
    axis = f"axis {sizes['m2']}, " if sizes else ""
    dtype = f" in {model.dtype}" if model.dtype else ""
    engine = [described.engine, f"({described.reason})" if described.reason else ""]
    return {
        "file": model.file,
        "kind": model.kind,
        "elements": " ".join(model.elements),
        "units": model.units,
        "cutoff": model.reach,
        "neighbors": neighbors,
        "size": f"{''.join(nets)}{axis}{model.nparameters} parameters{dtype}, {model.bytes} bytes",
        "engine": " ".join(filter(None, engine)) if described.engine else described.reason,
        "SHA-256": model.sha256,
    }


def _repulsion(model: model_file.ModelInfo) -> str:
    """Where ZBL of a DP begins, by pairs of elements."""
    if model.kind != "DP":
        return ""
    n = len(model.elements)
    begins = [
        f"{model.elements[i]}-{model.elements[j]} {model.zbl_radii[i * n + j][1]:.3g}"
        for i, j in combinations_with_replacement(range(n if model.zbl_radii else 0), 2)
        if model.zbl_radii[i * n + j][1]
    ]
    return f"ZBL below {', '.join(begins)}" if begins else ""


def _details(model: model_file.ModelInfo) -> dict[str, str]:
    """What not every file has, by the name of the line; empty where it has not."""
    return {
        "repulsion": _repulsion(model),
        "gamma": "tells how far atoms are from its data" * model.has_grade,
        "without data": " ".join(model.elements_without_data),
        "holds": _system(model),
        **_card_lines(model),
    }


def _system(model: model_file.ModelInfo) -> str:
    """The charge and the spin that a conversion fixed."""
    fixed = {name: model.of_card(int, "converted", name) for name in ("charge", "spin")}
    said = [f"{name} {value}" for name, value in fixed.items() if value is not None]
    return f"{', '.join(said)} of the whole system" * bool(said)


def _card_lines(model: model_file.ModelInfo) -> dict[str, str]:
    """What a card says, in lines; nothing of what is not as `train.card.make` writes it."""
    versions = {name: model.of_card(str, "versions", name) for name in ("pair-pwmlff", "torch")}
    trained = [model.of_card(str, "made"), *(f"{name} {v}" for name, v in versions.items() if v)]
    data = []
    for which, words in (("train", "{} frames"), ("valid", "validated with {}")):
        if (frames := model.of_card(int, "data", which, "frames")) is not None:
            files = [f for f in model.of_card(list, "data", which, "files") or () if type(f) is str]
            named = f" of {', '.join(files[:3])}" + f" and {len(files) - 3} more" * (len(files) > 3)
            data.append(words.format(frames) + named * bool(files))
    from pwmlff.train.errors import QUANTITIES

    errors = []
    for quantity, called in QUANTITIES.items():
        both = [
            model.of_card(float, "errors", which, quantity, "rmse") for which in ("train", "valid")
        ]
        if any(value is not None for value in both):
            shown = " / ".join("-" if value is None else f"{value:.4g}" for value in both)
            unit = model.of_card(str, "errors", "reported_in", quantity) or ""
            errors.append(f"{called} {shown} {unit}".rstrip())
    of_atoms = model.isolated_atoms.items()
    alone = [f"{symbol} {label:.7g} / {own:.7g}" for symbol, (label, own) in of_atoms]
    lines = {
        "trained": ", ".join(filter(None, trained)),
        "on": ", ".join(data),
        "RMSE": ", ".join(errors) + " (train / valid)" * bool(errors),
        "isolated atoms": ", ".join(alone) + " (data / model)" * bool(alone),
    }
    # Whoever wrote the file chose these characters: none may steer the terminal.
    return {
        name: "".join(c if c.isprintable() else "?" for c in text)[:300]
        for name, text in lines.items()
    }


def info(
    models: Annotated[list[Path], Argument(help="Model files.")],
    precision: Annotated[
        str | None,
        Option(help="Precision of the fused engine, with --trust: exact, double or mixed."),
    ] = None,
    trust: Annotated[
        bool, Option("--trust", help="Run the code of the files, to tell the engine too.")
    ] = False,
) -> InfoReport:
    """Describe model files: kind, elements, cutoff, sizes, ensemble compatibility.

    Read from the files without running the code that they bring along. With --trust it is run, as
    lmp does: which engine takes the file, and what is wrong with it.

    Example: pwmlff info a.pt b.pt --trust
    """
    from pwmlff.evaluation import model_file

    if precision is not None and precision not in (known := model_file.PRECISIONS):
        raise Failure(f"precision is '{precision}', expected one of {', '.join(known)}")
    if precision is not None and not trust:
        raise Failure(
            f"--precision {precision} is that of the engine, which is {NOT_RUN}; give both or none"
        )
    if not any(path.is_file() for path in models):
        raise Failure("\n".join(f"found no model file '{path}'" for path in models))
    files, failures = [], []
    for path in models:
        try:
            model = None if trust else model_file.describe_unopened(path)
            if model and model.scripted:
                files.append(Described(model, None, NOT_RUN))
                continue
            described, problem = _run(path, precision or "double", model)
        except Failure as failure:
            failures.append(str(failure))
            continue
        files.append(described)
        if problem:
            failures.append(f"'{path}' {problem}")
    conflicts = model_file.ensemble_conflicts([f.model for f in files]) if files else []
    return InfoReport(files, failures, conflicts)


def _run(path: Path, precision: str, model: model_file.ModelInfo | None) -> tuple[Described, str]:
    """Describe a file by running its code, if it has any, and what is wrong with it.

    Args:
        model: what a file without code says; None where it is not known whether there is some.
    """
    from pwmlff import native
    from pwmlff.evaluation import model_file, self_test

    module = None
    if model is None and native.family_of(model_file.read_any(path)):
        model = model_file.describe(path)
    if model is None:
        module, model = model_file.open_model(path)
    described, problem = _with_engine(path, precision, module, model)
    if problem:
        return described, f"does not run: {problem}"
    if model.scripted:
        from pwmlff.models.saving import fault_of_record

        if fault := fault_of_record(path, model):
            problem = f"has a record that is not of its own code: {fault}; get the file again"
            return described, problem
    try:
        change = self_test.change_of(path, model)
    except ValueError as error:
        return described, str(error)
    return described, change.text if change else ""


def _with_engine(
    path: Path, precision: str, module: torch.jit.ScriptModule | None, model: model_file.ModelInfo
) -> tuple[Described, str]:
    """Describe a file with the engine that runs it, and what keeps it from running."""
    from pwmlff.evaluation.engine import choose

    edges = model.kind == "EDGE"
    if not edges:
        choice = choose(path, precision=precision)
        if choice.engine.name in {"fused", "plain"}:
            return Described(model, choice.engine.description, choice.reason), ""
    from pwmlff.evaluation import trial  # imports torch

    if not edges:
        problem = trial.padded(choice.engine, model)
        return Described(model, choice.engine.name, choice.reason), problem
    if not (problem := trial.edges(cast("torch.jit.ScriptModule", module), model)):
        try:
            choice = choose(path)
            return Described(model, choice.engine.name, choice.reason), ""
        except Failure as failure:
            problem = str(failure).removeprefix(f"model file '{path}': ")
    return Described(model, "torchscript", ""), problem
