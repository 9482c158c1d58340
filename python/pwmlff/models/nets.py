"""The nets of a Deep Potential, with the parameter names of PWMLFF files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

_Module = TypeVar("_Module", bound=nn.Module)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x weight + bias."""
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


class Affine(nn.Module):
    """y = x weight + bias for x [rows, in]; weight [in, out], bias [1, out] or None."""

    def __init__(
        self, n_in: int, n_out: int, generator: torch.Generator, *, bias: bool = True
    ) -> None:
        super().__init__()
        scale = 1.0 / math.sqrt(n_in + n_out)
        self.weight = nn.Parameter(_normal(n_in, n_out, generator) * scale)
        self.bias: nn.Parameter | None = (
            nn.Parameter(_normal(1, n_out, generator)) if bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        return affine(x, self.weight, self.bias)


class Tanh(Affine):
    """tanh(x weight + bias), with a residual times resnet_dt and added to the input.

    Args:
        copies: of the input that are added, side by side: 0 without a residual, 1 where the width
            stays, 2 where it doubles.
        step: mean of the random resnet_dt [1, out]; None for a layer without.
    """

    __constants__ = ("copies",)

    def __init__(
        self,
        n_in: int,
        n_out: int,
        generator: torch.Generator,
        *,
        bias: bool = True,
        copies: int = 0,
        step: float | None = None,
    ) -> None:
        super().__init__(n_in, n_out, generator, bias=bias)
        self.copies = copies
        self.resnet_dt: nn.Parameter | None = (
            None if step is None else nn.Parameter(step + 0.001 * _normal(1, n_out, generator))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        y, step = torch.tanh(affine(x, self.weight, self.bias)), self.resnet_dt
        if step is not None:
            y = step * y
        if self.copies == 1:
            y = x + y
        elif self.copies == 2:
            y = torch.cat((x, x), dim=1) + y
        return y


def members(modules: Iterable[_Module]) -> Sequence[_Module]:
    """A ModuleList that says what is in it: torch knows its members as modules alone."""
    return cast("Sequence[_Module]", nn.ModuleList(modules))


class Net(nn.Module):
    """Layers in a row with random parameters, float64; x [rows, n_in] -> [rows, out].

    Layers of an embedding net have a residual where the width stays or doubles; those of a fitting
    net where it stays, but for the first one.

    Args:
        n_in: numbers that it takes.
        widths: of the hidden layers.
        generator: of the parameters.
        fitting: whether a linear layer with a bias ends it in one number.
        bias: of the hidden layers.
        resnet_dt: learn steps of the layers with a residual.
    """

    def __init__(
        self,
        n_in: int,
        widths: Sequence[int],
        generator: torch.Generator,
        *,
        fitting: bool,
        bias: bool,
        resnet_dt: bool,
    ) -> None:
        super().__init__()
        layers: list[Affine] = []
        for k, n in enumerate(widths):
            copies = int(k > 0 and n_in == n) if fitting else {n_in: 1, 2 * n_in: 2}.get(n, 0)
            step = (0.1 if fitting else 1.0) if resnet_dt and copies else None
            layers.append(Tanh(n_in, n, generator, bias=bias, copies=copies, step=step))
            n_in = n
        if fitting:
            layers.append(Affine(n_in, 1, generator))
        self.layers = members(layers)

    @torch.jit.unused
    def energy_bias(self) -> Tensor:
        """The bias [1, 1] of the last layer of a fitting net."""
        bias = self.layers[-1].bias
        if bias is None:
            raise ValueError("the last layer of this net has no bias")
        return bias

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the rows of x."""
        for layer in self.layers:
            x = layer(x)
        return x


def _normal(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, cols, dtype=torch.float64, generator=generator)
