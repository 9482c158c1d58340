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
    failed_path(std::filesystem::absolute(failed_name).string())
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
  if (capture.stop_beyond && largest >= capture.hi) {
    if (comm->me == 0)
      utils::logmesg(lmp,
                     "Pair style pwmlff: the largest force deviation is {:.6g} at step {}, beyond "
                     "the {:.6g} of capture; the run ends\n",
                     largest, update->ntimestep, capture.hi);
    timer->force_timeout();
  }
  const bool full = capture.most > 0 && nframes >= capture.most;
  if (!(largest >= capture.lo && largest < capture.hi) || full) return;
  const std::string properties =
      fmt::format("max_devi_f={:.12g} avg_devi_f={:.12g} devi_e={:.12g}", largest * unit,
                  deviation.force.average * unit, deviation.total_energy * unit);
  const std::string text = frame(properties, of_force, of_energy);
  all_or_stop(lmp, [&] {
    if (!file) return;
    last_start = file->size();
    file->append(text);
  });
  last_step = update->ntimestep;
  last = deviation;
  if (++nframes == capture.most && comm->me == 0)
    utils::logmesg(lmp, "Pair style pwmlff: '{}' has {} structures, which is the max of capture\n",
                   capture.file, nframes);
}

std::string FrameCapture::store_failed(const std::string &why)
{
  std::string quoted = why;
  std::replace(quoted.begin(), quoted.end(), '"', '\'');
  const std::vector<double> none(atom->nlocal, 0.0);
  const std::string text = frame("error=\"" + quoted + "\"", none, none);
  all_or_stop(lmp, [&] {
    if (comm->me != 0) return;
    std::ofstream to(failed_path);
    to << text;
    if (!to.flush()) throw std::runtime_error("cannot write the last structure to " + failed_path);
  });
  return failed_name;
}

// The text of the structure on rank 0, empty elsewhere.
std::string FrameCapture::frame(const std::string &properties, const std::vector<double> &of_force,
                                const std::vector<double> &of_energy) const
{
  constexpr int WIDTH = 10;    // ID, type, position, velocity, deviations
  const int n = atom->nlocal;
  std::vector<double> mine(static_cast<std::size_t>(WIDTH) * n);
  for (int i = 0; i < n; ++i) {
    double *const to = &mine[static_cast<std::size_t>(WIDTH) * i];
    to[0] = static_cast<double>(atom->tag[i]);
    to[1] = atom->type[i];
    for (int k = 0; k < 3; ++k) {
      to[2 + k] = atom->x[i][k] - domain->boxlo[k];
      to[5 + k] = atom->v[i][k];
    }
    to[8] = of_force[i] * unit;
    to[9] = of_energy[i] * unit;
  }
  const std::vector<double> all = gathered_by_id(world, mine, WIDTH);
  if (comm->me != 0) return {};

  // Velocities are in angstrom/fs in units real.
  const double of_velocity = utils::strmatch(update->unit_style, "^real") ? 1000.0 : 1.0;
  const double *const h = domain->h;
  const bool tilted = domain->triclinic != 0;
  std::string text =
      fmt::format("{}\nLattice=\"{:.17g} 0 0 {:.17g} {:.17g} 0 {:.17g} {:.17g} {:.17g}\" "
                  "Properties=species:S:1:pos:R:3:velocity:R:3:id:I:1:force_deviation:R:1:"
                  "energy_deviation:R:1 pbc=\"",
                  all.size() / WIDTH, h[0], tilted ? h[5] : 0.0, h[1], tilted ? h[4] : 0.0,
                  tilted ? h[3] : 0.0, h[2]);
  for (int k = 0; k < 3; ++k)
    text += fmt::format("{}{}", k ? " " : "", domain->periodicity[k] ? 'T' : 'F');
  text += fmt::format("\"{}{} {}\n", STEP, update->ntimestep, properties);
  for (std::size_t i = 0; i < all.size(); i += WIDTH) {
    const double *const row = &all[i];
    text += symbol_of_type[static_cast<int>(row[1])];
    for (int k = 2; k < 5; ++k) text += fmt::format(" {:.17g}", row[k]);
    for (int k = 5; k < 8; ++k) text += fmt::format(" {:.17g}", of_velocity * row[k]);
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
