// SPDX-License-Identifier: GPL-2.0-or-later

// MACE: what the other parts know it by. Features of rows that are no centers come through
// Input::exchange, so each rank evaluates its own atoms alone.

#include "../../core/family.h"
#include "../../core/cpu/driver.h"
#include "../../core/cpu/instruction_set.h"
#include "cpu/mace_program.h"
#include "gpu/mace_gpu_engine.h"
#include "plan.h"
#include "read_mace.h"

#include <stdexcept>
#include <utility>

namespace pwmlff {
namespace {

/// What the program refers to; made before it.
struct HasMaceNetwork {
  const std::shared_ptr<const MaceNetwork> network;
};

class MaceCpuEngine : HasMaceNetwork, public CpuEngine {
 public:
  MaceCpuEngine(std::shared_ptr<const MaceNetwork> shared, const EngineSettings &settings) :
      HasMaceNetwork{std::move(shared)},
      CpuEngine(std::unique_ptr<Program>(PWMLFF_IN_USE(
                    make_mace_program(MacePlan(*network, settings.present), settings.precision))),
                settings.present)
  {
  }
};

class MaceFamilyNetwork : public Network {
 public:
  explicit MaceFamilyNetwork(MaceNetwork network) :
      network(std::make_shared<MaceNetwork>(std::move(network)))
  {
  }

  NetworkInfo info() const override
  {
    NetworkInfo result;
    result.atom_type = network->atom_type;
    result.cutoff = network->cutoff;
    result.has_gpu_code = network->is_plain();
    return result;
  }
  std::unique_ptr<FusedEngine> engine(const EngineSettings &settings) const override
  {
    if (settings.device && !network->is_plain())
      throw std::runtime_error("there is no code of MACE with gates for GPUs");
    if (settings.device) return make_mace_gpu_engine(*network, settings);
    return std::make_unique<MaceCpuEngine>(network, settings);
  }

 private:
  const std::shared_ptr<const MaceNetwork> network;
};

std::unique_ptr<Network> read(const Arrays &arrays)
{
  return std::make_unique<MaceFamilyNetwork>(read_mace(arrays));
}

}    // namespace

extern const Family mace_family;
const Family mace_family = {"mace", "MACE", read, nullptr, nullptr};

}    // namespace pwmlff
