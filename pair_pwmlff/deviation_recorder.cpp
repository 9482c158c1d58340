// SPDX-License-Identifier: GPL-2.0-or-later

#include "deviation_recorder.h"

#include "announced_forces.h"
#include "collective.h"
#include "supervision.h"

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "pair.h"
#include "update.h"

#include <algorithm>
#include <utility>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

DeviationRecorder::DeviationRecorder(LAMMPS *lmp, const Options &options) :
    Pointers(lmp),
    nmodels(static_cast<int>(options.files.size())),
    every(options.out_freq),
    out_file(options.out_file),
    append(options.out_append || goes_on())    // else the lines of earlier starts would be lost
{
  const std::string taken = first_failure(world, [&] {
    if (comm->me == 0) claim.emplace(out_file);
  });
  if (!taken.empty()) error->all(FLERR, "Pair style pwmlff: " + taken);
}

DeviationRecorder::~DeviationRecorder()
{
  if (announced_forces) announced_forces->remove();
}

void DeviationRecorder::init()
{
  if (!announced_forces) AnnouncedForces::add(lmp, announced_forces);
  if (started) return;
  const std::string failure = first_failure(world, [&] {
    if (comm->me != 0) return;
    if (append) file.resume(claim->path(), update->ntimestep);
    else file.open(claim->path());
  });
  if (!failure.empty()) error->all(FLERR, "Pair style pwmlff: " + failure);
  started = true;
}

// The deviation is that of structures that the run goes through, not of those that a fix probes.
bool DeviationRecorder::due()
{
  if (!announced_forces || !announced_forces->take()) return false;
  if (update->ntimestep % every == 0) return true;
  tell_of_skipped_frames();
  return false;
}

/* ----------------------------------------------------------------------
   rerun sets up each frame anew; those between the multiples of out_freq are missed in the file
------------------------------------------------------------------------- */

void DeviationRecorder::tell_of_skipped_frames()
{
  if (told_of_skipped_frames || !update->setupflag || update->ntimestep == update->firststep)
    return;
  told_of_skipped_frames = true;
  if (comm->me == 0)
    error->warning(
        FLERR,
        "Pair style pwmlff: out_freq is {}: frames of other steps, like {}, get no line in "
        "'{}'; 'out_freq 1' gives one to each frame",
        every, update->ntimestep, out_file);
}

void DeviationRecorder::keep(int model, const Neighbors &neighbors, const Evaluation *result,
                             double unit)
{
  forces.resize(nmodels);
  energies.resize(nmodels);
  forces[model].assign(3 * static_cast<std::size_t>(atom->nlocal + atom->nghost), 0.0);
  energies[model].clear();
  if (!result) return;
  for (int row = 0; row < neighbors.nrows(); ++row)
    for (int k = 0; k < 3; ++k)
      forces[model][3 * neighbors.atom()[row] + k] = unit * result->force[3 * row + k];
  for (int row = 0; row < neighbors.ncenters(); ++row)
    energies[model].push_back(unit * result->atom_energy[row]);
}

void DeviationRecorder::write(Pair *pair, const Neighbors &neighbors)
{
  for (auto &of_model : forces) {
    reverse = of_model.data();
    comm->reverse_comm(pair);
    std::vector<double> center_values;
    for (int row = 0; row < neighbors.ncenters(); ++row)
      center_values.insert(center_values.end(), &of_model[3 * neighbors.atom()[row]],
                           &of_model[3 * neighbors.atom()[row]] + 3);
    of_model = std::move(center_values);
  }
  const Spread force = ensemble_deviation(forces, neighbors.ncenters(), 3, world);
  const Spread energy = ensemble_deviation(energies, neighbors.ncenters(), 1, world);
  const std::string failure = first_failure(world, [&] {
    if (comm->me == 0) file.write(update->ntimestep, force, energy, update->setupflag != 0);
  });
  if (!failure.empty()) error->all(FLERR, "Pair style pwmlff: " + failure);
}

int DeviationRecorder::pack(int n, int first, double *buf) const
{
  std::copy_n(&reverse[3 * first], 3 * n, buf);
  return 3 * n;
}

void DeviationRecorder::unpack(int n, const int *list, const double *buf)
{
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < 3; ++k) reverse[3 * list[i] + k] += *buf++;
}

}    // namespace pair_pwmlff
