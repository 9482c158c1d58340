// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_engine.h"

#include "../cpu/driver.h"
#include "../cpu/instruction_set.h"
#include "cpu/nep_backend.h"

#include <stdexcept>
#include <string>

namespace pwmlff {

std::unique_ptr<FusedEngine> make_nep_engine(const NepNetwork &network, bool single,
                                             const std::vector<bool> &present)
{
  if (network.angular() && network.nangular > nep_most_functions)
    throw std::runtime_error("it has " + std::to_string(network.nangular) +
                             " functions of the angular part, the fused engine takes " +
                             std::to_string(nep_most_functions));
  const NepModel model{&network, &present, single};
  return std::make_unique<CpuEngine>(
      std::unique_ptr<Program>(PWMLFF_IN_USE(make_nep_program(model))), present);
}

}    // namespace pwmlff
