// SPDX-License-Identifier: GPL-2.0-or-later

// Neuroevolution potentials: what the other parts know them by.

#include "../../core/family.h"
#include "nep_arrays.h"
#include "nep_engine.h"
#include "plain_nep.h"
#include "read_nep.h"

#include <algorithm>
#include <utility>

namespace pwmlff {
namespace {

class NepFamilyNetwork : public Network {
 public:
  explicit NepFamilyNetwork(NepNetwork network) : network(std::move(network)) {}

  NetworkInfo info() const override
  {
    NetworkInfo result;
    result.atom_type = network.atom_type;
    result.cutoff = network.cutoff();
    result.takes_temperature = network.temperature;
    result.has_tables = false;
    if (network.charge_mode > 0) result.screening = network.screening();
    NepNetwork copy(network);
    for (const std::span<double> part : copy.learned()) result.nparameters += part.size();
    // A training leaves the last layer of such an element at zero: nep.txt has no other place.
    for (int s = 0; s < network.nspecies(); ++s) {
      const auto first = network.last.begin() + s * network.nlast();
      if (std::all_of(first, first + network.nlast(), [](double w) { return w == 0.0; }))
        result.without_data.push_back(network.atom_type[s]);
    }
    result.warnings = network.warnings;
    return result;
  }
  std::unique_ptr<FusedEngine> engine(const EngineSettings &settings) const override
  {
    return make_nep_engine(network, settings);
  }
  std::unique_ptr<FusedEngine> plain() const override
  {
    return std::make_unique<PlainNep>(network);
  }

 private:
  const NepNetwork network;
};

std::unique_ptr<Network> read(const Arrays &arrays)
{
  return std::make_unique<NepFamilyNetwork>(nep_of(arrays));
}

Arrays import(std::string_view contents) { return nep_arrays(read_nep(contents)); }

}    // namespace

extern const Family nep_family;
const Family nep_family = {"nep", "NEP", read, looks_like_nep, import};

}    // namespace pwmlff
