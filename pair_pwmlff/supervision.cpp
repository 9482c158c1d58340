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
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include <fcntl.h>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

constexpr const char *VARIABLE = "PWMLFF_SUPERVISED", *CONTINUATION_VARIABLE = "PWMLFF_GOES_ON";
constexpr double BETWEEN_CHECKS = 1.0;    // seconds
constexpr std::chrono::seconds BETWEEN_BEATS(2);
constexpr double MOST_CALLS = 1e6, MOST_GROWTH = 2.0;    // between two checks

// A string of JSON. Bytes above 127 stay as they are: names of files need not be UTF-8.
std::string quoted(const std::string &text)
{
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) result += fmt::format("\\u{:04x}", int{c});
    else result += c;
  }
  return result + '"';
}

void add(std::vector<std::string> &list, const std::string &element)
{
  if (std::find(list.begin(), list.end(), element) == list.end()) list.push_back(element);
}

// A file that is open, to a list of JSON, if it has a name.
void add_file(std::vector<std::string> &list, std::FILE *file)
{
  if (!file || file == stdout) return;
  std::error_code none;
  const auto name =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fileno(file)), none);
  if (none || !std::filesystem::is_regular_file(name, none)) return;
  const bool appends = (fcntl(fileno(file), F_GETFL) & O_APPEND) != 0;
  add(list, fmt::format("[{}, {}]", quoted(name.string()), appends));
}

// Names of restart files as LAMMPS has expanded them.
void add_restarts(std::vector<std::string> &list, const Output &output)
{
  std::error_code ignored;
  const std::string folder = quoted(std::filesystem::current_path(ignored).string());
  const auto add_name = [&](const char *name) {
    if (name) add(list, fmt::format("[{}, {}]", folder, quoted(name)));
  };
  if (output.restart_flag_single) add_name(output.restart1);
  if (output.restart_flag_double) add_name(output.restart2a);
  if (output.restart_flag_double) add_name(output.restart2b);
}

}    // namespace

bool is_continuation() { return std::getenv(CONTINUATION_VARIABLE) != nullptr; }

Supervision::Supervision(LAMMPS *lmp) : Pointers(lmp)
{
  if (const char *value = std::getenv(VARIABLE)) folder = value;
  writes = !folder.empty() && comm->me == 0;
  file = fmt::format("{}/heartbeat.{}", folder, universe->iworld);
}

// LAMMPS goes on without this style, or comes to its end: no more signs of life are to be expected.
// What Pointers point to may be gone.
Supervision::~Supervision()
{
  if (!computes || !writes) return;
  computes = false;
  write_heartbeat();
}

void Supervision::init()
{
  if (writes) update_heartbeat();
}

void Supervision::poll()
{
  if (folder.empty()) return;
  if (writes) {
    step = update->ntimestep;
    // Rows that a buffer holds would be lost where another rank dies.
    for (std::FILE *const rows : {lmp->logfile, lmp->screen})
      if (rows) std::fflush(rows);
    // What commands between the parts of a run have changed, which need not call init().
    if (!computes || update->firststep != first) {
      if (!computes) wrote = {};    // due, even where nothing else is new
      computes = true;
      update_heartbeat();
    }
  }
  if (calls++ < next_check) return;
  // Rank 0 checks, and broadcasts after how many calls to check again: those of about a second,
  // approached in steps, as the first calls, or some, may be far faster than the rest.
  std::array<std::int64_t, 2> answer = {0, 0};    // whether to stop, the next check
  if (comm->me == 0) {
    const Clock::time_point now = Clock::now();
    const double elapsed = std::chrono::duration<double>(now - checked).count();
    const double growth = BETWEEN_CHECKS / std::max(elapsed, 1e-6);
    checked = now;
    interval = std::clamp(interval * std::min(growth, MOST_GROWTH), 1.0, MOST_CALLS);
    answer = {stop_is_requested() ? 1 : 0, calls + static_cast<std::int64_t>(interval) - 1};
  }
  MPI_Bcast(answer.data(), 2, MPI_INT64_T, 0, world);
  next_check = answer[1];
  // The forces of a setup are those of the step that the run begins with.
  if (answer[0] && !stopping && update->ntimestep > update->firststep) stop();
}

bool Supervision::stop_is_requested()
{
  std::error_code ignored;
  update_heartbeat();
  return std::filesystem::exists(folder + "/stop", ignored);
}

// Write the heartbeat where it is due.
void Supervision::update_heartbeat()
{
  step = update->ntimestep;
  first = update->firststep;
  add_restarts(restarts, *output);
  add_file(files, lmp->logfile);
  add_file(files, screen);
  const std::string found =
      fmt::format(R"("units": {}, "stopped": {}, "restarts": [{}], "files": [{}])",
                  quoted(update->unit_style), stopped < 0 ? "null" : std::to_string(stopped),
                  utils::join_words(restarts, ", "), utils::join_words(files, ", "));
  if (found == settings && Clock::now() - wrote < BETWEEN_BEATS) return;
  settings = found;
  progress = fmt::format(R"("last": {}, "timestep": {}, )", update->endstep, update->dt);
  write_heartbeat();
}

// Under another name first, so that a reader finds it whole.
void Supervision::write_heartbeat()
{
  std::error_code ignored;
  wrote = Clock::now();
  const std::string draft = file + ".new";
  std::ofstream stream(draft);
  stream << fmt::format("{{\"computes\": {}, \"step\": {}, {}{}}}\n", computes, step, progress,
                        settings);
  stream.close();
  // Where the disk is full, the last one stays, and its time is the sign of life.
  if (stream) std::filesystem::rename(draft, file, ignored);
  else
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now(), ignored);
}

void Supervision::stop()
{
  stopping = true;
  stopped = update->ntimestep;
  timer->force_timeout();
  if (output->restart_flag) {
    if (output->restart_flag_single) output->next_restart_single = update->ntimestep;
    if (output->restart_flag_double) output->next_restart_double = update->ntimestep;
    output->next_restart = output->next = update->ntimestep;
  }
  if (comm->me != 0) return;
  update_heartbeat();
  utils::logmesg(lmp, "Pair style pwmlff: asked to stop, after step {}{}\n", update->ntimestep,
                 output->restart_flag
                     ? ", with a restart file"
                     : "; the input has no command restart, so no file is written");
}

}    // namespace pair_pwmlff
