// SPDX-License-Identifier: GPL-2.0-or-later

#include "engine_check.h"

#include "comm.h"
#include "error.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

constexpr int ONE_OF = 10, MOST = 1000;

}    // namespace

EngineCheck::EngineCheck(LAMMPS *lmp, int every, Gate gate) :
    Pointers(lmp), every(every), gate(gate)
{
}

bool EngineCheck::due() const
{
  return update->ntimestep % every == 0 && update->ntimestep != checked_step;
}

// A part of the centers, and the rows that are their candidates.
void EngineCheck::draw(const Neighbors &neighbors, int nspecies)
{
  std::vector<int> centers(neighbors.ncenters());
  std::iota(centers.begin(), centers.end(), 0);
  std::mt19937_64 random(static_cast<std::uint64_t>(update->ntimestep) * comm->nprocs + comm->me);
  std::shuffle(centers.begin(), centers.end(), random);
  centers.resize(std::min((centers.size() + ONE_OF - 1) / ONE_OF, std::size_t{MOST}));

  std::vector<int> rows = centers, place(neighbors.nrows(), -1), species, first{0}, candidate;
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
  x.clear();
  for (const int row : rows) {
    species.push_back(neighbors.species()[row]);
    for (int k = 0; k < 3; ++k) x.push_back(neighbors.x()[3 * static_cast<std::size_t>(row) + k]);
  }
  std::vector<int> home(rows.size());
  std::iota(home.begin(), home.end(), 0);
  sample.assign(static_cast<int>(centers.size()), nspecies, std::move(species), std::move(first),
                std::move(candidate), std::move(home), /*hops=*/-1);
  sample.update(x.data());
}

EngineCheck::Difference EngineCheck::difference(Model &model, Model &partner, double temperature)
{
  const auto evaluate = [&](Model &one) {
    pwmlff::Input input = sample.input(one.needs());
    input.nthreads = comm->nthreads;
    input.temperature = temperature;
    return &one.evaluate(input);
  };
  const Evaluation *const found = evaluate(model), *const wanted = evaluate(partner);
  Difference result{};
  for (int i = 0; i < sample.ncenters(); ++i) {
    const double energy = wanted->atom_energy[i];
    result.energy = std::max(result.energy, std::abs(found->atom_energy[i] - energy));
    result.largest_energy = std::max(result.largest_energy, std::abs(energy));
  }
  for (int k = 0; k < 3 * sample.nrows(); ++k) {
    const double force = wanted->force[k];
    result.force = std::max(result.force, std::abs(found->force[k] - force));
    result.largest_force = std::max(result.largest_force, std::abs(force));
  }
  return result;
}

void EngineCheck::compare(const Ensemble &models, const Neighbors &neighbors, double temperature)
{
  checked_step = update->ntimestep;
  worst.resize(models.size());
  draw(neighbors, static_cast<int>(models.front()->info().atom_type.size()));
  int natoms = sample.ncenters();
  MPI_Allreduce(MPI_IN_PLACE, &natoms, 1, MPI_INT, MPI_SUM, world);
  for (std::size_t m = 0; m < models.size(); ++m) {
    // Those that take edges run their own code, or what was compiled of it.
    Model *const partner = models[m]->info().takes_edges ? nullptr : models[m]->partner();
    Difference here{};
    if (partner && sample.ncenters() > 0) here = difference(*models[m], *partner, temperature);
    double all[4] = {here.energy, here.force, here.largest_energy, here.largest_force};
    MPI_Allreduce(MPI_IN_PLACE, all, 4, MPI_DOUBLE, MPI_MAX, world);
    if (all[0] <= worst[m].energy && all[1] <= worst[m].force) continue;
    worst[m] = {std::max(all[0], worst[m].energy), std::max(all[1], worst[m].force), all[2],
                all[3]};
    if (comm->me != 0) continue;
    const std::string text = fmt::format(
        "Pair style pwmlff: check at step {}: model {} differs from float64 by {:.1e} eV in the "
        "energy of an atom and {:.1e} eV/angstrom in a force, of {} atoms",
        update->ntimestep, m + 1, all[0], all[1], natoms);
    if (all[0] > gate.atom_energy * std::max(1.0, all[2]) ||
        all[1] > gate.force * std::max(1.0, all[3]))
      error->warning(FLERR, "{}; that is more than its precision allows", text);
    else utils::logmesg(lmp, text + "\n");
  }
}

}    // namespace pair_pwmlff
