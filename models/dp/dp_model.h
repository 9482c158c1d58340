// SPDX-License-Identifier: GPL-2.0-or-later

// Deep Potentials in the form that PWMLFF and MatPL export.

#ifndef PWMLFF_DP_MODEL_H
#define PWMLFF_DP_MODEL_H

#include "../model.h"
#include "../model_file.h"
#include "../scripted.h"
#include "fused_dp.h"

#include <memory>
#include <vector>

namespace pwmlff::models {

/// Evaluated by the file's own code: padded neighbors in, energy, forces and virial out.
class DPTorchScript : public Model {
 public:
  DPTorchScript(const ModelFile &file, ModelInfo info);

  /// A copy that evaluates on another device.
  DPTorchScript copy_to(c10::Device device) const;

  void select_species(const std::vector<bool> &present) override;
  std::string name() const override { return "torchscript"; }
  std::string engine() const override { return "torchscript, float64"; }
  bool on_gpu() const override { return !code.device().is_cpu(); }
  Needs needs() const override { return {info_.cutoff, info_.max_neighbor, -1, nullptr}; }
  bool has_atom_virial() const override { return false; }
  const Evaluation &evaluate(const Input &input) override;

 private:
  Scripted code;
  at::Tensor atom_type;        // [species that take part] atomic numbers, int32, on the device
  std::vector<int> species;    // their indices in info().atom_type
  at::Tensor force;            // [1, nrows, 3] keeps result.force alive
  std::vector<double> atom_energy;
  Evaluation result{};
};

/// Evaluated by a fused engine where that passes its verification against the file's own code, else
/// by that code. A GPU comes first where one is to be used, after the same verification.
class DPModel : public Model {
 public:
  /// @throws std::runtime_error where the file does not keep to the contract, or where the engine
  ///         or the device that is demanded cannot run it
  DPModel(const ModelFile &file, ModelInfo info, const EngineOptions &options);

  void select_species(const std::vector<bool> &present) override;
  std::string name() const override { return chosen().name(); }
  std::string engine() const override;
  std::string passed_over() const override { return reasons; }
  bool on_gpu() const override { return chosen().on_gpu(); }
  Needs needs() const override { return chosen().needs(); }
  bool has_atom_virial() const override { return chosen().has_atom_virial(); }
  const Evaluation &evaluate(const Input &input) override;

 private:
  const Model &chosen() const { return active ? *active : static_cast<const Model &>(original); }

  DPTorchScript original;    // on the CPU
  EngineOptions options;
  std::unique_ptr<pwmlff::DPNetwork> network;    // where the fused engines can read the file
  std::string unreadable;                        // why they cannot
  std::unique_ptr<Model> active;                 // what evaluates, where it is not the original
  std::string reasons;                           // of what does not
};

}    // namespace pwmlff::models

#endif
