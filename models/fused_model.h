// SPDX-License-Identifier: GPL-2.0-or-later

// Models evaluated by this project's own engines, on the CPU or on a GPU.

#pragma once

#include "model.h"

#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

/// An engine that was made for the species that take part, so select_species() changes nothing.
class FusedModel : public Model {
 public:
  /// @param precision  exact, double or mixed
  FusedModel(ModelInfo info, const std::string &precision,
             std::unique_ptr<pwmlff::FusedEngine> engine);

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "fused"; }
  std::string engine() const override;
  bool on_gpu() const override;
  Needs needs() const override
  {
    return {
        info_.cutoff, 0, -1, fused->device(), fused->exchange_width(), fused->exchanges_single()};
  }
  bool has_atom_virial() const override { return true; }
  bool has_grade() const override { return fused->has_grade(); }
  const Evaluation &evaluate(const Input &input) override { return fused->evaluate(input); }

 private:
  std::string precision;
  std::unique_ptr<pwmlff::FusedEngine> fused;
};

/// The device of the GPU with this index among the visible ones; the same one for all models, so
/// that they share a list of neighbors. Where there is a gpu_stand_in(), that.
/// @throws std::runtime_error where it cannot be used
std::shared_ptr<pwmlff::Device> shared_device(int gpu);

}    // namespace pwmlff::models
