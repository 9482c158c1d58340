// SPDX-License-Identifier: GPL-2.0-or-later

#include "gpu_ewald.h"

#include "../../core/gpu/add_scaled.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace pwmlff {
namespace {

constexpr std::int64_t ITEMS = 4096;    // of a kernel, about, to keep a card busy
constexpr std::int64_t LEAST = 16;      // atoms or groups of a slab

/// Slabs of n, for kernels that have so many items for each.
Slabs slabs_of(std::int64_t n, std::int64_t ntiles)
{
  const std::int64_t most = std::max<std::int64_t>(1, n / LEAST);
  return {n, static_cast<int>(
                 std::clamp<std::int64_t>(ITEMS / std::max<std::int64_t>(1, ntiles), 1, most))};
}

std::int64_t tiles(std::int64_t n, int size) { return (n + size - 1) / size; }

}    // namespace

GpuEwald::GpuEwald(std::shared_ptr<Device> device, ReciprocalLattice &lattice) :
    device(std::move(device)), lattice(lattice)
{
}

std::int64_t GpuEwald::virial_rows(const Input &input)
{
  if (input.reciprocal) return 1;
  is_current = !lattice.set(input.cell) && is_current;
  if (!is_current) {
    groups.assign(&lattice.group(0), lattice.ngroups());
    device->run(lattice.ngroups(), EwaldPairs{groups.get(), pairs.reserve(lattice.npairs())});
    device->synchronize();    // the groups may be gone after this
    is_current = true;
  }
  return tiles(lattice.npairs(), EwaldCoefficients::tile);
}

void GpuEwald::solve(const Input &input, const Charged &atoms, double share, const double *charge,
                     double *virial)
{
  size = 0.0;
  if (input.reciprocal) ask(input, atoms, charge, virial);
  else sum(input, atoms, share, virial);
}

void GpuEwald::sum(const Input &input, const Charged &atoms, double share, double *virial)
{
  const std::int64_t natoms = input.ncenters;
  const ReciprocalBox &box = lattice.box();
  const int *const range = lattice.ranges(), npairs = lattice.npairs();
  const std::size_t n = lattice.size();
  const int length = range[0] + range[1] + range[2] + 3;
  const EwaldTable table{natoms,
                         {0, range[0] + 1, range[0] + range[1] + 2},
                         length,
                         by_atom.reserve(2 * static_cast<std::size_t>(natoms) * length),
                         by_power.reserve(2 * static_cast<std::size_t>(natoms) * length)};
  device->run(natoms, EwaldPowers{box, table, {range[0], range[1], range[2]}, atoms.x});

  const std::int64_t pair_tiles = tiles(npairs, EwaldStructure::tile);
  const Slabs of_atoms = slabs_of(natoms, pair_tiles);
  partial.reserve(n * of_atoms.nslabs);
  structure.reserve(n);
  device->run(pair_tiles * of_atoms.nslabs,
              EwaldStructure{table, npairs, pairs.get(), atoms.charge, of_atoms, partial.get()});
  device->run(static_cast<std::int64_t>(n), AddSlabs{static_cast<std::int64_t>(n), of_atoms.nslabs,
                                                     partial.get(), structure.get()});
  if (input.exchange && input.exchange->has_others()) {
    structure.download(on_host.reserve(n), n);
    device->synchronize();
    input.exchange->sum(on_host.get(), static_cast<int>(n));
    structure.assign(on_host.get(), n);
    for (std::size_t k = 0; k < n; ++k) size += std::abs(on_host.get()[k]);
  }
  coefficients.reserve(2 * n);
  device->run(pair_tiles, EwaldCoefficients{box, npairs, pairs.get(), structure.get(), share,
                                            coefficients.get(), virial});

  const std::int64_t atom_tiles = tiles(natoms, EwaldPotentials::tile);
  const Slabs of_groups = slabs_of(lattice.ngroups(), atom_tiles);
  partial.reserve(4 * static_cast<std::size_t>(natoms) * of_groups.nslabs);
  device->run(atom_tiles * of_groups.nslabs,
              EwaldPotentials{table, of_groups, groups.get(), coefficients.get(), partial.get()});
  find_fields(box.axis, of_groups.nslabs, atoms, natoms);
  if (atoms.rows.atom_virial || atoms.rows.centroid_virial)
    device->run(natoms,
                EwaldAtomVirials{box, table, npairs, pairs.get(), structure.get(), atoms.charge,
                                 atoms.rows.atom_virial, atoms.rows.centroid_virial});
}

void GpuEwald::ask(const Input &input, const Charged &atoms, const double *charge, double *virial)
{
  const std::size_t n = input.ncenters;
  const bool of_atom = atoms.rows.atom_virial || atoms.rows.centroid_virial;
  found.resize(4 * n + 6 + 6 * n);
  double *const potential = found.data(), *const field = potential + n, *const six = field + 3 * n,
                *const each = six + 6;
  input.reciprocal->solve(input, charge, potential, field, six, of_atom ? each : nullptr);
  const std::size_t width = of_atom ? 9 * n : 0;
  double *const numbers = on_host.reserve(4 * n + 9 + width);
  for (std::size_t k = 0; k < n; ++k) {
    numbers[k] = potential[k];
    for (int c = 0; c < 3; ++c) numbers[(c + 1) * n + k] = field[3 * k + c];
  }
  double *const whole = numbers + 4 * n;
  matrix_of(six, whole);
  device->upload(virial, whole, 9 * sizeof(double));
  partial.assign(numbers, 4 * n);
  constexpr double unit[9] = {1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0};
  find_fields(unit, 1, atoms, static_cast<std::int64_t>(n));
  // LAMMPS's order, which is that of sums of rows.
  double *const own = whole + 9;
  const auto add = [&](double *to, int components) {
    if (!to) return;
    for (std::size_t k = 0; k < n; ++k)
      for (int c = 0; c < components; ++c)
        own[components * k + c] = each[6 * k + (c < 6 ? c : c - 3)];
    of_atoms.assign(own, components * n);
    device->run(static_cast<std::int64_t>(components * n), AddScaled{1.0, of_atoms.get(), to});
    device->synchronize();    // the numbers may be others after this
  };
  add(atoms.rows.atom_virial, 6);
  add(atoms.rows.centroid_virial, 9);
}

void GpuEwald::find_fields(const double *axis, int nslabs, const Charged &atoms,
                           std::int64_t natoms)
{
  EwaldFields fields{{},           natoms,          nslabs,          partial.get(),
                     atoms.charge, atoms.potential, atoms.rows.force};
  std::copy_n(axis, 9, fields.axis);
  device->run(natoms, fields);
}

}    // namespace pwmlff
