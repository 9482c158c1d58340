"""`pwmlff plot`: what is on the axes, of finished runs, of several, and of one under way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from pwmlff import picture
from pwmlff.commands.plot import COLORS, PANELS, UNITS, draw
from pwmlff.launch.log import TIMESTEPS, Log, read_deviation

HEADER = "   Step          Temp          E_pair         TotEng         Press     "
LOG = f"""LAMMPS (22 Jul 2025 - Update 4)
units metal
timestep ${{dt}}
timestep 0.002
thermo_modify norm no
run 20
Per MPI rank memory allocation (min/avg/max) = 3 | 3 | 3 Mbytes
{HEADER}
         0   300            -10.5         -10.1            5.5
WARNING: something is odd (src/somewhere.cpp:1)
        10   310.5          -10.4         -10.1            6.5
        20   320            -10.3         -10.1            7.5
Loop time of 1.5 on 1 procs for 20 steps with 4 atoms

timestep 0.001
run 100
{HEADER}
        20   320            -10.3         -10.1            7.5
        40   330            -10.2         -10.1           -8.5
"""
UNDER_WAY = "        60   3"
OF_MATPL = ("force deviation", "energy deviation")
DEVIATION = """# step avg_devi_f min_devi_f max_devi_f avg_devi_e min_devi_e max_devi_e
0 0.0 0.0 0.0 0.01 0.001 0.1
20 0.2 0.1 0.3 0.02 0.002 0.2
40 0.4 0.3 0.5 0.03 0.003 0.3
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with log.lammps, whose last line is being written, and model_devi.out."""
    (tmp_path / "log.lammps").write_text(LOG + UNDER_WAY)
    (tmp_path / "model_devi.out").write_text(DEVIATION + "60 0.5 0.")
    return tmp_path


def axes_of(figure) -> dict:
    return {axes.get_label(): axes for axes in figure.axes}


def data(line) -> tuple[list[float], list[float]]:
    return list(line.get_xdata()), list(line.get_ydata())


def curves(axes) -> list:
    """Lines but those that mark the beginning of a run."""
    return [line for line in axes.lines if line.get_color() in COLORS.values()]


def test_what_is_on_the_axes(files: Path):
    """Every number of the files, with its unit, over steps."""
    log = Log.read(files / "log.lammps")
    said = [(run.units, run.per_atom, run.timestep) for run in log.runs]
    assert said == [("metal", False, 0.002), ("metal", False, 0.001)]
    figure = draw(log, read_deviation(files / "model_devi.out"))
    axes = axes_of(figure)
    assert list(axes) == ["energy", "temperature", "pressure", *OF_MATPL]
    assert [a.get_ylabel() for a in axes.values()] == [
        "energy (eV)", "temperature (K)", "pressure (bar)", "force\ndeviation (eV/Å)",
        "energy\ndeviation (eV)",
    ]  # fmt: skip
    assert figure.axes[-1].get_xlabel() == "step"
    first, second = [0, 10, 20], [20, 40]
    assert [data(line) for line in curves(axes["energy"])] == [
        (first, [-10.5, -10.4, -10.3]), (second, [-10.3, -10.2]),
        (first, [-10.1] * 3), (second, [-10.1] * 2),
    ]  # fmt: skip
    assert axes["energy"].get_legend_handles_labels()[1] == ["potential energy", "total energy"]
    assert [data(line) for line in curves(axes["temperature"])] == [
        (first, [300, 310.5, 320]), (second, [320, 330]),
    ]  # fmt: skip
    assert [data(line) for line in curves(axes["pressure"])] == [
        (first, [5.5, 6.5, 7.5]), (second, [7.5, -8.5]),
    ]  # fmt: skip
    force = {line.get_label(): data(line) for line in curves(axes["force deviation"])}
    assert force["largest"][0] == [0, 20, 40]
    np.testing.assert_array_equal(force["largest"][1], [np.nan, 0.3, 0.5])  # no zero in a logarithm
    np.testing.assert_array_equal(force["average of atoms"][1], [np.nan, 0.2, 0.4])
    np.testing.assert_array_equal(force["smallest"][1], [np.nan, 0.1, 0.3])
    energy = {line.get_label(): data(line)[1] for line in curves(axes["energy deviation"])}
    assert energy == {
        "average of atoms, less 0.01": pytest.approx([0.0, 0.01, 0.02]),
        "smallest, less 0.001": pytest.approx([0.0, 0.001, 0.002]),
        "largest, less 0.1": pytest.approx([0.0, 0.1, 0.2]),
    }  # fmt: skip
    assert axes["force deviation"].get_yscale() == "log"
    assert axes["energy deviation"].get_yscale() == "linear"


def test_models_that_differ_by_a_constant_for_each_element(tmp_path: Path):
    """The energies of atoms of two models, and of two that differ from these by 2 and -1 eV."""
    rng = np.random.default_rng(0)
    element = np.repeat([0, 1], [2, 4])
    curves_of = {}
    for name, constants in (("none", np.zeros(2)), ("some", np.array([2.0, -1.0]))):
        # Fluctuations of one sign, as of models that grow apart
        apart = 0.01 * np.arange(6)[:, None] * np.random.default_rng(1).random(6)
        sigma = np.abs(np.abs(constants[element]) + apart) / 2.0
        rows = {"step": 10 * np.arange(6)}
        rows |= {f"{kind}_devi_f": rng.random(6) for kind in ("avg", "min", "max")}
        rows |= {
            "avg_devi_e": sigma.mean(1), "min_devi_e": sigma.min(1), "max_devi_e": sigma.max(1)
        }  # fmt: skip
        axes = axes_of(draw(Log.read(write_log(tmp_path)), rows))["energy deviation"]
        curves_of[name] = curves(axes)[0].get_ydata()
        assert curves(axes)[0].get_label() == f"average of atoms, less {sigma.mean(1)[0]:.3g}"
    np.testing.assert_allclose(curves_of["some"], curves_of["none"], atol=1e-12)


def write_log(folder: Path) -> Path:
    (folder / "log.lammps").write_text(LOG)
    return folder / "log.lammps"


def test_starts_of_one_run_are_joined(pwmlff, tmp_path: Path, monkeypatch):
    """A run in three starts, each from a restart file before the end of the last: as in one."""
    head = LOG[: LOG.index("run 20")]
    rows = [f"{k * 10:10d} 300 {-10.5 + 0.1 * k:.2f} -10.1 {5.0 + k}" for k in range(12)]
    memory = "Per MPI rank memory allocation (min/avg/max) = 3 | 3 | 3 Mbytes\n"
    end = "Loop time of 1.5 on 1 procs for 20 steps with 4 atoms\n"

    def run(first: int, last: int, end: str = end) -> str:
        return "\n".join([f"run 1\n{memory}{HEADER}", *rows[first:last], end])

    parts = {
        "log.lammps": head + run(0, 4) + run(3, 8, ""),
        "log.lammps.retry1": head + run(6, 9, "ERROR: lost\n"),
        "log.lammps.retry2": head,  # it died before the first line
        "log.lammps.retry10": head + run(7, 12),
        "log.lammps.retry1.old": head + run(0, 12),
        "whole": head + run(0, 4) + run(3, 12),
    }
    for name, text in parts.items():
        (tmp_path / name).write_text(text)
    joined, whole = (Log.read(tmp_path / name) for name in ("log.lammps", "whole"))
    assert len(joined.runs) == len(whole.runs) == 2
    for one, other in zip(joined.runs, whole.runs, strict=True):
        assert one.columns.keys() == other.columns.keys() and one.finished
        for name, values in one.columns.items():
            np.testing.assert_array_equal(values, other.columns[name])
    found = pwmlff("plot", "log.lammps", "--json").json
    assert (found["runs"], found["steps"]) == (2, [0, 110])
    # A start that went back beyond a run that was finished does that anew, too.
    (tmp_path / "log.lammps.retry11").write_text(head + run(1, 4) + run(3, 12))
    again = Log.read(tmp_path / "log.lammps")
    assert [list(r.columns["Step"]) for r in again.runs] == [
        list(r.columns["Step"]) for r in whole.runs
    ]


def test_one_color_one_meaning(files: Path):
    """Over all panels and logs, and no two quantities share one."""
    log = Log.read(files / "log.lammps")
    figure = draw(log, read_deviation(files / "model_devi.out"), [log])
    found: dict[str, set] = {}
    for axes in figure.axes:
        panel = axes.get_label()
        label = panel  # lines of later runs have none of their own
        for line in curves(axes):
            if panel in PANELS and not line.get_label().startswith("_"):
                label = line.get_label().partition(",")[0]
            found.setdefault(label, set()).add(to_rgba(line.get_color()))
    colors = {name: {to_rgba(color)} for name, color in COLORS.items()}
    assert found == {name: colors[name] for name in found}
    assert colors.keys() - found.keys() == {"virial deviation"}
    assert len(set.union(*colors.values())) == len(COLORS)
    assert len(curves(axes_of(figure)["energy"])) == 2 * 2 * 2  # quantities, logs, runs


def test_over_time(files: Path):
    """Steps times the time step of each run; a column of the log goes first."""
    log = Log.read(files / "log.lammps")
    times = [[0.0, 0.02, 0.04], [0.04, 0.06]]  # 10 steps of 2 fs, then 20 of 1 fs
    for found, expected in zip(log.times(), times, strict=True):
        np.testing.assert_allclose(found, expected)
    figure = draw(log, read_deviation(files / "model_devi.out"), time=True)
    assert figure.axes[-1].get_xlabel() == "time (ps)"
    axes = axes_of(figure)
    np.testing.assert_allclose(axes["temperature"].lines[0].get_xdata(), times[0])
    np.testing.assert_allclose(axes["force deviation"].lines[0].get_xdata(), [0, 0.04, 0.06])
    text = LOG.replace("Step ", "Step Time ").replace("Temp", "").replace("timestep", "#")
    (files / "log.time").write_text(text)
    assert list(Log.read(files / "log.time").times()[0]) == [300, 310.5, 320]


@pytest.mark.parametrize(
    "commands,timestep",
    [
        ("units real", 1.0),
        ("units lj\n  timestep 0.01 # short", 0.01),
        ("units metal\nread_restart a.restart", None),
        ("units metal\ntimestep 0.002\nfix 2 all dt/reset 10 1e-5 0.01 0.1", None),
        ("", None),
    ],
)
def test_time_steps(pwmlff, tmp_path: Path, commands: str, timestep: float | None):
    """Set, or those of the units; where the log cannot know, it is an error to ask."""
    (tmp_path / "log.x").write_text(f"{commands}\n{HEADER}\n 5 1 1 1 1\nLoop time of 1\n")
    assert [run.timestep for run in Log.read(tmp_path / "log.x").runs] == [timestep]
    found = pwmlff("plot", "log.x", "--time")
    assert found.returncode == (2 if timestep is None else 0)
    assert ("'log.x' tells no time step" in found.words) == (timestep is None)


def test_each_unit_style_has_units():
    assert UNITS.keys() == TIMESTEPS.keys()


@pytest.mark.parametrize("units", UNITS)
def test_units(tmp_path: Path, units: str):
    """Each has a unit on each axis; only those of lj are energies of an atom, unless said."""
    for norm in ("", "thermo_modify norm yes\n", "thermo_modify line one norm no\n"):
        text = f"units {units}\n{norm}{HEADER}\n 0 1 1 1 1\nLoop time of 1\n"
        (tmp_path / "log.x").write_text(text)
        log = Log.read(tmp_path / "log.x")
        per_atom = log.runs[0].per_atom
        assert per_atom == ("yes" in norm or (units == "lj" and not norm))
        labels = [axes.get_ylabel() for axes in draw(log).axes]
        assert all(label.endswith(")") and "()" not in label for label in labels)
        assert ("per atom" in labels[0]) == per_atom


def test_command(pwmlff, files: Path):
    found = pwmlff("plot", "log.lammps", "model_devi.out", "-o", "a.png", "--json")
    assert found.returncode == 0, found.words
    assert found.json["steps"] == [0, 40]
    assert (found.json["runs"], found.json["units"]) == (2, "metal")
    assert (files / "a.png").read_bytes().startswith(b"\x89PNG")
    last = pwmlff("plot", "log.lammps", "--run", "-1")
    assert (
        "run.png: energy, temperature, pressure; 1 run, steps 20 to 40, units metal" in last.words
    )
    for option in ("--compare", "--beside"):  # and its earlier name
        both = pwmlff("plot", "log.lammps", option, "log.lammps", "-o", "b.svg")
        assert both.returncode == 0, both.words


def test_deviation_of_one_run(pwmlff, files: Path, monkeypatch):
    """A run that is taken alone comes with its own steps of the deviation file, not with all."""
    drawn = []
    monkeypatch.setattr(picture, "save", lambda figure, path, dpi: drawn.append(figure))
    found = pwmlff("plot", "log.lammps", "model_devi.out", "--run", "2")
    assert found.returncode == 0, found.words
    for panel in OF_MATPL:
        for line in curves(axes_of(drawn[0])[panel]):
            assert list(line.get_xdata()) == [20, 40]


def test_deviation_under_way(tmp_path: Path):
    """A last number that is cut short looks like a number."""
    (tmp_path / "devi").write_text(f"{DEVIATION}60 0.5 0.4 0.6 0.04 0.004 0.4")
    assert list(read_deviation(tmp_path / "devi")["step"]) == [0, 20, 40]


def test_deviation_in_columns_of_dpgen(files: Path):
    """With the models in its header and numbers of atoms behind."""
    names = " ".join(f"{k}_devi_{q}" for q in "vf" for k in ("max", "min", "avg"))
    (files / "devi").write_text(
        f"# step {names}\n# model 1: a.pt\n0 6 4 5 3 1 2 0.1 0.2\n20 9 7 8 6 4 5 0.3 0.4\n"
    )
    rows = read_deviation(files / "devi")
    assert list(rows["avg_devi_v"]) == [5, 8] and list(rows["max_devi_f"]) == [3, 6]
    axes = axes_of(draw(Log.read(files / "log.lammps"), rows))
    panels = ["force deviation", "virial deviation"]
    assert list(axes)[-2:] == panels
    assert axes["virial deviation"].get_ylabel() == "virial\ndeviation (eV)"
    drawn = [sorted(list(line.get_ydata()) for line in curves(axes[panel])) for panel in panels]
    assert drawn == [[[1, 4], [2, 5], [3, 6]], [[4, 7], [5, 8], [6, 9]]]


def test_name_of_the_picture(pwmlff, files: Path):
    """What is said is what is written, and a name that cannot be is refused before the work."""
    found = pwmlff("plot", "log.lammps", "-o", "run", "--json")
    assert found.json["picture"] == "run.png"
    assert (files / "run.png").is_file() and not (files / "run").exists()
    absent = pwmlff("plot", "absent", "-o", "nodir/a.png")
    assert "cannot write 'nodir/a.png': found no folder 'nodir'" in absent.words
    (files / "folder.png").mkdir()
    assert "cannot write 'folder.png'" in pwmlff("plot", "absent", "-o", "folder.png").words


def test_beside_a_log_that_tells_no_units(pwmlff, files: Path):
    (files / "log.short").write_text(LOG[LOG.index("run 20") :])
    for names in (("log.lammps", "log.short"), ("log.short", "log.lammps")):
        found = pwmlff("plot", names[0], "--compare", names[1], "--json")
        assert found.returncode == 0, found.words
        assert found.json["units"] == ("metal" if names[0] == "log.lammps" else None)


def test_run_of_lmp(process, lj_models, tmp_path: Path):
    """A log and a deviation file as they are written."""
    (tmp_path / "in.melt").write_text(
        "units lj\nlattice fcc 0.8442\nregion b block 0 3 0 3 0 3\ncreate_box 1 b\n"
        "create_atoms 1 box\nmass 1 1.0\nvelocity all create 1.44 87287\n"
        f"pair_style pwmlff {' '.join(lj_models)} out_freq 5\npair_coeff * * Ar\n"
        "fix 1 all nve\nthermo 5\nminimize 0 0 3 9\nrun 10\n"
    )
    found = process("run", "-np", 1, "--no-preflight", "-in", "in.melt")
    assert found.returncode == 0, found.words
    drawn = process("plot", "log.lammps", "model_devi.out", "--time", "--json")
    assert drawn.returncode == 0, drawn.words
    assert drawn.json["panels"] == ["energy", "temperature", "pressure", *OF_MATPL]
    assert drawn.json["runs"] == 2
    rows = [line.split() for line in (tmp_path / "log.lammps").read_text().splitlines()]
    header = next(k for k, row in enumerate(rows) if row[:2] == ["Step", "Temp"])
    column = rows[header].index("E_pair")
    found = float(rows[header + 1][column])
    assert found == Log.read(tmp_path / "log.lammps").runs[0].columns["E_pair"][0]


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["absent"], "found no log file 'absent'"),
        (["model_devi.out"], "'model_devi.out' has no thermo output"),
        (["log.lammps", "absent"], "found no deviation file 'absent'"),
        (["log.lammps", "log.lammps"], "line 1 of 'log.lammps' is 'LAMMPS (22 Jul 2025"),
        (["log.lammps", "empty"], "'empty' has no line yet"),
        (["log.lammps", "--run", "3"], "--run is 3; 'log.lammps' has 2 runs"),
        (["log.lammps", "--run", "0"], "--run is 0"),
        (["log.lammps", "-o", "run.abc"], "cannot write 'run.abc'"),
        (
            ["log.lammps", "--compare", "log.real"],
            "found units metal in run 1 of 'log.lammps', units real in run 1 of 'log.real': draw",
        ),
        (["log.mixed"], "units metal in run 1 of 'log.mixed', units real in run 3 of"),
        (
            ["log.lammps", "other.out", "--run", "2"],
            "'other.out' has no step of run 2 of 'log.lammps', whose steps are 20 to 40",
        ),
        (["log.lammps", "bad.out"], "line 5 of 'bad.out' is '60 0.5'"),
        (["log.none"], "run 1 of 'log.none' has the columns Temp, E_pair; expected Step"),
        (["log.odd"], "has the columns Atoms, Step; expected one of PotEng, E_pair"),
    ],
)
def test_errors(pwmlff, files: Path, arguments, words: str):
    (files / "empty").write_text("# step\n")
    (files / "log.real").write_text(LOG.replace("metal", "real"))
    (files / "log.odd").write_text("   Step Atoms\n 0 5\nLoop time of 1\n")
    (files / "log.mixed").write_text(f"{LOG}clear\n{LOG.replace('metal', 'real')}")
    (files / "other.out").write_text("0 1 1 1 1 1 1\n50 1 1 1 1 1 1\n")
    (files / "bad.out").write_text(f"{DEVIATION}60 0.5\n")
    (files / "log.none").write_text("Temp E_pair\n 1 2\nLoop time of 1\n")
    found = pwmlff("plot", *arguments)
    assert found.returncode == 2
    assert words in found.words
