"""A model file as a model of torch-sim, which moves many systems at a time.

    import torch_sim as ts
    from pwmlff.torch_sim import TorchSimModel

    final = ts.integrate(
        system=[atoms, atoms], model=TorchSimModel("a.pt"),
        integrator=ts.Integrator.nvt_langevin,  # of torch-sim 0.3: ts.nvt_langevin
        n_steps=1000, temperature=300, timestep=0.001,
    )

Needs `pip install torch-sim-atomistic`. The systems are evaluated one after another, by the engines
of :class:`pwmlff.Calculator`. Not an interface of metatomic: there the model has to be TorchScript
with neighbor lists as inputs, so the file's own forward, not the fused engine, would run.
"""

from __future__ import annotations

from copy import copy
from os import PathLike
from typing import Any

import numpy as np
import torch
import torch_sim as ts
from torch_sim.models.interface import ModelInterface

from pwmlff.evaluation.engine import Engine, choose


class TorchSimModel(ModelInterface):
    """Energies, forces and stresses of a TorchScript model file.

    Args:
        model: a model file. Loading it executes code that it brings along.
        device: where the model runs, and results lie: "cpu", "cuda" or "cuda:N".
        dtype: of results; they are computed as the engine does it.
        options: engine, precision, elements, nthreads and skin, as :class:`pwmlff.Calculator` has
            them.

    Raises:
        pwmlff.report.Failure: the file or the device cannot be used.
        ValueError: when computing, for a structure that the model does not take.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
        **options: Any,
    ) -> None:
        super().__init__()
        self._device, self._dtype = torch.device(device), dtype
        self._compute_forces = self._compute_stress = True
        options = {"nthreads": torch.get_num_threads(), **options}
        self._engines: list[Engine] = [choose(model, device=device, **options).engine]

    def forward(
        self, state: ts.SimState | dict[str, Any], **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        """Evaluate all systems of a state.

        Returns:
            energy [n_systems], forces [n_atoms, 3] and stress [n_systems, 3, 3] (eV, angstrom,
            positive under tension; NaN for a cell without a volume).
        """
        del kwargs
        if isinstance(state, dict):
            state = ts.SimState(**{"masses": torch.ones_like(state["positions"][:, 0]), **state})
        systems = ts.io.state_to_atoms(state)
        while len(self._engines) < len(systems):
            self._engines.append(copy(self._engines[0]))  # it keeps neighbors of its own
        results = [engine(atoms) for engine, atoms in zip(self._engines, systems, strict=False)]
        volumes = [a.get_volume() if a.cell.rank == 3 else np.nan for a in systems]

        def tensor(values: Any) -> torch.Tensor:
            return torch.as_tensor(np.asarray(values), dtype=self._dtype, device=self._device)

        return {
            "energy": tensor([one.energy for one in results]),
            "forces": tensor(np.concatenate([one.forces for one in results])),
            "stress": tensor([-one.virial / v for one, v in zip(results, volumes, strict=True)]),
        }
