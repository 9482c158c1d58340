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

/// The file's own code on one device: edges in, energies of atoms out. Their derivative with
/// respect to edge vectors is taken here, and forces and virials are made of it by kernels/edge.
class EdgeTorchScript : public Model {
 public:
  EdgeTorchScript(const ModelFile &file, ModelInfo info);

  /// A copy that evaluates on another device.
  EdgeTorchScript copy_to(c10::Device device) const;

  void select_species(const std::vector<bool> &) override {}
  std::string name() const override { return "torchscript"; }
  std::string engine() const override
  {
    return type == at::kFloat ? "torchscript, float32" : "torchscript, float64";
  }
  bool on_gpu() const override { return !code.device().is_cpu(); }
  bool has_atom_virial() const override { return true; }
  /// By which two devices may differ.
  Gate gate() const { return gate_of(type == at::kFloat ? "mixed" : "exact"); }
  const Evaluation &evaluate(Neighbors &neighbors, const Request &request) override;

 private:
  at::Tensor derivative(const at::Tensor &energies, const at::Tensor &edge_vec) const;

  Scripted code;
  at::ScalarType type;                                            // in which it computes
  at::Tensor atom_energy, force, atom_virial, centroid_virial;    // keep the arrays of result alive
  Evaluation result{};
};

/// The same where it belongs: on the GPU of the options after it has proved to give there what it
/// gives on the CPU, else on the CPU.
class EdgeModel : public Model {
 public:
  /// @throws std::runtime_error where the file does not keep to the contract, or where the engine
  ///         or the device that is demanded cannot run it
  EdgeModel(const ModelFile &file, ModelInfo info, const EngineOptions &options);

  void select_species(const std::vector<bool> &present) override;
  std::string name() const override { return original.name(); }
  std::string engine() const override;
  std::string passed_over() const override { return why_cpu; }
  bool on_gpu() const override { return scripted_on_gpu != nullptr; }
  bool has_atom_virial() const override { return true; }
  const Evaluation &evaluate(Neighbors &neighbors, const Request &request) override;

 private:
  EdgeTorchScript original;    // on the CPU
  EngineOptions options;
  std::unique_ptr<Model> scripted_on_gpu;    // where that is in use
  std::string why_cpu;                       // instead of the GPU that was chosen
};

}    // namespace pwmlff::models

#endif
