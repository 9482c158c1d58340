// SPDX-License-Identifier: GPL-2.0-or-later

// Tells forces that a run goes on with from those of a structure that is only tried.
//
// Integrators and minimizers announce to all fixes that they are about to compute forces
// (pre_force). What probes other structures in between, like fix numdiff and compute fep, calls the
// pair style without. Commands that announce what they probe (dynamical_matrix) do so outside of a
// run. Monte Carlo fixes announce their trials within a run, and there the last evaluation of a
// step is that of the structure it ends with.

#ifndef PWMLFF_ANNOUNCED_FORCES_H
#define PWMLFF_ANNOUNCED_FORCES_H

#include "fix.h"

namespace pair_pwmlff {

class AnnouncedForces : public LAMMPS_NS::Fix {
 public:
  /// Add one to a LAMMPS whose box exists. It belongs to LAMMPS, and users can remove it.
  /// @param place  where it is from now on; null again once it is gone
  static void add(LAMMPS_NS::LAMMPS *lmp, AnnouncedForces *&place);
  /// Take it away again.
  void remove();
  ~AnnouncedForces() override;

  /// Whether forces were announced since the last call.
  bool take();

  int setmask() override;
  void setup_pre_force(int) override { announce(); }
  void setup_pre_force_respa(int, int) override { announce(); }
  void pre_force(int) override { announce(); }
  void min_pre_force(int) override { announce(); }
  void pre_force_respa(int, int, int) override { announce(); }

 private:
  AnnouncedForces(LAMMPS_NS::LAMMPS *lmp, int narg, char **arg) : Fix(lmp, narg, arg) {}
  static LAMMPS_NS::Fix *create(LAMMPS_NS::LAMMPS *lmp, int narg, char **arg);
  void announce();

  bool announced = false;
  AnnouncedForces **place = nullptr;
};

}    // namespace pair_pwmlff

#endif
