// SPDX-License-Identifier: GPL-2.0-or-later

// How a simulation and `pwmlff run` communicate, through files in a folder that all ranks see: the
// one writes a heartbeat with the state of LAMMPS, the other requests to stop.

#pragma once

#include "pointers.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// The environment variable PWMLFF_SUPERVISED names the folder; without it nothing happens.
///
/// `heartbeat.N` in it, of partition N (0 where there is one), is replaced every few seconds, and
/// when a run begins with other settings than are in it. It is an object of JSON:
///   computes  whether the style is still there and forces of a run have been asked for
///   step, last  of the run: now, and where it will end
///   timestep, units  in LAMMPS's terms
///   stopped   the step at which the run was asked to stop, or null
///   restarts  [folder, name] of the files of commands *restart*, as LAMMPS has them: where it was,
///             and the name with * for the step, or two names
///   files     [name, appends] of its logs, and of its screen if that is a file: from the root, and
///             whether it goes on with what was there
///
/// Where there is a file `stop`, the run ends as with *timer timeout*: after this step, on all
/// ranks of a partition, with a restart file where the input has a command *restart*; further runs
/// are skipped, other commands are not.
class Supervision : protected LAMMPS_NS::Pointers {
 public:
  explicit Supervision(LAMMPS_NS::LAMMPS *lmp);
  ~Supervision() override;
  Supervision(const Supervision &) = delete;
  Supervision &operator=(const Supervision &) = delete;

  /// Before a run: write its settings.
  void init();

  /// To be called at each evaluation of forces: write the heartbeat that is due, and look for the
  /// request to stop. Collective, now and then.
  void poll();

 private:
  using Clock = std::chrono::steady_clock;

  void update_heartbeat();
  void write_heartbeat();
  bool stop_is_requested();
  void stop();

  std::string folder;
  bool writes = false;                       // on rank 0 of a partition that is supervised
  std::int64_t calls = 0, next_check = 0;    // the same on all ranks
  double interval = 1.0;                     // calls between two checks, of rank 0
  Clock::time_point checked, wrote;
  bool computes = false, stopping = false;
  // Contents and name of the heartbeat.
  std::int64_t step = 0, first = -1, stopped = -1;
  std::vector<std::string> restarts, files;    // all so far
  std::string progress, settings, file;
};

/// Whether `pwmlff run` has started this LAMMPS to continue what an earlier one began (environment
/// variable PWMLFF_GOES_ON).
bool is_continuation();

}    // namespace pair_pwmlff
