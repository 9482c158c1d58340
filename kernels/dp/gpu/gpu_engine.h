// SPDX-License-Identifier: GPL-2.0-or-later

// Energies, forces and virials of a Deep Potential on a device (common/device.h), without torch.
//
// The same formulas, splines and signs as on the CPU (evaluation.h); steps in kernels.h. In
// precision mixed, tables, moments and what flows back through them are in float32, distances,
// fitting nets and sums in float64. Energies come out the same bit by bit every time; forces are
// added up by atomics in float64, so their last digits depend on the order of events.

#ifndef PWMLFF_DP_GPU_ENGINE_H
#define PWMLFF_DP_GPU_ENGINE_H

#include "../../common/device.h"
#include "../../common/export.h"
#include "../../neighbors/gpu_neighbors.h"
#include "../evaluation.h"
#include "../network.h"
#include "../tables.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace pwmlff {

/// On the host; valid until the next evaluation. As in DPOutput.
struct DPGpuOutput {
  double energy;
  double virial[9];                 // xx xy xz yx yy yz zx zy zz
  const double *atom_energy;        // [ncenters]
  const double *force;              // [nrows, 3]
  const double *atom_virial;        // [nrows, 6] or null
  const double *centroid_virial;    // [nrows, 9] or null
};

class PWMLFF_KERNELS_API DPGpuEngine {
 public:
  static constexpr std::size_t CHUNK_BYTES = std::size_t(1) << 29;

  /// @param present [nspecies] the species that take part
  /// @param chunk_bytes of the device for arrays over edges: what needs more goes in several parts
  /// @throws std::invalid_argument, std::runtime_error (a net that cannot be tabulated, or is too
  ///         large for the device)
  DPGpuEngine(std::shared_ptr<Device> device, const DPNetwork &network, DPPrecision precision,
              const std::vector<bool> &present, std::size_t chunk_bytes = CHUNK_BYTES);
  ~DPGpuEngine();
  DPGpuEngine(const DPGpuEngine &) = delete;
  DPGpuEngine &operator=(const DPGpuEngine &) = delete;

  /// @param neighbors on the same device, with its positions up to date
  /// @throws DPOverflow, std::invalid_argument, std::runtime_error where the device fails
  const DPGpuOutput &evaluate(const GpuNeighbors &neighbors, bool want_atom_virial,
                              bool want_centroid_virial);

  std::size_t table_bytes() const;    // of all tables together; 0 in precision exact
  const std::shared_ptr<Device> &device() const;

  struct Implementation;

 private:
  std::unique_ptr<Implementation> implementation;
};

}    // namespace pwmlff

#endif
