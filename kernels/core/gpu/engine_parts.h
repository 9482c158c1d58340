// SPDX-License-Identifier: GPL-2.0-or-later

// What engines on a device (core/device.h) have in common, whatever the model.

#pragma once

#include "gpu_neighbors.h"
#include "list.h"
#include "sum_rows.h"

#include "../evaluation.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pwmlff {

/// Neighbors of an input that have to be on this device.
/// @throws std::invalid_argument where they are on another one
inline const GpuNeighbors &neighbors_on(const std::shared_ptr<Device> &device, const Input &input)
{
  const GpuNeighbors &neighbors = *input.on_device;
  if (neighbors.device() != device)
    throw std::invalid_argument("the neighbors are on " + neighbors.device()->name() +
                                ", the model is on " + device->name());
  return neighbors;
}
inline GpuList list_of(const GpuNeighbors &neighbors)
{
  return {neighbors.x(), neighbors.species(), neighbors.first(), neighbors.candidate()};
}

/// Arrays that stay on the device as long as the model does.
class DeviceConstants {
 public:
  explicit DeviceConstants(std::shared_ptr<Device> device) : device(std::move(device)) {}

  template <class V> const V *keep(const std::vector<V> &values)
  {
    auto array = std::make_shared<DeviceArray<V>>(device);
    array->assign(values);
    device->synchronize();    // the values may be gone after this
    arrays.push_back(array);
    return array->get();
  }

 private:
  std::shared_ptr<Device> device;
  std::vector<std::shared_ptr<void>> arrays;
};

/// What kernels add up for an Evaluation.
class GpuSums {
 public:
  explicit GpuSums(std::shared_ptr<Device> device) : device(std::move(device)) {}

  /// Where kernels write: sums to be added to, atomic energies that are zero, and virials by item.
  struct Place {
    RowSums rows;
    double *atom_energy;    // [ncenters]
    double *virial;         // [items, 9] xx xy xz yx yy yz zx zy zz
  };
  Place begin(const Input &input)
  {
    atom_energy.clear(input.ncenters);
    row_sums.clear(RowSums::size(input));
    virial.reserve(9 * static_cast<std::size_t>(input.ncenters));
    return {RowSums(input, row_sums.get()), atom_energy.get(), virial.get()};
  }

  /// Sum up, copy to the host and wait for it.
  /// @param nitems  that have a virial
  void finish(const Input &input, std::int64_t nitems, Evaluation &result)
  {
    const std::size_t nsums = RowSums::size(input), ncenters = input.ncenters;
    sum(nitems, 9, virial.get(), 0);
    sum(input.ncenters, 1, atom_energy.get(), 9);
    sums.download(host_sums.reserve(10), 10);
    atom_energy.download(host_energy.reserve(ncenters), ncenters);
    row_sums.download(host_row_sums.reserve(nsums), nsums);
    device->synchronize();

    static_cast<RowSums &>(result) = RowSums(input, host_row_sums.get());
    result.energy = host_sums.get()[9];
    result.atom_energy = host_energy.get();
    result.virial = in_order_of_lammps(host_sums.get());
  }

 private:
  static constexpr int TEAMS = 256;

  // Sums of columns to sums[offset ..].
  void sum(std::int64_t nrows, int ncolumns, const double *values, int offset)
  {
    constexpr std::size_t scratch = SumRows::lanes * sizeof(double);
    const std::int64_t enough = (nrows + SumRows::lanes - 1) / SumRows::lanes;
    const int nteams = static_cast<int>(std::clamp<std::int64_t>(enough, 1, TEAMS));
    double *const result = sums.reserve(10 + 9 * TEAMS), *const partial = result + 10;
    device->run(nteams, SumRows{nrows, ncolumns, nteams, values, partial}, scratch);
    device->run(1, SumRows{nteams, ncolumns, 1, partial, result + offset}, scratch);
  }

  std::shared_ptr<Device> device;
  DeviceArray<double> atom_energy{device}, row_sums{device}, virial{device}, sums{device};
  HostArray<double> host_sums{device}, host_energy{device}, host_row_sums{device};
};

}    // namespace pwmlff
