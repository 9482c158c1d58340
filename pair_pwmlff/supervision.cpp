// SPDX-License-Identifier: GPL-2.0-or-later

#include "supervision.h"

#include "comm.h"
#include "lammps.h"
#include "output.h"
#include "timer.h"
#include "universe.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

constexpr const char *VARIABLE = "PWMLFF_SUPERVISED";
constexpr double BETWEEN_LOOKS = 1.0;    // seconds
constexpr std::chrono::seconds BETWEEN_BEATS(2);
constexpr double MOST_CALLS = 1e6, MOST_GROWTH = 2.0;    // between two looks

}    // namespace

Supervision::Supervision(LAMMPS *lmp) : Pointers(lmp)
{
  if (const char *value = std::getenv(VARIABLE)) folder = value;
}

void Supervision::look()
{
  if (folder.empty() || calls++ < next_look) return;
  // Rank 0 looks, and says after how many calls to look again: those of about a second, approached
  // in steps, as the first calls, or some, may be far faster than the rest.
  std::array<std::int64_t, 2> said = {0, 0};
  if (comm->me == 0) {
    const Clock::time_point now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - looked).count();
    const double growth = BETWEEN_LOOKS / std::max(elapsed, 1e-6);
    looked = now;
    interval = std::clamp(interval * std::min(growth, MOST_GROWTH), 1.0, MOST_CALLS);
    said = {asked_to_stop() ? 1 : 0, calls + static_cast<std::int64_t>(interval) - 1};
  }
  MPI_Bcast(said.data(), 2, MPI_INT64_T, 0, world);
  next_look = said[1];
  // The forces of a setup are those of the step that the run begins with.
  if (said[0] && !stopping && update->ntimestep > update->firststep) stop();
}

bool Supervision::asked_to_stop()
{
  std::error_code ignored;
  if (looked - wrote > BETWEEN_BEATS) {
    wrote = looked;
    std::ofstream(fmt::format("{}/heartbeat.{}", folder, universe->iworld))
        << update->ntimestep << '\n';
  }
  return std::filesystem::exists(folder + "/stop", ignored);
}

void Supervision::stop()
{
  stopping = true;
  timer->force_timeout();
  if (output->restart_flag) {
    if (output->restart_flag_single) output->next_restart_single = update->ntimestep;
    if (output->restart_flag_double) output->next_restart_double = update->ntimestep;
    output->next_restart = output->next = update->ntimestep;
  }
  if (comm->me != 0) return;
  utils::logmesg(lmp, "Pair style pwmlff: asked to stop, after step {}{}\n", update->ntimestep,
                 output->restart_flag
                     ? ", with a restart file"
                     : "; the input has no command restart, so no file is written");
}

}    // namespace pair_pwmlff
