// SPDX-License-Identifier: GPL-2.0-or-later

// An opened TorchScript file and what can be asked of it.

#pragma once

#include "messages.h"
#include "model.h"

#include <torch/script.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pwmlff::models {

/// Attributes that hold the limits of a kind; empty where it has none.
struct LimitNames {
  std::string cutoff;
  std::string interaction_range;    // the cutoff where the file has no such attribute
  std::string max_neighbor;
  std::string ntypes;    // optional in the file
};

/// A module with messages that name its file.
class ModelFile {
 public:
  /// Open on the CPU, in evaluation mode, with parameters that need no gradient.
  /// @param contents  have to stay where they are
  /// @throws std::runtime_error where the contents are no TorchScript module
  ModelFile(const std::string &file, const std::string &contents);

  const std::string &name() const { return file; }
  const torch::jit::Module &module() const { return module_; }

  bool has(const std::string &attribute) const { return module_.hasattr(attribute); }

  /// @throws std::runtime_error that lists the attributes that are missing
  void require(const std::vector<std::string> &attributes, const std::string &kind) const;

  /// The attribute `model_type`; "DP" for a file that does not have it, as a text.
  std::string model_type() const;

  /// Bring parameters and buffers into type(), and read optional attributes as a kind has them.
  /// @throws std::runtime_error where `dtype`, if it is an attribute of the kind, is another type
  void prepare(const Kind &kind);

  /// The value of an attribute, which is optional where there is a fallback: that is taken where it
  /// is absent or None, and where it has another type in a kind of other programs or is a list.
  /// @throws std::runtime_error where it has another type
  double number(const std::string &attribute, std::optional<double> fallback = {}) const;
  std::vector<std::int64_t> integers(
      const std::string &attribute,
      const std::optional<std::vector<std::int64_t>> &fallback = {}) const;
  std::string text(const std::string &attribute, const std::string &fallback) const;

  /// The contents of the file.
  std::string_view archive() const { return contents; }

  /// Extra files of the archive whose names begin with a prefix, by name.
  std::map<std::string, std::string> extra_files(const std::string &prefix) const;

  /// The type in which the model computes, from prepare() on: float64, or what the attribute
  /// `dtype` says, which is "float64" or "float32" or what scripting makes of torch.float64 and
  /// torch.float32, a number.
  at::ScalarType type() const { return type_; }

  /// What needs no knowledge of the kind.
  /// @throws std::runtime_error for impossible values
  ModelInfo describe() const;

  /// Add elements, cutoff, range and most neighbors.
  /// @throws std::runtime_error where one is missing, or is not what a simulation can have
  void describe_limits(ModelInfo &info, const LimitNames &names) const;

 private:
  at::ScalarType declared_type() const;
  std::vector<double> closest_distances(const std::vector<int> &elements) const;
  [[noreturn]] void wrong_type(const std::string &attribute, const c10::IValue &value,
                               const std::string &expected) const;

  std::string file;
  std::string_view contents;
  torch::jit::Module module_;
  bool of_other_programs = false;
  at::ScalarType type_ = at::kDouble;
  std::string dtype;    // of the parameters as stored
};

}    // namespace pwmlff::models
