// SPDX-License-Identifier: GPL-2.0-or-later

#include "extrapolation.h"

#include "common/periodic_table.h"

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

void Extrapolation::take(const Model &model, const Neighbors &neighbors, const Evaluation *result)
{
  gamma.reserve(1);    // a rank without atoms has an array too
  gamma.assign(atom->nlocal, 0.0);
  step = update->ntimestep;
  const std::vector<int> &elements = model.info().atom_type;
  warned.resize(elements.size(), false);
  int worst = -1;    // of those that nobody was warned of
  for (int row = 0; result && row < neighbors.ncenters(); ++row) {
    gamma[neighbors.atom()[row]] = result->grade[row];
    if (!limit || result->grade[row] <= limit->gamma) continue;
    if (!limit->stop && warned[neighbors.species()[row]]) continue;
    if (worst < 0 || result->grade[row] > result->grade[worst]) worst = row;
  }
  if (worst < 0) return;
  const int species = neighbors.species()[worst];
  const std::string text = fmt::format(
      "atom {} ({}) has an extrapolation grade gamma of {:.4g} at step {}, more than {:.4g}; up to "
      "1 lies what model '{}' was trained on",
      atom->tag[neighbors.atom()[worst]], pwmlff::symbol(elements[species]), result->grade[worst],
      step, limit->gamma, model.info().file);
  if (limit->stop) throw std::runtime_error(text);
  error->warning(FLERR, "Pair style pwmlff: {}", text);
  warned[species] = true;
}

double Extrapolation::largest() const
{
  const double here = gamma.empty() ? 0.0 : *std::max_element(gamma.begin(), gamma.end());
  double of_all = 0.0;
  MPI_Reduce(&here, &of_all, 1, MPI_DOUBLE, MPI_MAX, 0, world);
  return of_all;
}

double *Extrapolation::of_this_step()
{
  const bool is_current =
      step == update->ntimestep && static_cast<int>(gamma.size()) == atom->nlocal;
  return is_current ? gamma.data() : nullptr;
}

}    // namespace pair_pwmlff
