"""kernels/ knows no torch, and builds and is tested without it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TORCH = re.compile(r"#include.*\b(torch|ATen|c10)/|\b(at|c10|torch)::|Torch::")


def test_no_torch():
    lines = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sorted((ROOT / "kernels").rglob("*"))
        if path.is_file()
        for line in path.read_text().splitlines()
        if TORCH.search(line)
    ]
    assert lines == []


@pytest.mark.thorough
def test_programs(tmp_path):
    for command in (
        ["cmake", "-S", "kernels", "-B", tmp_path],
        ["cmake", "--build", tmp_path, "-j", "2"],
        ["ctest", "--test-dir", tmp_path, "--output-on-failure"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
