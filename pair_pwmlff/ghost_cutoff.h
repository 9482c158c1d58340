// SPDX-License-Identifier: GPL-2.0-or-later

// How far the ghosts of a LAMMPS instance reach, where pair styles need more than the user asked
// for.

#ifndef PWMLFF_GHOST_CUTOFF_H
#define PWMLFF_GHOST_CUTOFF_H

namespace LAMMPS_NS {
class LAMMPS;
}

namespace pair_pwmlff {

/// The need of one style. LAMMPS's cutoff is the largest of all needs and of what the user has said
/// (comm_modify cutoff), also when needs end in another order than they began in, and whatever
/// comm_style makes of its Comm.
class GhostCutoff {
 public:
  explicit GhostCutoff(LAMMPS_NS::LAMMPS *lmp) : lmp(lmp) {}
  ~GhostCutoff() { release(); }
  GhostCutoff(const GhostCutoff &) = delete;
  GhostCutoff &operator=(const GhostCutoff &) = delete;

  /// Ghosts as far as this, from now on.
  void need(double cutoff);
  /// No more than others need.
  void release();

 private:
  LAMMPS_NS::LAMMPS *lmp;
};

}    // namespace pair_pwmlff

#endif
