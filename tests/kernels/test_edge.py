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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", ["force", "centroid", "halves"])
def test_reference(edges, dtype, op):
    nall, index, vectors = edges
    vectors = vectors.to(dtype)
    grad = torch.sin(vectors)
    if op == "force":
        found, expected = ops.edge_force(grad, index, nall), scatter(grad, index, nall, 1.0, -1.0)
    else:
        found = ops.edge_atom_virial(vectors, grad, index, nall, op == "centroid").flatten(1)
        terms = -(vectors[:, :, None] * grad[:, None, :]).flatten(1)
        expected = scatter(terms, index, nall, *((0.0, 1.0) if op == "centroid" else (0.5, 0.5)))
    torch.testing.assert_close(found, expected)


def test_not_contiguous(edges):
    nall, index, vectors = edges
    strided = vectors.t().contiguous().t()
    columns = index.t().contiguous().t()
    expected = ops.edge_force(vectors, index, nall)
    torch.testing.assert_close(ops.edge_force(strided, columns, nall), expected)


def test_number_of_threads(edges):
    """Sums are in one order; torch gets its threads back."""
    nall, index, vectors = edges
    threads = torch.get_num_threads()
    found = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        found.append(ops.edge_force(vectors, index, nall))
        assert torch.get_num_threads() == n
    torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found)


def test_derivatives(edges):
    nall, index, vectors = edges
    vectors = vectors.requires_grad_()
    grads = torch.randn_like(vectors, requires_grad=True)
    for function, inputs in (
        (lambda g: ops.edge_force(g, index, nall), (grads,)),
        (ops.edge_virial, (vectors, grads)),
        (lambda v, g: ops.edge_atom_virial(v, g, index, nall, True), (vectors, grads)),
        (lambda v, g: ops.edge_atom_virial(v, g, index, nall, False), (vectors, grads)),
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
    grad = vectors.requires_grad_()
    torch.library.opcheck(ops.edge_force.default, (grad, index, nall))
    torch.library.opcheck(ops.edge_atom_virial.default, (grad, grad, index, nall, False))


INDEX = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    "values, index, message",
    [
        (torch.zeros(2, 3), INDEX.int(), "edge_index has shape .* expected int64"),
        (torch.zeros(2, 3), INDEX.flatten(), "edge_index has shape"),
        (torch.zeros(3, 3), INDEX, r"edge_index has shape .* expected int64 \[2, 3\]"),
        (torch.zeros(2, 4), INDEX, r"edge_grad \[2, 4\]; expected both \[number of edges, 3\]"),
        (torch.zeros(2, 3), INDEX + 1, "index 3 is out of bounds"),
        (torch.zeros(2, 3), INDEX - 1, "index -1 is out of bounds"),
    ],
)
def test_bad_input(values, index, message):
    with pytest.raises(RuntimeError, match=message):
        ops.edge_force(values, index, 3)
