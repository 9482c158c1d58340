// SPDX-License-Identifier: GPL-2.0-or-later

#include "frame_capture.h"

#include "collective.h"
#include "supervision.h"

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "error.h"
#include "timer.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

constexpr const char *STEP = " step=";
constexpr int WIDTH = 10;    // ID, type, position, velocity, deviations

std::string name_of_failed(const std::filesystem::path &file)
{
  std::filesystem::path name = file;
  return name.replace_extension(".failed" + file.extension().string()).string();
}

}    // namespace

FrameCapture::FrameCapture(LAMMPS *lmp, const Capture &capture, const Settings &settings) :
    Pointers(lmp),
    capture(capture),
    every(capture.every ? capture.every : settings.out_freq),
    append(settings.out_append || is_continuation()),
    failed_name(name_of_failed(capture.file)),
    failed_path(std::filesystem::absolute(failed_name).string()),
    relative(settings.relative > 0.0)
{
  all_or_stop(lmp, [&] {
    if (comm->me == 0)
      file =
          std::make_unique<OwnedFile>(capture.file, "the file of captured structures", "capture");
  });
}

FrameCapture::~FrameCapture() = default;

void FrameCapture::init(std::vector<std::string> symbols, double energy_unit)
{
  symbol_of_type = std::move(symbols);
  unit = energy_unit;
  unit_of_force = relative ? 1.0 : energy_unit;
  if (opened) return;
  all_or_stop(lmp, [&] {
    if (file)
      file->open([&](const std::string &path) {
        return append ? end_of_frames_before(path, update->ntimestep) : 0;
      });
  });
  MPI_Bcast(&nframes, 1, MPI_INT, 0, world);
  opened = true;
}

bool FrameCapture::due() const { return update->ntimestep % every == 0; }

void FrameCapture::look(const Deviation &deviation, const std::vector<double> &of_force,
                        const std::vector<double> &of_energy, bool begins)
{
  pending.reset();
  beyond = 0.0;
  const bool again = update->ntimestep == last_step;
  if (again && begins && deviation.is_close_to(last)) return;
  if (again && !begins) {
    --nframes;
    last_step = -1;
    all_or_stop(lmp, [&] {
      if (file) file->shorten(last_start);
    });
  }
  const double largest = deviation.force.maximum;
  const bool has_end_of_step = update->whichflag == 1 && !begins;
  if (capture.stop_beyond && largest >= capture.hi) beyond = largest;
  if (!has_end_of_step) stop_beyond();
  const bool full = capture.most > 0 && nframes >= capture.most;
  if (!(largest >= capture.lo && largest < capture.hi) || full) return;
  const std::string properties =
      fmt::format("max_devi_f={:.12g} avg_devi_f={:.12g} devi_e={:.12g}", largest * unit_of_force,
                  deviation.force.average * unit_of_force, deviation.total_energy * unit);
  pending = taken(properties, of_force, of_energy);
  last = deviation;
  if (!has_end_of_step) complete();
}

void FrameCapture::stop_beyond()
{
  if (beyond == 0.0) return;
  if (comm->me == 0)
    utils::logmesg(lmp,
                   "Pair style pwmlff: the largest force deviation is {:.6g} at step {}, beyond "
                   "the {:.6g} of capture; the run ends\n",
                   beyond, update->ntimestep, capture.hi);
  timer->force_timeout();
  beyond = 0.0;
}

void FrameCapture::complete()
{
  stop_beyond();
  if (!pending) return;
  const std::string whole = text(*pending);
  pending.reset();
  all_or_stop(lmp, [&] {
    if (!file) return;
    last_start = file->size();
    file->append(whole);
  });
  last_step = update->ntimestep;
  if (++nframes == capture.most && comm->me == 0)
    utils::logmesg(lmp, "Pair style pwmlff: '{}' has {} structures, which is the max of capture\n",
                   capture.file, nframes);
}

std::string FrameCapture::store_failed(const std::string &why)
{
  std::string quoted = why;
  std::replace(quoted.begin(), quoted.end(), '"', '\'');
  const std::vector<double> none(atom->nlocal, 0.0);
  const std::string whole = text(taken("error=\"" + quoted + "\"", none, none));
  all_or_stop(lmp, [&] {
    if (comm->me != 0) return;
    std::ofstream to(failed_path);
    to << whole;
    if (to.flush()) return;
    std::error_code ignored;
    std::filesystem::remove(failed_path, ignored);    // a part of it is none
    throw std::runtime_error("cannot write the last structure to " + failed_path + " (" + quoted +
                             ")");
  });
  return failed_name;
}

FrameCapture::Frame FrameCapture::taken(const std::string &properties,
                                        const std::vector<double> &of_force,
                                        const std::vector<double> &of_energy) const
{
  const double *const h = domain->h;
  const bool tilted = domain->triclinic != 0;
  Frame frame;
  frame.comment =
      fmt::format("Lattice=\"{:.17g} 0 0 {:.17g} {:.17g} 0 {:.17g} {:.17g} {:.17g}\" "
                  "Properties=species:S:1:pos:R:3:velocity:R:3:id:I:1:force_deviation:R:1:"
                  "energy_deviation:R:1 pbc=\"",
                  h[0], tilted ? h[5] : 0.0, h[1], tilted ? h[4] : 0.0, tilted ? h[3] : 0.0, h[2]);
  for (int k = 0; k < 3; ++k)
    frame.comment += fmt::format("{}{}", k ? " " : "", domain->periodicity[k] ? 'T' : 'F');
  frame.comment += fmt::format("\"{}{} {}", STEP, update->ntimestep, properties);
  for (int i = 0; i < atom->nlocal; ++i) {
    frame.rows.push_back(static_cast<double>(atom->tag[i]));
    frame.rows.push_back(atom->type[i]);
    for (int k = 0; k < 3; ++k) frame.rows.push_back(atom->x[i][k] - domain->boxlo[k]);
    frame.rows.resize(frame.rows.size() + 3);
    frame.rows.push_back(of_force[i] * unit_of_force);
    frame.rows.push_back(of_energy[i] * unit);
  }
  return frame;
}

// With the velocities of now; on rank 0, empty elsewhere. Collective.
std::string FrameCapture::text(Frame frame) const
{
  // Velocities are in angstrom/fs in units real.
  const double of_velocity = utils::strmatch(update->unit_style, "^real") ? 1000.0 : 1.0;
  for (int i = 0; i < atom->nlocal; ++i)
    for (int k = 0; k < 3; ++k)
      frame.rows[static_cast<std::size_t>(WIDTH) * i + 5 + k] = of_velocity * atom->v[i][k];
  const std::vector<double> all = gathered_by_id(world, frame.rows, WIDTH);
  if (comm->me != 0) return {};

  std::string text = fmt::format("{}\n{}\n", all.size() / WIDTH, frame.comment);
  for (std::size_t i = 0; i < all.size(); i += WIDTH) {
    const double *const row = &all[i];
    text += symbol_of_type[static_cast<int>(row[1])];
    for (int k = 2; k < 8; ++k) text += fmt::format(" {:.17g}", row[k]);
    text += fmt::format(" {} {:.12g} {:.12g}\n", static_cast<tagint>(row[0]), row[8], row[9]);
  }
  return text;
}

// Bytes of complete structures of earlier steps; counts them.
std::int64_t FrameCapture::end_of_frames_before(const std::string &path, std::int64_t step)
{
  std::ifstream old(path);
  std::string line;
  std::int64_t end = 0;
  const auto complete = [&] { return std::getline(old, line) && !old.eof(); };
  while (complete()) {
    char *rest = nullptr;
    const long natoms = std::strtol(line.c_str(), &rest, 10);
    if (natoms < 0 || rest == line.c_str() || *rest != '\0' || !complete()) {
      if (old.eof()) break;    // the first lines of one that is not complete
      throw std::runtime_error("file " + path + " has '" + line.substr(0, 40) +
                               "' where a structure should begin, so it is no file of captured "
                               "structures; choose another one with capture");
    }
    const std::size_t found = line.find(STEP);
    if (found == std::string::npos)
      throw std::runtime_error("file " + path +
                               " has a structure without a step, so it is no "
                               "file of captured structures; choose another one with capture");
    if (std::strtoll(line.c_str() + found + std::string(STEP).size(), nullptr, 10) >= step) break;
    long k = 0;
    while (k < natoms && complete()) ++k;
    if (k < natoms) break;
    end = old.tellg();
    ++nframes;
  }
  return end;
}

}    // namespace pair_pwmlff
