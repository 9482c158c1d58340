// SPDX-License-Identifier: GPL-2.0-or-later

#include "verification.h"

#include "archive/sha256.h"
#include "archive/time_limit.h"
#include "core/precision.h"
#include "messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>

namespace pwmlff::models {
namespace {

constexpr double BOX = 3.0;      // edge of a box, in units of the cutoff
constexpr double FAR = 10.0;     // of the isolated atom, in units of the cutoff
constexpr double REACH = 1.2;    // of lists, likewise
constexpr double HALF = 0.5;     // of the atoms are centers, the others their surroundings

/// Random atoms in a cube; lengths in units of the cutoff.
struct Shape {
  int natoms;             // more where there are many species
  double shortest;        // distance of two atoms
  double edge;            // of the cube, for natoms
  bool must_be_finite;    // what the file's own code gives
};

// Distances as in condensed matter; shorter ones, down to a fifth of the cutoff, and beyond it; and
// a few atoms that nearly overlap, where a file may give anything.
constexpr Shape SHAPES[] = {{24, 0.4, 1.5, true}, {24, 0.2, 1.2, true}, {6, 0.04, 0.3, false}};

/// A cluster in the form of LAMMPS's arrays; LAMMPS type = species + 1. All pairs are in the list.
class Cluster {
 public:
  /// @param fraction  of the atoms that are centers
  /// @param shuffled  number the same atoms, and the neighbors of each, at random
  Cluster(const ModelInfo &info, const std::vector<bool> &present, const Shape &shape,
          double fraction = 1.0, bool shuffled = false)
  {
    std::vector<int> species;
    for (std::size_t s = 0; s < present.size(); ++s)
      if (present[s]) species.push_back(static_cast<int>(s));
    const int nspecies = static_cast<int>(species.size());
    const int limit =
        nspecies * (info.sel.empty() ? info.max_neighbor : *std::ranges::min_element(info.sel));
    const int wanted = std::max(shape.natoms, nspecies);
    const int natoms = limit > 0 ? std::min(wanted, limit) : wanted;

    // uniform_real_distribution differs between standard libraries; the generator does not.
    std::mt19937 generator(20250722);
    const auto uniform = [&generator] { return generator() / 4294967296.0; };
    const double rc = info.cutoff;
    const double edge = shape.edge * rc * std::cbrt(std::max(1.0, 1.0 * wanted / shape.natoms));
    std::vector<std::array<double, 3>> places;
    while (static_cast<int>(places.size()) < natoms) {
      const std::array<double, 3> trial = {edge * uniform(), edge * uniform(), edge * uniform()};
      const bool close = std::any_of(places.begin(), places.end(), [&](const auto &other) {
        return std::hypot(trial[0] - other[0], trial[1] - other[1], trial[2] - other[2]) <
               shape.shortest * rc;
      });
      if (!close) places.push_back(trial);
    }
    places.push_back({FAR * rc, FAR * rc, FAR * rc});

    const int nall = static_cast<int>(places.size());
    const auto shuffle = [&uniform](std::vector<int> &values) {
      for (std::size_t n = values.size(); n > 1; --n)
        std::swap(values[n - 1], values[static_cast<std::size_t>(uniform() * n)]);
    };
    order.resize(nall);
    std::iota(order.begin(), order.end(), 0);
    if (shuffled) shuffle(order);
    for (int i = 0; i < nall; ++i) {
      const auto &place = places[order[i]];
      x.insert(x.end(), place.begin(), place.end());
      type.push_back(species[order[i] % species.size()] + 1);
      ilist.push_back(i);
      numneigh.push_back(nall - 1);
      list.emplace_back();
      for (int j = 0; j < nall; ++j)
        if (j != i) list.back().push_back(j);
      if (shuffled) shuffle(list.back());
    }
    for (const auto &neighbors_of_one : list) firstneigh.push_back(neighbors_of_one.data());

    species_of_type.assign(present.size() + 1, -1);
    for (const int s : species) species_of_type[s + 1] = s;
    const int centers = static_cast<int>(fraction * nall);
    neighbors.rebuild({nall, type.data(), centers, nall - centers, ilist.data(), numneigh.data(),
                       firstneigh.data(), ~0},
                      species_of_type, static_cast<int>(present.size()), hops(info), true);
    neighbors.update(x.data());
    // For charges, a box in which atoms have no images nearby: none is in their lists.
    const double one = BOX * rc;
    neighbors.set_cell(
        std::array{one, 0.0, 0.0, 0.2 * one, 0.9 * one, 0.0, -0.1 * one, 0.3 * one, 1.1 * one}
            .data());
  }

  const Evaluation &evaluate(Model &model)
  {
    return model.evaluate(neighbors.input(model.needs()));
  }

  /// Leave it to the model to find neighbors.
  void forget_list(double reach)
  {
    const int nall = static_cast<int>(type.size());
    neighbors.rebuild(nall, nall, type.data(), species_of_type,
                      static_cast<int>(species_of_type.size()) - 1, reach);
    neighbors.update(x.data());
  }

  /// Species and places, as far as two machines agree in them.
  std::string identity() const
  {
    std::string bytes;
    const auto add = [&bytes](auto value) {
      bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    };
    for (const int one : type) add(one);
    for (const double one : x) add(static_cast<float>(one));
    return bytes;
  }

  Neighbors neighbors;
  std::vector<int> order;    // [atoms] which atom of the cluster that is not shuffled each one is

 private:
  std::vector<double> x;    // [atoms, 3]; all of them are rows, in their order
  std::vector<int> species_of_type;
  std::vector<int> type, ilist, numneigh;
  std::vector<std::vector<int>> list;
  std::vector<const int *> firstneigh;
};

// Text where the largest difference exceeds gate times the largest expected value (at least 1).
std::string compare(const char *what, std::span<const double> expected, const double *found,
                    double gate, const std::string &original)
{
  double largest = 1.0, worst = 0.0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    largest = std::max(largest, std::abs(expected[k]));
    // As many as expected. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
    const double error = std::abs(found[k] - expected[k]);
    if (std::isnan(error)) {
      worst = error;
      break;
    }
    worst = std::max(worst, error);
  }
  if (worst <= gate * largest) return {};
  char text[160];
  std::snprintf(text, sizeof text,
                "%s differ by %.1e (largest value %.1e, allowed %.1e) from %s on a test cluster",
                what, worst, largest, gate * largest, original.c_str());
  return text;
}

// An evaluation that stays when the model evaluates again.
ClusterValues values_of(const Evaluation &found, const Neighbors &neighbors)
{
  return {found.energy,
          {found.atom_energy, found.atom_energy + neighbors.ncenters()},
          {found.force, found.force + 3 * static_cast<std::size_t>(neighbors.nrows())},
          found.virial};
}

std::string difference(const ClusterValues &expected, const Evaluation &found, const Gate &gate,
                       const std::string &original)
{
  const std::vector<double> &atom_energy = expected.atom_energy;
  std::string text =
      compare("energies", atom_energy, found.atom_energy, gate.atom_energy, original);
  if (text.empty()) text = compare("forces", expected.force, found.force, gate.force, original);
  if (text.empty())
    text = compare("virials", expected.virial, found.virial.data(), gate.force, original);
  if (text.empty()) {
    // As far as one atom may be off on the average.
    double largest = 1.0;
    for (const double e : atom_energy) largest = std::max(largest, std::abs(e));
    const double scale = largest * static_cast<double>(atom_energy.size());
    const double one = expected.energy / scale, other = found.energy / scale;
    text = compare("total energies (per atom)", {&one, 1}, &other, gate.energy, original);
  }
  return text;
}

// What may take too long.
std::string trial_of(const Model &model)
{
  return "model file " + in_quotes(model.info().file) + ": its forward on a test cluster";
}

}    // namespace

std::string original_of(const Model &model)
{
  return model.name() == "plain" ? "the plain evaluation" : "the file's own code";
}

bool ClusterValues::finite() const
{
  const auto all = [](const auto &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  };
  return std::isfinite(energy) && all(atom_energy) && all(force) && all(virial);
}

// exact: sums of float64 in another order; double: ten times what the tables were seen to change
// (kernels/families/dp/tables.cpp); mixed: rounding to float32.
Gate gate_of(const std::string &precision)
{
  switch (pwmlff::precision_of(precision)) {
    case pwmlff::Precision::exact:
      return {1e-10, 1e-10, 1e-10};
    case pwmlff::Precision::tables:
      return {1e-8, 1e-8, 1e-6};
    default:
      return {1e-6, 5e-6, 1e-4};    // one atom: float32 fitting nets
  }
}

std::string out_of_contract(Model &model, const std::vector<bool> &present, double gate)
{
  const pwmlff::TimeLimit limit(trial_of(model));
  const Shape &shape = SHAPES[0];
  Cluster whole(model.info(), present, shape);
  const ClusterValues all = values_of(whole.evaluate(model), whole.neighbors);
  if (!all.finite()) return "its forward gives no numbers on a test cluster";
  // Energies of the centers of another cluster of the same atoms are what they were.
  const auto same = [&](double fraction, bool shuffled) {
    Cluster other(model.info(), present, shape, fraction, shuffled);
    std::vector<double> expected;
    for (int i = 0; i < other.neighbors.ncenters(); ++i)
      expected.push_back(all.atom_energy[other.order[i]]);
    const Evaluation &found = other.evaluate(model);
    return compare("energies", expected, found.atom_energy, gate, original_of(model)).empty();
  };
  std::string order = "its energies depend on the order of the atoms; look for indices of atoms "
                      "or edges in its forward";
  if (!same(1.0, true)) return order;
  if (!same(HALF, false)) {
    char range[32];
    std::snprintf(range, sizeof range, "%g", model.info().interaction_range);
    return "its energies depend on edges beyond interaction_range " + std::string(range) +
           "; give it the number of rounds of message passing times the cutoff";
  }
  return same(HALF, true) ? "" : order;
}

std::string identity_of_clusters(const ModelInfo &info, const std::vector<bool> &present)
{
  std::string bytes;
  for (const Shape &shape : SHAPES) bytes += Cluster(info, present, shape).identity();
  return pwmlff::sha256(bytes);
}

Expected expected_of(Model &original, const std::vector<bool> &present)
{
  const pwmlff::TimeLimit limit(trial_of(original));
  Expected expected{original_of(original), {}};
  for (const Shape &shape : SHAPES) {
    Cluster cluster(original.info(), present, shape);
    expected.clusters.push_back(values_of(cluster.evaluate(original), cluster.neighbors));
  }
  return expected;
}

std::string difference(const Expected &expected, Model &found, const std::vector<bool> &present,
                       const Gate &gate)
{
  const pwmlff::TimeLimit limit(trial_of(found));
  for (std::size_t k = 0; k < expected.clusters.size(); ++k) {
    const ClusterValues &wanted = expected.clusters[k];
    if (!wanted.finite()) {
      if (SHAPES[k].must_be_finite)
        return expected.original + " gives no numbers on a test cluster";
      continue;
    }
    Cluster cluster(found.info(), present, SHAPES[k]);
    const auto differs = [&] {
      return difference(wanted, cluster.evaluate(found), gate, expected.original);
    };
    std::string text = differs();
    if (!text.empty()) return text;
    if (!found.finds_neighbors()) continue;
    cluster.forget_list(REACH * found.info().cutoff);
    text = differs();
    if (!text.empty()) return text + ", with the neighbors that it finds by itself";
  }
  return {};
}

}    // namespace pwmlff::models
