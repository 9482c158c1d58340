"""TorchScript on a device: everything that a module holds goes there."""

from __future__ import annotations

import pytest
import torch

from cpp import compile_and_run


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = torch.full((2,), 3.0, dtype=torch.float64)
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.plain.sum()


class Whole(torch.nn.Module):
    """Tensors in all places in which TorchScript keeps them."""

    def __init__(self):
        super().__init__()
        self.atom_type = [1]
        self.davg = torch.ones(3, dtype=torch.float64)
        self.tables = [torch.ones(2), torch.zeros(2)]
        self.named = {"a": torch.ones(1)}
        self.pair = (torch.ones(1), 4, torch.zeros(1))
        self.nothing: torch.Tensor | None = None
        self.parameter = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("buffer", torch.ones(1))
        self.parts = torch.nn.ModuleList([Part(), Part()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.davg
        for part in self.parts:
            y = part(y)
        y = y + 0.0 * (self.tables[0].sum() + self.named["a"].sum() + self.pair[0].sum())
        if self.nothing is not None:
            y = y * 2.0
        return y * self.parameter * self.buffer


@pytest.mark.thorough  # a compiler reads torch's headers, as for tests/models/test_kinds.py
def test_move_module(tmp_path):
    file = tmp_path / "model.pt"
    torch.jit.script(Whole()).save(file)
    lines = compile_and_run("device/move_module.cpp", tmp_path, file)
    expected = {".davg": 1, ".tables": 2, ".named": 1, ".pair": 2, ".parameter": 1, ".buffer": 1}
    of_parts = ("plain", "linear.weight", "linear.bias")
    expected |= {f".parts.{k}.{name}": 1 for k in range(2) for name in of_parts}
    for which, device in (("copy", "meta"), ("original", "cpu")):
        found = [line.split()[1:] for line in lines if line.startswith(which)]
        assert {place for _, place in found} == {device}
        names = [name for name, _ in found]
        assert {name: names.count(name) for name in names} == expected
    assert "result 108" in lines  # (0 + 1 + 2) * 6 * 6
    assert any("returned y as [3], expected a tensor [4]" in line for line in lines)
    (cuda,) = (line.removeprefix("cuda: ") for line in lines if line.startswith("cuda: "))
    if not torch.version.cuda:
        assert cuda.startswith("this torch has no CUDA (no ") and "libtorch_cuda.so" in cuda
