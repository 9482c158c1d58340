/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Tells forces that a run goes on with from those of a structure that is only tried.
//
// Integrators and minimizers announce to all fixes that they are about to compute forces (pre_force). What
// probes other structures in between, like fix numdiff and compute fep, calls the pair style without.

#ifndef PWMLFF_ANNOUNCED_FORCES_H
#define PWMLFF_ANNOUNCED_FORCES_H

#include "fix.h"

namespace pair_pwmlff {

class AnnouncedForces : public LAMMPS_NS::Fix {
 public:
  /// Add one to a LAMMPS whose box exists. It belongs to LAMMPS until remove().
  static AnnouncedForces *add(LAMMPS_NS::LAMMPS *lmp);
  /// Take it away again, where it is still there.
  static void remove(LAMMPS_NS::LAMMPS *lmp, const AnnouncedForces *fix);

  /// Whether forces were announced since the last call.
  bool take();

  int setmask() override;
  void setup_pre_force(int) override { announced = true; }
  void setup_pre_force_respa(int, int) override { announced = true; }
  void pre_force(int) override { announced = true; }
  void min_pre_force(int) override { announced = true; }
  void pre_force_respa(int, int, int) override { announced = true; }

 private:
  AnnouncedForces(LAMMPS_NS::LAMMPS *lmp, int narg, char **arg) : Fix(lmp, narg, arg) {}
  static LAMMPS_NS::Fix *create(LAMMPS_NS::LAMMPS *lmp, int narg, char **arg);

  bool announced = false;
};

}    // namespace pair_pwmlff

#endif
