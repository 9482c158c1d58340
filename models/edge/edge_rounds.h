// SPDX-License-Identifier: GPL-2.0-or-later

// Message passing by rounds: a file of kind EDGE may have its forward once more in parts, start(),
// round() and finish() (docs/model_contract.md). Features of atoms of other ranks then come from
// there between the parts, and their derivatives go back, so each rank evaluates the edges of its
// own atoms alone.

#pragma once

#include "edge_model.h"

#include <vector>

namespace pwmlff::models {

class EdgeRounds : public EdgeTorchScript {
 public:
  /// @param whole  which has_parts()
  /// @throws std::runtime_error where its parts are not those of the contract
  explicit EdgeRounds(const EdgeTorchScript &whole);

  std::unique_ptr<FileCode> copy_to(c10::Device device) const override;
  std::string name() const override { return "torchscript in rounds"; }
  Needs needs() const override;
  const Evaluation &evaluate(const Input &input) override;

 protected:
  Energies energies(const at::Tensor &edge_vec, const at::Tensor &edge_index,
                    const at::Tensor &types, std::int64_t nlocal, const Named &named) override;

 private:
  at::Tensor part(const char *name, std::vector<c10::IValue> inputs, std::int64_t width);
  at::Tensor from_others(const at::Tensor &local);
  at::Tensor to_others(const at::Tensor &of_nodes);
  void exchange_rows(const at::Tensor &rows, bool forward);

  std::vector<std::int64_t> widths;    // of the features that each round takes
  const Input *input = nullptr;        // of the evaluation under way
  at::Tensor row_of_node;              // [N] likewise
};

}    // namespace pwmlff::models
