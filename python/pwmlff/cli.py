"""The `pwmlff` command: what surrounds a run on real machines.

This module holds the options and their help. What a command does is in a module of its own, which
is imported when the command runs: `pwmlff --help` loads neither torch nor ase nor mpi4py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from pwmlff import report
from pwmlff.commands.options import names, numbers, positive_integers, with_elements_joined, words
from pwmlff.report import finish


class Commands(typer.core.TyperGroup):
    """All commands: no error leaves them as a traceback, wherever it comes from."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command that the words say, by default those that this process was given."""
        args = with_elements_joined(sys.argv[1:] if args is None else args)
        report.begin(args)
        with report.errors_said():
            return super().main(args, *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; typer would say nothing of an interruption while modules are loaded."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            with report.errors_said():
                raise


app = typer.Typer(
    name="pwmlff",
    cls=Commands,
    help="Machine-learned potentials stored as TorchScript, run inside LAMMPS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes a third of the time of `pwmlff --help`
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")]
Energy = Annotated[
    str,
    typer.Option(
        help="Of frames with two: free, which forces belong to, or zero, that at sigma -> 0."
    ),
]
Lmp = Annotated[
    str | None, typer.Option(help="The lmp to run; that of this Python's lammps package.")
]
Plugin = Annotated[
    Path | None,
    typer.Option(help="Plugin to load, or its folder, as `pwmlff build` leaves it; lmp's own."),
]
Mpirun = Annotated[str | None, typer.Option(help="The mpirun to use; the one beside this Python.")]
MpirunOptions = Annotated[
    str, typer.Option(help="More options for mpirun, as it spells them, like '-launcher fork'.")
]
Hosts = Annotated[
    str, typer.Option("-H", "--hosts", help="Hosts and how many ranks each takes, like n1:8,n2:8.")
]
Hostfile = Annotated[
    Path | None, typer.Option(help="File of hosts, a line 'n1:8' or 'n1 slots=8' for each.")
]
Bind = Annotated[str | None, typer.Option(help="Bind ranks: core, none, socket, ...")]
Device = Annotated[
    str, typer.Option(help="As pair_style pwmlff takes it: auto, cpu, gpu, or GPUs like 0,1.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from pwmlff import __version__, plugin  # noqa: PLC0415

        typer.echo(plugin.origin(plugin.library()) or f"pair-pwmlff {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error too; before COMMAND.")
    ] = False,
) -> None:
    if debug:
        report.debug()


@app.command()
def info(
    models: Annotated[list[Path], typer.Argument(help="TorchScript model files.")],
    precision: Annotated[
        str | None,
        typer.Option(help="Precision of the fused engine, with --trust: exact, double or mixed."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the code of the files, to tell the engine too.")
    ] = False,
    json: Json = False,
) -> None:
    """Describe model files: kind, elements, cutoff, sizes, ensemble compatibility.

    Read from the files without running the code that they bring along. With --trust it is run, as
    lmp does: which engine takes the file, and what is wrong with it.

    Example: pwmlff info a.pt b.pt --trust
    """
    from pwmlff.commands.info import describe_files  # noqa: PLC0415

    finish(lambda: describe_files(models, precision, trust), json)


@app.command()
def wrap(
    model: Annotated[Path, typer.Argument(help="Model file of another program.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    compile: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Add machine code, for CPUs like this one, and compare its speed; kind EDGE.",
        ),
    ] = False,
    head: Annotated[str, typer.Option(help="Head of a MACE .model that has several.")] = "",
    json: Json = False,
) -> None:
    """Make a model file of another program one that pair_style pwmlff runs.

    Says what the file is and proves what it writes against the code of the original; that program
    need not be installed. MatPL, PWMLFF: the .ckpt of a training of a DP. DeePMD-kit: a frozen .pth
    with descriptor se_e2_a. MACE: -lammps.pt. NequIP, Allegro: .nequip.pth. With the commands of
    MACE or NequIP on the PATH also a .model, a .nequip.zip and a .ckpt. A file that needs none of
    this is copied.

    Example: pwmlff wrap graph.pth -o a.pt
    """
    from pwmlff.convert import wrap  # noqa: PLC0415

    finish(lambda: wrap(model, output, compiled=compile, head=head), json)


@app.command()
def compare(
    models: Annotated[list[Path], typer.Argument(help="TorchScript model files.")],
    data: Annotated[str, typer.Option(help="Structures, any file ase reads; FILE@: for all.")],
    elements: Annotated[
        str,
        typer.Option(
            help="Elements that take part, like 'Hf O'; all of the model's. With a LAMMPS data "
            "file those of its types, in order; as its labels or masses say."
        ),
    ] = "",
    format: Annotated[
        str | None, typer.Option(help="Format of the structures, as ase calls it.")
    ] = None,
    atom_style: Annotated[
        str | None, typer.Option(help="Atom style of a LAMMPS data file that does not say it.")
    ] = None,
    np: Annotated[str, typer.Option("--np", help="Numbers of ranks.")] = "1,2",
    device: Annotated[
        str, typer.Option(help="Devices: cpu, gpu; gpu only where there is one.")
    ] = "",
    engine: Annotated[
        str, typer.Option(help="Engines: fused, torchscript, auto; those that run the file.")
    ] = "",
    precision: Annotated[
        str, typer.Option(help="Precisions of the fused engine.")
    ] = "exact,double,mixed",
    tol: Annotated[str, typer.Option(help="Other gates, like 'force=1e-5,energy=1e-7'.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Parity plot of the forces, PNG.")] = None,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
    json: Json = False,
) -> None:
    """Compare lmp in every combination with the plain float64 reference on the CPU.

    Energies, energies of atoms, forces and virial, against the gates of each precision.

    Example: pwmlff compare model.pt --data structures.extxyz@0:5 --np 1,2,4 --plot parity.png
    """
    from pwmlff.commands import compare as work  # noqa: PLC0415

    def run() -> work.CompareReport:
        return work.compare(
            work.Options(
                models,
                data,
                elements.replace(",", " ").split(),
                format,
                atom_style,
                positive_integers("--np", np),
                names(device),
                names(engine),
                names(precision),
                numbers("--tol", tol),
                plot,
                lmp,
                mpirun,
                plugin,
            )
        )

    finish(run, json)


@app.command()
def test(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... DATA...",
            help="TorchScript model files, and files with labels; FILE@0:5 for five frames.",
        ),
    ],
    format: Annotated[str | None, typer.Option(help="Format of the files; as they look.")] = None,
    elements: Annotated[
        str, typer.Option(help="Elements that take part, like 'Hf O'; all of the model's.")
    ] = "",
    plot: Annotated[Path | None, typer.Option(help="Parity plot, PNG.")] = None,
    worst: Annotated[int, typer.Option(min=0, help="Frames and atoms to list.")] = 5,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; as many as there are cores.")
    ] = None,
    energy: Energy = "free",
    json: Json = False,
) -> None:
    """Tell the errors of models on labelled structures.

    RMSE and MAE of energy, force and virial, also after a constant for each element is taken off
    the energies, by element, group and magnitude of the force, and where the largest are. Of
    several models, each and the mean of their predictions.

    Example: pwmlff test model.pt valid.extxyz --plot parity.png
    """
    from pwmlff.train import evaluate as work  # noqa: PLC0415

    chosen = elements.replace(",", " ").split()

    def run() -> work.TestReport:
        models, data = work.told_apart(words)
        return work.test(work.Options(models, data, chosen, format, plot, worst, threads, energy))

    finish(run, json)


@app.command()
def ranks(
    np: Annotated[int | None, typer.Option("-np", "--np", min=1, help="Number of ranks.")] = None,
    hosts: Hosts = "",
    hostfile: Hostfile = None,
    strict: Annotated[bool, typer.Option(help="Fail on warnings too.")] = False,
    plan: Annotated[
        str | None, typer.Option(help="Show the mapping of NODESxGPUS that are not there.")
    ] = None,
    device: Device = "auto",
    partition: Annotated[
        str, typer.Option(help="Replicas, as lmp's -partition takes them, like 4x2.")
    ] = "",
    bind: Bind = None,
    mpirun: Mpirun = None,
    mpirun_options: MpirunOptions = "",
    inventory: Annotated[Path | None, typer.Option(hidden=True)] = None,
    json: Json = False,
) -> None:
    """Show which rank runs on which GPU and cores, and warn of what is odd.

    Starts itself under mpirun, or can be started by one.

    Example: pwmlff ranks -np 8 --hostfile hosts --strict

    Example: pwmlff ranks --plan 2x4 -np 16
    """
    from pwmlff.launch import ranks as work  # noqa: PLC0415
    from pwmlff.launch.mpirun import hosts_of  # noqa: PLC0415

    def run() -> work.RanksReport:
        return work.check(
            work.Options(
                ranks=np,
                hosts=hosts_of(hosts, hostfile),
                plan=plan,
                policy=device,
                partition=partition,
                strict=strict,
                bind=bind,
                inventory=inventory,
                mpirun=mpirun,
                mpirun_options=words(mpirun_options),
            )
        )

    finish(run, json)


@app.command()
def doctor(
    np: Annotated[int, typer.Option("-np", "--np", min=1, help="Ranks on this machine.")] = 1,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
    json: Json = False,
) -> None:
    """Check that LAMMPS, MPI, torch, driver, GPUs and the plugin fit together.

    Each check says ok, warning or error, what it found, and what to do.

    Example: pwmlff doctor -np 4
    """
    from pwmlff.commands import doctor as work  # noqa: PLC0415

    finish(lambda: work.examine(work.Machine(lmp, mpirun, np, plugin)), json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    np: Annotated[int, typer.Option("-np", "--np", min=1, help="Number of ranks.")] = 1,
    hosts: Hosts = "",
    hostfile: Hostfile = None,
    log_dir: Annotated[Path, typer.Option(help="Where each rank writes.")] = Path("logs"),
    merge_stderr: Annotated[
        bool, typer.Option("--merge-stderr", help="Write stderr of a rank to its stdout.")
    ] = False,
    bind: Bind = None,
    retries: Annotated[
        int, typer.Option(min=0, help="Starts from the newest restart file after a rank died.")
    ] = 0,
    resume: Annotated[
        str,
        typer.Option(
            help="Go on with what an earlier start left unfinished: auto, never, or from a file."
        ),
    ] = "auto",
    hang: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Seconds without a sign of life that end a start; 0 never; else 600."
        ),
    ] = None,
    time_limit: Annotated[
        str,
        typer.Option(
            help="Stop before that time is over, like 23:50:00; the end of the Slurm job."
        ),
    ] = "",
    drop_hosts: Annotated[
        bool, typer.Option("--drop-hosts", help="Go on without a host that cannot be reached.")
    ] = False,
    min_ranks: Annotated[
        int, typer.Option(min=1, help="Ranks to go on with, with --drop-hosts.")
    ] = 1,
    threads: Annotated[int, typer.Option(min=1, help="OpenMP threads of each rank.")] = 1,
    preflight: Annotated[bool, typer.Option(help="Look first whether it can run.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the command, no more.")] = False,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
    mpirun_options: MpirunOptions = "",
    json: Json = False,
) -> None:
    """Run lmp under mpirun: look first, watch, and start again where a rank died.

    All other words are for lmp. The mpirun line is shown, to be taken over. The same command goes
    on with what was stopped: by a signal or a time limit, with exit code 75, or by a fault.

    Example: pwmlff run -np 8 --hostfile hosts --bind core --retries 3 -in in.x
    """
    from pwmlff import launch as work  # noqa: PLC0415
    from pwmlff.launch.mpirun import hosts_of  # noqa: PLC0415

    def start() -> work.RunReport:
        return work.run(
            work.Options(
                arguments=context.args,
                ranks=np,
                hosts=hosts_of(hosts, hostfile),
                log_dir=log_dir,
                merge_stderr=merge_stderr,
                bind=bind,
                retries=retries,
                resume=resume,
                hang=hang,
                time_limit=work.seconds_of(time_limit) if time_limit else None,
                drop_hosts=drop_hosts,
                min_ranks=min_ranks,
                threads=threads,
                preflight=preflight,
                dry_run=dry_run,
                lmp=lmp,
                mpirun=mpirun,
                mpirun_options=words(mpirun_options),
                plugin=plugin,
            )
        )

    finish(start, json)


@app.command()
def build(
    lammps: Annotated[Path, typer.Option(help="Source tree or installation of LAMMPS.")],
    mpi: Annotated[str | None, typer.Option(help="The mpicxx that LAMMPS was built with.")] = None,
    cuda: Annotated[str, typer.Option(help="GPU kernels: auto (where nvcc is), on, off.")] = "auto",
    arch: Annotated[str | None, typer.Option(help="GPU architectures, like '80;90'.")] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Integer sizes of that LAMMPS, where it does not tell.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the plugin goes.")] = Path(
        "pwmlff-plugin"
    ),
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="At a time.")] = None,
    configure_only: Annotated[
        bool, typer.Option("--configure-only", help="Say what it would compile for.")
    ] = False,
    json: Json = False,
) -> None:
    """Compile the plugin against a LAMMPS of your own.

    Example: pwmlff build --lammps ~/lammps --mpi /usr/bin/mpicxx -o ~/pwmlff-plugin
    """
    from pwmlff.commands import build as work  # noqa: PLC0415

    options = work.Options(lammps, mpi, cuda, arch, sizes, output, jobs, configure_only)
    finish(lambda: work.build(options), json)


@app.command()
def plot(
    log: Annotated[Path, typer.Argument(help="Log file of a LAMMPS run.")],
    deviation: Annotated[
        Path | None, typer.Argument(help="Its deviation file, like model_devi.out.")
    ] = None,
    beside: Annotated[
        list[Path] | None, typer.Option(help="Another log to draw beside it, dashed.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture.")] = Path("run.png"),
    time: Annotated[bool, typer.Option("--time", help="Over time; over steps else.")] = False,
    run: Annotated[
        int | None, typer.Option(help="One run of the log: 1 the first, -1 the last; all.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw energy, temperature, pressure and model deviation of a run.

    Also of one that is under way. Units are those of the log.

    Example: pwmlff plot log.lammps model_devi.out -o run.png
    """
    from pwmlff.commands import plot as work  # noqa: PLC0415

    finish(lambda: work.plot(work.Options(log, deviation, beside or (), output, time, run)), json)


@app.command()
def bench(
    atoms: Annotated[str, typer.Option(help="Numbers of atoms of HfO2, about.")] = "",
    engine: Annotated[str, typer.Option(help="Engines: torchscript, fused.")] = "",
    precision: Annotated[str, typer.Option(help="Precisions: exact, double, mixed.")] = "",
    np: Annotated[str, typer.Option("--np", help="Numbers of ranks.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each case, in turns.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of a run.")] = 4.0,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the large boxes.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="On a GPU, and its kernels alone.")] = False,
    limit: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds; later cases are left out.")
    ] = None,
    lmp: Lmp = None,
    plugin: Plugin = None,
    mpirun: Mpirun = None,
    json: Json = False,
) -> None:
    """Time engines, precisions, sizes and ranks, all in turns, and report the best of each.

    Without a choice, the cases that docs/performance.md quotes.

    Example: pwmlff bench --atoms 768,6144 --engine fused --precision double,mixed --np 1,2
    """
    from pwmlff.commands import bench as work  # noqa: PLC0415

    def run() -> work.BenchReport:
        return work.bench(
            work.Options(
                positive_integers("--atoms", atoms) if atoms else (),
                names(engine),
                names(precision),
                positive_integers("--np", np) if np else (),
                rounds,
                seconds,
                quick,
                gpu,
                limit,
                lmp,
                mpirun,
                plugin,
            )
        )

    finish(run, json)


@app.command()
def train(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN.TOML] [DATA]...",
            help="What to do, where it ends in .toml; structures to learn from.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Structures to learn from; may be given again.")
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(help="Structures to validate with; a tenth of the others; repeatable."),
    ] = None,
    energy: Annotated[str, typer.Option(help="free or zero, as for data check; free.")] = "",
    shift_sources: Annotated[
        bool,
        typer.Option("--shift-sources", help="Give the energies of all files one zero."),
    ] = False,
    elements: Annotated[
        str, typer.Option(help="Elements of the model, like Hf O, 'Hf O' or Hf,O.")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the results.")
    ] = None,
    max_time: Annotated[
        float | None, typer.Option(help="Minutes, from the start of the command to its end.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    models: Annotated[int | None, typer.Option(help="Models of an ensemble.")] = None,
    finetune: Annotated[Path | None, typer.Option(help="Model file to start from.")] = None,
    module: Annotated[
        str, typer.Option(help="A module of kind EDGE to train, like my_model.py:Model.")
    ] = "",
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:N, or auto: a GPU where there is one; cpu.")
    ] = "",
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="A key of run.toml, like optimizer.name=kalman; several times."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint in the folder, if any.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, but train nothing.")
    ] = False,
    communication: Annotated[
        str, typer.Option(help="Between ranks: auto, serial, mpi (mpi4py) or torch.")
    ] = "auto",
    json: Json = False,
) -> None:
    """Train models from labelled structures, alone or under mpirun or torchrun.

    Keys of run.toml are in docs/run_toml.md; all of them have defaults but the data and the
    elements. Writes best.pt and last.pt, the log, pictures and checkpoints into the folder.

    Ctrl-C or SIGTERM ends it with its models and a checkpoint, and exit code 75; --resume goes on.

    Example: pwmlff train frames.extxyz --elements Hf O -o run1 --max-time 20
    """
    from pwmlff.train import command as work  # noqa: PLC0415

    first, *others = files or [""]
    toml = Path(first) if first.endswith(".toml") else None
    given = {
        "settings": set or [],
        "data": [*(data or []), *(others if toml else files or [])],
        "valid": valid or [],
        "energy": energy,
        "shift_sources": shift_sources,
        "elements": elements,
        "output": output,
        "max_time": max_time,
        "epochs": epochs,
        "models": models,
        "finetune": finetune,
        "module": module,
        "device": device,
    }
    options = work.Options(resume, dry_run, communication, report.began())
    with work.Stop(leaves=True) as stop:
        finish(lambda: work.train(toml, given, options, stop), json)


data_app = typer.Typer(
    help="Training data: look at it before a training does.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")


@data_app.command("check")
def data_check(
    files: Annotated[
        list[str], typer.Argument(help="Files, or folders of DeePMD-kit; FILE@0:100:2 for some.")
    ],
    elements: Annotated[
        str, typer.Option(help="Elements that may occur, like 'Hf O'; any when not given.")
    ] = "",
    format: Annotated[
        str | None,
        typer.Option(
            help="extxyz, movement, deepmd, one of ase's, or dpdata: and one of dpdata's."
        ),
    ] = None,
    cutoff: Annotated[float, typer.Option(help="Distance within which neighbors are counted.")] = (
        6.0
    ),
    closest: Annotated[float, typer.Option(help="Atoms nearer than this overlap.")] = 0.3,
    plot: Annotated[Path | None, typer.Option(help="Histograms, PNG.")] = None,
    energy: Energy = "free",
    json: Json = False,
) -> None:
    """Look at training data: what there is, and what is wrong with it, by file and frame.

    Missing labels, NaN, outliers, duplicates, overlapping atoms, energies that change otherwise
    than the forces say, the sign of the stress.

    Example: pwmlff data check train.extxyz MOVEMENT --elements 'Hf O' --plot data.png
    """
    from pwmlff.data import check as work  # noqa: PLC0415

    chosen = elements.replace(",", " ").split()
    options = work.Options(files, chosen, format, cutoff, closest, plot, energy)
    finish(lambda: work.check(options), json)


@data_app.command("cache")
def data_cache(
    folder: Annotated[
        str, typer.Option(help="The cache; auto is the one that trainings use by themselves.")
    ] = "auto",
    clear: Annotated[bool, typer.Option("--clear", help="Remove all that is kept.")] = False,
    json: Json = False,
) -> None:
    """Show what training data are kept ready for use, and how large they are.

    Those that were not used for longest are removed when all are larger than 8 GiB, or as many as
    PWMLFF_CACHE_LIMIT says.

    Example: pwmlff data cache --clear
    """
    from pwmlff.data import cache as work  # noqa: PLC0415

    finish(lambda: work.survey(work.Options(folder, clear)), json)
