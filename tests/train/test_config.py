"""run.toml and the options of the command, against TOML's own reader and what is documented."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pwmlff.files import read_text
from pwmlff.report import Failure
from pwmlff.train.adam import AdamOptions, Schedule
from pwmlff.train.config import FILTER, Config, from_command, reference_page
from pwmlff.train.learner import adam_of, schedule_of, with_decay
from pwmlff.train.muon import DECAY, MOMENTUM, PEAK

tomllib = pytest.importorskip("tomllib")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def made(*settings: str) -> Config:
    return from_command(data=["a.xyz"], elements="Hf O", settings=settings)


def test_defaults_are_those_of_the_optimizers():
    config = made("optimizer.name=adam")
    assert schedule_of(config) == Schedule()
    assert schedule_of(made()) == Schedule(peak=PEAK)
    decay = DECAY / 2  # of eight frames, in steps of four
    assert adam_of(with_decay(made(), 8)) == AdamOptions(beta1=MOMENTUM, weight_decay=decay)
    slow = made("optimizer.learning_rate=1e-4")
    assert slow.optimizer.final_learning_rate == pytest.approx(Schedule.final * 1e-4)
    assert adam_of(with_decay(config, 8)) == AdamOptions()


def test_defaults_and_options():
    config = from_command(
        data=["a.xyz", Path("b.xyz")], elements="Hf,O", output="out", max_time=3, models=2
    )
    assert config.data.train == ("a.xyz", "b.xyz")
    assert config.model.elements == ("Hf", "O")
    assert (config.run.max_time, config.run.models, config.output.folder) == (3.0, 2, "out")
    assert (config.model.rmax, config.model.embedding, config.run.batch) == (6.0, (25, 25, 25), 4)
    assert config.data.valid_fraction == 0.1
    # Without epochs and time it ends all the same.
    assert made().run.max_time > 0.0
    assert made("run.epochs=3").run.max_time == 0.0


def test_file(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text(
        'data.train = "a.xyz"\ndata.valid = ["v.xyz"]\n[data.group_weights]\nslab = 2\n'
        '[data.map]\nO1 = "O"\n'
        '[model]\nelements = ["O"]\n[optimizer]\nclip = 0.97\n[loss]\nforce = 3\n'
    )
    settings = ["run.epochs=7", "loss.energy=[0, 2]", "data.group_weights.bulk=0.5"]
    config = Config.read(path, settings)
    assert config.data.train == ("a.xyz",)
    assert config.data.valid_fraction == 0.0
    assert config.data.group_weights == {"slab": 2.0, "bulk": 0.5}
    assert config.optimizer.clip == 0.97
    assert config.loss.force == (3.0, 3.0)
    assert config.loss.energy == (0.0, 2.0)
    assert config.run.epochs == 7
    # Options of the command stand above the file, where they are given.
    found = from_command(toml=path, elements="Hf", map={})
    assert found.model.elements == ("Hf",)
    assert found.data.map == {"O1": "O"}


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("data.valid=v.xyz", "run.epochs=2", "optimizer.name=adam", "optimizer.clip=1"),
        ("model.arguments={ width = 3, 'a key' = [1, 2.5, true, { deep = 'x' }] }",),
        ("data.group_weights={ 'a \"b\"' = 1, c = 1e-300 }", "model.freeze=['embedding']"),
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, settings):
    config = made(*settings)
    config = replace(
        config, data=replace(config.data, train=('"q" \\ \t\n\x00\x1b\x7f ä \u2028 #.xyz',))
    )
    path = tmp_path / "again.toml"
    path.write_text(config.as_toml(), encoding="utf-8", newline="")
    assert Config.read(path) == config
    # Complete: every key of every section is there, by TOML's own reader.
    tables = tomllib.loads(config.as_toml())
    for section, values in asdict(config).items():
        assert values.keys() == tables[section].keys()
        for key, value in values.items():
            plain = list(value) if isinstance(value, tuple) else value
            assert tables[section][key] == plain


@pytest.mark.parametrize(
    "setting, expected",
    [
        ("run.epoch=3", ["[run]", "'epoch'", "did you mean 'epochs'?"]),
        ("runn.epochs=3", ["[runn]", "expected one of [data], [model]", "did you mean 'run'?"]),
        ("model.epochs=3", ["[model]", "did you mean 'epochs' of [run]?"]),
        ("run.zzz=3", ["'zzz'", "expected one of batch, epochs"]),
        ("run.epochs=many", ["epochs is 'many' (a string)", "expected an integer, at least 0"]),
        ("run.epochs=2.5", ["epochs is 2.5 (a number)", "expected an integer"]),
        ("run.epochs=true", ["epochs is True (a boolean)", "expected an integer"]),
        ("run.epochs=-1", ["epochs is -1", "at least 0"]),
        ("run.tensorboard=1", ["tensorboard is 1 (an integer)", "expected true or false"]),
        ("run.max_time=inf", ["max_time is inf", "finite"]),
        ("run.max_time=nan", ["max_time is nan", "finite"]),
        ("run.max_time=1" + "0" * 400, ["max_time", "finite"]),
        ("optimizer.betas=[0.9, 1.0]", ["betas[1] is 1.0", "below 1"]),
        ("optimizer.learning_rate=0", ["learning_rate is 0.0", "above 0"]),
        ("optimizer.name=adm", ["'adm'", "one of muon, adam", "did you mean 'adam'?"]),
        ("optimizer.warmup=0.7", ["warmup is 0.7 and decay 0.6", "at most 1"]),
        ("loss.energy=[1]", ["energy has 1 entries, expected 2"]),
        ("model.embedding=[25, 'a']", ["embedding[1] is 'a' (a string)", "an integer"]),
        ("model.embedding=25", ["embedding is 25 (an integer)", "a list of integers"]),
        ("model.embedding=[]", ["embedding is empty", "widths"]),
        ("model.m2=26", ["m2 is 26", "25"]),
        ("model.rmin=7", ["rmin is 7 and rmax is 6"]),
        ("model.elements=Hf Oo", ["'Oo'", "chemical symbols"]),
        ("model.elements=hf", ["'hf'", "did you mean 'Hf'?"]),
        ("model.elements=O O", ["'O' 2 times"]),
        ("model.arguments=3", ["arguments is 3 (an integer)", "a table"]),
        ("model.arguments={ a = 1979-05-27 }", ["arguments", "numbers, booleans"]),
        ("data.group_weights={ a = -1 }", ["group_weights.a is -1.0", "at least 0"]),
        ("data.train=[]", ["[data] train is empty", "--data FILE"]),
        ("data.train=[", ["--set is 'data.train=['", "not TOML"]),
        ("data.valid=v.xyz\nx=1", ["not TOML"]),
        ("data.valid_fraction=-0.5", ["valid_fraction is -0.5", "at least 0"]),
        ("data=3", ["--set is 'data=3'", "section.key=value"]),
        ("run.epochs", ["--set is 'run.epochs'", "section.key=value"]),
        ("run.epochs.x=1", ["epochs", "expected an integer"]),
        ("run.a.b.c=1", ["[run] a has no 'b.c'"]),
    ],
)
def test_what_is_wrong_is_named(setting, expected):
    with pytest.raises(Failure) as failure:
        made(setting)
    for words in expected:
        assert words in str(failure.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[rnu]\nepochs = 3\n[run]\nepochs = -1\nmax_tiem = 2\n[loss]\nhuber = 'a'\n")
    with pytest.raises(Failure) as failure:
        Config.read(path, ["model.kind=dpp", "mdoel.m2=3"])
    words = ("no section [rnu]", "[run] epochs is -1", "no key 'max_tiem'", "[loss] huber is 'a'")
    for expected in (*words, "[model] kind is 'dpp'", "no section [mdoel]"):
        assert str(failure.value).count(expected) == 1, expected
    assert "\n" not in str(failure.value)
    path.write_text("[model]\nelements = ['Xy']\nrmin = 9\n[optimizer]\nwarmup = 0.8\n")
    with pytest.raises(Failure) as failure:
        Config.read(path)
    for expected in ("train is empty", "elements has 'Xy'", "rmin is 9", "warmup is 0.8"):
        assert str(failure.value).count(expected) == 1, expected


def test_keys_that_do_not_go_together(tmp_path: Path):
    for settings, words in (
        (("data.valid=v.xyz", "data.valid_fraction=0.2"), "expected one of them"),
        (("loss.energy=0", "loss.force=0", "loss.virial=0"), "no weight above 0"),
        (("model.module=m.py:M", "optimizer.name=muon"), "'muon'.*trains with adam"),
    ):
        with pytest.raises(Failure, match=words):
            made(*settings)
    with pytest.raises(Failure, match="--elements Hf O"):
        from_command(data=["a.xyz"])
    assert from_command(data=["a.xyz"], finetune="a.pt").model.finetune == "a.pt"
    of_module = from_command(data=["a.xyz"], module="m.py:M")
    assert of_module.model.elements == ()
    assert (of_module.optimizer.name, made().optimizer.name) == ("adam", "muon")


@pytest.mark.parametrize(
    "written,settings,found",
    [
        (
            "name = 'kalman'\nblock = 5120\n",
            (),
            r"run\.toml': \[optimizer\] has name, block of the Kalman filter",
        ),
        ("", ("optimizer.name=kalman",), r"^--set optimizer\.name=kalman: .* has name of the"),
        ("matpl = true\nlambda = 0.98\n", (), r"run\.toml': \[optimizer\] has matpl, lambda of"),
        ("p0 = 2\n", ("optimizer.nu=0.9",), r"run\.toml', --set .*: \[optimizer\] has p0, nu of"),
    ],
)
def test_the_kalman_filter_is_gone(tmp_path: Path, written: str, settings: tuple, found: str):
    """One error says what asks for it, and what to take; it is beside no other key's."""
    path = tmp_path / "run.toml"
    path.write_text(f"[data]\ntrain = 'a.xyz'\n[model]\nelements = ['O']\n[optimizer]\n{written}")
    with pytest.raises(Failure, match=found) as failure:
        Config.read(path, settings)
    assert "expected name muon or adam and no key of the filter" in str(failure.value)
    assert "; " not in str(failure.value)


def test_other_trainings_of_releases_with_the_filter_go_on(tmp_path: Path):
    """Their run.toml has its keys, which meant nothing."""
    path = tmp_path / "run.toml"
    config = made("optimizer.clip=2")
    keys = "".join(f"{key} = 1\n" for key in FILTER)
    path.write_text(config.as_toml().replace("[optimizer]\n", f"[optimizer]\n{keys}"))
    assert Config.read(path) == config


def test_a_byte_order_mark_is_no_text(tmp_path: Path):
    """Editors of Windows begin files with one."""
    (tmp_path / "run.toml").write_text('\ufeff[data]\ntrain = "a.xyz"\n', encoding="utf-8")
    given = from_command(toml=tmp_path / "run.toml", elements="H", output="out")
    assert given.data.train == ("a.xyz",)
    (tmp_path / "hosts").write_text("\ufeffn1:2\n", encoding="utf-8")
    assert read_text(tmp_path / "hosts") == "n1:2\n"


def test_bad_files(tmp_path: Path):
    path = tmp_path / "run.toml"
    with pytest.raises(Failure, match=r"cannot read '.*run\.toml': No such file"):
        Config.read(path)
    for contents in (b"[data\n", b"\xff\xfe", b"a = 1\na = 2\n", b"a = " + b"[" * 100_000):
        path.write_bytes(contents)
        with pytest.raises(Failure, match=r"run\.toml' is no TOML file"):
            Config.read(path)
    path.write_text("run = 3\n")
    with pytest.raises(Failure, match=r"run is 3 \(an integer\), expected a section \[run\]"):
        Config.read(path)


def test_the_documentation_says_what_the_code_says():
    assert (DOCS / "run_toml.md").read_text() == reference_page()
