// SPDX-License-Identifier: GPL-2.0-or-later

#include "extrapolation.h"

#include "core/periodic_table.h"

#include "atom.h"
#include "error.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <stdexcept>
#include <string>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

Extrapolation::Extrapolation(LAMMPS *lmp, const std::optional<GradeLimit> &limit) :
    Pointers(lmp), limit(limit)
{
}

void Extrapolation::take(const ModelInfo &info, Neighbors &neighbors, const Evaluation *result,
                         bool wanted)
{
  const int ncenters = result ? neighbors.ncenters() : 0;
  if (!wanted && limit) {    // no mean is above the largest
    double of_all = ncenters > 0 ? *std::max_element(result->grade, result->grade + ncenters) : 0.0;
    MPI_Allreduce(MPI_IN_PLACE, &of_all, 1, MPI_DOUBLE, MPI_MAX, world);
    if (of_all <= limit->gamma) return;
  }
  const std::vector<double> &of_rows = neighbors.gamma(result);
  gamma.reserve(1);    // a rank without atoms has an array too
  gamma.assign(atom->nlocal, 0.0);
  step = update->ntimestep;
  const std::vector<int> &elements = info.atom_type;
  warned.resize(elements.size(), false);
  most.assign(elements.size(), 0.0);
  int worst = -1;    // of those that nobody was warned of
  for (int row = 0; row < ncenters; ++row) {
    gamma[neighbors.atom()[row]] = of_rows[row];
    const int species = neighbors.species()[row];
    if (species < 0)
      continue;    // where a device has found the neighbors, also atoms that are NULL
    most[species] = std::max(most[species], of_rows[row]);
    if (!limit || of_rows[row] <= limit->gamma) continue;
    if (!limit->stop && warned[species]) continue;
    if (worst < 0 || of_rows[row] > of_rows[worst]) worst = row;
  }
  if (worst < 0 || !limit) return;
  const int species = neighbors.species()[worst];
  const std::string text = fmt::format(
      "atom {} ({}) has an extrapolation grade gamma of {:.4g} at step {}, more than {:.4g}; up to "
      "1 lies what model '{}' was trained on",
      atom->tag[neighbors.atom()[worst]], pwmlff::symbol(elements[species]), of_rows[worst], step,
      limit->gamma, info.file);
  if (limit->stop) throw std::runtime_error(text);
  error->warning(FLERR, "Pair style pwmlff: {}", text);
  warned[species] = true;
}

std::vector<double> Extrapolation::largest() const
{
  std::vector<double> of_all(most.size(), 0.0);
  MPI_Reduce(most.data(), of_all.data(), static_cast<int>(most.size()), MPI_DOUBLE, MPI_MAX, 0,
             world);
  return of_all;
}

double *Extrapolation::of_this_step()
{
  const bool is_current =
      step == update->ntimestep && static_cast<int>(gamma.size()) == atom->nlocal;
  return is_current ? gamma.data() : nullptr;
}

}    // namespace pair_pwmlff
