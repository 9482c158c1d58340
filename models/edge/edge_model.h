// SPDX-License-Identifier: GPL-2.0-or-later

// Any potential that is local, as a function of edge vectors.

#ifndef PWMLFF_EDGE_MODEL_H
#define PWMLFF_EDGE_MODEL_H

#include "../model.h"
#include "../model_file.h"
#include "../scripted.h"
#include "../verification.h"

#include <memory>
#include <vector>

namespace pwmlff::models {

/// The file's own code on one device: edges in, energies of atoms out. Forces and virials are made
/// of their derivative with respect to edge vectors by kernels/edge.
class EdgeTorchScript : public Model {
 public:
  EdgeTorchScript(const ModelFile &file, ModelInfo info);

  /// A copy that evaluates on another device.
  EdgeTorchScript copy_to(c10::Device device) const;

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "torchscript"; }
  std::string engine() const override
  {
    return type_ == at::kFloat ? "torchscript, float32" : "torchscript, float64";
  }
  bool on_gpu() const override { return !code.device().is_cpu(); }
  Needs needs() const override { return {info_.cutoff, 0, hops(info_), nullptr}; }
  bool has_atom_virial() const override { return true; }
  /// By which two devices may differ.
  Gate gate() const { return gate_of(type_ == at::kFloat ? "mixed" : "exact"); }
  const Evaluation &evaluate(const Input &input) override;

 protected:
  /// In which it computes.
  at::ScalarType type() const { return type_; }

  struct Energies {
    at::Tensor of_atoms;      // [nlocal], on the CPU
    at::Tensor derivative;    // [E, 3] of their sum with respect to edge_vec
  };

  /// @param edge_vec    [E, 3] in type()
  /// @param edge_index  [2, E] nodes
  /// @param types       [N] of nodes, the nlocal centers first
  virtual Energies energies(const at::Tensor &edge_vec, const at::Tensor &edge_index,
                            const at::Tensor &types, std::int64_t nlocal);

 private:
  at::Tensor derivative(const at::Tensor &energies, const at::Tensor &edge_vec) const;

  Scripted code;
  at::ScalarType type_;
  at::Tensor atom_energy, force, atom_virial, centroid_virial;    // keep the arrays of result alive
  Evaluation result{};
};

/// The same on the GPU of the options, or with the machine code of the file on the CPU, where that
/// passes its verification against the TorchScript on the CPU; else that TorchScript.
class EdgeModel : public Model {
 public:
  /// @throws std::runtime_error where the file does not keep to the contract, or where the engine
  ///         or the device that is demanded cannot run it
  EdgeModel(const ModelFile &file, ModelInfo info, const EngineOptions &options);

  void select_species(const std::vector<bool> &present) override;
  std::string name() const override { return in_use().name(); }
  std::string engine() const override;
  std::string passed_over() const override { return why_not; }
  bool on_gpu() const override { return better && better->on_gpu(); }
  Needs needs() const override { return {info_.cutoff, 0, hops(info_), nullptr}; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(const Input &input) override;

 private:
  const Model &in_use() const { return better ? *better : static_cast<const Model &>(original); }

  EdgeTorchScript original;    // on the CPU
  EngineOptions options;
  std::string package;              // of machine code; empty where there is none to use
  std::string why_no_package;       // where the file has some
  std::unique_ptr<Model> better;    // than the original, where that is in use
  std::string why_not;              // nothing better
};

}    // namespace pwmlff::models

#endif
