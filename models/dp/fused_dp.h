// SPDX-License-Identifier: GPL-2.0-or-later

// Deep Potentials evaluated by a fused engine of kernels/dp, on the CPU or on a GPU.
//
// It is made for the species that take part, so select_species() changes nothing.

#pragma once

#include "../model.h"
#include "dp/engine.h"

#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

class FusedDP : public Model {
 public:
  /// @param precision  exact, double or mixed
  /// @param device     that of a GPU or what stands in for one, or null for the CPU
  /// @throws std::runtime_error where a net cannot be tabulated or the device cannot be used
  FusedDP(ModelInfo info, const pwmlff::DPNetwork &network, const std::string &precision,
          const std::vector<bool> &present, std::shared_ptr<pwmlff::Device> device = nullptr);

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "fused"; }
  std::string engine() const override;
  bool on_gpu() const override;
  Needs needs() const override { return {info_.cutoff, 0, -1, fused->device()}; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(const Input &input) override { return fused->evaluate(input); }

 private:
  std::string precision;
  std::unique_ptr<pwmlff::DPEngine> fused;
};

/// The device of the GPU with this index among the visible ones; the same one for all models, so
/// that they share a list of neighbors. Where there is a gpu_stand_in(), that.
/// @throws std::runtime_error where it cannot be used
std::shared_ptr<pwmlff::Device> shared_device(int gpu);

}    // namespace pwmlff::models
