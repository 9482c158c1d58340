// SPDX-License-Identifier: GPL-2.0-or-later

// From the charges of a NEP on a device to their potentials, over all ranks.

#pragma once

#include "../../../core/gpu/engine_parts.h"
#include "../../../math/ewald/gpu_ewald.h"
#include "../nep_ewald.h"
#include "types.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace pwmlff {

class NepCharges {
 public:
  NepCharges(const std::shared_ptr<Device> &device, const NepNetwork &network);

  /// A new list. @param centers  that take part
  void take(std::vector<int> centers) { order = std::move(centers); }

  /// Make room for an evaluation. @return rows of virials that find() fills
  std::int64_t begin(const Input &input);

  /// Collective. From charges before their mean is taken off to those without, and potentials;
  /// forces and virials at fixed charges.
  /// @param on_device  [order] the same centers
  /// @param virial     [begin(), 9] on the device
  void find(const Input &input, const GpuList &list, const int *on_device, const RowSums &rows,
            double *virial);

  // On the device, [ncenters] e and V, and the mean of potentials of the box.
  double *charge() const { return charges.get(); }
  const double *potential() const { return potentials.get(); }
  double mean_potential() const { return mean; }

  /// On the host, for what Evaluation says of them.
  void show(Evaluation &result) const;

  const double root_epsilon;

 private:
  const std::shared_ptr<Device> device;
  NepEwald ewald;
  const int nspecies;
  std::vector<int> order;
  std::vector<double> shown;               // [ncenters] potentials less their mean
  double mean_charge = 0.0, mean = 0.0;    // of the box
  std::int64_t reciprocal_rows = 0;
  DeviceConstants constants{device};
  const double *square_cutoff;    // [nspecies, nspecies]
  GpuEwald reciprocal{device, ewald.lattice};
  DeviceArray<double> charges{device}, potentials{device};
  HostArray<double> rows_on_host{device}, potentials_on_host{device};
};

}    // namespace pwmlff
