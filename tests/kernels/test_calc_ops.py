"""The ops of older exports against plain loops, and a file that calls them inside lmp."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pwmlff.kernels  # noqa: F401

NAMES = ["CalcOps_cpu", "CalcOps_cuda"]
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


@pytest.fixture(params=NAMES)
def ops(request):
    return getattr(torch.ops, request.param)


@pytest.fixture(params=DEVICES)
def device(request):
    """Either name runs on either device."""
    return request.param


@pytest.fixture
def slots():
    """list_neigh, dE, Ri_d, Rij and Force of two frames: 3 atoms, 2 ghosts, 4 slots."""
    generator = torch.Generator().manual_seed(2)

    def random(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    neighbors = torch.randint(-1, 5, (2, 3, 1, 4), dtype=torch.int32, generator=generator)
    return neighbors, random(2, 3, 1, 16), random(2, 3, 16, 3), random(2, 3, 4, 3), random(2, 3, 3)


def by_loops(neighbors, dE, Ri_d, Rij, force):
    """Forces [2, 5, 3] and virials [2, 9]."""
    forces = np.zeros((2, 5, 3))
    forces[:, :3] = force
    virial = np.zeros((2, 3, 3))
    for frame, atom, slot in np.ndindex(2, 3, 4):
        j = int(neighbors[frame, atom, 0, slot])
        if j >= 0:
            part = slice(4 * slot, 4 * slot + 4)
            pulled = dE[frame, atom, 0, part].numpy() @ Ri_d[frame, atom, part].numpy()
            forces[frame, j] += pulled
            virial[frame] += np.outer(Rij[frame, atom, slot], pulled)
    return torch.from_numpy(forces), torch.from_numpy(virial.reshape(2, 9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padded", [False, True])
def test_force_and_virial(ops, slots, dtype, padded, device):
    forces, virial = by_loops(*slots)
    neighbors, dE, Ri_d, Rij, force = (
        t.to(device, t.dtype if t.dtype == torch.int32 else dtype) for t in slots
    )
    nghost = torch.tensor(2)
    if padded:
        force = torch.cat((force, force.new_zeros(2, 2, 3)), 1)
    (found,) = ops.calculateForce(neighbors, dE, Ri_d, force, nghost)
    torch.testing.assert_close(found.cpu(), forces.to(dtype))
    (found,) = ops.calculateVirial(neighbors, dE, Rij, Ri_d, nghost)
    torch.testing.assert_close(found.cpu(), virial.to(dtype))


@pytest.mark.parametrize("order", [3, 5])
def test_compress(ops, order, device):
    f2 = torch.rand(6, dtype=torch.float64)
    coefficient = torch.randn(6, 7, order + 1, dtype=torch.float64)
    expected = [[np.polyval(c, x) for c in rows] for rows, x in zip(coefficient, f2, strict=True)]
    (found,) = ops.calculateCompress(f2.to(device), coefficient.to(device))
    np.testing.assert_allclose(found.cpu(), np.array(expected), rtol=1e-12)


def test_derivatives(ops, slots):
    neighbors, *values = slots
    dE, Ri_d, Rij, force = (v.requires_grad_() for v in values)
    nghost = torch.tensor(2)
    f2 = torch.rand(3, dtype=torch.float64, requires_grad=True)
    coefficient = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)
    for function, inputs in (
        (lambda *a: ops.calculateForce(neighbors, *a, nghost)[0], (dE, Ri_d, force)),
        (lambda *a: ops.calculateVirial(neighbors, *a, nghost)[0], (dE, Rij, Ri_d)),
        (lambda *a: ops.calculateCompress(*a)[0], (f2, coefficient)),
    ):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)


def test_bad_shapes(ops, slots):
    neighbors, dE, Ri_d, Rij, force = slots
    nghost = torch.tensor(2)
    with pytest.raises(RuntimeError, match="dE has shape"):
        ops.calculateForce(neighbors, dE[..., :8], Ri_d, force, nghost)
    with pytest.raises(RuntimeError, match="Force has shape"):
        ops.calculateForce(neighbors, dE, Ri_d, force[:, :2], nghost)
    with pytest.raises(RuntimeError, match="Rij has shape"):
        ops.calculateVirial(neighbors, dE, Rij[:1], Ri_d, nghost)
    with pytest.raises(RuntimeError, match="list_neigh has shape"):
        ops.calculateForce(neighbors[0], dE, Ri_d, force, nghost)


class OldExport(torch.nn.Module):
    """A DP file as a GPU node writes it: E = sum of w exp(-r), forces by CalcOps_cuda."""

    def __init__(self):
        super().__init__()
        self.atom_type = [8, 72]
        self.Rmax = 4.0
        self.maxNeighborNum = 60
        self.weight = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(
        self,
        list_neigh: torch.Tensor,
        Imagetype_map: torch.Tensor,
        atom_type: torch.Tensor,
        ImageDR: torch.Tensor,
        nghost: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        batch, natoms, n = list_neigh.size(0), list_neigh.size(1), list_neigh.size(2)
        r, d = ImageDR[..., 0], ImageDR[..., 1:]
        used = list_neigh > 0
        inv = torch.where(used, 1.0 / torch.where(used, r, 1.0), 0.0)
        s = torch.where(used, torch.exp(-r), 0.0)
        # Only the first component of Ri is in use; dRi/dx_j = -s d/r, with the exporter's sign.
        Ri_d = torch.zeros(batch, natoms, n, 4, 3, dtype=ImageDR.dtype)
        Ri_d[..., 0, :] = (s * inv).unsqueeze(-1) * d
        dE = torch.zeros(batch, natoms, n, 4, dtype=ImageDR.dtype)
        dE[..., 0] = self.weight
        Ei = torch.zeros(batch, natoms, dtype=ImageDR.dtype)
        first = 0
        numbers: list[int] = atom_type.to(torch.int64).tolist()
        for number in numbers:
            for kind, known in enumerate(self.atom_type):
                if number == known:
                    mine = self.weight * s[:, Imagetype_map == kind].sum(-1)
                    Ei[:, first : first + mine.size(1)] = mine
                    first += mine.size(1)
        Ri_d = Ri_d.view(batch, natoms, n * 4, 3)
        dE = dE.view(batch, natoms, 1, n * 4)
        force = -torch.matmul(dE, Ri_d).squeeze(-2)
        neighbors = (list_neigh - 1).unsqueeze(2)
        ghosts = torch.tensor(nghost)
        force = torch.ops.CalcOps_cuda.calculateForce(neighbors, dE, Ri_d, force, ghosts)[0]
        virial = torch.ops.CalcOps_cuda.calculateVirial(neighbors, dE, d, Ri_d, ghosts)[0]
        return Ei.sum(1, keepdim=True), Ei, force, None, virial


def test_file_of_a_gpu_node_runs_in_lmp(tmp_path):
    """lmp against the analytic pair energy, by LAMMPS's own pair style for it."""
    from harness import ENGINES, Lammps
    from pwmlff.launch.lmp import DUMP, MEASURE, forces
    from systems import crystal

    lammps = Lammps(tmp_path, ENGINES["automatic"])
    torch.jit.script(OldExport()).save(tmp_path / "old.pt")
    lammps.data(crystal(2), [8, 72])
    text = "units metal\nread_data atoms.data\n{}\n" + MEASURE + "run 0\n" + DUMP
    ours = lammps.run(text.format("pair_style pwmlff old.pt\npair_coeff * * O Hf"))
    assert "engine torchscript, float64 (not fused:" in ours.output
    found = (ours.thermo()["PotEng"][0], forces(ours.atoms()), ours.vector("c_press"))
    # Each pair counts from both ends: 2 w exp(-r), as the repulsion of pair_style born.
    born = "pair_style born 4.0\npair_coeff * * 0.6 1.0 0.0 0.0 0.0"
    theirs = lammps.run(text.format(born), 2)
    exact = (theirs.thermo()["PotEng"][0], forces(theirs.atoms()), theirs.vector("c_press"))
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
