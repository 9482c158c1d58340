// SPDX-License-Identifier: GPL-2.0-or-later

// What `pwmlff run` and a simulation tell each other through files in a folder that all ranks see:
// signs of life from the one, the request to stop from the other.

#ifndef PWMLFF_SUPERVISION_H
#define PWMLFF_SUPERVISION_H

#include "pointers.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace pair_pwmlff {

/// The environment variable PWMLFF_SUPERVISED names the folder; without it nothing happens.
///
/// `heartbeat.N` in it, of partition N (0 where there is one), is written anew every few seconds
/// and holds the step. Where there is a file `stop`, the run ends as with *timer timeout*: after
/// this step, on all ranks of a partition, with a restart file where the input has a command
/// *restart*; further runs are skipped, other commands are not.
class Supervision : protected LAMMPS_NS::Pointers {
 public:
  explicit Supervision(LAMMPS_NS::LAMMPS *lmp);

  /// To be called at each evaluation of forces. Collective, now and then.
  void look();

 private:
  using Clock = std::chrono::steady_clock;

  bool asked_to_stop();
  void stop();

  std::string folder;
  std::int64_t calls = 0, next_look = 0;    // the same on all ranks
  double interval = 1.0;                    // calls between two looks, of rank 0
  Clock::time_point looked, wrote;
  bool stopping = false;
};

}    // namespace pair_pwmlff

#endif
