// SPDX-License-Identifier: GPL-2.0-or-later

// What programs that test engines compare numbers by.

#pragma once

#include "core/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <random>
#include <string>
#include <vector>

/// Comparisons that failed.
inline int failures = 0;

/// The largest difference of numbers [n], against what is allowed; one that is no number fails.
inline void compare(const std::string &what, const double *found, const double *wanted,
                    std::size_t n, double tolerance)
{
  double worst = 0.0;
  for (std::size_t k = 0; k < n; ++k) {
    const double error = std::abs(found[k] - wanted[k]);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  if (worst <= tolerance) return;
  std::cout << what << " differ by " << worst << ", allowed " << tolerance << "\n";
  ++failures;
}

/// @param close  allowed errors of energies, for forces of at most 1 eV/angstrom
/// @return       what is allowed for these forces
inline double compare(const std::string &name, const pwmlff::Input &input,
                      const pwmlff::Evaluation &found, const pwmlff::Evaluation &wanted,
                      double close)
{
  const std::size_t nrows = input.nrows;
  double scale = 1.0;
  for (std::size_t k = 0; k < 3 * nrows; ++k) scale = std::max(scale, std::abs(wanted.force[k]));
  close *= scale;
  compare(name + "energies", found.atom_energy, wanted.atom_energy, input.ncenters, close);
  compare(name + "energy", &found.energy, &wanted.energy, 1, 100 * close);
  compare(name + "forces", found.force, wanted.force, 3 * nrows, 10 * close);
  compare(name + "virials", found.virial.data(), wanted.virial.data(), 9, 100 * close);
  compare(name + "atom virials", found.atom_virial, wanted.atom_virial, 6 * nrows, 30 * close);
  compare(name + "centroid virials", found.centroid_virial, wanted.centroid_virial, 9 * nrows,
          30 * close);
  return close;
}

inline double uniform(double low, double high)
{
  static std::mt19937 generator(7);
  return low + (high - low) * (generator() / 4294967296.0);
}

/// Atoms in a box and one far from all others; the last are no centers. Each is a candidate of each
/// other, but those of species `absent`, which have species -1.
struct Cluster {
  Cluster(int natoms, double edge, int nspecies, int absent)
  {
    constexpr double CLOSEST = 1.1;
    while (static_cast<int>(species.size()) < natoms) {
      const double trial[3] = {uniform(0, edge), uniform(0, edge), uniform(0, edge)};
      bool free = true;
      for (std::size_t i = 0; i < species.size(); ++i)
        free &= std::hypot(trial[0] - x[3 * i], trial[1] - x[3 * i + 1], trial[2] - x[3 * i + 2]) >
                CLOSEST;
      if (!free) continue;
      x.insert(x.end(), trial, trial + 3);
      const int s = static_cast<int>(species.size()) % nspecies;
      species.push_back(s == absent ? -1 : s);
    }
    x.insert(x.begin(), {100.0, 0.0, 0.0});
    species.insert(species.begin(), absent == 0 ? 1 : 0);
    input.nrows = static_cast<int>(species.size());
    input.ncenters = input.nrows - 2;
    for (int i = 0; i < input.ncenters; ++i)
      for (int s = 0; s < nspecies; ++s) {
        first.push_back(static_cast<int>(candidate.size()));
        for (int j = 0; j < input.nrows; ++j)
          if (j != i && species[j] == s) candidate.push_back(j);
      }
    first.push_back(static_cast<int>(candidate.size()));
    input.x = x.data();
    input.species = species.data();
    input.first = first.data();
    input.candidate = candidate.data();
    input.temperature = 300.0;
    input.want_atom_virial = input.want_centroid_virial = true;
  }
  Cluster(Cluster &&) = default;    // the input points into the vectors

  std::vector<double> x;
  std::vector<int> species, first, candidate;
  pwmlff::Input input;
};
