"""`pwmlff build`: what it finds out of a LAMMPS, what it tells CMake, what it says at the end."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from harness import PROGRAMS
from pwmlff import plugin
from pwmlff.commands import build
from pwmlff.launch import program

CMAKE = "#!/bin/sh\n[ $1 = --version ] && { echo cmake version 3.26.0; exit; }\n"
PACKAGE = Path(program.find().path).parent  # an installation of LAMMPS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree of LAMMPS, as far as CMake looks."""
    source = tmp_path / "lammps" / "src"
    source.mkdir(parents=True)
    (source / "pair.h").touch()
    (source / "version.h").write_text('#define LAMMPS_VERSION "29 Aug 2024"\n')
    return source.parent


@pytest.fixture
def cmake(tmp_path: Path, monkeypatch):
    """A stand-in for CMake that records its words and says how far it is."""
    path = tmp_path / "bin" / "cmake"
    path.parent.mkdir()
    facts = tmp_path / "pwmlff-plugin" / "build" / "pair_pwmlff"
    facts.mkdir(parents=True)
    names = (
        "lammps", "update", "sizes", "kokkos", "mpi", "mpi_version", "torch", "cuda",
        "cuda_architectures", "no_cuda", "compiler",
    )  # fmt: skip
    (facts / "build.json").write_text(
        "{" + ", ".join(f'"{name}": "{name} of the build"' for name in names) + "}"
    )
    path.write_text(
        f'{CMAKE}printf "%s " "$@" >> {tmp_path}/words; echo >> {tmp_path}/words\n'
        "echo '[1/2] Building CXX object a.dir/one.cpp.o'\n"
        "echo '[2/2] Linking CXX shared module b.so'\n"
    )
    path.chmod(0o755)
    monkeypatch.setattr(build.sys, "executable", str(path.with_name("python3")))
    return lambda: (tmp_path / "words").read_text().splitlines()


@pytest.mark.parametrize("mpi", ["mpicxx"])
def test_real_configuration(pwmlff, mpi: str):
    """Of the lammps package as a user's own installation."""
    found = pwmlff(
        "build", "--lammps", PACKAGE, "--mpi", PROGRAMS / mpi, "--cuda", "off", "--configure-only",
        "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    facts = found.json["built_for"]
    found_version = plugin.full_version(facts["lammps"], facts["update"])
    assert found_version == plugin.version_of_package()
    assert facts["sizes"] == "SMALLBIG"
    assert facts["mpi"] == "MPICH"
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", facts["mpi_version"])
    assert facts["cuda"] == ""
    assert "PWMLFF_CUDA=OFF" in facts["no_cuda"]
    assert found.json["sizes_from"].endswith("liblammps.pc")


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_nvcc_that_does_not_compile_cxx20(pwmlff, tmp_path: Path, monkeypatch):
    """Nobody asked for it: AUTO does without and says why; ON says what to do."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\ncase "$*" in *std=c++20*) echo old >&2; exit 1;; esac\n'
        f'exec {shutil.which("nvcc")} "$@"\n'
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(nvcc))
    command = ("build", "--lammps", PACKAGE, "--mpi", PROGRAMS / "mpicxx", "--configure-only")
    found = pwmlff(*command, "--json")
    assert found.returncode == 0, found.words
    facts = found.json["built_for"]
    assert facts["cuda"] == ""
    assert re.match(r"nvcc \d+\.\S+ does not compile C\+\+20 with GNU", facts["no_cuda"])
    shutil.rmtree(tmp_path / "pwmlff-plugin")
    found = pwmlff(*command, "--cuda", "on")
    assert found.returncode == 2
    assert "does not compile C++20" in found.words and "PWMLFF_CUDA=OFF" in found.words


def test_compiler_that_is_too_old(pwmlff, monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setenv("CXXFLAGS", "-U__GNUC__ -D__GNUC__=9")
    found = pwmlff("build", "--lammps", PACKAGE, "--mpi", PROGRAMS / "mpicxx", "--configure-only")
    assert found.returncode == 2
    assert re.search(r"found GNU 9\.\S+ .*, expected 11 or newer", found.words)
    assert "apt install g++-11" in found.words


def test_no_nvcc_that_works(pwmlff, monkeypatch):
    monkeypatch.setenv("CUDACXX", "/bin/false")
    found = pwmlff(
        "build", "--lammps", PACKAGE, "--mpi", PROGRAMS / "mpicxx", "--configure-only", "--json"
    )
    assert found.json["built_for"]["no_cuda"] == "no nvcc that works was found when it was compiled"


def test_source_tree(pwmlff, tree: Path):
    """Version and integer sizes of a source tree that CMake has built."""
    (tree / "build").mkdir()
    (tree / "build" / "CMakeCache.txt").write_text("LAMMPS_SIZES:STRING=bigbig\n")
    found = pwmlff(
        "build", "--lammps", tree, "--mpi", PROGRAMS / "mpicxx", "--cuda", "off",
        "--configure-only", "--json",
    )  # fmt: skip
    assert found.returncode == 0, found.words
    assert found.json["built_for"]["lammps"] == "29 Aug 2024"
    assert found.json["built_for"]["sizes"] == "BIGBIG"
    assert "CMakeCache.txt" in found.json["sizes_from"]


def test_command_lines(pwmlff, cmake, tree: Path, tmp_path: Path):
    mpicxx = tmp_path / "bin" / "mpicxx"
    mpicxx.write_text("#!/bin/sh\n")
    mpicxx.chmod(0o755)
    found = pwmlff(
        "build", "--lammps", tree, "--mpi", mpicxx, "--cuda", "on", "--arch", "80;90",
        "--sizes", "BIGBIG", "-j", 3,
    )  # fmt: skip
    assert found.returncode == 0, found.words
    configure, compile_, install = cmake()
    for word in (
        f"-DPWMLFF_LAMMPS={tree}", "-DPWMLFF_LAMMPS_SIZES=BIGBIG", "-DPWMLFF_CUDA=ON",
        "-DPWMLFF_CUDA_ARCHITECTURES=80;90", f"-DMPI_CXX_COMPILER={mpicxx}",
    ):  # fmt: skip
        assert f"{word} " in configure
    assert compile_.endswith("-j 3 ")
    assert install.endswith(f"--prefix {tmp_path}/pwmlff-plugin ")
    assert f"plugin load {tmp_path}/pwmlff-plugin/lib/pwmlffplugin.so" in found.words
    assert "BIGBIG" not in found.output  # what is said is what CMake found
    assert "found no lmp there" in found.words
    assert "compiling 50 % one.cpp 100 % b.so installing" in found.words  # without a terminal


def test_failure_shows_the_end_of_the_output(pwmlff, cmake, tree: Path, tmp_path: Path):
    (tmp_path / "bin" / "cmake").write_text(f"{CMAKE}echo 'Could NOT find MPI'; exit 1\n")
    found = pwmlff("build", "--lammps", tree)
    assert found.returncode == 2
    assert "configuring failed" in found.words
    assert "Could NOT find MPI" in found.words


def test_too_old_cmake_is_passed_over(pwmlff, cmake, tree: Path, tmp_path: Path, monkeypatch):
    old = tmp_path / "old"
    old.mkdir()
    (old / "cmake").write_text("#!/bin/sh\necho cmake version 3.25.1\n")
    (old / "cmake").chmod(0o755)
    monkeypatch.setattr(build.sys, "executable", str(old / "python3"))
    monkeypatch.setenv("PATH", f"{old}:{tmp_path / 'bin'}:/bin")
    assert pwmlff("build", "--lammps", tree).returncode == 0
    assert len(cmake()) == 3  # configure, compile and install

    monkeypatch.setenv("PATH", str(old))
    found = pwmlff("build", "--lammps", tree)
    assert found.returncode == 2
    assert f"found {old / 'cmake'} (cmake version 3.25.1)" in found.words
    assert "need 3.26 or newer: pip install 'pair-pwmlff[build]'" in found.words


def test_lmp_that_does_not_load_it(tree: Path):
    program = tree / "src" / "lmp_mpi"
    program.write_text("#!/bin/sh\necho Large-scale; echo 'ERROR: Open of plugin file failed'\n")
    program.chmod(0o755)
    with pytest.raises(build.Failure, match="Open of plugin file failed"):
        build.check(tree, tree / "pwmlffplugin.so")
    program.write_text("#!/bin/sh\necho -DLAMMPS_SMALLSMALL\n")
    assert build.integer_sizes(tree) == ("SMALLSMALL", f"from {program} -h")


HELP = """Large-scale Atomic/Molecular Massively Parallel Simulator - 29 Aug 2024

Installed packages:

KSPACE MANYBODY
MOLECULE{}

List of individual style options included in this LAMMPS executable
"""


def test_package_plugin(pwmlff, tree: Path, cmake, tmp_path: Path, monkeypatch):
    """Whether LAMMPS can load plugins at all is looked up before anything is compiled."""
    monkeypatch.setattr(build, "environment_of", lambda _: dict(os.environ))
    words = "this LAMMPS has no package PLUGIN"

    def refused() -> str:
        (tmp_path / "words").unlink(missing_ok=True)
        found = pwmlff("build", "--lammps", tree)
        assert (found.returncode == 2) == (words in found.words), found.words
        assert (tmp_path / "words").exists() == (found.returncode == 0)
        return found.words if found.returncode else ""

    assert not refused()  # nothing tells
    (tree / "src" / "Makefile.package").touch()
    assert f"{tree}/src, where 'make yes-plugin'" in refused()
    (tree / "src" / "plugin.cpp").touch()
    assert not refused()
    program = tree / "src" / "lmp_mpi"
    program.write_text(f"#!/bin/sh\necho '{HELP.format('')}'\n")
    program.chmod(0o755)
    assert f"{program} -h" in refused()
    program.write_text(f"#!/bin/sh\necho '{HELP.format(' PLUGIN')}'\n")
    # It says that it is a LAMMPS, and does not load the plugin: that is another failure.
    assert "does not load" in pwmlff("build", "--lammps", tree).words
    program.unlink()
    cache = tree / "build" / "CMakeCache.txt"
    cache.parent.mkdir()
    cache.write_text("PKG_PLUGIN:BOOL=OFF\n")
    assert f"PKG_PLUGIN=OFF in {cache}" in refused()
    cache.write_text("PKG_PLUGIN:BOOL=yes\n")
    assert not refused()


@pytest.mark.parametrize(
    "place", ["lib/pkgconfig", "lib64/pkgconfig", "lib/x86_64-linux-gnu/pkgconfig"]
)
def test_looks_only_where_it_can_be(tmp_path: Path, place: str, monkeypatch):
    """An installation in /usr is not searched from end to end."""
    (tmp_path / place).mkdir(parents=True)
    file = tmp_path / place / "liblammps.pc"
    file.write_text("Cflags: -DLAMMPS_BIGBIG\n")
    (tmp_path / "share" / "doc" / "pkgconfig").mkdir(parents=True)
    (tmp_path / "share" / "doc" / "pkgconfig" / "liblammps.pc").touch()
    assert build.pkgconfig_files(tmp_path) == [file]
    assert build.integer_sizes(tmp_path) == ("BIGBIG", f"from {file}")


def test_percentage():
    assert build.percentage("[3/12] Building CXX object") == 25
    assert build.percentage("[ 40%] Building CXX object") == 40
    assert build.percentage("-- Configuring done") is None


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--lammps", "absent"], "'absent' has neither src/pair.h nor include/lammps/pair.h"),
        (["--lammps", PACKAGE, "--cuda", "maybe"], "--cuda is 'maybe'"),
        (["--lammps", PACKAGE, "--sizes", "HUGE"], "--sizes is 'HUGE'"),
        (["--lammps", PACKAGE, "--mpi", "absent"], "found no 'absent'"),
    ],
)
def test_errors(pwmlff, arguments, words: str):
    found = pwmlff("build", *arguments)
    assert found.returncode == 2
    assert words in found.words
