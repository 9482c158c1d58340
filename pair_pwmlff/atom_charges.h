// SPDX-License-Identifier: GPL-2.0-or-later

// Charges and Born charges of a model as data of LAMMPS.

#pragma once

#include "models/neighbors.h"

#include "pointers.h"

#include <vector>

namespace pair_pwmlff {

/// Of the atoms of this rank, by what drives; zero for those that are NULL.
class AtomCharges : private LAMMPS_NS::Pointers {
 public:
  explicit AtomCharges(LAMMPS_NS::LAMMPS *lmp) : Pointers(lmp) {}
  ~AtomCharges() override;
  AtomCharges(const AtomCharges &) = delete;
  AtomCharges &operator=(const AtomCharges &) = delete;

  /// Begin a step.
  /// @param born  whether Born charges are wanted
  void clear(bool born);
  /// Add those of a model. Collective where Born charges are wanted.
  /// @param result  null on a rank that has evaluated nothing
  /// @param exchange  of rows of ghosts
  void add(const pwmlff::models::Neighbors &neighbors, const pwmlff::Evaluation *result,
           double weight, pwmlff::RowExchange &exchange);
  /// End a step: charges are in atom->q, too, where atoms have any.
  /// @return whether they are
  bool show(const pwmlff::models::Neighbors &neighbors);

  /// [nlocal] e, [nlocal] V as Evaluation::potential, and [nlocal][9] e in the order xx xy xz yx ..
  /// of the dipole moment and the displacement; null where they were not found on this step.
  double *charge();
  double *potential();
  double **born();

  double memory_usage() const;

 private:
  bool wants_born = false, has_told = false;
  LAMMPS_NS::bigint step = -1, born_step = -1;
  std::vector<double> charge_, potential_;    // [nlocal]
  std::vector<double> rows;                   // [nrows, 9]
  double **born_ = nullptr;                   // [nmax][9]
  int nmax = 0;
};

}    // namespace pair_pwmlff
