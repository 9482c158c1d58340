// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_engine.h"

#include "../cpu/blocks.h"
#include "../cpu/instruction_set.h"
#include "cpu/nep_backend.h"

#include <stdexcept>
#include <utility>

namespace pwmlff {

struct NepEngine::Parts : Blocks {
  using Blocks::Blocks;
};

NepEngine::NepEngine(const NepNetwork &network, bool single, const std::vector<bool> &present) :
    processor_(instruction_set_name())
{
  if (network.angular() && network.nangular > nep_most_functions)
    throw std::runtime_error("it has " + std::to_string(network.nangular) +
                             " functions of the angular part, the fused engine takes " +
                             std::to_string(nep_most_functions));
  const NepModel model{&network, &present, single};
  std::unique_ptr<BlockBackend> backend(PWMLFF_IN_USE(make_nep_backend(model)));
  parts = std::make_unique<Parts>(std::move(backend), present, std::vector<int>());
}

NepEngine::~NepEngine() = default;

const Evaluation &NepEngine::evaluate(const Input &input) { return parts->evaluate(input); }

}    // namespace pwmlff
