// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_gpu_charges.h"

#include "charges.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace pwmlff {

NepCharges::NepCharges(const std::shared_ptr<Device> &device, const NepNetwork &network) :
    root_epsilon(network.root_epsilon), device(device), ewald(network), nspecies(network.nspecies())
{
  std::vector<double> squares;
  for (const double cutoff : network.cut_radial) squares.push_back(cutoff * cutoff);
  square_cutoff = constants.keep(squares);
}

std::int64_t NepCharges::begin(const Input &input)
{
  require_box(input);
  charges.clear(input.nrows);
  potentials.reserve(input.ncenters);
  rows_on_host.reserve(input.nrows);
  potentials_on_host.reserve(input.ncenters);
  reciprocal_rows = reciprocal.virial_rows(input);
  return reciprocal_rows + (ewald.real_space ? static_cast<std::int64_t>(order.size()) : 0);
}

/// Over all atoms that take part; how many they are is found, too.
double NepCharges::mean_of(const Input &input, const double *values)
{
  std::array<double, 3> sums = {0.0, static_cast<double>(order.size()), 1.0};
  for (const int i : order) sums[0] += values[i];
  if (input.exchange) input.exchange->sum(sums.data(), 3);
  natoms = sums[1];
  nranks = sums[2];
  return natoms > 0.0 ? sums[0] / natoms : 0.0;
}

void NepCharges::find(const Input &input, const GpuList &list, const int *on_device,
                      const RowSums &rows, double *virial)
{
  double *const on_host = rows_on_host.get();
  charges.download(on_host, input.nrows);
  device->synchronize();
  mean_charge = mean_of(input, on_host);
  for (const int i : order) on_host[i] -= mean_charge;
  const bool ghosts = ewald.real_space && input.exchange;
  if (ghosts) input.exchange->forward(on_host, 1);
  charges.assign(on_host, ghosts ? input.nrows : input.ncenters);

  reciprocal.solve(input, {list.x, charges.get(), potentials.get(), rows}, 1.0 / nranks, on_host,
                   virial);
  if (ewald.real_space)
    device->run(static_cast<std::int64_t>(order.size()),
                NepRealSpace{list, nspecies, on_device, square_cutoff, ewald.alpha, ewald.self,
                             charges.get(), potentials.get(), virial + 9 * reciprocal_rows, rows});
  potentials.download(potentials_on_host.get(), input.ncenters);
  device->synchronize();
  mean = mean_of(input, potentials_on_host.get());
  shown.assign(input.ncenters, 0.0);
  for (const int i : order) shown[i] = potentials_on_host.get()[i] - mean;
}

void NepCharges::show(Evaluation &result) const
{
  result.mean_charge = mean_charge;
  result.charge = rows_on_host.get();
  result.potential = shown.data();
}

}    // namespace pwmlff
