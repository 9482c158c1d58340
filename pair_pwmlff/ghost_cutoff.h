// SPDX-License-Identifier: GPL-2.0-or-later

// How far the ghosts of a LAMMPS instance reach, where pair styles need more than the user asked
// for.

#ifndef PWMLFF_GHOST_CUTOFF_H
#define PWMLFF_GHOST_CUTOFF_H

namespace LAMMPS_NS {
class Comm;
}

namespace pair_pwmlff {

/// The need of one style. LAMMPS's cutoff is the largest of all needs and of what the user has said
/// (comm_modify cutoff), also when needs end in another order than they began in.
class GhostCutoff {
 public:
  explicit GhostCutoff(LAMMPS_NS::Comm *comm) : comm(comm) {}
  ~GhostCutoff() { release(); }
  GhostCutoff(const GhostCutoff &) = delete;
  GhostCutoff &operator=(const GhostCutoff &) = delete;

  /// Ghosts as far as this, from now on.
  void need(double cutoff);
  /// No more than others need.
  void release();

 private:
  LAMMPS_NS::Comm *comm;
};

}    // namespace pair_pwmlff

#endif
