"""What pages quote from the sources still stands there."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from pwmlff import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
QUOTES = re.findall(r"^`(.+)`\n: ", PAGE.read_text(), re.MULTILINE)

#: Texts of other programs: LAMMPS, the dynamic linker, MPICH.
FOREIGN = {
    "Unrecognized pair style 'pwmlff'",
    "libmpi.so.12: cannot open shared object file",
    "Runtime environment uses unsupported PMI version PMIx. Aborting.",
}


GAP = "\0"  # what is put in when the program runs


def python_texts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(getattr(part, "value", GAP)) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub("%[sdg]", GAP, node.value)


def cpp_texts(source: str) -> Iterator[str]:
    """Literals of one statement in one text, with a gap where there is code between them."""
    source = re.sub(r"(^|\s)//.*", "", source)
    for statement in re.split(r";(?=\s)(?=(?:[^\"\n]|\"[^\"\n]*\")*$)", source, flags=re.MULTILINE):
        literals = re.split(r'"((?:[^"\\\n]|\\.)*)"', statement)
        text = "".join(
            part if k % 2 else GAP * bool(part.strip()) for k, part in enumerate(literals)
        )
        yield re.sub(r"\{[^{}]*\}", GAP, text)


@cache
def messages() -> list[str]:
    texts: list[str] = []
    for folder in ("pair_pwmlff", "models", "kernels", "python"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                texts += python_texts(path.read_text())
            elif path.suffix in {".cpp", ".h"}:
                texts += cpp_texts(path.read_text())
    return [text for text in texts if len(text) > 10]


def stands_in(quote: str, text: str) -> bool:
    """Whether the parts of a quote that do not differ come in this order."""
    begin = 0
    for part in quote.split("..."):
        begin = text.find(part.strip(), begin)
        if begin < 0:
            return False
        begin += len(part.strip())
    return True


PACKAGE = ROOT / "python" / "pwmlff"
ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):`([\w.]+)`")


@cache
def names_in(module: str) -> frozenset[str]:
    """All that a module of the package defines or imports, at any depth; none of other modules."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module.split(".", maxsplit=1)[0] != "pwmlff" or not source.is_file():
        return frozenset()
    found = {module}
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(found)


def cited(module: str, name: str) -> bool:
    """Whether the name of a role in a docstring is there."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        if names := names_in(".".join(parts[:k])):
            return names.issuperset(parts[k:])
    return names_in(module).issuperset(parts)


def test_docstrings_cite_what_is_there():
    gone = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("pwmlff", *path.relative_to(PACKAGE).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        gone += [
            (module, name) for name in ROLE.findall(path.read_text()) if not cited(module, name)
        ]
    assert not gone


def test_there_are_enough():
    assert len(QUOTES) >= 30 and len(set(QUOTES)) == len(QUOTES)
    assert set(QUOTES) >= FOREIGN


@pytest.mark.parametrize("quote", [quote for quote in QUOTES if quote not in FOREIGN])
def test_error_texts_are_those_of_the_sources(quote):
    assert max(len(part) for part in quote.split("...")) >= 10, "too little to tell texts apart"
    assert any(stands_in(quote, text) for text in messages()), f"no error text like '{quote}'"


def test_numbers_that_are_defaults_are_told():
    """0 and 1 among them, as the functions of the commands declare them."""
    text = (ROOT / "docs" / "cli_options.md").read_text()
    declared = [
        (name, parameter.default)
        for name, function in vars(cli).items()
        if inspect.isfunction(function) and function.__module__.startswith("pwmlff.commands.")
        for name, parameter in inspect.signature(function).parameters.items()
        if type(parameter.default) in (int, float)
    ]
    assert {0, 1} <= {default for _, default in declared}
    for name, default in declared:
        option = name.replace("_", "-")
        assert re.search(rf"--{option} [A-Z_]+`(, `[^|]*`)? \| `{default}` \|", text), name


WORDS_OF_A_SENTENCE = 25


def sentences(page: str) -> Iterator[str]:
    """Those of prose: code and formulas count as one word, tables and targets of links as none."""
    in_table = False
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type in {"table_open", "table_close"}:
            in_table = token.type == "table_open"
        if token.type == "inline" and not in_table:
            parts = {"code_inline": "code", "softbreak": "\n"}
            text = "".join(parts.get(part.type, part.content) for part in token.children or ())
            text = re.sub(r"\$[^$]+\$", "formula", text)
            yield from re.split(r"\n: |(?<=[.!?])[)\"]*\s+", text)


@pytest.mark.parametrize(
    "page",
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_sentences_are_short(page):
    long = [one for one in sentences(page.read_text()) if len(one.split()) > WORDS_OF_A_SENTENCE]
    assert not long, f"sentences of more than {WORDS_OF_A_SENTENCE} words"


def test_a_long_sentence_is_found():
    of_25 = "[One](two.md) `code of words` $a + b$ " + "word " * 22
    table = "\n\n| a |\n| --- |\n| " + "word " * 26 + "|\n"
    found = [len(one.split()) for one in sentences(f"{of_25.strip()}. {of_25}word.{table}")]
    assert found == [25, 26]


PICTURE = runpy.run_path(str(ROOT / "docs" / "architecture_picture.py"))


def sources(box: str) -> set[Path]:
    found = [ROOT / name for name in PICTURE["SOURCES"][box]]
    return {
        path.resolve()
        for folder in found
        for path in ([folder] if folder.is_file() else folder.rglob("*"))
        if path.suffix in {".cpp", ".cu", ".h", ".py"}
    }


def named(path: Path) -> Iterator[Path]:
    """Files that a file includes, and those that hold what it asks of compiled code."""
    text = path.read_text()
    for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE):
        folders = (path.parent, ROOT, ROOT / "kernels", ROOT / "models")
        yield from ((folder / name).resolve() for folder in folders if (folder / name).is_file())
    asked = [rf'class_<.*>\("{n}"\)' for n in re.findall(r"torch\.classes\.pwmlff\.(\w+)\(", text)]
    asked += [rf"^int {name}\(" for name in re.findall(r"library\.(pwmlff_\w+)\(", text)]
    for pattern in asked:
        code = (code for part in ("kernels", "models") for code in (ROOT / part).rglob("*.cpp"))
        yield from (one for one in code if re.search(pattern, one.read_text(), re.MULTILINE))
    for name in re.findall(r'open_library\("pwmlff_(\w+)"', text):
        yield from (ROOT / "kernels" / name).rglob("*.cpp")


def knows(one: str, other: str) -> bool:
    return any(found in sources(other) for path in sources(one) for found in named(path))


@pytest.mark.parametrize("arrow", PICTURE["ARROWS"], ids=lambda arrow: f"{arrow[0]}, {arrow[1]}")
def test_arrows_of_the_picture_are_in_the_code(arrow):
    """Data go along an arrow where one end includes, or calls, the other; and it ends at boxes."""
    begin, end, *points, _ = arrow
    for box, (px, py) in zip((begin, end), points, strict=True):
        x, y, width = PICTURE["BOXES"][box][:3]
        inside = x <= px <= x + width and y <= py <= y + PICTURE["HEIGHT"]
        assert inside and (px in (x, x + width) or py in (y, y + PICTURE["HEIGHT"]))
    if {begin, end} <= PICTURE["SOURCES"].keys():
        assert knows(begin, end) or knows(end, begin)


@pytest.mark.parametrize(
    "script,made,function",
    [
        ("command_page.py", "cli_options.md", "page"),
        ("architecture_picture.py", "architecture.svg", "picture"),
    ],
)
def test_what_is_made_by_a_script_is_up_to_date(script, made, function):
    text = runpy.run_path(str(ROOT / "docs" / script))[function]()
    assert (ROOT / "docs" / made).read_text() == text, f"python docs/{script} > docs/{made}"
