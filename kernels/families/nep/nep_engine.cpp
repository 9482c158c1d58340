// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_engine.h"

#include "../../core/cpu/driver.h"
#include "../../core/cpu/instruction_set.h"
#include "cpu/nep_program.h"
#include "gpu/nep_gpu_engine.h"

#include <stdexcept>
#include <string>

namespace pwmlff {

std::unique_ptr<FusedEngine> make_nep_engine(const NepNetwork &network,
                                             const EngineSettings &settings)
{
  if (settings.device) return make_nep_gpu_engine(network, settings);
  if (network.angular() && network.nangular > nep_most_functions)
    throw std::runtime_error("it has " + std::to_string(network.nangular) +
                             " functions of the angular part, the fused engine takes " +
                             std::to_string(nep_most_functions));
  const NepPacking packing{&network, &settings.present, settings.precision == Precision::mixed};
  return std::make_unique<CpuEngine>(
      std::unique_ptr<Program>(PWMLFF_IN_USE(make_nep_program(packing))), settings.present);
}

}    // namespace pwmlff
