// SPDX-License-Identifier: GPL-2.0-or-later

#include "evaluation.h"

#include <stdexcept>
#include <string>

namespace pwmlff {

DPOverflow::DPOverflow(int row_, int species_, int count_, int limit_) :
    row(row_),
    species(species_),
    count(count_),
    limit(limit_),
    text("row " + std::to_string(row) + " has " + std::to_string(count) + " neighbors of species " +
         std::to_string(species) + " within the cutoff; the model allows " + std::to_string(limit))
{
}

const char *DPOverflow::what() const noexcept { return text.c_str(); }

DPCenters::DPCenters(const int *species, int ncenters, const std::vector<bool> &present) :
    first(present.size() + 1, 0)
{
  const int nspecies = static_cast<int>(present.size());
  for (int i = 0; i < ncenters; ++i) {
    const int s = species[i];
    if (s < 0) continue;
    if (s >= nspecies || !present[s])
      throw std::invalid_argument("center " + std::to_string(i) + " is of species " +
                                  std::to_string(s) + ", which is not one of those that take part");
    ++first[s + 1];
  }
  for (int s = 0; s < nspecies; ++s) first[s + 1] += first[s];
  order.resize(first.back());
  std::vector<int> next(first);
  for (int i = 0; i < ncenters; ++i)
    if (species[i] >= 0) order[next[species[i]]++] = i;
}

}    // namespace pwmlff
