"""Edge ops against plain indexing, finite differences and the rules of torch for operators."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pwmlff.kernels  # noqa: F401

ops = torch.ops.pwmlff
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
SIZES = {"many": (7, 40), "one edge": (2, 1), "no edge": (3, 0), "no atom": (0, 0)}


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=SIZES)
def edges(request, device):
    """Number of atoms, edge_index [2, E] with atoms that neighbor themselves, edge vectors."""
    nall, nedges = SIZES[request.param]
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(max(nall, 1), (2, nedges), generator=generator)
    vectors = torch.randn(nedges, 3, dtype=torch.float64, generator=generator)
    return nall, index.to(device), vectors.to(device)


def scatter(values, index, nall, center, neighbor):
    out = values.new_zeros(nall, values.shape[1])
    return out.index_add(0, index[0], center * values).index_add(0, index[1], neighbor * values)


def gather(atoms, index, center, neighbor):
    return center * atoms[index[0]] + neighbor * atoms[index[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [(1.0, -1.0), (0.5, 0.5), (0.0, 1.0)])
def test_reference(edges, dtype, weights):
    nall, index, vectors = edges
    values = vectors.to(dtype)
    expected = scatter(values, index, nall, *weights)
    torch.testing.assert_close(ops.edge_scatter(values, index, nall, *weights), expected)
    expected = gather(expected, index, *weights)
    found = ops.edge_gather(scatter(values, index, nall, *weights), index, *weights)
    torch.testing.assert_close(found, expected)


def test_not_contiguous(edges):
    nall, index, vectors = edges
    strided = vectors.t().contiguous().t()
    columns = index.t().contiguous().t()
    expected = ops.edge_scatter(vectors, index, nall, 1.0, -1.0)
    torch.testing.assert_close(ops.edge_scatter(strided, columns, nall, 1.0, -1.0), expected)


def test_derivatives(edges):
    nall, index, vectors = edges
    vectors = vectors.requires_grad_()
    atoms = torch.randn(nall, 2, dtype=torch.float64, device=index.device, requires_grad=True)
    grads = torch.randn_like(vectors, requires_grad=True)
    for function, inputs in (
        (lambda v: ops.edge_scatter(v, index, nall, 1.0, -0.5), (vectors,)),
        (lambda a: ops.edge_gather(a, index, 0.5, 2.0), (atoms,)),
        (lambda g: ops.edge_force(g, index, nall), (grads,)),
        (ops.edge_virial, (vectors, grads)),
        (lambda v, g: ops.edge_atom_virial(v, g, index, nall, True), (vectors, grads)),
    ):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)


def test_forces_and_virials_of_an_energy():
    """A pair energy: force by autograd of positions, virial by strain, atoms' virials add up."""
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    deformed = x @ (torch.eye(3, dtype=torch.float64) + strain)
    vectors = deformed[index[1]] - deformed[index[0]]
    energy = (1.0 / vectors.norm(dim=1)).sum()
    grad, dx, dstrain = torch.autograd.grad(energy, (vectors, x, strain))
    torch.testing.assert_close(ops.edge_force(grad, index, 5), -dx)
    virial = ops.edge_virial(vectors, grad)
    torch.testing.assert_close(virial, -dstrain)
    for centroid in (False, True):
        atoms = ops.edge_atom_virial(vectors, grad, index, 5, centroid)
        torch.testing.assert_close(atoms.sum(0), virial)
    terms = -vectors[:, :, None] * grad[:, None, :]
    torch.testing.assert_close(atoms[1], terms[0])  # centroid: edge 0 -> 1 belongs to atom 1


def test_opcheck(edges):
    nall, index, vectors = edges
    values = vectors.requires_grad_()
    torch.library.opcheck(ops.edge_scatter.default, (values, index, nall, 1.0, -1.0))
    torch.library.opcheck(ops.edge_gather.default, (values.new_ones(nall, 2), index, 1.0, 0.5))


INDEX = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    "values, index, message",
    [
        (torch.zeros(2, 3), INDEX.int(), "edge_index has shape .* expected int64"),
        (torch.zeros(2, 3), INDEX.flatten(), "edge_index has shape"),
        (torch.zeros(3, 3), INDEX, "values has shape .* expected"),
        (torch.zeros(2, 3), INDEX + 1, "edge_index holds 1 to 3; expected indices of 3 atoms"),
        (torch.zeros(2, 3), INDEX - 1, "edge_index holds -1 to 1"),
        (torch.zeros(2, 3, dtype=torch.int64), INDEX, "not implemented for 'Long'"),
    ],
)
def test_bad_input(values, index, message):
    with pytest.raises(RuntimeError, match=message):
        ops.edge_scatter(values, index, 3, 1.0, -1.0)
