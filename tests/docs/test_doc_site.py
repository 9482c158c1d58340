"""The pages build without a warning, and the examples on them give what they say."""

from __future__ import annotations

import doctest
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_site(tmp_path):
    """References, headings, code and docstrings, as far as sphinx looks at them."""
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package, reason="needs pip install '.[docs]'")
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert (tmp_path / "site" / "python.html").read_text().count(
        "pwmlff.evaluation.reference.evaluate"
    ) > 0


def test_every_page_is_on_the_site():
    index = (ROOT / "docs" / "index.md").read_text().split()
    assert {page.stem for page in PAGES} - {"index"} == set(index) & {page.stem for page in PAGES}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if ">>> " in page.read_text()], ids=lambda page: page.name
)
def test_examples(page, tmp_path, monkeypatch):
    """In a folder with the model that they name."""
    shutil.copy(ROOT / "examples" / "lj" / "a.pt", tmp_path)
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 0 and failed == 0
