// SPDX-License-Identifier: GPL-2.0-or-later

#include "engine_check.h"

#include "models/engine_choice.h"

#include "comm.h"
#include "domain.h"
#include "error.h"
#include "neighbor.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

constexpr int ONE_OF = 10, MOST_CENTERS = 1000;
constexpr int FEWEST_IN_PIECE = 24, MOST_IN_PIECE = 100;

}    // namespace

EngineCheck::EngineCheck(LAMMPS *lmp, int every, Gate gate) :
    Pointers(lmp), every(every), gate(gate)
{
}

bool EngineCheck::due() const
{
  return update->ntimestep % every == 0 && update->ntimestep != checked_step;
}

std::mt19937_64 EngineCheck::random() const
{
  return std::mt19937_64(static_cast<std::uint64_t>(update->ntimestep) * comm->nprocs + comm->me);
}

// Of the box, where LAMMPS looks how far it has moved.
std::vector<double> EngineCheck::corners() const
{
  if (!domain->triclinic) {
    std::vector<double> both(domain->boxlo, domain->boxlo + 3);
    both.insert(both.end(), domain->boxhi, domain->boxhi + 3);
    return both;
  }
  domain->box_corners();
  return {&domain->corners[0][0], &domain->corners[0][0] + 24};
}

// As Neighbor::check_distance: what two atoms have come nearer by at most, two corners of the box
// included, as ghosts move with it.
void EngineCheck::watch(const Neighbors &neighbors, int list)
{
  const std::vector<double> box = corners();
  const std::size_t n = 3 * static_cast<std::size_t>(neighbors.ncenters());
  if (list != list_of_hold) {
    list_of_hold = list;
    x_hold.assign(neighbors.x(), neighbors.x() + n);
    corners_hold = box;
    return;
  }
  const auto distance = [](const double *a, const double *b) {
    return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  };
  double farthest = 0.0, first = 0.0, second = 0.0;
  for (std::size_t k = 0; k < n; k += 3)
    farthest = std::max(farthest, distance(neighbors.x() + k, &x_hold[k]));
  for (std::size_t k = 0; k < box.size(); k += 3) {
    const double moved = distance(&box[k], &corners_hold[k]);
    second = std::max(second, std::min(first, moved));
    first = std::max(first, moved);
  }
  movement = std::max(movement, 2.0 * farthest + first + second);
}

// Collective.
void EngineCheck::report_movement()
{
  double most = movement;
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, world);
  if (most <= neighbor->skin || most <= reported_movement) return;
  reported_movement = most;
  if (comm->me == 0)
    error->warning(
        FLERR,
        "Pair style pwmlff: check at step {}: between two lists of neighbors two atoms can have "
        "come nearer by {:.3g}, more than the skin of {:g}, so neighbors may have been missed and "
        "forces be wrong; use 'neigh_modify every 1 delay 0 check yes', or a larger skin",
        update->ntimestep, most, neighbor->skin);
}

void EngineCheck::Sample::assign(const Neighbors &all, const std::vector<int> &rows, int ncenters,
                                 int nspecies, std::vector<int> first, std::vector<int> candidate,
                                 int hops)
{
  std::vector<int> species, home(rows.size());
  std::iota(home.begin(), home.end(), 0);
  x.clear();
  for (const int row : rows) {
    species.push_back(all.species()[row]);
    const double *const place = all.x() + 3 * static_cast<std::size_t>(row);
    x.insert(x.end(), place, place + 3);
  }
  neighbors.assign(ncenters, nspecies, std::move(species), std::move(first), std::move(candidate),
                   std::move(home), hops);
  neighbors.update(x.data());
}

// A part of the centers, and the rows that are their candidates.
void EngineCheck::draw(const Neighbors &neighbors, int nspecies)
{
  std::vector<int> centers(neighbors.ncenters());
  std::iota(centers.begin(), centers.end(), 0);
  std::shuffle(centers.begin(), centers.end(), random());
  centers.resize(std::min((centers.size() + ONE_OF - 1) / ONE_OF, std::size_t{MOST_CENTERS}));

  std::vector<int> rows = centers, place(neighbors.nrows(), -1), first{0}, candidate;
  for (std::size_t k = 0; k < rows.size(); ++k) place[rows[k]] = static_cast<int>(k);
  for (const int center : centers)
    for (int s = 0; s < nspecies; ++s) {
      const int k = center * nspecies + s;
      for (int c = neighbors.first()[k]; c < neighbors.first()[k + 1]; ++c) {
        const int row = neighbors.candidate()[c];
        if (place[row] < 0) {
          place[row] = static_cast<int>(rows.size());
          rows.push_back(row);
        }
        candidate.push_back(place[row]);
      }
      first.push_back(static_cast<int>(candidate.size()));
    }
  drawn.assign(neighbors, rows, static_cast<int>(centers.size()), nspecies, std::move(first),
               std::move(candidate), /*hops=*/-1);
}

// The rows that are next to a center, all of them centers.
void EngineCheck::cut(const Neighbors &neighbors, const ModelInfo &info)
{
  std::vector<std::pair<double, int>> by_distance;
  const auto distance = [&neighbors](int i, int j) {
    const double *const a = neighbors.x() + 3 * static_cast<std::size_t>(i);
    const double *const b = neighbors.x() + 3 * static_cast<std::size_t>(j);
    return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  };
  const int ncenters = neighbors.ncenters();
  if (ncenters > 0) {
    const int center = static_cast<int>(random()() % ncenters);
    for (int row = 0; row < neighbors.nrows(); ++row)
      if (neighbors.species()[row] >= 0) by_distance.emplace_back(distance(center, row), row);
  }
  const int wanted = std::clamp((ncenters + ONE_OF - 1) / ONE_OF, FEWEST_IN_PIECE, MOST_IN_PIECE);
  const std::size_t natoms = std::min(by_distance.size(), static_cast<std::size_t>(wanted));
  std::partial_sort(by_distance.begin(), by_distance.begin() + natoms, by_distance.end());
  std::vector<int> rows, first{0}, candidate;
  for (std::size_t k = 0; k < natoms; ++k) rows.push_back(by_distance[k].second);

  const int nspecies = static_cast<int>(info.atom_type.size());
  for (std::size_t i = 0; i < natoms; ++i)
    for (int s = 0; s < nspecies; ++s) {
      for (std::size_t j = 0; j < natoms; ++j)
        if (j != i && neighbors.species()[rows[j]] == s && distance(rows[i], rows[j]) < info.cutoff)
          candidate.push_back(static_cast<int>(j));
      first.push_back(static_cast<int>(candidate.size()));
    }
  piece.assign(neighbors, rows, static_cast<int>(natoms), nspecies, std::move(first),
               std::move(candidate), hops(info));
}

EngineCheck::Difference EngineCheck::difference(Sample &sample, Model &model, Model &partner,
                                                double temperature)
{
  Neighbors &neighbors = sample.neighbors;
  const auto evaluate = [&](Model &one) {
    pwmlff::Input input = neighbors.input(one.needs(), comm->nthreads, model.order);
    input.temperature = temperature;
    return &one.evaluate(input);
  };
  const Evaluation *const found = evaluate(model), *const wanted = evaluate(partner);
  Difference result{};
  for (int i = 0; i < neighbors.ncenters(); ++i) {
    const double energy = wanted->atom_energy[i];
    result.energy = std::max(result.energy, std::abs(found->atom_energy[i] - energy));
    result.largest_energy = std::max(result.largest_energy, std::abs(energy));
  }
  for (int k = 0; k < 3 * neighbors.nrows(); ++k) {
    const double force = wanted->force[k];
    result.force = std::max(result.force, std::abs(found->force[k] - force));
    result.largest_force = std::max(result.largest_force, std::abs(force));
  }
  return result;
}

void EngineCheck::compare(const Ensemble &models, const Neighbors &neighbors, double temperature)
{
  checked_step = update->ntimestep;
  report_movement();
  const bool first_time = worst.empty();
  worst.resize(models.size());
  std::array<bool, 2> made{};
  for (std::size_t m = 0; m < models.size(); ++m) {
    const ModelInfo &info = models[m]->info();
    Sample &sample = info.takes_edges ? piece : drawn;
    if (!std::exchange(made[info.takes_edges], true)) {
      if (info.takes_edges) cut(neighbors, info);
      else draw(neighbors, static_cast<int>(info.atom_type.size()));
    }
    // Ranks may run different engines.
    Original *const partner = models[m]->partner();
    int natoms = partner ? sample.neighbors.ncenters() : 0;
    Difference here{};
    if (natoms > 0) here = difference(sample, *models[m], *partner, temperature);
    const Gate own = partner ? partner->gate() : gate;
    double all[6] = {here.energy,        here.force,      here.largest_energy,
                     here.largest_force, own.atom_energy, own.force};
    MPI_Allreduce(MPI_IN_PLACE, &natoms, 1, MPI_INT, MPI_SUM, world);
    MPI_Allreduce(MPI_IN_PLACE, all, 6, MPI_DOUBLE, MPI_MAX, world);
    const std::string original = original_of(partner ? *partner : *models[m]);
    if (natoms == 0) {
      if (first_time && comm->me == 0)
        utils::logmesg(lmp,
                       "Pair style pwmlff: check: {} evaluates model {}: there is nothing to "
                       "compare it with\n",
                       original, m + 1);
      continue;
    }
    if (all[0] <= worst[m].energy && all[1] <= worst[m].force) continue;
    worst[m] = {std::max(all[0], worst[m].energy), std::max(all[1], worst[m].force), all[2],
                all[3]};
    if (comm->me != 0) continue;
    const std::string text = fmt::format(
        "Pair style pwmlff: check at step {}: model {} differs from {} by {:.1e} eV in the "
        "energy of an atom and {:.1e} eV/angstrom in a force, of {} atoms",
        update->ntimestep, m + 1, original, all[0], all[1], natoms);
    if (all[0] > std::max(gate.atom_energy, all[4]) * std::max(1.0, all[2]) ||
        all[1] > std::max(gate.force, all[5]) * std::max(1.0, all[3]))
      error->warning(FLERR, "{}; that is more than its precision allows", text);
    else utils::logmesg(lmp, text + "\n");
  }
}

}    // namespace pair_pwmlff
