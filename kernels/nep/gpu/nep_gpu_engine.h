// SPDX-License-Identifier: GPL-2.0-or-later

// The evaluation of a NEP on a device (common/device.h); steps in kernels.h.

#pragma once

#include "../../gpu/engine_parts.h"
#include "../network.h"

#include "../../common/export.h"

#include <memory>
#include <vector>

namespace pwmlff {

class PWMLFF_KERNELS_API NepGpuEngine {
 public:
  virtual ~NepGpuEngine();
  NepGpuEngine(const NepGpuEngine &) = delete;
  NepGpuEngine &operator=(const NepGpuEngine &) = delete;

  /// Takes Input::on_device, with lists of at least the cutoff of the network. Keeps its scratch
  /// between calls: not to be called from two threads at once. Energies come out the same bit by
  /// bit every time; forces are added up by atomics in float64, so their last digits depend on the
  /// order of events.
  /// @throws std::invalid_argument for a center of a species that takes no part and for neighbors
  ///         on another device, std::runtime_error where the device fails
  virtual const Evaluation &evaluate(const Input &input) = 0;

  const std::shared_ptr<Device> &device() const { return device_; }
  const std::string &processor() const { return device_->name(); }

 protected:
  explicit NepGpuEngine(std::shared_ptr<Device> device);

  const std::shared_ptr<Device> device_;
};

/// @param single   precision mixed instead of float64
/// @param present  [nspecies] the species of centers
/// @param chunk_bytes of the device for arrays over edges: what needs more goes in several parts
/// @throws std::runtime_error for a model that needs more shared memory than the device has
PWMLFF_KERNELS_API std::unique_ptr<NepGpuEngine> make_nep_gpu_engine(
    std::shared_ptr<Device> device, const NepNetwork &network, bool single,
    const std::vector<bool> &present, std::size_t chunk_bytes = CHUNK_BYTES);

}    // namespace pwmlff
