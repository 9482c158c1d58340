"""The nets of a Deep Potential, with the parameter names of PWMLFF files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

_Module = TypeVar("_Module", bound=nn.Module)


class Affine(nn.Module):
    """y = x weight + bias for x [rows, in]; weight [in, out], bias [1, out]."""

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        scale = 1.0 / math.sqrt(n_in + n_out)
        self.weight = nn.Parameter(_normal(n_in, n_out, generator) * scale)
        self.bias = nn.Parameter(_normal(1, n_out, generator))

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        return torch.addmm(self.bias, x, self.weight)


class Tanh(Affine):
    """tanh(x weight + bias)."""

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        return torch.tanh(torch.addmm(self.bias, x, self.weight))


class TanhAdd(Affine):
    """x + tanh(x weight + bias), where the width stays."""

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        return x + torch.tanh(torch.addmm(self.bias, x, self.weight))


class TanhDouble(Affine):
    """(x, x) + tanh(x weight + bias), where the width doubles."""

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        return torch.cat((x, x), dim=1) + torch.tanh(torch.addmm(self.bias, x, self.weight))


class TanhScaled(Affine):
    """Residual layer with a learned step: x + resnet_dt tanh(x weight + bias)."""

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__(n_in, n_out, generator)
        self.resnet_dt = nn.Parameter(0.1 + 0.001 * _normal(1, n_out, generator))

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        return x + self.resnet_dt * torch.tanh(torch.addmm(self.bias, x, self.weight))


def members(modules: Iterable[_Module]) -> Sequence[_Module]:
    """A ModuleList that says what is in it: torch knows its members as modules alone."""
    return cast("Sequence[_Module]", nn.ModuleList(modules))


class Net(nn.Module):
    """Layers in a row, x [rows, in] -> [rows, out]."""

    def __init__(self, layers: Sequence[Affine]) -> None:
        super().__init__()
        self.layers = members(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        for layer in self.layers:
            x = layer(x)
        return x


def _normal(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, cols, dtype=torch.float64, generator=generator)


def make_embedding_net(widths: Sequence[int], generator: torch.Generator) -> Net:
    """A net of one number with random parameters, float64."""
    layers: list[Affine] = []
    n_in = 1
    for n_out in widths:
        kind = {n_in: TanhAdd, 2 * n_in: TanhDouble}.get(n_out, Tanh)
        layers.append(kind(n_in, n_out, generator))
        n_in = n_out
    return Net(layers)


def make_fitting_net(n_in: int, widths: Sequence[int], generator: torch.Generator) -> Net:
    """A net of n_in numbers with random parameters, float64, and a linear layer at the end."""
    layers: list[Affine] = []
    for k, n_out in enumerate(widths):
        kind = TanhScaled if k > 0 and n_in == n_out else Tanh
        layers.append(kind(n_in, n_out, generator))
        n_in = n_out
    layers.append(Affine(n_in, 1, generator))
    return Net(layers)
