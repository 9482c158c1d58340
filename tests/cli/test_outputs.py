"""What lmp writes beside restart files: text dumps of all forms are cut back to whole frames."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pwmlff.launch.outputs import cut_back
from pwmlff.launch.run_state import lock

BOX = "ITEM: BOX BOUNDS pp pp pp\n" + 3 * "0.0000000000000000e+00 5.0000000000000000e+00\n"
ATOMS = f"ITEM: NUMBER OF ATOMS\n2\n{BOX}ITEM: ATOMS id x\n1 10\n2 0.5\n"
EXTENDED = (
    'Time={time:f} pbc="T T T" Lattice="5 0 0 0 5 0 0 0 5" Properties=species:S:1:pos:R:3:vel:R:3'
)
#: What stands before all frames, and a frame, as LAMMPS writes them.
FORMS = {
    "atom": ("", f"ITEM: TIMESTEP\n{{step}}\n{ATOMS}"),
    "custom": ("", f"ITEM: TIMESTEP\n{{step}}\n{ATOMS}"),
    "custom, units": ("ITEM: UNITS\nlj\n", f"ITEM: TIMESTEP\n{{step}}\n{ATOMS}"),
    "custom, time": ("", f"ITEM: TIME\n{{time:g}}\nITEM: TIMESTEP\n{{step}}\n{ATOMS}"),
    "custom, units and time": (
        "ITEM: UNITS\nlj\n",
        f"ITEM: TIME\n{{time:g}}\nITEM: TIMESTEP\n{{step}}\n{ATOMS}",
    ),
    "grid": (
        "",
        f"ITEM: TIMESTEP\n{{step}}\n{BOX}ITEM: DIMENSION\n3\nITEM: GRID SIZE nx ny nz\n2 1 1\n"
        "ITEM: GRID CELLS c_g:grid:data\n10\n2\n",
    ),
    "local": (
        "",
        f"ITEM: TIMESTEP\n{{step}}\nITEM: NUMBER OF PAIRS\n2\n{BOX}ITEM: PAIRS index c_l\n"
        "1 10\n2 1.5\n",
    ),
    "xyz": ("", "2\n Atoms. Timestep: {step}\n1 1 10 1\n1 2 2 1\n"),
    "extxyz": ("", f"2\nTimestep={{step}} {EXTENDED}\nAr 1 10 1 0 0 0\nAr 2 2 1 0 0 0\n"),
    "yaml": (
        "",
        "---\ncreator: LAMMPS\ntimestep: {step}\nunits: lj\ntime: {time:g}\nnatoms: 2\n"
        "boundary: [ p, p, p, p, p, p, ]\nthermo:\n  - keywords: [ Step, Temp, ]\n"
        "  - data: [ {step}, 1.5, ]\nbox:\n  - [ 0, 5 ]\n  - [ 0, 5 ]\n  - [ 0, 5 ]\n"
        "keywords: [ id, x,  ]\ndata:\n  - [ 1 , 10, ]\n  - [ 2 , 2, ]\n...\n",
    ),
}
EVERY = range(0, 60, 10)


def text(form: str, steps) -> bytes:
    head, frame = FORMS[form]
    frames = (frame.format(step=step, time=0.005 * step) for step in steps)
    return "".join([head, *frames]).encode()


@pytest.mark.parametrize("form", FORMS)
def test_frames_that_will_come_again(tmp_path: Path, form: str):
    """Also where the last frame is cut off."""
    path = tmp_path / "dump"
    whole, last = text(form, EVERY), text(form, EVERY[:-1])
    for size in (len(last) + 1, len(last) + 30, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:size])
        assert cut_back(path, 30)
        assert path.read_bytes() == text(form, EVERY[:3]), size
        path.write_bytes(whole[:size])
        assert cut_back(path, 30, keep_step=True)
        assert path.read_bytes() == text(form, EVERY[:4]), size


@pytest.mark.parametrize("form", FORMS)
def test_frame_that_was_cut_off_is_of_the_next_start(tmp_path: Path, form: str):
    """At any byte of it. All others are before the step: they stay, and nothing of it."""
    path = tmp_path / "dump"
    whole, last = text(form, EVERY), text(form, EVERY[:-1])
    for size in range(len(last), len(whole) + 1):
        path.write_bytes(whole[:size])
        assert cut_back(path, 50)
        assert path.read_bytes() == last, size


@pytest.mark.parametrize("form", FORMS)
def test_frames_of_an_earlier_run_stay(tmp_path: Path, form: str):
    """Those whose steps do not ascend to the ones at the end."""
    path = tmp_path / "dump"
    earlier = text(form, range(0, 90, 10))
    path.write_bytes(earlier + text(form, EVERY))
    assert cut_back(path, 30)
    assert path.read_bytes() == earlier + text(form, EVERY[:3])


def test_other_files(tmp_path: Path):
    """They are left as they are."""
    path = tmp_path / "dump"
    for contents, known in ((b"", True), (b"\x00\x01binary", False), (b"1 2 3\n4 5 6\n", False)):
        path.write_bytes(contents)
        assert cut_back(path, 30) == known
        assert path.read_bytes() == contents


def test_full_disk_loses_no_frames(tmp_path: Path):
    """What is cut off and has no room elsewhere stays; the error names the file without room."""
    path, kept = tmp_path / "a.dump", tmp_path / "a.dump.start1"
    path.write_bytes(whole := text("atom", range(0, 200, 10)))
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/a\.dump\.start1'"):
            cut_back(path, 10, spared=kept)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
        with pytest.raises(OSError, match=r"File too large: '.*/run\.lock'"), lock(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert path.read_bytes() == whole and not kept.exists()
    with lock(tmp_path):
        pass
