// SPDX-License-Identifier: GPL-2.0-or-later

// Machine code that a file of kind EDGE may bring along beside its TorchScript, made of that by
// `pwmlff convert --compile` (AOTInductor of torch): energies of atoms and their derivative in one
// program, for the CPU.

#pragma once

#include "edge_model.h"

#include <memory>
#include <string>

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace pwmlff::models {

/// The package of a file for this torch and this CPU; empty where it has none at all.
/// @throws std::runtime_error where it has others, which it names, or where this one is not as it
///         was made
std::string compiled_code(const ModelFile &file);

/// A model with its machine code, which runs on one thread but for products of matrices.
class CompiledEdge : public EdgeTorchScript {
 public:
  /// @param package  contents of a .pt2: (edge_vec [E, 3], edge_index [2, E], types [N],
  ///                 weight [N]) to (energies [N], derivative [E, 3] of their weighted sum)
  /// @throws std::runtime_error where torch cannot open it
  CompiledEdge(const EdgeTorchScript &original, const std::string &package);

  std::string name() const override { return "compiled"; }

 protected:
  Energies energies(const at::Tensor &edge_vec, const at::Tensor &edge_index,
                    const at::Tensor &types, std::int64_t nlocal, const Named &named) override;

 private:
  std::shared_ptr<torch::inductor::AOTIModelPackageLoader> loader;
};

}    // namespace pwmlff::models
