"""Machine code of models of kind EDGE, made of their TorchScript by AOTInductor.

A package (.pt2) computes (edge_vec [E, 3], edge_index [2, E], types [N], weight [N]) to (energies
[N], derivative [E, 3] of sum(weight * energies) with respect to edge_vec) for any E and N from 2
on. A model file carries it beside its TorchScript, with which the pair style compares it whenever
the file is loaded (models/edge/compiled_edge.cpp). It holds for one release of torch and one level
of vector instructions, which the name of the member tells.

Source: Ansel et al. 2024, doi:10.1145/3620665.3640366 (PyTorch 2).
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pwmlff.evaluation.edge_graph import taken
from pwmlff.evaluation.model_file import to_its_dtype
from pwmlff.models.unscripted import CannotRun, Unscripted
from pwmlff.report import last_line

#: Name of a member, of the release of torch (major.minor) and the level of vector instructions.
MEMBER = "compiled-{release}-{cpu}.pt2"
#: What the name of another member ends with, of the hexadecimal SHA-256 of that one.
HASH = ".sha256"
#: Bits of a vector register; other levels have none.
VECTORS = {"AVX512": 512, "AVX2": 256}
#: Numbers of nodes and edges of the example, which no width of a net is likely to be: what is equal
#: is taken for the same.
NODES, EDGES = 1019, 2003
#: Of what a C++ compiler says; what comes after it follows from it.
FIRST_ERROR = re.compile(r"^.*\b(error: .+)$", re.MULTILINE)
MOST = {"nodes": 10**7, "edges": 10**8}


def compile_edges(module: torch.jit.ScriptModule) -> dict[str, bytes]:
    """The package of a scripted model of kind EDGE for this torch and this CPU.

    Returns:
        Members of a model file by name: the package, and its SHA-256.

    Raises:
        ValueError: the module or this torch cannot do so; the text goes on after the file's name.
    """
    from torch._inductor import aoti_compile_and_package, config  # noqa: PLC0415  slow to import

    cpu = torch.backends.cpu.get_cpu_capability()
    settings: dict[str, Any] = {
        "cpp.threads": 1,  # a rank of MPI has a core
        "cpp.simdlen": VECTORS.get(cpu, 1),
        "cpp.march": "",  # no more than these vectors: the code may run on another machine
        "aot_inductor.precompile_headers": False,  # which pays where more than one file is compiled
    }
    if not hasattr(config.cpp, "march"):
        raise ValueError(
            f"cannot be compiled with torch {torch.__version__}: its code would run on CPUs like "
            "this one alone; install torch 2.13 or newer"
        )
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="pwmlff-") as folder:
        warnings.simplefilter("ignore")  # of torch's own parts with each other
        package = Path(folder) / "edges.pt2"
        try:
            aoti_compile_and_package(
                _exported(module), package_path=str(package), inductor_configs=settings
            )
        except CannotRun as error:
            raise ValueError(str(error)) from error
        except Exception as error:  # of whatever part of the compiler
            match = FIRST_ERROR.search(str(error))
            reason = match[1] if match else last_line(error)
            raise ValueError(f"cannot be compiled by torch: {reason}") from error
        _without_sources(package)
        contents = package.read_bytes()
    release = ".".join(torch.__version__.split(".")[:2])
    name = MEMBER.format(release=release, cpu=cpu)
    return {name: contents, name + HASH: hashlib.sha256(contents).hexdigest().encode()}


def _exported(module: torch.jit.ScriptModule) -> torch.export.ExportedProgram:
    """Energies and derivative as one program with symbols for the numbers of nodes and edges."""
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

    if names := taken(module):
        raise CannotRun(f"takes {' and '.join(sorted(names))}, which compiled code does not")
    dtype = to_its_dtype(module)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    energies = Unscripted(module)

    def evaluate(edge_vec: Tensor, edge_index: Tensor, types: Tensor, weight: Tensor) -> Any:
        with torch.enable_grad():
            vectors = edge_vec.detach().clone().requires_grad_()
            of_atoms = energies(vectors, edge_index, types, types.size(0))
            (derivative,) = torch.autograd.grad(of_atoms, vectors, weight.to(of_atoms.dtype))
        return of_atoms.detach(), derivative

    generator = torch.Generator().manual_seed(0)
    atom_type: Any = module.atom_type
    example = (
        torch.randn(EDGES, 3, generator=generator, dtype=torch.float64).to(dtype),
        torch.randint(NODES, (2, EDGES), generator=generator),
        torch.arange(NODES) % len(atom_type),
        torch.ones(NODES, dtype=torch.float64),
    )
    trace: Callable[..., Any] = make_fx(
        evaluate,
        tracing_mode="symbolic",
        _allow_non_fake_inputs=True,
        _error_on_data_dependent_ops=True,
    )
    traced = trace(*example)
    nodes, edges = (torch.export.Dim(name, min=2, max=MOST[name]) for name in ("nodes", "edges"))
    return torch.export.export(
        traced, example, dynamic_shapes=({0: edges}, {1: edges}, {0: nodes}, {0: nodes})
    )


def _without_sources(package: Path) -> None:
    """Leave out the C++ that was compiled: it is not run, and has paths of this machine."""
    with zipfile.ZipFile(package) as archive:
        kept = {
            name: archive.read(name) for name in archive.namelist() if not name.endswith(".cpp")
        }
    with zipfile.ZipFile(package, "w") as archive:
        for name, contents in kept.items():
            archive.writestr(name, contents)
