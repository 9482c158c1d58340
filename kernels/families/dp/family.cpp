// SPDX-License-Identifier: GPL-2.0-or-later

// Deep Potentials: what the other parts know them by.

#include "engine.h"
#include "read_dp.h"

#include <utility>

namespace pwmlff {
namespace {

class DPFamilyNetwork : public Network {
 public:
  explicit DPFamilyNetwork(DPNetwork network) : network(std::move(network)) {}

  NetworkInfo info() const override
  {
    NetworkInfo result;
    result.atom_type = network.atom_type;
    result.cutoff = network.rmax;
    result.slots = network.sel;
    return result;
  }
  std::unique_ptr<FusedEngine> engine(const EngineSettings &settings) const override
  {
    return make_dp_engine(network, settings);
  }

 private:
  const DPNetwork network;
};

std::unique_ptr<Network> read(const Arrays &arrays)
{
  return std::make_unique<DPFamilyNetwork>(read_dp(arrays));
}

}    // namespace

extern const Family dp_family;
const Family dp_family = {"dp", "DP", read, nullptr, nullptr};

}    // namespace pwmlff
