// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_engine.h"

#include "../cpu/blocks.h"
#include "../cpu/instruction_set.h"
#include "cpu/nep_backend.h"

#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

class NepCpuEngine : public FusedEngine {
 public:
  NepCpuEngine(const NepModel &model, const std::vector<bool> &present) :
      FusedEngine(nullptr),
      blocks(std::unique_ptr<BlockBackend>(PWMLFF_IN_USE(make_nep_backend(model))), present,
             std::vector<int>())
  {
  }
  const Evaluation &evaluate(const Input &input) override { return blocks.evaluate(input); }

 private:
  Blocks blocks;
};

}    // namespace

std::unique_ptr<FusedEngine> make_nep_engine(const NepNetwork &network, bool single,
                                             const std::vector<bool> &present)
{
  if (network.angular() && network.nangular > nep_most_functions)
    throw std::runtime_error("it has " + std::to_string(network.nangular) +
                             " functions of the angular part, the fused engine takes " +
                             std::to_string(nep_most_functions));
  return std::make_unique<NepCpuEngine>(NepModel{&network, &present, single}, present);
}

}    // namespace pwmlff
