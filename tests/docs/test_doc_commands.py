"""Every command that the pages show is taken by what it is for; what is cheap runs.

A block is fenced or indented. Each line of it is a command for a shell, a command of LAMMPS, or
belongs to a block in `NOT_COMMANDS`, which says why. What happens to them:

- `pwmlff ...` is parsed, words, options and values; those in `RUN` and `pwmlff train` also run
- LAMMPS commands with a pair_style run through lmp, on boxes and models with the names of the page
- `lmp -in FILE` runs without steps
- Python blocks run
- what builds, installs or takes minutes (pip, cmake, pytest, scripts) is read: files, options,
  tests and pinned releases that it names have to exist
"""

from __future__ import annotations

import linecache
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import ase.io
import pytest
import typer
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from harness import PROGRAMS
from labelled_structures import movement
from nep_files import HEADS, random_text
from pwmlff.cli import app
from pwmlff.launch.lmp import write_data
from pwmlff.learn.settings import SECTIONS as LEARNING
from pwmlff.train.config import Config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(EXAMPLES.rglob("*.md")),
]

#: First words of a block, and why it is no command.
NOT_COMMANDS = {
    "Pair style pwmlff:": "what lmp prints",
    "edges: ": "what lmp prints",
    "┏": "what pwmlff ranks prints",
    "pair_style pwmlff N file1": "the syntax of the command",
    "pair_coeff * * element1": "the syntax of the command",
    "out_freq value =": "the values of the keywords",
    "train.extxyz MOVEMENT data/": "names of files alone",
    "forward(": "the signature of a model",
    "start(": "the signature of its parts",
    "s(r)  =": "formulas",
    "dS/dp =": "a formula",
    "fc(r)   =": "formulas",
    "E(r) =": "formulas",
    "q_i   =": "formulas",
    "Z_i =": "a formula",
    "plugin load": "names a file that pwmlff build has made: tests/cli/test_build.py",
}

#: Programs that fetch, install, build or test: nothing is run, see `test_other_commands`.
READ_ONLY = {
    ".",
    ".ci/matrix",
    "benchmarks/slurm_check.sh",
    "auditwheel",
    "cd",
    "cmake",
    "ctest",
    "git",
    "pip",
    "pytest",
    "python",
    "python3",
    "setarch",
}
LAMMPS = {
    "compute",
    "dump",
    "dump_modify",
    "fix",
    "if",
    "kspace_modify",
    "kspace_style",
    "pair_coeff",
    "pair_style",
    "read_data",
    "restart",
    "run",
    "thermo",
    "thermo_style",
    "units",
    "variable",
    "velocity",
}

#: Inputs of lmp that readers write themselves.
USERS_INPUTS = {"in.hfo2"}

#: Commands that run as they stand, in a folder with the files that they name.
RUN = (
    "pwmlff info",
    "pwmlff ranks --plan",
    "pwmlff plot",
    "pwmlff data check",
    "pwmlff test",
)


@dataclass(frozen=True)
class Block:
    """Code in a page: fenced, indented, or between backquotes in a sentence."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def excuse(self) -> str | None:
        return next(
            (why for begin, why in NOT_COMMANDS.items() if self.text.startswith(begin)), None
        )

    def lines(self) -> list[list[str]]:
        """Words of each command, without comments, one after another where && joins them."""
        text = self.text.replace("\\\n", " ").replace("&&", "\n")
        return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def blocks(page: Path) -> list[Block]:
    found = []
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        line = token.map[0] + 1 if token.map else 0
        if token.type in {"fence", "code_block"}:
            language = token.info.split()[0] if token.info else ""
            found.append(Block(page, line, language, token.content.strip()))
        found += [
            Block(page, line, "inline", child.content)
            for child in token.children or ()
            if child.type == "code_inline" and re.match(r"(pwmlff|python|mpirun) \S", child.content)
        ]
    return found


BLOCKS = [block for page in PAGES for block in blocks(page)]
CODE = [block for block in BLOCKS if block.language in {"", "text", "inline"} and not block.excuse]


def shell(block: Block) -> list[list[str]]:
    """Its commands, without variables before them, what starts several, and where output goes."""
    found = []
    for line in block.lines():
        words = line[: line.index(">")] if ">" in line else line
        while re.match(r"\w+=", words[0]):
            words = words[1:]
        if words[0] in {"mpirun", "srun", "torchrun", "setarch"}:
            programs = {"lmp", "pwmlff", "python", "pytest"} & set(words)
            words = words[min(map(words.index, programs)) :] if programs else words[:1]
        found.append(words)
    return found


def cases(chosen: list[Block]) -> list:
    """Each command once, with the first place where it stands."""
    found = {}
    for block in chosen:
        for words in shell(block):
            case = pytest.param(words, id=f"{block.name} {shlex.join(words)}")
            found.setdefault(tuple(words), case)
    return [case for words, case in found.items() if words[0] not in LAMMPS]


COMMANDS = cases([block for block in CODE if block.language != "inline"])
MENTIONED = cases([block for block in CODE if block.language == "inline"])
OWN = [case for case in COMMANDS if case.values[0][0] == "pwmlff"]
OTHER = [case for case in COMMANDS + MENTIONED if case.values[0][0] != "pwmlff"]


def test_every_block_is_known():
    """A new kind of block is looked at by somebody, not passed over; excuses are in use."""
    strange = {
        block.name: words[0]
        for block in CODE
        for words in shell(block)
        if words[0] not in {"pwmlff", "lmp", "mpirun", *LAMMPS, *READ_ONLY}
    }
    assert not strange
    used = {block.excuse for block in BLOCKS}
    assert used >= set(NOT_COMMANDS.values())
    languages = {block.language for block in BLOCKS if not block.language.startswith("{")}
    assert languages <= {"", "text", "inline", "python", "toml", "pycon", "cmake"}


def parse(words: list[str]) -> tuple[str, list[str]]:
    """Have the command take its words as it would, and do nothing; its name and words for lmp."""
    command = typer.main.get_command(app)
    context = command.make_context("pwmlff", words[1:])
    name = "pwmlff"
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:  # `pwmlff --help` ended before
            break
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return name, context.args


@pytest.mark.parametrize("words", [c for c in MENTIONED if c.values[0][0] == "pwmlff"])
def test_names_in_sentences(words):
    """There is such a command, and it has these options; the rest may be left out there."""
    command, *rest = words
    command = typer.main.get_command(app)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    options = {name for entry in command.params for name in entry.opts + entry.secondary_opts}
    assert {word for word in rest if word.startswith("-")} <= {*options, "--help"}


@pytest.mark.parametrize("words", OWN)
def test_options(words):
    try:
        name, for_lmp = parse(words)
    except typer.Exit:  # --help, --version
        return
    except SystemExit as end:
        pytest.fail(f"exit code {end.code}")
    assert not for_lmp or name == "run"
    assert {word for word in for_lmp if word.startswith("-")} <= {"-in", "-var", "-partition"}


#: A box of 256 atoms in place of 32000, for examples/lj.
SMALL = [word for axis in "xyz" for word in ("-var", axis, "0.2")]


def lmp(folder: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [PROGRAMS / "lmp", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a file for each name in the pages that stands for a user's file."""
    from pwmlff import Calculator
    from pwmlff.train.potential import of_file
    from systems import graded

    folder = tmp_path_factory.mktemp("user")
    for name in (
        "run1/a.pt",
        "run1/b.pt",
        "hfo2/a.pt",
        "hfo2/b.pt",
        "hfo2/best.pt",
        "a.pt",
        "b.pt",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(EXAMPLES / "hfo2" / Path(name).name.replace("best", "a"), folder / name)
    graded(of_file(folder / "a.pt"), 1).save(folder / "a.pt")  # as pwmlff train writes it now
    for name in ("model.pt", "my_model.pt", "jit_dp.pt"):
        shutil.copy(folder / "a.pt", folder / name)
    shutil.copy(EXAMPLES / "hfo2" / "nep.txt", folder / "hfo2" / "best.txt")
    shutil.copy(EXAMPLES / "charges" / "nep.txt", folder / "qnep.txt")
    for name in ("lj_a.pt", "lj_b.pt"):
        shutil.copy(EXAMPLES / "lj" / name[-4:], folder / name)

    calculator = Calculator(str(folder / "a.pt"))
    frames = []
    for seed in range(3):
        atoms = bulk("HfO2", "fluorite", a=5.08, cubic=True)
        atoms.rattle(0.05, seed=seed)
        atoms.calc = calculator
        found = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        # ase writes what a calculator has found last, for whatever structure: each has its own.
        atoms.calc = SinglePointCalculator(atoms, **found, stress=atoms.get_stress())
        frames.append(atoms)
    for name in ("frames", "train", "valid", "unseen", "more", "structures"):
        ase.io.write(folder / f"{name}.extxyz", frames)
    for name in ("structure", "frames"):
        ase.io.write(folder / f"{name}.xyz", frames[0], format="extxyz")
    (folder / "MOVEMENT").write_text("".join(map(movement, frames)))
    for name in ("nep.txt", "nep1.txt", "nep2.txt"):
        (folder / name).write_bytes(random_text(HEADS["nep5"]))
    (folder / "hosts").write_text("127.0.0.1:8\n")
    write_data(folder / "hfo2.data", frames[0], [72, 8])
    write_data(folder / "melt.data", bulk("Ar", "fcc", a=1.68, cubic=True).repeat(4), [18])
    (folder / "run.toml").write_text(
        next(block.text for block in BLOCKS if block.language == "toml" and "[data]" in block.text)
    )
    log = (folder / "log.lammps", folder / "model_devi.out")
    lmp(
        folder,
        "-in",
        EXAMPLES / "lj" / "in.lj",
        *SMALL,
        "-var",
        "dir",
        EXAMPLES / "lj",
        "-log",
        log[0],
    )
    assert all(path.is_file() for path in log)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        case
        for case in OWN
        if " ".join(case.values[0]).startswith((*RUN, "pwmlff train "))
        and "my_model.py:Model" not in case.values[0]  # tests/train/test_edge_training.py
    ],
)
def test_run_as_they_stand(words, folder, monkeypatch):
    """pwmlff train reads and checks everything and trains nothing."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PWMLFF_GPU_STAND_IN", "cpu")  # for --device cuda
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    words = words[1:]
    if words[0] == "train":
        words = [*words, "--dry-run"]
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output


def test_lammps_commands(folder):
    """Each pair_style with its pair_coeff computes, on a box with the elements that it names."""
    chosen = [block for block in CODE if any(line[0] == "pair_style" for line in block.lines())]
    assert len(chosen) >= 5
    text = ""
    for block in chosen:
        metal = " Ar" not in block.text
        names = {line[0] for line in block.lines()}
        text += f"clear\nprint '{block.name}'\n"
        if "units" not in names:
            text += f"units {'metal' if metal else 'lj'}\n"
        if not metal:
            text += "neighbor 0.3 bin\n"
        if "read_data" not in block.text:
            text += f"read_data {'hfo2' if metal else 'melt'}.data\n"
        body = re.sub(r"^run .*", "", block.text, flags=re.MULTILINE)
        if not metal:
            body = re.sub(r"\b([ab])\.pt", r"lj_\1.pt", body)
        # A block may show several potentials, one after the other: each of them runs.
        head, *potentials = re.split(r"^(?=pair_style)", body, flags=re.MULTILINE)
        text += head + "\nrun 0\n".join(potentials)
        text += "\nrun 0\n"
    (folder / "in.pages").write_text(text)
    printed = lmp(folder, "-in", "in.pages", "-log", "none")
    assert printed.count("Loop time") >= len(chosen)


@pytest.mark.parametrize(
    "words",
    [
        case
        for case in OTHER
        if case.values[0][0] == "lmp" and case.values[0][2] not in USERS_INPUTS
    ],
)
def test_inputs(words, folder):
    """Inputs of examples/ start."""
    assert words[1] == "-in"
    path = ROOT / words[2]
    options = ["-var", "steps", "0", "-var", "dir", path.parent]
    lmp(folder, "-in", path, *options, *(SMALL if "lj" in words[2] else []), "-log", "none")


@pytest.mark.parametrize("words", [case for case in OTHER if case.values[0][0] != "lmp"])
def test_other_commands(words):
    """Files, options, tests and pinned releases that a command names exist."""
    program, *arguments = words
    settings = (ROOT / "pyproject.toml").read_text()
    cmake = "".join(
        path.read_text()
        for path in [
            *ROOT.glob("cmake/*.cmake"),
            *ROOT.glob("CMakeLists.txt"),
            *ROOT.glob("[!b.]*/CMakeLists.txt"),
        ]
    )
    for word in arguments:
        if re.match(r"(tests|benchmarks|examples|docs)/", word) and not re.search("[A-Z]{3}", word):
            assert (ROOT / word.split("::")[0]).exists(), word
        if name := re.match(r"-DPWMLFF_(\w+)", word):
            assert f"PWMLFF_{name[1]}" in cmake, word
        if extra := re.fullmatch(r"(?:\.|pair-pwmlff)\[(\w+)\]", word):
            assert f"\n{extra[1]} = [" in settings, word
        if pin := re.fullmatch(r"(torch|lammps)(?:\[\w+\])?==(.*\d)", word):
            assert f'"{pin[1]}=={pin[2]}"' in settings, word
    if program in {"python", "python3"} and arguments[0].endswith(".py"):
        script = (ROOT / arguments[0]).read_text()
        for word in arguments[1:]:
            assert not word.startswith("-") or f'"{word}"' in script, word
    if program == "pytest" and "-k" in arguments:
        word = arguments[arguments.index("-k") + 1]
        path = ROOT / next(name for name in arguments if name.startswith("tests/"))
        assert word in path.read_text(), f"{path} has no test with '{word}' in its name"


def test_python_of_the_tutorial(folder, monkeypatch):
    """One block after another, as each takes the files of those before."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for block in BLOCKS:
        if block.language == "python" and block.page.stem == "tutorial":
            exec(compile(block.text, block.name, "exec"), {})
    assert Path("tutorial.png").is_file()


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if b.language == "python" and b.page.stem != "tutorial"],
    ids=lambda block: block.name,
)
def test_python(block, folder, monkeypatch):
    """With the names that a reader has: torch, and atoms of a structure."""
    import torch

    if "import torch_sim" in block.text:
        pytest.importorskip("torch_sim")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    names = {"torch": torch, "Tensor": torch.Tensor, "atoms": ase.io.read("structure.xyz")}
    # From a file, as TorchScript reads the source of a class.
    source = folder / "block.py"
    source.write_text(block.text)
    linecache.checkcache(str(source))
    exec(compile(block.text, str(source), "exec"), names)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language == "toml"], ids=lambda block: block.name
)
def test_toml(block, tmp_path):
    """Keys and values; that files are there is not asked."""
    path = tmp_path / "any.toml"
    path.write_text(block.text)
    if "[loop]" in block.text:
        LEARNING.read(path)
    else:
        Config.read(path)
