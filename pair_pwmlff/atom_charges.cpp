// SPDX-License-Identifier: GPL-2.0-or-later

#include "atom_charges.h"

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "memory.h"
#include "update.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

constexpr double MOST_MEAN = 0.05;    // e; models of the field have up to 0.001 where they learned

}    // namespace

AtomCharges::~AtomCharges() { memory->destroy(born_); }

void AtomCharges::clear(bool born)
{
  wants_born = born;
  const int nlocal = atom->nlocal;
  for (std::vector<double> *const values : {&charge_, &potential_}) {
    values->reserve(1);    // a rank without atoms has an array too
    values->assign(nlocal, 0.0);
  }
  step = born_step = -1;
  if (!wants_born) return;
  if (nlocal > nmax || !born_) {
    nmax = std::max(nlocal, 1);
    memory->destroy(born_);
    memory->create(born_, nmax, 9, "pair:born");
  }
  std::fill_n(born_[0], 9 * static_cast<std::size_t>(nlocal), 0.0);
}

void AtomCharges::add(const Neighbors &neighbors, const pwmlff::Evaluation *result, double weight,
                      pwmlff::RowExchange &exchange)
{
  step = update->ntimestep;
  if (result && !has_told && std::abs(result->mean_charge) > MOST_MEAN && comm->me == 0) {
    error->warning(
        FLERR,
        "Pair style pwmlff: the charges that a model gives add up to {:.3g} e for an atom, which "
        "is taken off all alike; it may not have learned such a composition",
        result->mean_charge);
    has_told = true;
  }
  const int ncenters = result ? neighbors.ncenters() : 0;
  for (int row = 0; row < ncenters; ++row) {
    charge_[neighbors.atom()[row]] += weight * result->charge[row];
    potential_[neighbors.atom()[row]] += weight * result->potential[row];
  }
  if (!wants_born) return;
  born_step = step;
  rows.assign(9 * static_cast<std::size_t>(neighbors.nrows()), 0.0);
  if (result) std::copy_n(result->born, rows.size(), rows.begin());
  exchange.reverse({rows.data(), 9});
  for (int row = 0; row < ncenters; ++row)
    for (int c = 0; c < 9; ++c)
      born_[neighbors.atom()[row]][c] += weight * rows[9 * static_cast<std::size_t>(row) + c];
}

bool AtomCharges::show(const Neighbors &neighbors)
{
  if (!atom->q_flag || step < 0) return false;
  for (int row = 0; row < neighbors.ncenters(); ++row) {
    const int i = neighbors.atom()[row];
    if (neighbors.species()[row] >= 0) atom->q[i] = charge_[i];
  }
  return true;
}

double *AtomCharges::charge()
{
  const bool is_current =
      step == update->ntimestep && static_cast<int>(charge_.size()) == atom->nlocal;
  return is_current ? charge_.data() : nullptr;
}

double *AtomCharges::potential() { return charge() ? potential_.data() : nullptr; }

double **AtomCharges::born()
{
  return charge() && born_step == update->ntimestep ? born_ : nullptr;
}

double AtomCharges::memory_usage() const
{
  return static_cast<double>(
      (charge_.capacity() + potential_.capacity() + rows.capacity() + 9 * std::size_t(nmax)) *
      sizeof(double));
}

}    // namespace pair_pwmlff
