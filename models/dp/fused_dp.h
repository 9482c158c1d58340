// SPDX-License-Identifier: GPL-2.0-or-later

// Deep Potentials evaluated by the fused engines of kernels/dp, on the CPU and on a GPU.
//
// Both are made for the species that take part, so select_species() changes nothing.

#ifndef PWMLFF_FUSED_DP_H
#define PWMLFF_FUSED_DP_H

#include "../model.h"
#include "dp/cpu/cpu_engine.h"
#include "dp/gpu/gpu_engine.h"

#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

class FusedDP : public Model {
 public:
  /// @param precision exact, double or mixed
  /// @throws std::runtime_error where a net cannot be tabulated
  FusedDP(ModelInfo info, const pwmlff::DPNetwork &network, const std::string &precision,
          const std::vector<bool> &present);

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "fused"; }
  std::string engine() const override;
  bool on_gpu() const override { return false; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(Neighbors &neighbors, const Request &request) override;

 private:
  std::string precision;
  pwmlff::DPEngine fused;
  pwmlff::DPOutput output;
  Evaluation result{};
};

class FusedDPGpu : public Model {
 public:
  /// @throws std::runtime_error where a net cannot be tabulated or the device cannot be used
  FusedDPGpu(ModelInfo info, const pwmlff::DPNetwork &network, const std::string &precision,
             const std::vector<bool> &present, std::shared_ptr<pwmlff::Device> device);

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "fused"; }
  std::string engine() const override;
  bool on_gpu() const override { return fused.device()->mode() == pwmlff::Device::Mode::cuda; }
  bool finds_neighbors() const override { return true; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(Neighbors &neighbors, const Request &request) override;

 private:
  std::string precision;
  pwmlff::DPGpuEngine fused;
  Evaluation result{};
};

/// The device of the GPU with this index among the visible ones; the same one for all models, so
/// that they share a list of neighbors. Where gpu_has_stand_in(), what stands in for it.
/// @throws std::runtime_error where it cannot be used
std::shared_ptr<pwmlff::Device> shared_device(int gpu);

}    // namespace pwmlff::models

#endif
