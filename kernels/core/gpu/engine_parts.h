// SPDX-License-Identifier: GPL-2.0-or-later

// What engines on a device (core/device.h) have in common, whatever the model.

#pragma once

#include "add_scaled.h"
#include "gpu_neighbors.h"
#include "list.h"
#include "pair_partners.h"
#include "sum_rows.h"

#include "../evaluation.h"
#include "../family.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// Bytes for arrays over edges: what needs more goes in several chunks. An engine saves work where
/// one chunk has all atoms, but ranks may share a device: a sixteenth of it, or 512 MB.
inline std::size_t chunk_bytes_of(const EngineSettings &settings)
{
  if (settings.chunk_bytes > 0) return settings.chunk_bytes;
  return std::max(std::size_t{512} << 20, settings.device->memory() / 16);
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

/// Forces of edges without atomic additions, where another launch does not take longer than those.
template <class T> class PartnerForces {
 public:
  explicit PartnerForces(std::shared_ptr<Device> device) : device(device), force(device) {}

  /// Take a new list.
  /// @param whole  one chunk has all centers
  void take(const GpuNeighbors &neighbors, bool whole)
  {
    partners = {};
    const std::int64_t ncandidates = neighbors.ncandidates();
    if (!whole || ncandidates < WORTH) return;
    partners = {neighbors.partner(), force.reserve(4 * static_cast<std::size_t>(ncandidates))};
  }

  /// For the kernel that leaves forces.
  const GpuPartners<T> &get() const { return partners; }

  /// Add up what it has left.
  /// @param sum  [nrows, 3]
  template <class Chunk> void gather(const Chunk &chunk, std::int64_t nitems, double *sum)
  {
    if (partners.partner) device->run(nitems, GatherForces<T, Chunk>{chunk, partners, sum});
  }

 private:
  static constexpr std::int64_t WORTH = 1 << 17;    // candidates
  std::shared_ptr<Device> device;
  DeviceArray<T> force;
  GpuPartners<T> partners{};
};

/// What kernels add up for an Evaluation, in one block of memory that is cleared and copied to the
/// host at once.
class GpuSums {
 public:
  explicit GpuSums(std::shared_ptr<Device> device) : device(std::move(device)) {}

  /// Where kernels write: sums to be added to, and zeros; and virials by item.
  struct Place {
    RowSums rows;
    double *atom_energy;    // [ncenters]
    double *virial;         // [items and others, 9] xx xy xz yx yy yz zx zy zz
    std::int64_t *flag;     // of the engine's own
  };
  /// @param others  virials that do not belong to an item
  Place begin(const Input &input, std::int64_t others = 0)
  {
    all.clear(size(input));
    virial.reserve(9 * static_cast<std::size_t>(input.ncenters + others));
    return {RowSums(input, rows_of(input, all.get())), all.get() + ENERGIES, virial.get(),
            reinterpret_cast<std::int64_t *>(all.get() + FLAG)};
  }

  /// Sum up, add forces where they are wanted on the device, copy to the host and wait for it.
  /// @param nvirials  of items and others
  /// @return the flag
  std::int64_t finish(const Input &input, std::int64_t nvirials, Evaluation &result)
  {
    const RowSums rows(input, rows_of(input, all.get()));
    const std::int64_t nforces = 3 * static_cast<std::int64_t>(input.nrows);
    const auto nteams = static_cast<int>(
        std::clamp<std::int64_t>(input.ncenters / (4 * SumRows::lanes), 1, MOST_TEAMS));
    double *const partial = partial_sums.reserve(SumRows::nsums * MOST_TEAMS);
    constexpr std::size_t scratch = SumRows::scratch_bytes();
    device->run(nteams,
                SumRows{{nvirials, 9, virial.get()},
                        {input.ncenters, 1, all.get() + ENERGIES},
                        {nforces, 1, rows.force},
                        nteams,
                        nteams == 1 ? all.get() : partial},
                scratch);
    if (nteams > 1)
      device->run(1,
                  SumRows{{nteams, SumRows::nsums, partial},
                          {nteams, SumRows::nsums, partial + SumRows::ENERGY},
                          {nteams, SumRows::nsums, partial + SumRows::FINITE},
                          1,
                          all.get()},
                  scratch);
    if (input.force_on_device)
      device->run(nforces, AddScaled{input.force_factor, rows.force, input.force_on_device});
    double *const host = on_host.reserve(size(input));
    std::size_t copied = input.want_rows ? size(input) : ENERGIES;
    all.download(host, copied);
    device->synchronize();
    result.known_finite = host[SumRows::FINITE] == 0.0;
    if (!result.known_finite && copied < size(input)) {
      copied = size(input);
      all.download(host, copied);
      device->synchronize();
    }

    static_cast<RowSums &>(result) = {};
    result.atom_energy = nullptr;
    if (copied > ENERGIES) {
      static_cast<RowSums &>(result) = RowSums(input, rows_of(input, host));
      result.atom_energy = host + ENERGIES;
    }
    result.energy = host[SumRows::ENERGY];
    result.virial = in_order_of_lammps(host);
    std::int64_t flag;
    std::memcpy(&flag, host + FLAG, sizeof flag);
    return flag;
  }

 private:
  static constexpr int MOST_TEAMS = 256;
  static constexpr std::size_t FLAG = SumRows::nsums, ENERGIES = FLAG + 1;

  static double *rows_of(const Input &input, double *memory)
  {
    return memory + ENERGIES + input.ncenters;
  }
  static std::size_t size(const Input &input)
  {
    return ENERGIES + input.ncenters + RowSums::size(input);
  }

  std::shared_ptr<Device> device;
  DeviceArray<double> all{device}, virial{device}, partial_sums{device};
  HostArray<double> on_host{device};
};

}    // namespace pwmlff
