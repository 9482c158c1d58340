"""DP modules: the contract of their TorchScript files, derivatives, errors."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from ase import Atoms

from pwmlff import models
from pwmlff.models import DP, DPConfig, pad_neighbors

OUTPUTS = ("Etot", "Ei", "Force", "Egroup", "Virial")


def scripted(model):
    """The model as a host program gets it: saved to a file and loaded."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(model.eval()), buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def inputs_of(model, atoms):
    return pad_neighbors(atoms, model.atom_type, model.Rmax, model.maxNeighborNum)


def by_atom(grouped, numbers, elements):
    """[n] per-atom values from those grouped by element."""
    order = np.concatenate([np.flatnonzero(numbers == z) for z in elements])
    values = np.empty(len(numbers))
    values[order] = grouped
    return values


def assert_same(actual, expected, atol=1e-11, **kwargs):
    for name, a, e in zip(OUTPUTS, actual, expected, strict=True):
        assert (a is None) == (e is None), name
        if a is not None:
            torch.testing.assert_close(
                a, e, atol=atol, rtol=1e-10, msg=lambda m, name=name: f"{name}: {m}", **kwargs
            )


# Against the original implementation


def test_oracle(oracle, tmp_path):
    path = tmp_path / "model.pt"
    assert oracle.model.save(path) == path
    module = torch.jit.load(path)
    for atoms, expected in oracle.frames:
        etot, ei, force, egroup, v = module(*inputs_of(oracle.model, atoms))
        assert egroup is None
        assert etot.shape == (1, 1)
        found = by_atom(ei[0], atoms.numbers, oracle.model.atom_type)
        assert abs(etot.item() - expected.energy) / len(atoms) < 1e-9
        np.testing.assert_allclose(found, expected.atom_energy, rtol=0, atol=1e-9)
        np.testing.assert_allclose(force[0, : len(atoms)], expected.forces, rtol=0, atol=1e-9)
        np.testing.assert_allclose(v.reshape(3, 3), expected.virial, rtol=0, atol=1e-8)


# The contract of the file


def test_attributes_and_parameter_names(binary):
    model = scripted(binary.model())
    assert model.model_type == "DP"
    assert (model.Rmax, model.Rmin) == (binary.rmax, binary.rmin)
    assert (model.maxNeighborNum, model.M2, model.ntypes) == (40, 6, 2)
    assert model.atom_type == [8, 72]
    assert model.units == "metal"
    assert model.davg.shape == model.dstd.shape == (2, 2 * 40 * 4)
    assert not list(model.buffers())
    shapes = {name: tuple(values.shape) for name, values in model.named_parameters()}
    widths = [1, 6, 12, 12]
    expected = {}
    for net in range(4):
        for k in range(3):
            expected[f"embedding_net.{net}.layers.{k}.weight"] = (widths[k], widths[k + 1])
            expected[f"embedding_net.{net}.layers.{k}.bias"] = (1, widths[k + 1])
    widths = [12 * 6, 10, 10, 7, 1]
    for net in range(2):
        for k in range(4):
            expected[f"fitting_net.{net}.layers.{k}.weight"] = (widths[k], widths[k + 1])
            expected[f"fitting_net.{net}.layers.{k}.bias"] = (1, widths[k + 1])
        expected[f"fitting_net.{net}.layers.1.resnet_dt"] = (1, 10)
    assert shapes == expected


def test_file_tells_nothing_of_the_machine(binary, tmp_path):
    """No paths of sources; all else is what torch writes, tensors where torch has them."""
    model = binary.model().eval()
    model.save(tmp_path / "model.pt")
    (tmp_path / "torch").mkdir()
    plain = tmp_path / "torch" / "archive.pt"  # torch names a folder after the file
    torch.jit.save(torch.jit.script(model), plain)
    with ZipFile(tmp_path / "model.pt") as ours, ZipFile(plain) as torchs:
        assert ours.testzip() is None
        record = {"archive/extra/engine-record"}
        names = {n for n in torchs.namelist() if "debug_pkl" not in n}
        assert names | record == set(ours.namelist())
        for member in ours.infolist():
            contents = ours.read(member)
            assert str(Path(models.__file__).parent).encode() not in contents
            if member.filename in record:
                continue
            if "serialization_id" not in member.filename:
                assert contents == torchs.read(member.filename)
            begin = member.header_offset + 30 + len(member.filename) + len(member.extra)
            assert begin % 64 == 0


def test_save_keeps_training_flag_and_writes_eval_mode(binary, tmp_path):
    model = binary.model().train()
    loaded = torch.jit.load(model.save(tmp_path / "model.pt"))
    assert model.training
    assert not loaded.training


def test_save_that_fails_keeps_training_flag(binary, tmp_path):
    model = binary.model().train()
    with pytest.raises(OSError, match="absent"):
        model.save(tmp_path / "absent" / "model.pt")
    assert model.training
    assert all(part.training for part in model.modules())


def test_parameters_round_trip(binary):
    model = binary.model()
    params = {name: values.detach().numpy() for name, values in model.named_parameters()}
    params |= {"davg": model.davg.numpy(), "dstd": model.dstd.numpy()}
    again = DP.from_parameters(
        params, atom_type=(8, 72), rmax=binary.rmax, rmin=binary.rmin, max_neighbor=40, m2=6
    )
    inputs = inputs_of(model, binary.atoms())
    assert_same(again(*inputs), model(*inputs), atol=0.0)


def test_scripted_is_eager_in_every_call(system):
    """The profiling executor of TorchScript rewrites the graph in the first calls."""
    model = system.model()
    script = scripted(model)
    for seed in range(4):
        inputs = inputs_of(model, system.atoms(seed))
        assert_same(script(*inputs), model(*inputs))


def test_seed(binary):
    one, same, other = binary.model(1), binary.model(1), binary.model(2)
    for name, values in one.state_dict().items():
        assert torch.equal(values, same.state_dict()[name])
        if name.endswith("weight"):
            assert not torch.equal(values, other.state_dict()[name])


def test_energy_shift_moves_energies_only(binary):
    config = DPConfig((8, 72), 3.5, 1.2, 40, 4)
    inputs = inputs_of(binary.model(), binary.atoms())
    plain = DP(config, seed=0)(*inputs)
    moved = DP(config, seed=0, energy_shift=(1.5, -2.0))(*inputs)
    counts = np.bincount(inputs.Imagetype_map, minlength=2)
    expected = 1.5 * counts[0] - 2.0 * counts[1]
    np.testing.assert_allclose((moved[0] - plain[0]).item(), expected, atol=1e-12)
    torch.testing.assert_close(moved[2], plain[2])


def test_statistics_per_type_are_repeated_over_slots():
    config = DPConfig((8, 72), 3.5, 1.2, 7, 4)
    davg = np.arange(8.0).reshape(2, 4)
    model = DP(config, davg=davg, dstd=davg + 1.0)
    assert torch.equal(model.davg, torch.from_numpy(np.tile(davg, (1, 14))))
    assert torch.equal(model.dstd, model.davg + 1.0)


# What callers may do with the inputs


def test_energies_follow_the_order_of_atom_type(binary):
    model, atoms = binary.model(), binary.atoms()
    inputs = inputs_of(model, atoms)
    forward = model(*inputs)
    backward = model(*inputs._replace(atom_type=inputs.atom_type.flip(0)))
    np.testing.assert_allclose(
        by_atom(backward[1][0], atoms.numbers, (72, 8)),
        by_atom(forward[1][0], atoms.numbers, (8, 72)),
        rtol=1e-12,
    )
    assert not torch.allclose(forward[1], backward[1])
    assert_same((forward[0], None, *forward[2:]), (backward[0], None, *backward[2:]))


def test_slots_may_have_gaps_and_any_order(system):
    model = system.model()
    inputs = inputs_of(model, system.atoms())
    width = model.maxNeighborNum
    rng = np.random.default_rng(3)
    shuffled = torch.from_numpy(
        np.concatenate([t * width + rng.permutation(width) for t in range(model.ntypes)])
    )
    moved = inputs._replace(
        list_neigh=inputs.list_neigh[:, :, shuffled], ImageDR=inputs.ImageDR[:, :, shuffled]
    )
    assert_same(model(*moved), model(*inputs))


def test_neighbors_beyond_the_cutoff_count_as_empty_slots(binary):
    model, atoms = binary.model(), binary.atoms()
    wide = pad_neighbors(atoms, model.atom_type, model.Rmax + 0.3, model.maxNeighborNum)
    assert (wide.ImageDR[..., 0] > model.Rmax).any()
    assert_same(model(*wide), model(*inputs_of(model, atoms)))


def test_elements_that_do_not_take_part_are_ignored(binary):
    """Oxygen among oxygen and hafnium, with atom_type oxygen alone, is oxygen alone."""
    model = binary.model()
    atoms = binary.atoms()
    atoms = atoms[np.argsort(atoms.numbers, kind="stable")]
    n = int((atoms.numbers == 8).sum())
    both, alone = inputs_of(model, atoms), inputs_of(model, atoms[:n])
    oxygen = torch.tensor([8], dtype=torch.int32)
    expected = model(*alone._replace(atom_type=oxygen))
    actual = model(
        both.list_neigh[:, :n],
        both.Imagetype_map[:n],
        oxygen,
        both.ImageDR[:, :n],
        len(atoms) - n,
    )
    assert actual[2][:, n:].abs().max() == 0.0
    assert_same((*actual[:2], actual[2][:, :n], *actual[3:]), expected)
    assert not torch.allclose(expected[0], model(*alone)[0])


def test_ghosts_take_the_force_of_their_own(binary):
    """Each neighbor as a ghost of its own: adding the ghosts to their owners changes nothing."""
    model = binary.model()
    folded = inputs_of(model, binary.atoms())
    filled = folded.list_neigh > 0
    nlocal, nghost = folded.list_neigh.shape[1], int(filled.sum())
    ghosts = torch.zeros_like(folded.list_neigh)
    ghosts[filled] = torch.arange(nlocal + 1, nlocal + nghost + 1, dtype=torch.int32)
    actual = model(*folded._replace(list_neigh=ghosts, nghost=nghost))
    owner = folded.list_neigh[filled].long() - 1
    force = actual[2][0, :nlocal].index_add(0, owner, actual[2][0, nlocal:])
    assert_same((*actual[:2], force[None], *actual[3:]), model(*folded))


def test_batch_equals_single_frames(system):
    model = system.model()
    a, b = (inputs_of(model, system.atoms(seed)) for seed in (0, 1))
    batch = model(
        torch.cat((a.list_neigh, b.list_neigh)),
        a.Imagetype_map,
        a.atom_type,
        torch.cat((a.ImageDR, b.ImageDR)),
        0,
    )
    for index, inputs in enumerate((a, b)):
        frame = [None if values is None else values[index : index + 1] for values in batch]
        assert_same(frame, model(*inputs))


def test_no_local_atoms(binary):
    model = scripted(binary.model())
    inputs = inputs_of(model, binary.atoms())
    etot, ei, force, _, virial = model(
        inputs.list_neigh[:, :0],
        inputs.Imagetype_map[:0],
        inputs.atom_type,
        inputs.ImageDR[:, :0],
        4,
    )
    assert ei.shape == (1, 0)
    assert force.shape == (1, 4, 3)
    assert not etot.any() and not force.any() and not virial.any()


def test_group_energies(binary):
    model = scripted(binary.model())
    inputs = inputs_of(model, binary.atoms())
    weight = torch.rand(1, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    divider = weight.sum(-1)
    _, ei, _, plain, _ = model(*inputs, weight)
    group = model(*inputs, weight, divider)[3]
    torch.testing.assert_close(plain, (weight * ei[:, None]).sum(-1))
    torch.testing.assert_close(group, plain / divider)


def test_without_forces(binary):
    model = scripted(binary.model())
    inputs = inputs_of(model, binary.atoms())
    energies, full = model(*inputs, is_calc_f=False), model(*inputs)
    assert energies[2] is None and energies[4] is None
    torch.testing.assert_close(energies[:2], full[:2])


@pytest.mark.parametrize("given", [torch.float32, torch.float64])
def test_dtype_is_that_of_the_parameters(binary, given):
    model = binary.model()
    single = scripted(copy.deepcopy(model).float())
    inputs = inputs_of(model, binary.atoms())
    expected = model(*inputs)
    for _ in range(3):
        actual = single(*inputs._replace(ImageDR=inputs.ImageDR.to(given)))
        for name, a, e in zip(OUTPUTS, actual, expected, strict=True):
            if a is not None:
                assert a.dtype == torch.float32, name
                torch.testing.assert_close(a.double(), e, rtol=1e-4, atol=1e-4 * e.abs().max())


# Derivatives


def test_isolated_atoms_have_energies_and_no_forces(binary):
    model = scripted(binary.model())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    lone = inputs_of(model, Atoms([8, 72], positions=[[0.0, 0.0, 0.0], [50.0, 0.0, 0.0]]))
    etot, ei, force, _, virial = model(*lone)
    assert ei.shape == (1, 2)
    assert (ei != 0.0).all()
    torch.testing.assert_close(etot[0, 0], ei.sum())
    assert not force.any() and not virial.any()


def test_gradient_of_inputs_is_finite_and_gives_the_force(system):
    """In eval mode too, ImageDR that requires a gradient keeps the graph of the energy."""
    model = scripted(system.model())
    inputs = inputs_of(model, system.atoms())
    dr = inputs.ImageDR.requires_grad_()
    etot, _, force, _, _ = model(*inputs)
    (grad,) = torch.autograd.grad(etot.sum(), dr)
    assert grad.isfinite().all()
    filled = inputs.list_neigh > 0
    assert not grad[~filled].any()
    r, d = dr.detach()[filled].split((1, 3), dim=1)
    edge = grad[filled][:, :1] * d / r + grad[filled][:, 1:]
    center, neighbor = torch.nonzero(filled)[:, 1], inputs.list_neigh[filled].long() - 1
    expected = torch.zeros_like(force[0]).index_add(0, center, edge)
    expected = expected.index_add(0, neighbor, -edge)
    torch.testing.assert_close(force[0].detach(), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("script", [False, True], ids=["eager", "scripted"])
def test_training_on_forces_and_virial(binary, script):
    """The gradient of a loss on forces and virial against central differences in a parameter."""
    model = binary.model().train()
    if script:
        model = torch.jit.script(model)
    inputs = inputs_of(model, binary.atoms())

    def loss():
        etot, _, force, _, virial = model(*inputs)
        return etot.sum() + force.square().sum() + 0.1 * virial.sin().sum()

    parameters = dict(model.named_parameters())
    names = (
        "embedding_net.0.layers.0.weight",
        "embedding_net.1.layers.1.weight",
        "embedding_net.3.layers.2.bias",
        "fitting_net.0.layers.1.resnet_dt",
        "fitting_net.1.layers.0.weight",
        "fitting_net.1.layers.3.bias",
    )
    for _ in range(3):
        loss()
    loss().backward()
    for name in names:
        flat, step = parameters[name].data.view(-1), 1e-5
        gradient = parameters[name].grad.view(-1)
        index = int(gradient.abs().argmax())
        values = []
        for sign in (1, -1):
            flat[index] += sign * step
            values.append(loss().item())
            flat[index] -= sign * step
        expected = (values[0] - values[1]) / (2 * step)
        assert expected != 0.0, name
        np.testing.assert_allclose(gradient[index].item(), expected, rtol=1e-5, err_msg=name)


def test_eval_mode_carries_no_graph(binary):
    for values in binary.model()(*inputs_of(binary.model(), binary.atoms())):
        assert values is None or not values.requires_grad


@pytest.mark.parametrize("neighbor", [8, 72])
def test_energy_and_force_are_continuous_at_the_cutoff(binary, neighbor):
    """An atom entering the cutoff fills a slot that was empty before."""
    model = scripted(binary.model())

    def evaluate(r):
        atoms = Atoms([8, 72, neighbor], positions=[[0, 0, 0], [1.4, 0, 0], [0, 0, r]])
        etot, _, force, _, _ = model(*inputs_of(model, atoms))
        return etot.item(), force[0].numpy()

    inside, outside = evaluate(model.Rmax - 1e-5), evaluate(model.Rmax + 1e-5)
    np.testing.assert_allclose(inside[0], outside[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(inside[1], outside[1], rtol=0, atol=1e-6)
    assert abs(evaluate(model.Rmax - 1.0)[0] - outside[0]) > 1e-3


# Errors


@pytest.mark.parametrize(
    "change, message",
    [
        ({"atom_type": ()}, r"atom_type is \[\]"),
        ({"atom_type": (8, 8)}, "each once"),
        ({"atom_type": (0,)}, "atomic number"),
        ({"rmax": 0.5}, "rmin is 1.2 and rmax is 0.5"),
        ({"rmin": -1.0}, "0 <= rmin < rmax"),
        ({"max_neighbor": 0}, "max_neighbor is 0"),
        ({"embedding": ()}, r"embedding is \[\]"),
        ({"fitting": (5, 0)}, r"fitting is \[5, 0\]"),
        ({"m2": 26}, "from 1 to the last embedding width, 25"),
        ({"m2": 0}, "m2 is 0"),
        ({"units": "real"}, "metal, lj"),
    ],
    ids=str,
)
def test_config_errors(change, message):
    with pytest.raises(ValueError, match=message):
        replace(DPConfig((8, 72), 3.5, 1.2, 40, 4), **change)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"davg": np.zeros((2, 5))}, r"davg has shape \(2, 5\)"),
        ({"dstd": np.ones(4)}, r"expected \(2, 320\) or \(2, 4\)"),
        ({"dstd": [[1.0, 1.0, 1.0, 0.0]] * 2}, "smallest entry 0.0"),
        ({"energy_shift": [1.0]}, "each of the 2 types"),
    ],
    ids=str,
)
def test_constructor_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        DP(DPConfig((8, 72), 3.5, 1.2, 40, 4), **arguments)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"davg": None}, "lack davg"),
        ({"embedding_net.0.layers.0.weight": None}, "lack embedding_net.0.layers.0.weight"),
        ({"fitting_net.1.layers.3.bias": None}, "missing .*fitting_net.1.layers.3.bias"),
        ({"fitting_net.2.layers.0.bias": np.zeros((1, 3))}, "unknown .*fitting_net.2.layers.0"),
        ({"fitting_net.1.layers.0.bias": np.zeros(10)}, r"shape \(10,\); expected \(1, 10\)"),
    ],
    ids=str,
)
def test_from_parameters_errors(binary, change, message):
    model = binary.model()
    params = {name: values.detach().numpy() for name, values in model.named_parameters()}
    params |= {"davg": model.davg.numpy(), "dstd": model.dstd.numpy()} | change
    params = {name: values for name, values in params.items() if values is not None}
    with pytest.raises(ValueError, match=message):
        DP.from_parameters(
            params, atom_type=(8, 72), rmax=binary.rmax, rmin=binary.rmin, max_neighbor=40, m2=6
        )


@pytest.mark.parametrize(
    "elements, message",
    [([8, 1], "atom_type holds 1"), ([8], "2 local atoms are of elements")],
)
def test_forward_errors(binary, elements, message):
    model = binary.model()
    inputs = inputs_of(model, binary.atoms())._replace(atom_type=torch.tensor(elements))
    for kind, error in ((model, ValueError), (scripted(model), torch.jit.Error)):
        with pytest.raises(error, match=message):
            kind(*inputs)


def test_too_many_neighbors(crowd):
    elements = (72, 8)
    pad_neighbors(crowd, elements, 1.5, 3)
    with pytest.raises(
        ValueError, match=r"atom 2 has 3 neighbors of type 1 \(atomic number 8\) .* allows 2"
    ):
        pad_neighbors(crowd, elements, 1.5, 2)


def test_unknown_element():
    with pytest.raises(ValueError, match=r"atom 1 has atomic number 1; .*\[8, 72\]"):
        pad_neighbors(Atoms("OH", positions=[[0, 0, 0], [0, 0, 1]]), (8, 72), 3.0, 10)
