"""Damaged copies of a zip file, the same ones for the same seed.

    for name, contents in mutants(original, 500, seed=0): ...

A name says what was done and where, so that one mutant can be looked at alone.
"""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Iterator

import numpy as np

Mutant = tuple[str, bytes]
Region = tuple[int, int]  # begin and end
LOCAL_HEADER = 30  # bytes, without name and extra field


def regions(contents: bytes) -> dict[str, list[Region]]:
    """Where the parts of a zip file lie: headers, data of members by kind, directory."""
    archive = zipfile.ZipFile(io.BytesIO(contents))
    found: dict[str, list[Region]] = {"headers": [], "tables": [], "code": [], "tensors": []}
    for member in archive.infolist():
        header = member.header_offset
        sizes = contents[header + 26 : header + LOCAL_HEADER]
        begin = header + LOCAL_HEADER + int.from_bytes(sizes[:2], "little")
        found["headers"].append((header, begin))
        begin += int.from_bytes(sizes[2:], "little")
        kind = "tables" if member.filename.endswith("data.pkl") else "tensors"
        if "/code/" in member.filename:
            kind = "code"
        if member.compress_size:
            found[kind].append((begin, begin + member.compress_size))
    found["directory"] = [(archive.start_dir, len(contents))]
    found["file"] = [(0, len(contents))]
    return {kind: places for kind, places in found.items() if places}


def flipped(contents: bytes, rng: np.random.Generator) -> Iterator[Mutant]:
    """One to four bytes changed, each part of the file as often as the others."""
    places = regions(contents)
    for kind in itertools.cycle(places):
        changed = bytearray(contents)
        done = []
        for _ in range(rng.integers(1, 5) if rng.random() < 0.3 else 1):
            begin, end = places[kind][rng.integers(len(places[kind]))]
            place = int(rng.integers(begin, end))
            mask = 1 << int(rng.integers(8)) if rng.random() < 0.5 else int(rng.integers(1, 256))
            changed[place] ^= mask
            done.append(f"{place}^{mask:#x}")
        yield f"flip {kind} {' '.join(done)}", bytes(changed)


def truncated(contents: bytes, rng: np.random.Generator) -> Iterator[Mutant]:
    """The end is missing, or something follows it."""
    while True:
        place = int(rng.integers(len(contents)))
        yield f"truncate {place}", contents[:place]
        tail = rng.bytes(int(rng.integers(1, 64)))
        yield f"append {tail.hex()}", contents + tail


def moved(contents: bytes, rng: np.random.Generator) -> Iterator[Mutant]:
    """Pieces exchanged, cut out, put in, or overwritten by others or by zeros."""
    while True:
        size = int(2 ** rng.uniform(0, 10))
        one, two = sorted(int(x) for x in rng.integers(0, len(contents) - 2 * size, 2))
        two += size
        a, b = contents[one : one + size], contents[two : two + size]
        middle, rest = contents[one + size : two], contents[two + size :]
        head = contents[:one]
        where = f"{one} {two} {size}"
        yield f"exchange {where}", head + b + middle + a + rest
        yield f"overwrite {where}", head + b + middle + b + rest
        yield f"cut {where}", head + middle + b + rest
        yield f"insert {where}", head + b + a + middle + b + rest
        yield f"zero {where}", head + bytes(size) + middle + b + rest


def fields(contents: bytes, rng: np.random.Generator) -> Iterator[Mutant]:
    """Numbers in directory and headers replaced by others that stand there, or by extreme ones."""
    places = regions(contents)
    where = places["directory"] + places["headers"]
    while True:
        begin, end = where[rng.integers(len(where)) if rng.random() < 0.5 else 0]
        width = int(rng.choice([1, 2, 4, 8]))
        place = int(rng.integers(begin, max(begin + 1, end - width)))
        other = int(rng.integers(places["directory"][0][0], len(contents) - width))
        value = [b"\xff" * width, bytes(width), contents[other : other + width]][rng.integers(3)]
        yield f"field {place} {value.hex()}", contents[:place] + value + contents[place + width :]


def mutants(contents: bytes, count: int, seed: int = 0) -> Iterator[Mutant]:
    """Damaged copies of a zip file; all differ from it."""
    rng = np.random.default_rng(seed)
    kinds = [flipped(contents, rng), fields(contents, rng), moved(contents, rng)]
    kinds += [flipped(contents, rng), truncated(contents, rng)]
    different = (mutant for kind in itertools.cycle(kinds) if (mutant := next(kind))[1] != contents)
    return itertools.islice(different, count)
