"""TorchScript called from Python, operator by operator: what it gives itself, with symbols."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from pwmlff.models.unscripted import CannotRun, Unscripted


class Everything(nn.Module):
    """What files of the field do beside arithmetic of tensors."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 3)])
        self.names = ["a", "b"]

    def add(self, table: dict[str, Tensor], name: str, value: Tensor) -> tuple[Tensor, int]:
        if name in table and name != "never":
            value = value + table[name]
        table[name] = value
        return value, len(table)

    def forward(self, x: Tensor, n: int, scale: Tensor | None = None) -> Tensor:
        table: dict[str, Tensor] = {}
        for layer in self.layers:
            x = layer(x)
        sizes: list[int] = []
        for k, name in enumerate(self.names):
            y, count = self.add(table, name, x * float(k + 1))
            y, count = self.add(table, name, y)
            sizes.append(count * y.size(0) // 2 + int(y.dim() > 1))
        if scale is not None:
            x = x * scale
        while len(sizes) < 4:
            sizes = sizes + [max(sizes) - 1]  # noqa: RUF005  no list of TorchScript's
        total = torch.zeros(x.shape[0], 3, dtype=x.dtype, device=x.device)
        for name, value in table.items():
            total = total + value.to(torch.float64).to(x.dtype) * len(name)
        counts = torch.tensor(sizes, device=x.device)
        if (x.dtype == torch.float64 and x.numel() % 3 == 0) or n < 0:
            total = total.index_add(0, torch.arange(n), x[:n])
        parts = torch.split(total, [1, 2], 1)
        low, high = parts[0], parts[1]
        assert low.size(1) == 1, "never"
        return (
            torch.cat((high, low.expand(-1, 2)), 1) * counts.sum()
            + torch.einsum("ij->i", x)[:, None]
        )


def test_same_as_torchscript():
    torch.manual_seed(0)
    module = torch.jit.script(Everything().double())
    for rows, taken in ((7, 3), (4, 4)):
        x = torch.randn(rows, 3, dtype=torch.float64)
        assert torch.equal(Unscripted(module)(x, taken, None), module(x, taken))
        scale = torch.randn(3, dtype=torch.float64)
        assert torch.equal(Unscripted(module)(x, taken, scale), module(x, taken, scale))


def test_sizes_stay_symbols():
    """What was recorded with 7 rows holds for 11."""
    torch.manual_seed(0)
    module = torch.jit.script(Everything().double())
    x, other = (torch.randn(rows, 3, dtype=torch.float64) for rows in (7, 11))
    recorded = make_fx(
        lambda x: Unscripted(module)(x, 2, None),
        tracing_mode="symbolic",
        _allow_non_fake_inputs=True,
    )(x)
    for given in (x, other):
        torch.testing.assert_close(recorded(given), module(given, 2), rtol=0, atol=1e-12)


class Unknown(nn.Module):
    def forward(self, x: str) -> list[str]:
        return x.split(" ")


def test_operators_that_are_not_known():
    with pytest.raises(CannotRun, match=r"cannot be compiled: aten::split\.str\("):
        Unscripted(torch.jit.script(Unknown()))("a b")
