// SPDX-License-Identifier: GPL-2.0-or-later

// Which engine evaluates a model: the first in the order of preference that is verified against the
// file's own code on the CPU, else that code.

#pragma once

#include "model.h"
#include "model_file.h"
#include "scripted.h"
#include "verification.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pwmlff::models {

/// The file's own code on one device.
class FileCode : public Model {
 public:
  std::string name() const override { return "torchscript"; }
  bool on_gpu() const override { return !code.device().is_cpu(); }

  /// A copy that evaluates on another device.
  virtual std::unique_ptr<FileCode> copy_to(c10::Device device) const = 0;

  /// By which two devices may differ.
  virtual Gate gate() const = 0;

 protected:
  FileCode(const ModelFile &file, ModelInfo info) :
      Model(std::move(info)), code(file.name(), file.module())
  {
  }

  Scripted code;
  Evaluation result{};
};

class EngineChoice : public Model {
 public:
  /// @throws std::runtime_error where the engine or the device that is demanded cannot run it
  void select_species(const std::vector<bool> &present) override;
  std::string name() const override { return in_use().name(); }
  std::string engine() const override;
  std::string passed_over() const override { return reasons; }
  bool on_gpu() const override { return in_use().on_gpu(); }
  Needs needs() const override { return in_use().needs(); }
  bool has_atom_virial() const override { return in_use().has_atom_virial(); }
  const Evaluation &evaluate(const Input &input) override { return in_use().evaluate(input); }

 protected:
  /// An engine that is faster than the file's own code.
  struct Candidate {
    std::string name;    // for the log
    bool on_gpu;
    Gate gate;
    std::function<std::unique_ptr<Model>()> make;    // or throws the reason why not
  };

  EngineChoice(std::unique_ptr<FileCode> code, const EngineOptions &options) :
      Model(code->info()), original(std::move(code)), options(options)
  {
  }

  /// In the order of preference.
  virtual std::vector<Candidate> candidates(const std::vector<bool> &present) const = 0;

  std::unique_ptr<FileCode> original;    // on the CPU
  EngineOptions options;

 private:
  Model &in_use() const { return active ? *active : *original; }
  void attempt(const Candidate &candidate, const std::vector<bool> &present);

  std::unique_ptr<Model> active;    // what evaluates, where it is not the original
  std::string reasons;              // of what does not
};

}    // namespace pwmlff::models
