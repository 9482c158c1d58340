// SPDX-License-Identifier: GPL-2.0-or-later

#include "distance_guard.h"

#include "core/periodic_table.h"

#include "atom.h"
#include "error.h"
#include "neighbor.h"
#include "update.h"
#include "utils.h"

#include <cmath>
#include <stdexcept>

using namespace LAMMPS_NS;
using namespace pwmlff::models;
using pwmlff::symbol;

namespace pair_pwmlff {
namespace {

constexpr double ROUNDING = 1e-6;

double squared_distance(const double *a, const double *b)
{
  double sum = 0.0;
  for (int k = 0; k < 3; ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return sum;
}

}    // namespace

DistanceGuard::DistanceGuard(LAMMPS *lmp, const MinDistance &wanted) : Pointers(lmp), wanted(wanted)
{
}

void DistanceGuard::init(const Ensemble &models)
{
  const ModelInfo &info = models.front()->info();
  if (!wanted.distance && info.closest.empty())
    error->all(
        FLERR,
        "Pair style pwmlff: min_distance is auto, but model '{}' does not say how close atoms "
        "of its data were, as files of 'pwmlff train' of kind DP and EDGE do; give a distance",
        info.file);
  elements = info.atom_type;
  const std::size_t n = elements.size();
  limit = wanted.distance ? std::vector<double>(n * n, *wanted.distance) : info.closest;
  if (!wanted.distance)    // a structure of the data, with positions as files have them, is none
    for (double &distance : limit) distance *= 1.0 - ROUNDING;
  warned.assign(n * n, false);
}

// Until the next list no atom moves by more than half of the skin.
void DistanceGuard::collect(const Neighbors &neighbors)
{
  near.clear();
  const std::size_t n = elements.size();
  for (int i = 0; i < neighbors.ncenters(); ++i)
    for (int c = neighbors.first()[n * i]; c < neighbors.first()[n * (i + 1)]; ++c) {
      const int j = neighbors.candidate()[c];
      if (j < i) continue;    // the other way round; those of other ranks are behind all centers
      const double reach =
          limit[n * neighbors.species()[i] + neighbors.species()[j]] + neighbor->skin;
      if (squared_distance(neighbors.x() + 3 * static_cast<std::size_t>(i),
                           neighbors.x() + 3 * static_cast<std::size_t>(j)) < reach * reach)
        near.emplace_back(i, j);
    }
}

void DistanceGuard::look(const Neighbors &neighbors, int list)
{
  if (list != list_of_near) collect(neighbors);
  list_of_near = list;
  const std::size_t n = elements.size();
  for (const auto &[i, j] : near) {
    const std::size_t a = neighbors.species()[i], b = neighbors.species()[j];
    const double least = limit[n * a + b];
    const double squared = squared_distance(neighbors.x() + 3 * static_cast<std::size_t>(i),
                                            neighbors.x() + 3 * static_cast<std::size_t>(j));
    if (squared >= least * least) continue;
    const std::string text = fmt::format(
        "atoms {} ({}) and {} ({}) are {:.4g} apart at step {}, closer than {}{:.4g}",
        atom->tag[neighbors.atom()[i]], symbol(elements[a]), atom->tag[neighbors.atom()[j]],
        symbol(elements[b]), std::sqrt(squared), update->ntimestep,
        wanted.distance ? "the min_distance of " : "any of the model's data, ", least);
    if (wanted.stop) throw std::runtime_error(text);
    if (!warned[n * a + b]) error->warning(FLERR, "Pair style pwmlff: {}", text);
    warned[n * a + b] = warned[n * b + a] = true;
  }
}

}    // namespace pair_pwmlff
