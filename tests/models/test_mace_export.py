"""What mace_export.py puts in the place of parts of MACE, without MACE.

Genuine models are those of test_other_programs.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from pwmlff.convert import mace_export

NONE = {"charge": None, "spin": None}
OF_SYSTEM = {"type": "categorical", "per": "graph", "offset": 100, "num_classes": 201}


def irreps(groups):
    """The gate of MACE 0.3.16, as far as it is read: 3 scalars and 5 gates of vectors."""
    return SimpleNamespace(
        _s_start=0, _s_len=3, _g_start=3, _g_len=5 * len(groups), _gated_info=groups,
        _scalar_cst=1.7, _gate_cst=1.8,
    )  # fmt: skip


def test_gate():
    """Component by component; a vector and its gate have the same number."""
    gate = mace_export.Gate(irreps([(8, 15, 3, 5, 0)]))
    x = torch.randn(4, 23, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = np.empty((4, 18))
    for n, row in enumerate(x.numpy()):
        sigmoid = 1.0 / (1.0 + np.exp(-row))
        expected[n, :3] = 1.7 * row[:3] * sigmoid[:3]
        for channel in range(5):
            for component in range(3):
                at = 3 * channel + component
                expected[n, 3 + at] = 1.8 * sigmoid[3 + channel] * row[8 + at]
    for module in (gate, torch.jit.script(gate)):
        np.testing.assert_allclose(module(x), expected, rtol=1e-14)


def test_gate_of_scalars_alone():
    gate = torch.jit.script(mace_export.Gate(irreps([])))
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gate(x), 1.7 * x * torch.sigmoid(x), rtol=1e-14, atol=0.0)
    assert gate(x[:0]).shape == (0, 3)


class Sum(nn.Module):
    """Embeds by the sum of a charge and ten times a spin, the same for all atoms."""

    def forward(self, batch, features):
        number = features["total_charge"] + 10.0 * features["total_spin"]
        return number[batch].unsqueeze(1) * torch.tensor([[1.0, 2.0, 3.0]])


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3, bias=False)
        self.linear.weight.data = torch.arange(6.0).reshape(3, 2)

    def forward(self, attributes):
        return self.linear(attributes)


class Embedded(nn.Module):
    """What of a model of O and Hf with two heads is read."""

    def __init__(self, **specs):
        super().__init__()
        self.atomic_numbers, self.r_max = torch.tensor([8, 72]), torch.tensor(4.0)
        self.embedding_specs = specs
        self.node_embedding, self.joint_embedding = Embedding(), Sum()
        self.embedding_readout = nn.Linear(3, 2, bias=False)
        self.embedding_readout.weight.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
        self.atomic_energies_fn = nn.Module()
        self.atomic_energies_fn.register_buffer("atomic_energies", torch.tensor([[1.0, 2], [3, 4]]))


def test_charge_and_spin_become_numbers_of_elements():
    model = Embedded(total_charge=OF_SYSTEM, total_spin=OF_SYSTEM)
    features = mace_export.embedded(model, {"charge": -1, "spin": 2})
    with torch.no_grad():
        mace_export.fold(model, features)
    # Rows of elements: the weights, and 19 times 1, 2 and 3.
    expected = np.array([[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]) + 19.0 * np.array([1.0, 2.0, 3.0])
    found = model.node_embedding(torch.eye(2)).detach().numpy()
    np.testing.assert_array_equal(found, expected)
    energies = [[1.0 + 19.0, 2.0 + 20.0], [3.0 + 101.0, 4.0 + 103.0]]
    np.testing.assert_array_equal(model.atomic_energies_fn.atomic_energies, energies)
    for name in ("embedding_specs", "joint_embedding", "embedding_readout"):
        assert not hasattr(model, name)


@pytest.mark.parametrize(
    "specs, given, text",
    [
        ({"total_charge": OF_SYSTEM, "total_spin": OF_SYSTEM}, {},
         "it embeds total_charge and total_spin of a whole system, found no --charge --spin; give"),
        ({"total_charge": OF_SYSTEM, "total_spin": OF_SYSTEM}, {"charge": 0}, "found no --spin; "),
        ({"total_spin": OF_SYSTEM}, {"charge": 3, "spin": 1},
         "found --charge 3, expected none: it embeds no charge"),
        ({}, {"spin": 1}, "found --spin 1, expected none: it embeds no spin"),
        ({"total_charge": OF_SYSTEM}, {"charge": 101},
         "found --charge 101, expected -100 to 100, which it knows"),
        ({"total_charge": OF_SYSTEM | {"per": "atom"}}, {"charge": 1},
         "it embeds total_charge of each atom, expected one of a whole system"),
        ({"elec_temp": OF_SYSTEM}, {"charge": 1},
         "it embeds elec_temp; charge and spin can be, of a whole system"),
    ],
)  # fmt: skip
def test_what_is_not_said_or_not_known(specs, given, text):
    with pytest.raises(SystemExit, match=f"^cannot be converted: .*{text}"):
        mace_export.embedded(Embedded(**specs), NONE | given)


def test_other_models():
    """Dipoles, say, are no energies."""
    with pytest.raises(
        SystemExit, match="model of class Embedded, expected MACE or ScaleShiftMACE"
    ):
        mace_export.prepare(Embedded(), NONE)


def test_numbers_that_change(monkeypatch):
    """MACE's own numbers before are compared with those after."""

    class MACE(Embedded):
        def forward(self, data):
            energy = self.node_embedding(data["node_attrs"]).sum().reshape(1)
            if "total_charge" in data:
                energy = energy + 1e-3
            return {"energy": energy, "forces": torch.zeros_like(data["positions"])}

    model = MACE(total_charge=OF_SYSTEM, total_spin=OF_SYSTEM)
    monkeypatch.setattr(mace_export, "fold", lambda model, features: None)
    monkeypatch.setitem(mace_export.GATES, torch.float32, 1e-9)
    with pytest.raises(SystemExit, match=r"an energy differs by .* from that of MACE's own code"):
        mace_export.prepare(model, {"charge": 0, "spin": 1})
