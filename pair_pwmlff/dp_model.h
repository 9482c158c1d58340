/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Deep Potentials in the form that PWMLFF and MatPL export.

#ifndef PWMLFF_DP_MODEL_H
#define PWMLFF_DP_MODEL_H

#include "dp/engine.h"
#include "model.h"
#include "model_file.h"
#include "scripted.h"

#include <memory>
#include <vector>

namespace pair_pwmlff {

/// Evaluated by the file's own code: padded neighbours in, energy, forces and virial out.
class DPTorchScript : public Model {
 public:
  DPTorchScript(const ModelFile &file, ModelInfo info);

  /// A copy that evaluates on another device.
  DPTorchScript on(c10::Device device) const;

  void select_species(const std::vector<bool> &present) override;
  std::string engine() const override { return "torchscript, float64"; }
  bool on_gpu() const override { return !code.device().is_cpu(); }
  bool has_atom_virial() const override { return false; }
  const Evaluation &evaluate(Neighbors &neighbors, const Request &request) override;

 private:
  void check_forward() const;
  void unpack(const c10::IValue &output, const Neighbors &neighbors);

  Scripted code;
  at::Tensor atom_type;        // [species that take part] atomic numbers, int32, on the device
  std::vector<int> species;    // their indices in info().atom_type
  at::Tensor force;            // [1, nrows, 3] keeps result.force alive
  std::vector<double> atom_energy;
  Evaluation result{};
};

/// Evaluated by the fused engine, after that has proved to give what the file's own code gives; else
/// by that code, on the GPU after it has proved to give the same there as on the CPU.
class DPModel : public Model {
 public:
  /// @throws std::runtime_error where the file does not keep to the contract, or where the engine or the
  ///         device that is demanded cannot run it
  DPModel(const ModelFile &file, ModelInfo info, const EngineOptions &options);

  void select_species(const std::vector<bool> &present) override;
  std::string engine() const override;
  bool on_gpu() const override { return scripted_on_gpu != nullptr; }
  bool has_atom_virial() const override { return fused != nullptr; }
  const Evaluation &evaluate(Neighbors &neighbors, const Request &request) override;

 private:
  void choose_fused(const std::vector<bool> &present);
  void choose_device(const std::vector<bool> &present);

  DPTorchScript original;    // on the CPU
  EngineOptions options;
  std::unique_ptr<pwmlff::DPNetwork> network;        // where the fused engine can read the file
  std::unique_ptr<pwmlff::DPEngine> fused;           // where it is in use
  std::string reason;                                // why it is not
  std::unique_ptr<DPTorchScript> scripted_on_gpu;    // where that is in use
  std::string why_cpu;                               // instead of the GPU that was chosen
  pwmlff::DPOutput output;
  Evaluation result{};
};

}    // namespace pair_pwmlff

#endif
