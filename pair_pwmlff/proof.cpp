/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "proof.h"

#include "neighbors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>

namespace pair_pwmlff {
namespace {

constexpr int MOST_ATOMS = 24;
constexpr double SHORTEST = 0.2;    // distance of two atoms, in units of the cutoff
constexpr double EDGE = 1.2;        // of the cube that the atoms fill, likewise
constexpr double FAR = 10.0;        // of the isolated atom, likewise
constexpr double REACH = 1.2;       // of lists, likewise

/// A cluster in the form of LAMMPS's arrays; LAMMPS type = species + 1. All pairs are in the list.
class Cluster {
 public:
  Cluster(const ModelInfo &info, const std::vector<bool> &present)
  {
    std::vector<int> species;
    for (std::size_t s = 0; s < present.size(); ++s)
      if (present[s]) species.push_back(static_cast<int>(s));
    const int limit = info.max_neighbor * static_cast<int>(species.size());
    const int natoms = limit > 0 ? std::min(MOST_ATOMS, limit) : MOST_ATOMS;

    // uniform_real_distribution differs between standard libraries; the generator does not.
    std::mt19937 generator(20250722);
    const auto uniform = [&generator] { return generator() / 4294967296.0; };
    const double rc = info.cutoff;
    while (static_cast<int>(x.size()) < natoms) {
      const std::array<double, 3> trial = {EDGE * rc * uniform(), EDGE * rc * uniform(),
                                           EDGE * rc * uniform()};
      const bool close = std::any_of(x.begin(), x.end(), [&](const auto &other) {
        return std::hypot(trial[0] - other[0], trial[1] - other[1], trial[2] - other[2]) <
               SHORTEST * rc;
      });
      if (!close) x.push_back(trial);
    }
    x.push_back({FAR * rc, FAR * rc, FAR * rc});

    const int nall = static_cast<int>(x.size());
    for (int i = 0; i < nall; ++i) {
      type.push_back(species[i % species.size()] + 1);
      positions.push_back(x[i].data());
      ilist.push_back(i);
      numneigh.push_back(nall - 1);
      list.emplace_back();
      for (int j = 0; j < nall; ++j)
        if (j != i) list.back().push_back(j);
    }
    for (const auto &neighbors_of_one : list) firstneigh.push_back(neighbors_of_one.data());

    species_of_type.assign(present.size() + 1, -1);
    for (const int s : species) species_of_type[s + 1] = s;
    neighbors.rebuild(
        {nall, type.data(), nall, 0, ilist.data(), numneigh.data(), firstneigh.data(), ~0},
        species_of_type, static_cast<int>(present.size()), hops(info));
    neighbors.update(positions.data());
  }

  /// Leave it to the model to find neighbors.
  void forget_list(double reach)
  {
    const int nall = static_cast<int>(x.size());
    neighbors.rebuild(nall, nall, type.data(), species_of_type,
                      static_cast<int>(species_of_type.size()) - 1, reach);
    neighbors.update(positions.data());
  }

  Neighbors neighbors;

 private:
  std::vector<std::array<double, 3>> x;
  std::vector<int> species_of_type;
  std::vector<const double *> positions;
  std::vector<int> type, ilist, numneigh;
  std::vector<std::vector<int>> list;
  std::vector<const int *> firstneigh;
};

// Text where the largest difference exceeds gate times the largest expected value (at least 1).
std::string compare(const char *what, const double *expected, const double *found, std::size_t n,
                    double gate)
{
  double largest = 1.0, worst = 0.0;
  for (std::size_t k = 0; k < n; ++k) {
    largest = std::max(largest, std::abs(expected[k]));
    const double error = std::abs(found[k] - expected[k]);
    if (!(error <= worst)) worst = error;    // keeps NaN
  }
  if (worst <= gate * largest) return {};
  char text[160];
  std::snprintf(text, sizeof text,
                "%s differ by %.1e (largest value %.1e, allowed %.1e) from the file's "
                "own code on a test cluster",
                what, worst, largest, gate * largest);
  return text;
}

}    // namespace

Gate gate_of(const std::string &precision)
{
  if (precision == "exact") return {1e-10, 1e-10};
  if (precision == "double") return {1e-8, 1e-6};
  if (precision == "mixed") return {1e-6, 1e-4};
  throw std::invalid_argument("precision is '" + precision + "', expected exact, double or mixed");
}

std::string difference(Model &expected, Model &found, const std::vector<bool> &present,
                       const Gate &gate)
{
  Cluster cluster(expected.info(), present);
  Neighbors &neighbors = cluster.neighbors;
  const Evaluation &wanted = expected.evaluate(neighbors, {});
  const auto differs = [&] {
    const Evaluation &got = found.evaluate(neighbors, {});
    const std::size_t n = neighbors.ncentres();
    std::string text = compare("energies", wanted.atom_energy, got.atom_energy, n, gate.energy);
    if (text.empty()) text = compare("forces", wanted.force, got.force, 3 * n, gate.force);
    if (text.empty())
      text = compare("virials", wanted.virial.data(), got.virial.data(), 6, gate.force);
    return text;
  };
  std::string text = differs();
  if (!text.empty() || !found.finds_neighbors()) return text;
  cluster.forget_list(REACH * expected.info().cutoff);
  text = differs();
  return text.empty() ? text : text + ", with the neighbors that it finds by itself";
}

}    // namespace pair_pwmlff
