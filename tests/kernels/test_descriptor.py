"""Parts of a Deep Potential as ops: each against plain PyTorch, together against the reference."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from ase.neighborlist import neighbor_list
from torch.autograd import gradcheck, gradgradcheck

import pwmlff.kernels  # noqa: F401
from pwmlff.reference import evaluate
from systems import SYSTEMS

ops = torch.ops.pwmlff
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
DTYPES = [torch.float32, torch.float64]
SIZES = {"many": (5, 24), "one edge": (2, 1), "no edge": (3, 0), "no center": (0, 0)}
RMIN, RMAX = 1.1, 3.0
LOW, WIDTH, INTERVALS, TERMS, CHANNELS = -1.3, 0.7, 4, 5, 3


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


class Data:
    """Inputs for all ops, float64, without derivatives."""

    def __init__(self, size: str, device: str) -> None:
        self.n, self.nedges = SIZES[size]
        self.device = device
        self.generator = torch.Generator().manual_seed(3)
        # Below rmin, in the switch and beyond rmax, no edge within 0.03 of a border.
        radii = 0.6 + 0.3 * torch.arange(self.nedges, dtype=torch.float64).remainder(10)
        radii += 0.03 + 0.1 * torch.rand(self.nedges, dtype=torch.float64, generator=self.generator)
        direction = torch.nn.functional.normalize(self.random(self.nedges, 3), dim=1)
        self.edge_vec = direction * radii.to(device)[:, None]
        # Every interval, inside of it.
        share = torch.rand(self.nedges, dtype=torch.float64, generator=self.generator)
        place = torch.arange(self.nedges).remainder(INTERVALS) + 0.05 + 0.9 * share
        self.x = (LOW + WIDTH * place).to(device)
        self.table = self.random(INTERVALS, TERMS, CHANNELS)
        self.env = self.random(self.nedges, 4)
        self.g = self.random(self.nedges, CHANNELS)
        self.moments = self.random(self.n, 4, CHANNELS)
        self.center = torch.randint(max(self.n, 1), (self.nedges,), generator=self.generator)
        self.center = self.center.to(device)

    def random(self, *shape: int) -> torch.Tensor:
        values = torch.randn(*shape, dtype=torch.float64, generator=self.generator)
        return values.to(self.device)

    def net(self, *widths: int) -> tuple[list, list]:
        """Weights and biases of layers of these widths."""
        pairs = list(pairwise(widths))
        return [self.random(*pair) for pair in pairs], [self.random(1, out) for _, out in pairs]


@pytest.fixture(params=SIZES)
def data(request, device):
    return Data(request.param, device)


def environment(edge_vec, rmin, rmax):
    r = edge_vec.norm(dim=1, keepdim=True)
    u = ((r - rmin) / (rmax - rmin)).clamp(0, 1)
    s = (u**3 * (-6 * u**2 + 15 * u - 10) + 1) / r
    return torch.cat((s, s * edge_vec / r), 1)


def table_embedding(x, table, low, width, derivative):
    start = ((x.double() - low) / width).floor().clamp(0, len(table) - 1)
    t, k = (x.double() - (low + start * width)).to(x.dtype), start.long()
    out = torch.zeros_like(table[k, 0])
    for p in range(derivative, table.shape[1]):
        factor = torch.tensor(range(p - derivative + 1, p + 1)).prod().item()
        out = out + factor * t[:, None] ** (p - derivative) * table[k, p]
    return out


def moments(env, g, center, ncenters):
    outer = env[:, :, None] * g[:, None, :]
    return g.new_zeros(ncenters, 4, g.shape[1]).index_add(0, center, outer)


def descriptor(t, m2):
    return torch.einsum("ncm,nck->nmk", t, t[:, :, :m2]).flatten(1)


def embedding(x, weight, bias):
    x = x[:, None]
    for w, b in zip(weight, bias, strict=True):
        y = torch.tanh(x @ w + b)
        copies = {x.shape[1]: 1, 2 * x.shape[1]: 2}.get(y.shape[1], 0)
        x = y + x.repeat(1, copies) if copies else y
    return x


def fitting(x, weight, bias, resnet_dt):
    for w, b, dt in zip(weight, bias, resnet_dt, strict=False):
        y = torch.tanh(x @ w + b)
        x = x + dt * y if dt.numel() else y
    return (x @ weight[-1] + bias[-1])[:, 0]


def scale(dtype):
    return {} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 2e-5}


def derivative_of(function, inputs, by, grad):
    """Sum of grad * d function/d inputs[by]: what the op for the derivative has to give."""
    inputs = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    return torch.autograd.grad(function(*inputs), inputs[by], grad)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_environment(data, dtype):
    edge_vec, grad = data.edge_vec.to(dtype), data.env.to(dtype)
    found = ops.dp_environment(edge_vec, RMIN, RMAX)
    torch.testing.assert_close(found, environment(edge_vec, RMIN, RMAX), **scale(dtype))
    found = ops.dp_environment_backward(grad, edge_vec, RMIN, RMAX)
    wanted = derivative_of(lambda v: environment(v, RMIN, RMAX), [edge_vec], 0, grad)
    torch.testing.assert_close(found, wanted, **scale(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_environment_at_and_beyond_the_cutoff(device, dtype):
    lengths = RMAX * torch.tensor([1.0, 1.005, 1.5, 2.0, 1e3])
    edge_vec = lengths[:, None] * torch.tensor([0.0, 1.0, 0.0])
    edge_vec = edge_vec.to(device, dtype)
    grad = torch.ones(5, 4, dtype=dtype, device=device)
    assert ops.dp_environment(edge_vec, RMIN, RMAX).count_nonzero() == 0
    assert ops.dp_environment_backward(grad, edge_vec, RMIN, RMAX).count_nonzero() == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("derivative", [0, 1, 2, TERMS - 1, TERMS])
def test_table(data, dtype, derivative):
    x, table, grad = data.x.to(dtype), data.table.to(dtype), data.g.to(dtype)
    grid = (LOW, WIDTH, derivative)
    found = ops.table_embedding(x, table, *grid)
    torch.testing.assert_close(found, table_embedding(x, table, *grid), **scale(dtype))
    found = ops.table_embedding_backward(grad, x, *grid, INTERVALS, TERMS)
    # Beyond the order nothing depends on the table, which autograd would not accept.
    wanted = derivative_of(
        lambda x, table: table_embedding(x, table, *grid) + 0 * table.sum(), [x, table], 1, grad
    )
    torch.testing.assert_close(found, wanted, **scale(dtype))


def test_table_ends(device):
    """An interval begins with its start; the last one holds its end."""
    data = Data("no edge", device)
    x = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, device=device)
    found = ops.table_embedding(x, data.table[:2], 0.0, 0.5, 0)
    powers = 0.5 ** torch.arange(TERMS, dtype=torch.float64, device=device)
    wanted = torch.stack((data.table[0, 0], data.table[1, 0], powers @ data.table[1]))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moments(data, dtype):
    env, g, t, center = data.env.to(dtype), data.g.to(dtype), data.moments.to(dtype), data.center
    inputs = (env, g, center)
    found = ops.dp_moments(*inputs, data.n)
    torch.testing.assert_close(found, moments(*inputs, data.n), **scale(dtype))
    found = ops.dp_moments_to_env(t, g, center)
    torch.testing.assert_close(found, torch.einsum("ecm,em->ec", t[center], g), **scale(dtype))
    found = ops.dp_moments_to_g(t, env, center)
    torch.testing.assert_close(found, torch.einsum("ecm,ec->em", t[center], env), **scale(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m2", [1, CHANNELS])
def test_descriptor(data, dtype, m2):
    t = data.moments.to(dtype)
    torch.testing.assert_close(ops.dp_descriptor(t, m2), descriptor(t, m2), **scale(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [(1,), (3, 6, 6, 4), (2, 2)])
def test_embedding(data, dtype, widths):
    net = [[t.to(dtype) for t in tensors] for tensors in data.net(1, *widths)]
    x = data.x.to(dtype)
    torch.testing.assert_close(ops.dp_embedding(x, *net), embedding(x, *net), **scale(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [(4,), (4, 5, 5, 3), (4, 4, 4)])
def test_fitting(data, dtype, widths):
    """Residuals where the widths match; one-dimensional biases and steps too."""
    weight, bias = data.net(*widths, 1)
    steps = [0.1 * data.random(1, w.shape[1] * (w.shape[0] == w.shape[1])) for w in weight[:-1]]
    net = [[t.to(dtype) for t in tensors] for tensors in (weight, bias, steps)]
    x = data.env.to(dtype)
    wanted = fitting(x, *net)
    torch.testing.assert_close(ops.dp_fitting(x, *net), wanted, **scale(dtype))
    flat = [net[0], [b.flatten() for b in net[1]], [dt.flatten() for dt in net[2]]]
    torch.testing.assert_close(ops.dp_fitting(x, *flat), wanted, **scale(dtype))


def kernel_calls(data):
    """Ops with kernels of their own: their differentiable inputs, then the rest."""
    grad3, grid = data.random(data.nedges, 4), (LOW, WIDTH)
    return {
        "dp_environment": ((data.edge_vec,), (RMIN, RMAX)),
        "dp_environment_backward": ((grad3, data.edge_vec), (RMIN, RMAX)),
        "table_embedding": ((data.x, data.table), (*grid, 0)),
        "table_embedding_backward": ((data.g, data.x), (*grid, 1, INTERVALS, TERMS)),
        "dp_moments": ((data.env, data.g), (data.center, data.n)),
        "dp_moments_to_env": ((data.moments, data.g), (data.center,)),
        "dp_moments_to_g": ((data.moments, data.env), (data.center,)),
    }


KERNELS = list(kernel_calls(Data("no edge", "cpu")))


def strided(t):
    """The same numbers, every second one of a larger tensor in reverse order of dimensions."""
    out = t.new_zeros(tuple(2 * n for n in reversed(t.shape)))
    out = out.permute(*reversed(range(t.dim())))[tuple(slice(None, None, 2) for _ in t.shape)]
    return out.copy_(t)


@pytest.mark.parametrize("name", KERNELS)
def test_not_contiguous(data, name):
    inputs, rest = kernel_calls(data)[name]
    op = getattr(ops, name)
    views = [strided(t) if isinstance(t, torch.Tensor) else t for t in (*inputs, *rest)]
    torch.testing.assert_close(op(*views), op(*inputs, *rest))


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives(data, name):
    inputs, rest = kernel_calls(data)[name]
    inputs = [t.requires_grad_() for t in inputs]

    def function(*tensors):
        return getattr(ops, name)(*tensors, *rest)

    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_by_one_input(device, name):
    """Only what is asked for, and the same as with the others."""
    inputs, rest = kernel_calls(Data("many", device))[name]
    op = getattr(ops, name)
    together = [t.clone().requires_grad_() for t in inputs]
    out = op(*together, *rest)
    grad = torch.randn_like(out)
    wanted = torch.autograd.grad(out, together, grad)
    for k in range(len(inputs)):
        alone = [t.clone().requires_grad_(place == k) for place, t in enumerate(inputs)]
        (found,) = torch.autograd.grad(op(*alone, *rest), alone[k], grad)
        torch.testing.assert_close(found, wanted[k])


def test_third_derivatives(device):
    """Of the environment and the table, the two that are not linear in all their inputs."""
    data = Data("many", device)
    edge_vec, x = data.edge_vec.requires_grad_(), data.x.requires_grad_()
    for function, by in (
        (lambda v: ops.dp_environment(v, RMIN, RMAX).square(), edge_vec),
        (lambda x: ops.table_embedding(x, data.table, LOW, WIDTH, 0).square(), x),
    ):

        def slope(y, function=function):
            return torch.autograd.grad(function(y).sum(), y, create_graph=True)[0].square()

        assert gradcheck(slope, by)
        assert gradgradcheck(slope, by)


def test_derivatives_of_the_nets(data):
    weight, bias = data.net(1, 2, 4, 4)
    inputs = [t.requires_grad_() for t in (data.x, *weight, *bias)]

    def embed(x, *net):
        return ops.dp_embedding(x, net[:3], net[3:])

    assert gradcheck(embed, inputs)
    assert gradgradcheck(embed, inputs)

    weight, bias = data.net(4, 2, 2, 1)
    inputs = [t.requires_grad_() for t in (data.env, *weight, *bias, data.random(2))]

    def fit(x, *net):
        return ops.dp_fitting(x, net[:3], net[3:6], [x.new_empty(0), net[6]])

    assert gradcheck(fit, inputs)
    assert gradgradcheck(fit, inputs)
    t = data.moments.requires_grad_()
    assert gradcheck(lambda t: ops.dp_descriptor(t, 2), t)
    assert gradgradcheck(lambda t: ops.dp_descriptor(t, 2), t)


@pytest.mark.parametrize("name", KERNELS)
def test_opcheck(data, name):
    inputs, rest = kernel_calls(data)[name]
    inputs = [t.requires_grad_() for t in inputs]
    torch.library.opcheck(getattr(ops, name).default, (*inputs, *rest))


def test_opcheck_of_the_others(data):
    for op, inputs in (
        (ops.dp_descriptor, (data.moments, 2)),
        (ops.dp_embedding, (data.x, *data.net(1, 2, 4))),
        (ops.dp_fitting, (data.env, *data.net(4, 4, 1), [data.random(4)])),
    ):
        torch.library.opcheck(op.default, (inputs[0].requires_grad_(), *inputs[1:]))


def energy(edge_vec, center, net: list[torch.Tensor], fit: list[torch.Tensor]):
    env = torch.ops.pwmlff.dp_environment(edge_vec, 1.1, 3.0)
    g = torch.ops.pwmlff.dp_embedding(env[:, 0], net[:2], net[2:])
    t = torch.ops.pwmlff.dp_moments(env, g, center, 5)
    d = torch.ops.pwmlff.dp_descriptor(t, 2)
    return torch.ops.pwmlff.dp_fitting(d, fit[:1], fit[1:], fit[:0]).sum()


def test_torchscript():
    """Ops in a scripted function, with their derivatives, as a model file would hold them."""
    data = Data("many", "cpu")
    net, fit = [[t for part in data.net(*widths) for t in part] for widths in ((1, 2, 4), (8, 1))]
    edge_vec = data.edge_vec.requires_grad_()
    wanted, found = [
        torch.autograd.grad(function(edge_vec, data.center, net, fit), edge_vec)[0]
        for function in (energy, torch.jit.script(energy))
    ]
    torch.testing.assert_close(found, wanted)


EDGES = torch.ones(2, 3)
X = torch.tensor([0.1, 0.9])
TABLE = torch.zeros(2, 3, 4)
ENV, G, CENTER, MOMENTS = torch.zeros(2, 4), torch.zeros(2, 5), torch.tensor([0, 2]), TABLE
WEIGHT, BIAS = [torch.zeros(4, 3), torch.zeros(3, 1)], [torch.zeros(3), torch.zeros(1)]
NONE = torch.zeros(0)
BAD = {
    "dp_environment": [
        ((torch.ones(2, 4), 1.0, 2.0), r"edge_vec has shape \[2, 4\]; expected \[number of edges"),
        ((torch.ones(3), 1.0, 2.0), "edge_vec has shape"),
        ((EDGES, 2.0, 2.0), "rmin is 2 and rmax 2; expected 0 <= rmin < rmax"),
        ((EDGES, -1.0, 2.0), "rmin is -1"),
        ((EDGES * torch.tensor([[1.0], [0.0]]), 1.0, 2.0), "edge 1 has length zero"),
        ((EDGES.long(), 1.0, 2.0), "not implemented for 'Long'"),
    ],
    "dp_environment_backward": [
        ((torch.ones(3, 4), EDGES, 1.0, 2.0), "grad has shape .* expected .number of edges, 4"),
        ((ENV.double(), EDGES, 1.0, 2.0), "grad is Double on cpu and edge_vec Float on cpu"),
        ((ENV, EDGES, 3.0, 2.0), "rmin is 3 and rmax 2"),
    ],
    "table_embedding": [
        ((EDGES, TABLE, 0.0, 0.5, 0), r"x has shape \[2, 3\]; expected \[number of edges\]"),
        ((X, TABLE[0], 0.0, 0.5, 0), "table has shape .* expected .intervals, order.1, channels"),
        ((X, TABLE[:0], 0.0, 0.5, 0), "table has shape"),
        ((X, TABLE[:, :0], 0.0, 0.5, 0), "table has shape"),
        ((X, TABLE.double(), 0.0, 0.5, 0), "x is Float on cpu and table Double on cpu"),
        ((X, TABLE, 0.0, 0.0, 0), "width is 0; expected a positive width"),
        ((X, TABLE, 0.0, 0.5, -1), "derivative is -1; expected 0 or more"),
        ((X, TABLE, 0.2, 0.5, 0), "x goes from 0.1 to 0.9; the table holds for 0.2 to 1.2"),
        ((X, TABLE, 0.0, 0.4, 0), "x goes from 0.1 to 0.9; the table holds for 0 to 0.8"),
        ((X * torch.nan, TABLE, 0.0, 0.5, 0), "x goes from -?nan"),
        ((X.long(), TABLE.long(), 0.0, 0.5, 0), "not implemented for 'Long'"),
    ],
    "table_embedding_backward": [
        ((G[:1], X, 0.0, 0.5, 0, 2, 3), "grad has shape .* expected .number of edges, channels"),
        ((G.double(), X, 0.0, 0.5, 0, 2, 3), "grad is Double on cpu and x Float on cpu"),
        ((G, X, 0.0, 0.5, 0, 0, 3), "intervals is 0 and terms 3; expected 1 or more"),
        ((G, X, 0.0, 0.5, 0, 1, 3), "the table holds for 0 to 0.5"),
    ],
    "dp_moments": [
        ((ENV[:1], G, CENTER, 3), r"env has shape \[1, 4\]; expected \[number of edges, 4\]"),
        ((ENV, G[:1], CENTER, 3), r"g has shape \[1, 5\]; expected \[number of edges, channels\]"),
        ((ENV.double(), G, CENTER, 3), "env is Double on cpu and g Float on cpu"),
        ((ENV, G, CENTER.int(), 3), "center has shape .* type Int; expected int64"),
        ((ENV, G, CENTER, 2), "center holds 0 to 2; expected indices of 2 centers, from 0"),
        ((ENV, G, CENTER - 1, 3), "center holds -1 to 1"),
        ((ENV.long(), G.long(), CENTER, 3), "not implemented for 'Long'"),
    ],
    "dp_moments_to_env": [
        ((torch.zeros(3, 4, 4), G, CENTER), "moments has shape .* expected .number of centers, 4"),
        ((torch.zeros(2, 4, 5), G, CENTER), "center holds 0 to 2; expected indices of 2 centers"),
        ((torch.zeros(3, 4, 5), G.double(), CENTER), "moments is Float on cpu and g Double"),
    ],
    "dp_moments_to_g": [
        ((MOMENTS, ENV, CENTER), r"moments has shape \[2, 3, 4\]; expected"),
        ((torch.zeros(3, 4, 5), ENV[:1], CENTER), "env has shape"),
        ((torch.zeros(3, 4, 5), ENV.double(), CENTER), "moments is Float on cpu and env Double"),
    ],
    "dp_descriptor": [
        ((MOMENTS, 1), r"moments has shape \[2, 3, 4\]; expected \[number of centers, 4, channels"),
        ((torch.zeros(2, 4, 5), 6), "m2 is 6; expected 1 to 5, the number of channels"),
        ((torch.zeros(2, 4, 5), 0), "m2 is 0"),
    ],
    "dp_fitting": [
        ((X, WEIGHT, BIAS, [NONE]), r"x has shape \[2\]; expected \[number of centers, width\]"),
        ((ENV, [], [], []), "weight has 0 layers and bias 0"),
        ((ENV, WEIGHT, BIAS[:1], [NONE]), "weight has 2 layers and bias 1"),
        ((ENV, WEIGHT, BIAS, []), "resnet_dt has 0 tensors; expected 1, one per layer but"),
        ((G, WEIGHT, BIAS, [NONE]), r"weight\[0\] has shape \[4, 3\]; expected \[5, width\]"),
        ((ENV, WEIGHT, BIAS[::-1], [NONE]), r"bias\[0\] has shape \[1\]; expected \[3\]"),
        ((ENV, WEIGHT, BIAS, [X]), r"resnet_dt\[0\] has shape \[2\]; expected \[3\]"),
        ((ENV, WEIGHT, BIAS, [BIAS[0]]), "layer 0 goes from width 4 to 3; resnet_dt.0. needs"),
        ((ENV, WEIGHT[:1], BIAS[:1], []), r"weight\[0\] has shape \[4, 3\]; expected width 1"),
    ],
    "dp_embedding": [
        ((ENV, WEIGHT, BIAS), r"x has shape \[2, 4\]; expected \[number of edges\]"),
        ((X, WEIGHT, BIAS), r"weight\[0\] has shape \[4, 3\]; expected \[1, width\]"),
        ((X, [torch.zeros(1, 2)], [X[:1]]), r"bias\[0\] has shape \[1\]; expected \[2\]"),
        ((X, WEIGHT, BIAS[:1]), "weight has 2 layers and bias 1"),
    ],
}


@pytest.mark.parametrize(
    "name, arguments, message", [(name, *case) for name in BAD for case in BAD[name]]
)
def test_bad_input(name, arguments, message):
    with pytest.raises(RuntimeError, match=message):
        getattr(ops, name)(*arguments)


class Potential:
    """A whole DP, made of ops alone; parameters by their names in the model file."""

    def __init__(self, model) -> None:
        self.model = model
        self.parameters = {k: v.detach().clone() for k, v in model.named_parameters()}
        n, slots = model.ntypes, model.maxNeighborNum
        self.davg = model.davg.reshape(n, n, slots, 4)[:, :, 0]
        self.dstd = model.dstd.reshape(n, n, slots, 4)[:, :, 0]

    def net(self, name: str) -> list[list[torch.Tensor]]:
        """Weights, biases and steps of a net; no elements where there is no step."""
        depth = sum(key.startswith(f"{name}.") and key.endswith("bias") for key in self.parameters)
        none = torch.empty(0, dtype=torch.float64)
        return [
            [self.parameters.get(f"{name}.layers.{k}.{part}", none) for k in range(depth)]
            for part in ("weight", "bias", "resnet_dt")
        ]

    def moments(self, a: int, b: int, env, center, n: int):
        """Of all slots of type b [n, 4, M], from the edges to atoms of that type."""
        scale, shift = 1 / self.dstd[a, b], -self.davg[a, b] / self.dstd[a, b]
        weight, bias, _ = self.net(f"embedding_net.{a * self.model.ntypes + b}")
        env, blank = env * scale + shift, shift[None]
        in_use = ops.dp_moments(env, ops.dp_embedding(env[:, 0], weight, bias), center, n)
        constant = blank[:, :, None] * ops.dp_embedding(blank[:, 0], weight, bias)[:, None, :]
        empty = self.model.maxNeighborNum - center.bincount(minlength=n)
        return in_use + empty[:, None, None] * constant

    def energies(self, edge_vec, edge_index, numbers):
        model, n = self.model, len(numbers)
        kind = torch.tensor([model.atom_type.index(z) for z in numbers.tolist()])
        env = ops.dp_environment(edge_vec, model.Rmin, model.Rmax)
        energies = torch.zeros(n, dtype=torch.float64)
        for a in kind.unique().tolist():
            total = 0
            for b in range(model.ntypes):
                pick = (kind[edge_index[0]] == a) & (kind[edge_index[1]] == b)
                total = total + self.moments(a, b, env[pick], edge_index[0][pick], n)
            here = torch.nonzero(kind == a)[:, 0]
            mean = total[here] / (model.maxNeighborNum * model.ntypes)
            weight, bias, steps = self.net(f"fitting_net.{a}")
            fitted = ops.dp_fitting(ops.dp_descriptor(mean, model.M2), weight, bias, steps[:-1])
            energies = energies.index_add(0, here, fitted)
        return energies

    def __call__(self, atoms, create_graph: bool = False):
        """Energies [n], forces [n, 3] and the virial [3, 3]."""
        i, j, vectors = neighbor_list("ijD", atoms, self.model.Rmax)
        edge_index = torch.stack((torch.from_numpy(i), torch.from_numpy(j)))
        edge_vec = torch.from_numpy(vectors).requires_grad_()
        energies = self.energies(edge_vec, edge_index, torch.from_numpy(atoms.numbers))
        (grad,) = torch.autograd.grad(energies.sum(), edge_vec, create_graph=create_graph)
        forces = ops.edge_force(grad, edge_index, len(atoms))
        return energies, forces, ops.edge_virial(edge_vec, grad)


@pytest.mark.parametrize("name", SYSTEMS)
def test_whole_model(name):
    model, atoms = SYSTEMS[name].model(), SYSTEMS[name].atoms()
    wanted = evaluate(model, atoms)
    close = {"rtol": 0.0, "atol": 1e-10}
    energies, forces, virial = Potential(model)(atoms)
    torch.testing.assert_close(energies.detach(), torch.from_numpy(wanted.atom_energy), **close)
    torch.testing.assert_close(forces, torch.from_numpy(wanted.forces), **close)
    torch.testing.assert_close(virial.detach(), torch.from_numpy(wanted.virial), **close)


def test_training_step():
    """The gradient of a loss of forces by all parameters, against finite differences along it."""
    system = SYSTEMS["two elements, triclinic"]
    potential, atoms = Potential(system.model()), system.atoms()
    target = torch.from_numpy(evaluate(system.model(seed=1), atoms).forces)

    def loss(create_graph=False):
        return (potential(atoms, create_graph)[1] - target).square().mean()

    start = potential.parameters
    potential.parameters = {name: value.requires_grad_() for name, value in start.items()}
    grads = torch.autograd.grad(loss(create_graph=True), list(start.values()), allow_unused=True)
    names = [name for name, grad in zip(start, grads, strict=True) if grad is not None]
    # Only the last bias of a fitting net has no part in forces.
    unused = {f"fitting_net.{a}.layers.{len(system.fitting)}.bias" for a in range(2)}
    assert set(start) - set(names) == unused
    gradient = {name: grad for name, grad in zip(start, grads, strict=True) if grad is not None}
    generator = torch.Generator().manual_seed(4)
    for group in ("embedding_net", "fitting_net"):
        direction = {
            name: torch.randn(grad.shape, dtype=grad.dtype, generator=generator)
            for name, grad in gradient.items()
            if name.startswith(group)
        }
        step, losses = 1e-5, []
        for sign in (1, -1):
            moved = {name: start[name] + sign * step * way for name, way in direction.items()}
            potential.parameters = start | moved
            losses.append(loss().item())
        slope = sum((gradient[name] * way).sum().item() for name, way in direction.items())
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(slope, rel=1e-6)
