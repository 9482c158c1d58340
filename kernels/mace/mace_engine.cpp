// SPDX-License-Identifier: GPL-2.0-or-later

#include "mace_engine.h"

#include "../cpu/driver.h"
#include "../cpu/instruction_set.h"
#include "../dp/tables.h"
#include "cpu/mace_program.h"
#include "plan.h"

namespace pwmlff {
namespace {

MacePrecision mace_precision(const std::string &name)
{
  switch (dp_precision(name)) {
    case DPPrecision::exact:
      return MacePrecision::exact;
    case DPPrecision::double_table:
      return MacePrecision::tables;
    default:
      return MacePrecision::single;
  }
}

/// What the program refers to; made before it.
struct HasMaceNetwork {
  const MaceNetwork network;
};

class MaceCpuEngine : HasMaceNetwork, public CpuEngine {
 public:
  MaceCpuEngine(const MaceNetwork &network_, MacePrecision precision,
                const std::vector<bool> &present) :
      HasMaceNetwork{network_},
      CpuEngine(std::unique_ptr<Program>(
                    PWMLFF_IN_USE(make_mace_program(MacePlan(network, present), precision))),
                present)
  {
  }
};

}    // namespace

std::unique_ptr<FusedEngine> make_mace_engine(const MaceNetwork &network,
                                              const std::string &precision,
                                              const std::vector<bool> &present)
{
  return std::make_unique<MaceCpuEngine>(network, mace_precision(precision), present);
}

}    // namespace pwmlff
