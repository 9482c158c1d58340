// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_gpu_charges.h"

#include "charges.h"

#include <algorithm>
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

// Ranks on CPUs make the same calls in the same order (../cpu/charges.h).
void NepCharges::find(const Input &input, const GpuList &list, const int *on_device,
                      const RowSums &rows, double *virial)
{
  const auto sum = [&](double *numbers, int n) {
    if (input.exchange) input.exchange->sum(numbers, n);
  };
  double *const on_host = rows_on_host.get();
  charges.download(on_host, input.nrows);
  device->synchronize();
  double sums[3] = {0.0, static_cast<double>(order.size()), 1.0};    // charges, atoms, ranks
  for (const int i : order) sums[0] += on_host[i];
  sum(sums, 3);
  const double natoms = sums[1];
  mean_charge = natoms > 0.0 ? sums[0] / natoms : 0.0;
  for (const int i : order) on_host[i] -= mean_charge;
  charges.assign(on_host, input.ncenters);
  reciprocal.solve(input, {list.x, charges.get(), potentials.get(), rows}, 1.0 / sums[2], on_host,
                   virial);
  if (ewald.real_space && input.exchange) {
    input.exchange->forward({on_host, 1});
    charges.assign(on_host, input.nrows);
  }
  if (ewald.real_space)
    device->run(static_cast<std::int64_t>(order.size()),
                NepRealSpace{list, nspecies, on_device, square_cutoff, ewald.alpha, ewald.self,
                             charges.get(), potentials.get(), virial + 9 * reciprocal_rows, rows});
  potentials.download(potentials_on_host.get(), input.ncenters);
  device->synchronize();
  double total[2] = {0.0, reciprocal.size_of_sums()};    // of potentials, and sizes
  for (const int i : order) total[0] += potentials_on_host.get()[i];
  sum(total, 2);
  if (!are_same_sums(reciprocal.size_of_sums(), total[1], sums[2])) throw SumsDiffer();
  mean = natoms > 0.0 ? total[0] / natoms : 0.0;
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
