// SPDX-License-Identifier: GPL-2.0-or-later

// Which engine evaluates a model: the first in the order of preference that is verified against the
// original on the CPU, else that. The original is the file's own code; for a file that has none,
// the plain evaluation of its formulas.

#pragma once

#include "model.h"
#include "verification.h"

#include "core/family.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pwmlff::models {

class Original : public Model {
 public:
  /// By which two devices may differ.
  virtual Gate gate() const = 0;

  /// Whether there is code of it for GPUs.
  virtual bool has_gpu_code() const { return false; }

  /// What it gives on the test clusters.
  virtual Expected expected(const std::vector<bool> &present)
  {
    return expected_of(*this, present);
  }

  /// Called where nothing better was found: what it loads when it is needed, it loads now.
  virtual void get_ready() {}

  /// A copy that evaluates on a GPU, where has_gpu_code().
  /// @param gpu  index among the visible ones; pwmlff::CPU for a copy that stands in for it
  virtual std::unique_ptr<Model> copy_to_gpu(int) const { return nullptr; }

 protected:
  using Model::Model;
};

class EngineChoice : public Model {
 public:
  /// @throws std::runtime_error where the engine or the device that is demanded cannot run it
  void select_species(const std::vector<bool> &present) override;
  std::string name() const override { return in_use().name(); }
  std::string engine() const override;
  std::string passed_over() const override { return reasons; }
  Original *partner() override { return active ? original.get() : nullptr; }
  bool on_gpu() const override { return in_use().on_gpu(); }
  Needs needs() const override { return in_use().needs(); }
  bool has_atom_virial() const override { return in_use().has_atom_virial(); }
  bool has_grade() const override { return in_use().has_grade(); }
  const Evaluation &evaluate(const Input &input) override { return in_use().evaluate(input); }
  double expected_peak(const Input &input) override { return in_use().expected_peak(input); }

  /// What candidates were compared with; nothing where there were none.
  const std::optional<Expected> &expected() const { return expected_; }

 protected:
  /// An engine that is faster than the original.
  struct Candidate {
    std::string name;    // for the log
    bool on_gpu, fused;
    Gate gate;
    std::function<std::unique_ptr<Model>()> make;    // or throws the reason why not
  };

  EngineChoice(std::unique_ptr<Original> original, const EngineOptions &options) :
      Model(original->info()), original(std::move(original)), options(options)
  {
  }

  /// Candidates with this project's own engine: on the GPU, where there is one, and on the CPU; in
  /// the precision of the options and, after mixed, in double, which is still the faster way where
  /// single precision is not enough for a model.
  /// @param network     that they evaluate, as long as this; null where there is none
  /// @param unreadable  why
  std::vector<Candidate> fused_candidates(const pwmlff::Network *network,
                                          const std::string &unreadable,
                                          const std::vector<bool> &present) const;

  /// In the order of preference.
  virtual std::vector<Candidate> candidates(const std::vector<bool> &present) const = 0;

  std::unique_ptr<Original> original;    // on the CPU
  EngineOptions options;

 private:
  Model &in_use() const { return active ? *active : *original; }
  /// Evaluate by a candidate from now on, where nothing better was found and it can be verified.
  void attempt(const Candidate &candidate, const std::vector<bool> &present);
  void attempt_original_on_gpu(const std::vector<bool> &present);

  std::unique_ptr<Model> active;        // what evaluates, where it is not the original
  std::string reasons;                  // of what does not
  std::optional<Expected> expected_;    // of the original, for the species that take part
};

}    // namespace pwmlff::models
