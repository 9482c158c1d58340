"""How Python and C++ are layered: what imports or includes what, and what things are called."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "pwmlff"
INCLUDE = re.compile(r'#include "([^"]+)"')
#: From below: a module imports from layers below its own, and from its own folder. What stands in
#: one layer knows nothing of the others there.
LAYERS = (
    ("arrays", "plugin", "report", "threads"),
    ("native",),
    ("devices", "files", "kernels", "picture", "toml_keys"),
    ("launch",),
    ("evaluation",),
    ("models",),
    ("convert", "data"),
    ("train",),
    ("learn",),
    ("commands", "torch_sim"),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_name(path: Path) -> str:
    """Dotted name below the package; that of the folder for its `__init__`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(tree: ast.AST) -> Iterator[str]:
    """Modules of this package that a module imports, wherever in it and for whatever purpose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("pwmlff.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pwmlff":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            whole = name.removeprefix("pwmlff.")
            yield next(m for m in (whole, whole.rpartition(".")[0], "__init__") if m in MODULES)


def graph() -> dict[str, set[str]]:
    return {name: set(imports(ast.parse(path.read_text()))) for name, path in MODULES.items()}


def folder(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def test_every_module_has_a_layer():
    assert {folder(module) for module in MODULES} == LEVELS.keys()


def test_imports_go_downwards():
    upwards = {
        (module, other)
        for module, others in graph().items()
        for other in others
        if folder(module) != folder(other) and LEVELS[folder(other)] >= LEVELS[folder(module)]
    }
    assert not upwards


def test_no_circle_of_imports():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


def test_no_two_things_have_one_name():
    """Modules, wherever they lie, and public classes."""
    places = defaultdict(list)
    for module, path in MODULES.items():
        if path.stem != "__init__":
            places[path.stem].append(module)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


#: Of C++ by folder: what files there include beside their own.
INCLUDES = {
    "kernels/core": (),
    "kernels/math": ("kernels/core",),
    "kernels/families": ("kernels/core",),
    "kernels/families/*": ("kernels/core", "kernels/math"),
    "kernels/training": ("kernels/core", "kernels/math", "kernels/families/dp"),
    "kernels/archive": ("kernels/core",),
    "kernels/placement": ("kernels/core",),
    "kernels/optimizer": (),
    "models": ("kernels",),
    "pair_pwmlff": ("models", "kernels"),
}


def part(path: Path) -> str:
    """The folder of those of INCLUDES."""
    first, second, third, *_ = (*path.relative_to(ROOT).parts, "", "")
    if first != "kernels":
        return first
    return "/".join(
        [
            first,
            second,
            *[third] * (second == "families" and (ROOT / first / second / third).is_dir()),
        ]
    )


def test_includes_go_downwards():
    upwards = []
    for folder in ("kernels", "models", "pair_pwmlff"):
        for path in (p for p in (ROOT / folder).rglob("*") if p.suffix in {".h", ".cpp", ".cu"}):
            own = part(path)
            allowed = INCLUDES.get(own) or INCLUDES.get(f"{own.rpartition('/')[0]}/*", ())
            for name in INCLUDE.findall(path.read_text()):
                candidates = [path.parent / name, ROOT / "kernels" / name, ROOT / name]
                found = next((c.resolve() for c in candidates if c.exists()), None)
                if found and not part(found).startswith((own, *allowed)):
                    upwards.append((str(path.relative_to(ROOT)), name))
    assert not upwards
