// SPDX-License-Identifier: GPL-2.0-or-later

// Deep Potentials in the form that PWMLFF and MatPL export.

#pragma once

#include "../file_code.h"
#include "core/family.h"

#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

/// Evaluated by the file's own code: padded neighbors in, energy, forces and virial out.
class DPTorchScript : public FileCode {
 public:
  DPTorchScript(const ModelFile &file, ModelInfo info);

  std::unique_ptr<FileCode> copy_to(c10::Device device) const override;
  Gate gate() const override { return gate_of("exact"); }
  void select_species(const std::vector<bool> &present) override;
  std::string engine() const override { return "torchscript, float64"; }
  Needs needs() const override { return {info_.cutoff, info_.max_neighbor, -1, nullptr}; }
  bool has_atom_virial() const override { return false; }
  const Evaluation &evaluate(const Input &input) override;

 private:
  at::Tensor atom_type;        // [species that take part] atomic numbers, int32, on the device
  std::vector<int> species;    // their indices in info().atom_type
  at::Tensor force;            // [1, nrows, 3] keeps result.force alive
  std::vector<double> atom_energy;
};

/// Evaluated by a fused engine where that can be, on a GPU first.
class DPModel : public EngineChoice {
 public:
  /// @throws std::runtime_error where the file does not keep to the contract, or where the engine
  ///         that is demanded cannot read it
  DPModel(const ModelFile &file, ModelInfo info, const EngineOptions &options);

  /// What the fused engines are made of; null where they cannot read the file, or are not wanted.
  const pwmlff::Arrays *arrays() const { return network ? &arrays_ : nullptr; }

 private:
  std::vector<Candidate> candidates(const std::vector<bool> &present) const override;

  void guess_plain_layers();

  pwmlff::Arrays arrays_{"dp"};
  std::unique_ptr<pwmlff::Network> network;    // where the fused engines can read the file
  std::string unreadable;                      // why they cannot
};

}    // namespace pwmlff::models
