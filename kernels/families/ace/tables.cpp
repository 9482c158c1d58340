// SPDX-License-Identifier: GPL-2.0-or-later

#include "tables.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace pwmlff {
namespace {

constexpr std::size_t MOST_NUMBERS = std::size_t{1} << 29;    // of tables

/// @param a, b  the species of the core repulsion; a below 0 for the radial base
AceTable table_of_bond(const AceNetwork &network, const AceBond &bond, int a, int b)
{
  AceTable table;
  table.bins = ace_bins(network, bond);
  table.nfunctions = a >= 0 ? 1 : bond.nbase;
  table.scale = table.bins / bond.rcut;
  const double h = 1.0 / table.scale;
  const std::size_t first = a >= 0 ? bond.nbase : 0;
  table.coefficients.resize(static_cast<std::size_t>(table.bins + 1) * table.nfunctions * 4, 0.0);
  AceFunctions here, next;
  ace_exact(network, bond, a, b, h, here);
  for (int k = 1; k < table.bins; ++k, std::swap(here, next)) {
    ace_exact(network, bond, a, b, h * (k + 1), next);
    for (int f = 0; f < table.nfunctions; ++f)
      ace_hermite(here.value[first + f], here.slope[first + f] * h, next.value[first + f],
                  next.slope[first + f] * h,
                  &table.coefficients[(static_cast<std::size_t>(k) * table.nfunctions + f) * 4]);
  }
  return table;
}

/// A bond with what its radial base depends on alone.
AceBond base_of(AceBond bond, AceInner inner)
{
  bond.prehc = bond.lambdahc = 0.0;
  bond.crad.clear();
  if (inner == AceInner::zbl || inner == AceInner::none) bond.rcut_in = bond.dcut_in = 0.0;
  if (bond.radial != AceRadial::cheb_exp_cos) bond.dcut = 0.0;
  return bond;
}

}    // namespace

AceEngineNetwork::AceEngineNetwork(const AceNetwork &all, const std::vector<bool> &present) :
    network(all), present(present)
{
  const int n = network.nspecies();
  std::vector<AceBond> bases;
  std::size_t numbers = 0;
  plans.resize(n);
  table_of.resize(static_cast<std::size_t>(n) * n, 0);
  core.resize(table_of.size());
  for (int a = 0; a < n; ++a) {
    if (!present[a]) continue;
    plans[a] = ace_plan(network, a, present);
    for (int b = 0; b < n; ++b) {
      if (!present[b]) continue;
      const AceBond base = base_of(network.bond(a, b), network.inner);
      const auto found = std::ranges::find(bases, base);
      table_of[a * n + b] = static_cast<int>(found - bases.begin());
      if (found == bases.end()) {
        numbers += static_cast<std::size_t>(4) * ace_bins(network, base) * base.nbase;
        if (numbers > MOST_NUMBERS)
          throw std::runtime_error("its tables would take more than " +
                                   std::to_string(MOST_NUMBERS * sizeof(double) >> 30) +
                                   " GiB; name fewer elements");
        tables.push_back(table_of_bond(network, network.bond(a, b), -1, -1));
        bases.push_back(base);
      }
      if (ace_has_core(network, a, b))
        core[a * n + b] = table_of_bond(network, network.bond(a, b), a, b);
    }
  }
}

}    // namespace pwmlff
