// SPDX-License-Identifier: GPL-2.0-or-later

// Any potential that is local, as a function of edge vectors.

#pragma once

#include "../file_code.h"

#include "core/family.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace pwmlff::models {

/// The file's own code: edges in, energies of atoms out. Forces and virials are made of their
/// derivative with respect to edge vectors by edge_sums.h.
class EdgeTorchScript : public FileCode {
 public:
  EdgeTorchScript(const ModelFile &file, ModelInfo info);

  std::unique_ptr<FileCode> copy_to(c10::Device device) const override;
  Gate gate() const override { return gate_of(type_ == at::kFloat ? "mixed" : "exact"); }
  void select_species(const std::vector<bool> &) override {}
  std::string engine() const override
  {
    return name() + (type_ == at::kFloat ? ", float32" : ", float64");
  }
  Needs needs() const override { return {info_.cutoff, 0, hops(info_), nullptr, 0}; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(const Input &input) override;
  double expected_peak(const Input &input) override;

  /// Whether the file has its forward once more in parts (edge_rounds.h).
  bool has_parts() const { return code.has("start") && code.has("round") && code.has("finish"); }

 protected:
  using Named = std::unordered_map<std::string, c10::IValue>;
  struct Energies {
    at::Tensor of_atoms;      // [nlocal], on the CPU
    at::Tensor derivative;    // [E, 3] of their sum with respect to edge_vec
  };

  /// @param edge_vec    [E, 3] in the type of the model
  /// @param edge_index  [2, E] nodes
  /// @param types       [N] of nodes, the nlocal centers first
  /// @param named       what else its forward takes
  virtual Energies energies(const at::Tensor &edge_vec, const at::Tensor &edge_index,
                            const at::Tensor &types, std::int64_t nlocal, const Named &named);

  at::ScalarType type() const { return type_; }
  bool takes_further_inputs() const { return takes_reverse || takes_pairs; }
  static at::Tensor rows_of_nodes(const Input &input);    // [N] on the CPU
  /// Of the sum of a result times a weight; undefined where it does not depend on an input.
  std::vector<at::Tensor> gradients(const at::Tensor &result, const std::vector<at::Tensor> &inputs,
                                    const at::Tensor &weight) const;

 private:
  at::Tensor derivative(const at::Tensor &energies, const at::Tensor &edge_vec) const;

  Named further_inputs(const Input &input);

  at::ScalarType type_;          // in which it computes
  bool takes_reverse = false;    // the reverse edge of each edge
  bool takes_pairs = false;      // pairs of edges shorter than pair_cutoff
  double pair_cutoff = 0.0;
  at::Tensor atom_energy, force, atom_virial, centroid_virial;    // keep the arrays of result alive
};

/// Evaluated on the GPU of the options, or on the CPU by an engine for its arrays or by machine
/// code, where the file brings such along.
class EdgeModel : public EngineChoice {
 public:
  /// @throws std::runtime_error where the file does not keep to the contract, or where the engine
  ///         that is demanded cannot run it
  EdgeModel(const ModelFile &file, ModelInfo info, const EngineOptions &options);

  /// @throws std::runtime_error where its energies are not those of the contract, too
  void select_species(const std::vector<bool> &present) override;

 private:
  std::vector<Candidate> candidates(const std::vector<bool> &present) const override;

  std::unique_ptr<pwmlff::Network> network;    // the same model, where the file has its arrays
  std::string why_no_network;                  // where it has some that cannot be read
  std::string package;                         // of machine code; empty where there is none to use
  std::string why_no_package;                  // where the file has some
};

}    // namespace pwmlff::models
