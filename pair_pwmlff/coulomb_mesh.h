// SPDX-License-Identifier: GPL-2.0-or-later

// The reciprocal part of a Coulomb energy by a kspace style of LAMMPS.

#pragma once

#include "ensemble.h"
#include "pair_settings.h"

#include "core/evaluation.h"

#include "pointers.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace LAMMPS_NS {
class KSpace;
class Pair;
}    // namespace LAMMPS_NS

namespace pair_pwmlff {

/// The input's own kspace style, which LAMMPS is told not to run, or a pppm of this object.
/// Potentials are derivatives of the energies of atoms that it gives.
class CoulombMesh : public pwmlff::ReciprocalSolver, private LAMMPS_NS::Pointers {
 public:
  /// @param screening  alpha of the models, 1/angstrom
  CoulombMesh(LAMMPS_NS::LAMMPS *lmp, const Reciprocal &asked, double screening);
  ~CoulombMesh() noexcept override;

  /// Before a run. Whether there is a mesh is known from then on. Collective.
  /// @param pair  on whose behalf it is
  /// @throws LAMMPS_NS::LAMMPSException for a kspace style that cannot be used
  void init(LAMMPS_NS::Pair *pair, const Ensemble &models);

  /// Tell the kspace style of the input, if there is one, how models screen charges. It wants to
  /// know before it looks at charges, which may not be there yet.
  void tell_screening() const;

  /// Itself, or null where there is none.
  pwmlff::ReciprocalSolver *solver() { return kspace ? this : nullptr; }

  /// For the log: what sums the charges up.
  std::string description() const;

  /// Tell it whose the charges are.
  /// @param atom  [ncenters or more] until the next call
  void take(const std::vector<int> &atom) { atom_of_row = atom.data(); }

  void solve(const pwmlff::Input &input, const double *charge, double *potential, double *field,
             double *virial, double *atom_virial) override;

 private:
  void refuse_others() const;
  void prepare();
  std::array<double, 15> geometry() const;

  const Reciprocal asked;
  const double screening;
  std::unique_ptr<LAMMPS_NS::KSpace> own;
  LAMMPS_NS::KSpace *kspace = nullptr;    // own, or that of the input
  bool ready = false;
  double known_squares = 0.0;        // of charges that it is ready for
  std::array<double, 15> known{};    // box and subdomain that it is ready for
  const int *atom_of_row = nullptr;
  std::vector<double> charges, forces;    // [nlocal], [nlocal, 3] of LAMMPS meanwhile
};

}    // namespace pair_pwmlff
