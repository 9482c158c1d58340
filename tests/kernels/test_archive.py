"""What is checked of a model file before torch sees it, without torch."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pwmlff import archive
from systems import SYSTEMS

SYSTEM = SYSTEMS["one element, orthorhombic"]
EMPTY = b"\x80\x02)."  # the pickle of an empty tuple
ENTRY_VERSION, ENTRY_FLAGS, ENTRY_ATTRIBUTES, ENTRY_OFFSET, ENTRY_NAME = 6, 8, 38, 42, 46  # offsets


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("archive") / "model.pt"
    SYSTEM.model().save(path)
    return path.read_bytes()


def members(contents: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(contents)) as found:
        return {name: found.read(name) for name in found.namelist()}


def written(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as made:
        for name, contents in files.items():
            made.writestr(name, contents)
    return stream.getvalue()


def entry(contents: bytes, name: str) -> int:
    """Where the entry of a member in the directory begins."""
    return contents.rindex(name.encode()) - ENTRY_NAME


def patched(contents: bytes, at: int, value: bytes) -> bytes:
    return contents[:at] + value + contents[at + len(value) :]


def refused(contents: bytes) -> str:
    with pytest.raises(ValueError) as found:
        archive.check(contents)
    return str(found.value)


def test_sound_files(model: bytes, lj_models: list[str]):
    archive.check(model)
    for path in lj_models:
        archive.check(Path(path).read_bytes())


class Everything(torch.nn.Module):
    """Constants, empty and shared tensors, views, and all kinds of attributes."""

    def __init__(self):
        super().__init__()
        base = torch.arange(12.0)
        self.view, self.step, self.wide = base[3:9], base[1::2], base[:1].expand(1000)
        self.empty, self.scalar = torch.zeros(0, 3), torch.tensor(2.0)
        self.kinds = [torch.zeros(3, dtype=d) for d in (torch.int8, torch.bool, torch.bfloat16)]
        self.words, self.big = {"a": [1, 2], "b": [3]}, 2**40
        self.layer = torch.nn.Linear(3, 3).to(torch.complex64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.view.sum() + self.wide.sum() + torch.tensor([1.0, 2.0]).sum()


@pytest.mark.parametrize("form", ["scripted", "frozen", "traced", "half"])
def test_other_sound_files(form: str):
    module = torch.jit.script(Everything())
    if form == "frozen":
        module = torch.jit.freeze(module.eval())
    elif form == "traced":
        module = torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.zeros(1, 2))
    elif form == "half":
        module.half()
    stream = io.BytesIO()
    torch.jit.save(module, stream, _extra_files={"notes.txt": b"text"})
    archive.check(stream.getvalue())


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_packed_by_others(model: bytes, method: int):
    contents = written(members(model), method)
    archive.check(contents)
    expected = torch.jit.load(io.BytesIO(model)).state_dict()
    found = torch.jit.load(io.BytesIO(contents)).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "one bit of a tensor": (
        lambda b: patched(b, b.index(b"FB") + 100, bytes([b[b.index(b"FB") + 100] ^ 1])),
        "'model/data/0' does not have the contents",
    ),
    "folder by its attribute": (
        lambda b: patched(b, entry(b, "model/data/0") + ENTRY_ATTRIBUTES, b"\x10"),
        "'model/data/0' is marked as a folder",
    ),
    "encrypted": (
        lambda b: patched(b, entry(b, "model/data/0") + ENTRY_FLAGS, b"\x09"),
        "'model/data/0' is encrypted",
    ),
    "of a newer zip": (
        lambda b: patched(b, entry(b, "model/data/0") + ENTRY_VERSION, b"\xff"),
        "'model/data/0' needs a newer form",
    ),
    "half of it": (lambda b: b[: len(b) // 2], "truncated"),
    "one byte short": (lambda b: b[:-1], "truncated"),
    "one byte more": (lambda b: b + b"\n", "bytes are missing or added"),
    "other name in the directory": (
        lambda b: patched(b, entry(b, "model/data/0") + ENTRY_NAME, b"model/data/x"),
        "'model/data/x' and the directory differ",
    ),
    "place of another": (
        lambda b: patched(
            b,
            entry(b, "model/data/0") + ENTRY_OFFSET,
            b[entry(b, "model/data/1") + ENTRY_OFFSET :][:4],
        ),
        "'model/data/0' and the directory differ",
    ),
    "place beyond the end": (
        lambda b: patched(b, entry(b, "model/data/0") + ENTRY_OFFSET, b"\xf0\xff\xff\xff"),
        "beyond the end of the file",
    ),
    "fewer members than it says": (
        lambda b: patched(b, b.rindex(b"PK\x05\x06") + 8, b"\x01\0\x01\0"),
        "the end of its directory is damaged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged(model: bytes, case: str):
    damage, words = DAMAGES[case]
    message = refused(damage(model))
    assert message.startswith("is damaged: ")
    assert words in message
    assert message.endswith("copy or export it again")


def replaced(name: str, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A sound zip file in which one member is another."""

    def apply(contents: bytes) -> bytes:
        files = members(contents)
        files[f"model/{name}"] = change(files[f"model/{name}"])
        return written(files)

    return apply


def without(name: str) -> Callable[[bytes], bytes]:
    return lambda b: written({k: v for k, v in members(b).items() if k != f"model/{name}"})


def resized(size: bytes, stride: bytes) -> Callable[[bytes], bytes]:
    """The shape of davg, [1, 160] of stride [160, 1], replaced in the tables."""
    was = b"(K\x01K\xa0t(K\xa0K\x01t"

    def change(pickle: bytes) -> bytes:
        at = next(pickle.index(was[:6] + tag, 0) for tag in (b"q", b"(") if was[:6] + tag in pickle)
        end = pickle.index(b"t", pickle.index(b"(", at + 1)) + 1
        return pickle[:at] + size + stride + pickle[end:]

    return replaced("data.pkl", change)


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "record too short": (replaced("data/0", lambda b: b[:-8]), "bytes, expected 160 elements of 8"),
    "record too long": (replaced("data/0", lambda b: b + bytes(8)), "expected 160 elements of 8"),
    "record missing": (without("data/0"), "'model/data/0', a tensor, is missing"),
    "tensor longer than its storage": (resized(b"(K\x02K\xa0t", b"(K\xa0K\x01t"), "goes beyond"),
    "tensor of negative size": (
        resized(b"(J\xff\xff\xff\xffK\xa0t", b"(K\xa0K\x01t"), "goes beyond"
    ),
    "tensor of terabytes": (
        resized(b"(J\0\0\0\x40K\xa0t", b"(K\0K\x01t"), "more elements than are stored"
    ),
    "size that overflows": (
        resized(b"(" + 2 * b"J\xff\xff\xff\x7f" + b"t", b"(" + 2 * b"J\xff\xff\xff\x7f" + b"t"),
        "goes beyond",
    ),
    "unknown storage": (
        replaced("data.pkl", lambda b: b.replace(b"DoubleStorage", b"TripleStorage")),
        "'TripleStorage', which is not known",
    ),
    "memory for a table of values": (
        replaced("data.pkl", lambda b: b[:2] + b"Nr\xff\xff\xff\x7f0" + b[2:]), "out of turn"
    ),
    "text longer than the pickle": (
        replaced("data.pkl", lambda b: b[:2] + b"X\xff\xff\xff\xff" + b[2:]), "ends too early"
    ),
    "operation of other programs": (
        replaced("data.pkl", lambda b: b[:2] + b"i" + b[2:]), "operation 105"
    ),
    "no stack": (replaced("data.pkl", lambda b: b[:2] + b"R" + b[2:]), "a value that is not there"),
    "nested deeply": (
        replaced("data.pkl", lambda b: b[:2] + b"N" + 2000 * b"\x85" + b"0" + b[2:]), "1000 deep"
    ),
    "millions of values": (
        replaced("data.pkl", lambda b: b[:2] + b"(" + 5_000_000 * b"N" + b"t" + b[2:]),
        "more than 4194304 values",
    ),
    "no mark": (replaced("data.pkl", lambda b: b[:2] + b"t" + b[2:]), "a mark that is not there"),
    "a bomb": (
        lambda b: written({**members(b), "model/x": bytes(1 << 25)}, zipfile.ZIP_DEFLATED),
        "claims to be 33554432",
    ),
    "packed by another method": (
        lambda b: written(members(b), zipfile.ZIP_BZIP2),
        "compressed by method 12; expected stored (0) or deflated (8)",
    ),
    "a folder": (lambda b: written({**members(b), "model/more/": b""}), "marked as a folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(model: bytes, case: str):
    """Sound zip files, whose checksums are right."""
    make, words = HOSTILE[case]
    assert words in refused(make(model))


@pytest.mark.parametrize("engine", ["DPEngine", "DPDeviceEngine"])
def test_engines_open_sound_files_alone(model: bytes, tmp_path: Path, engine: str):
    import pwmlff.kernels  # noqa: F401

    damage, words = DAMAGES["one bit of a tensor"]
    path = tmp_path / "damaged.pt"
    path.write_bytes(damage(model))
    device = ["cpu"] if engine == "DPDeviceEngine" else []
    with pytest.raises((RuntimeError, ValueError), match=rf"damaged.pt' is damaged: .*{words}"):
        getattr(torch.classes.pwmlff, engine)(str(path), "double", [1], *device)
    path.unlink()
    with pytest.raises((RuntimeError, ValueError), match=r"cannot read model file .*damaged.pt"):
        getattr(torch.classes.pwmlff, engine)(str(path), "double", [1], *device)


def test_twice(model: bytes):
    files = members(model)
    with pytest.warns(UserWarning, match="Duplicate"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as made:
            for name, contents in [*files.items(), ("model/data/0", files["model/data/1"])]:
                made.writestr(name, contents)
    assert "'model/data/0' is there twice" in refused(stream.getvalue())


def test_shared_bytes():
    """A member whose contents are another member with its header."""
    inner = written({"a/constants.pkl": EMPTY})
    inner = inner[: inner.index(b"PK\x01\x02")]
    whole = written({"a/data.pkl": EMPTY, "a/x": inner, "a/constants.pkl": EMPTY})
    last = entry(whole, "a/constants.pkl")
    shared = patched(whole, last + ENTRY_OFFSET, whole.index(inner).to_bytes(4, "little"))
    archive.check(whole)
    assert "two of its members share bytes" in refused(shared)


@pytest.mark.parametrize(
    "strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE]
)
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_decompression(monkeypatch, level: int, strategy: int):
    """Against zlib: the checksum of the result is the one that zlib had of the original."""
    rng = np.random.default_rng(level)
    code = Path(torch.__file__).read_bytes()
    files = {"a/data.pkl": EMPTY, "a/constants.pkl": EMPTY, "a/code": code, "a/empty": b""}
    for k in range(30):
        size = int(2 ** rng.uniform(0, 18))
        alphabet = int(rng.integers(1, 256))
        files[f"a/random{k}"] = rng.integers(0, alphabet, size, dtype=np.uint8).tobytes()
        files[f"a/far{k}"] = (rng.bytes(300) + bytes(int(rng.integers(32000, 33000)))) * 3
    monkeypatch.setattr(
        zipfile,
        "_get_compressor",
        lambda *_: zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy),
    )
    archive.check(written(files, zipfile.ZIP_DEFLATED))


def test_damaged_compression(model: bytes):
    """Each byte of compressed code: refused, or of the same meaning (another copy of the same)."""
    files = {"a/data.pkl": EMPTY, "a/constants.pkl": EMPTY}
    with zipfile.ZipFile(io.BytesIO(model)) as found:
        files["a/code.py"] = next(found.read(n) for n in found.namelist() if n.endswith(".py"))
    contents = written(files, zipfile.ZIP_DEFLATED)
    begin = contents.index(b"a/code.py") + len("a/code.py")
    end = contents.index(b"PK\x01\x02")
    accepted = 0
    for at in range(begin, end):
        damaged = patched(contents, at, bytes([contents[at] ^ (1 << at % 8)]))
        try:
            archive.check(damaged)
        except ValueError:
            continue
        accepted += 1
        assert members(damaged) == files
    assert accepted < (end - begin) / 100


def saved(value: object, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


WEIGHTS = {"weight": torch.zeros(3)}
FOREIGN: dict[str, tuple[bytes, list[str]]] = {
    "nothing": (b"", ["is empty"]),
    "text": (b"not a model\n", ["not a TorchScript archive", "'not a model'"]),
    "program": (b"\x7fELF\x02\x01", ["not a TorchScript archive", ".ELF"]),
    "NEP": (b"nep4 2 Hf O\ncutoff 6 5 100 80\n", ["NEP potential", "pair_style nep"]),
    "NEP with ZBL": (b"nep4_zbl 1 Si\n", ["NEP potential"]),
    "force field of PWMLFF": (b"3\n\n0\n2\n1\n2\n3 100\n", ["forcefield.ff", "PWMLFF"]),
    "DeePMD-kit, TensorFlow": (
        b"\n\x1b\n\x12descrpt_attr/rcut\x12\x05Const", ["DeePMD-kit", "pair_style deepmd"]
    ),
    "weights": (saved(WEIGHTS), ["not a TorchScript module", "(weight)", "export"]),
    "state_dict": (
        saved(torch.nn.Linear(2, 2).state_dict()), ["not a TorchScript module", "weight, bias"]
    ),
    "weights, old": (saved(WEIGHTS, zipped=False), ["TorchScript module", "before torch 1.6"]),
    "checkpoint of MatPL": (
        saved({"json_file": {}, "epoch": 3, "state_dict": WEIGHTS}),
        ["checkpoint of MatPL", "(json_file, epoch, state_dict)", "MatPL script"],
    ),
    "pickled module": (
        saved(torch.nn.Linear(2, 2)), ["class torch.nn.modules.linear.Linear", "torch.jit.script"]
    ),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", ["git lfs pull"]),
    "web page": (b"<!DOCTYPE html>\n<html>", ["web page"]),
    "gzip": (b"\x1f\x8b\x08\x00", ["packed file"]),
    "arrays": (written({"a.npy": b"1"}), ["is a zip file", "'a.npy'"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign(case: str):
    contents, words = FOREIGN[case]
    message = refused(contents)
    assert all(word in message for word in words), message
    assert "damaged" not in message


LIMITS = {
    "sound": ((6.0, 6.0, 100, [8, 72]), ""),
    "message passing": ((6.0, 12.0, None, [1]), ""),
    "cutoff infinite": ((np.inf, np.inf, 100, [8]), "cutoff inf"),
    "cutoff NaN": ((np.nan, 6.0, 100, [8]), "cutoff nan"),
    "cutoff tiny": ((1e-12, 1e-12, 100, [8]), "cutoff 1e-12"),
    "cutoff negative": ((-6.0, 6.0, 100, [8]), "cutoff -6"),
    "range infinite": ((6.0, np.inf, None, [8]), "interaction_range inf"),
    "range short": ((6.0, 5.0, None, [8]), "interaction_range 5"),
    "range of many hops": ((0.1, 90.0, None, [8]), "0.1, to 10"),
    "no neighbors": ((6.0, 6.0, 0, [8]), "maxNeighborNum 0"),
    "too many neighbors": ((6.0, 6.0, 2**31, [8]), "maxNeighborNum 2147483648"),
    "neighbors NaN": ((6.0, 6.0, np.nan, [8]), "maxNeighborNum nan"),
    "half a neighbor": ((6.0, 6.0, 10.5, [8]), "maxNeighborNum 10.5"),
    "no element": ((6.0, 6.0, 100, []), "atom_type []"),
    "element twice": ((6.0, 6.0, 100, [8, 8]), "atom_type [8, 8]"),
    "element 0": ((6.0, 6.0, 100, [0]), "atom_type [0]"),
    "element 119": ((6.0, 6.0, 100, [119]), "1 to 118"),
    "element of 33 bits": ((6.0, 6.0, 100, [2**32 + 8]), "4294967304"),
}


@pytest.mark.parametrize("case", LIMITS)
def test_limits(case: str):
    arguments, words = LIMITS[case]
    if not words:
        archive.check_limits(*arguments)
        return
    with pytest.raises(ValueError, match=r"^has .*, expected") as found:
        archive.check_limits(*arguments)
    assert words in str(found.value)
