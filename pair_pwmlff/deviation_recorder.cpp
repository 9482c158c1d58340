// SPDX-License-Identifier: GPL-2.0-or-later

#include "deviation_recorder.h"

#include "collective.h"
#include "supervision.h"

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "fix.h"
#include "modify.h"
#include "pair.h"
#include "update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

static constexpr int TOTALS = 7;    // energy and virial of a model

/// Let LAMMPS make fixes of a style. Up to 4 Jul 2026 each instance has a table of its own
/// (Modify::fix_map); later releases have one for the process (Modify::fix_styles).
/// @tparam Styles  Modify; a parameter, so that only what the release has is compiled
template <class Styles>
static void set_creator(Styles &modify, const char *style, typename Styles::FixCreator creator)
{
  if constexpr (requires { Styles::fix_styles(); }) Styles::fix_styles().set_plugin(style, creator);
  else (*modify.fix_map)[style] = creator;
}

/// Distinguishes the forces that a run goes on with from those of a structure that is only tried,
/// and tells where a step ends.
///
/// Integrators and minimizers announce to all fixes that they are about to compute forces
/// (pre_force). What probes other structures in between, like fix numdiff and compute fep, calls
/// the pair style without. Commands that announce what they probe (dynamical_matrix) do so outside
/// of a run. Monte Carlo fixes announce their trials within a run, and there the last evaluation of
/// a step is that of the structure it ends with.
class AnnouncedForces : public Fix {
 public:
  /// Add one to a LAMMPS whose box exists. It belongs to LAMMPS, and users can remove it.
  /// @param handle  points to it from now on, and is null once it is gone
  /// @param frames  completed at the end of each step; may be null
  static void add(LAMMPS *lmp, AnnouncedForces *&handle, FrameCapture *frames)
  {
    static constexpr const char *STYLE = "PWMLFF/ANNOUNCED";    // upper case: not for inputs
    const std::string id = "pwmlff_announced_";
    set_creator(*lmp->modify, STYLE, [](LAMMPS *instance, int narg, char **arg) -> Fix * {
      return new AnnouncedForces(instance, narg, arg);
    });
    int number = 1;    // hybrid styles can have several
    while (lmp->modify->get_fix_by_id(id + std::to_string(number))) ++number;
    handle = static_cast<AnnouncedForces *>(
        lmp->modify->add_fix(id + std::to_string(number) + " all " + STYLE, /*trysuffix=*/0));
    handle->handle = &handle;
    handle->frames = frames;
  }

  ~AnnouncedForces() override
  {
    if (handle) *handle = nullptr;
  }

  /// Whether the end of this step reads atoms, which KOKKOS then brings to the host.
  void read_atoms(bool wanted) { datamask_read = wanted ? all_data : 0; }

  /// Whether forces were announced since the last call.
  bool test_and_clear() { return std::exchange(announced, false); }

  int setmask() override
  {
    return FixConst::PRE_FORCE | FixConst::MIN_PRE_FORCE | FixConst::PRE_FORCE_RESPA |
           FixConst::END_OF_STEP;
  }
  void setup_pre_force(int) override { announce(); }
  void setup_pre_force_respa(int, int) override { announce(); }
  void pre_force(int) override { announce(); }
  void min_pre_force(int) override { announce(); }
  void pre_force_respa(int, int, int) override { announce(); }
  void end_of_step() override
  {
    if (frames) frames->complete();
    read_atoms(false);
  }

 private:
  AnnouncedForces(LAMMPS *lmp, int narg, char **arg) : Fix(lmp, narg, arg), all_data(datamask_read)
  {
    read_atoms(false);
    datamask_modify = 0;
  }
  void announce() { announced = update->whichflag != 0; }

  const decltype(Fix::datamask_read) all_data;
  bool announced = false;
  AnnouncedForces **handle = nullptr;
  FrameCapture *frames = nullptr;
};

DeviationRecorder::DeviationRecorder(LAMMPS *lmp, const Settings &settings) :
    Pointers(lmp),
    every(settings.out_freq),
    out_file(settings.out_file),
    append(settings.out_append || is_continuation()),    // else earlier lines would be lost
    atomic(settings.out_atomic),
    relative(settings.relative),
    forces(settings.files.size()),
    energies(settings.files.size()),
    totals(TOTALS * settings.files.size())
{
  all_or_stop(lmp, [&] {
    if (comm->me == 0) file = std::make_unique<DeviationFile>(settings);
  });
  if (const auto &asked = settings.capture)
    capture = std::make_unique<FrameCapture>(lmp, *asked, settings);
}

DeviationRecorder::~DeviationRecorder()
{
  if (announced_forces) modify->delete_fix(announced_forces->id);
}

void DeviationRecorder::init(const std::vector<std::string> &header,
                             std::vector<std::string> symbol_of_type, double unit)
{
  if (!announced_forces) AnnouncedForces::add(lmp, announced_forces, capture.get());
  if (capture) capture->init(std::move(symbol_of_type), 1.0 / unit);
  if (opened) return;
  all_or_stop(lmp, [&] {
    if (file) file->open(append, update->ntimestep, header);
  });
  opened = true;
}

// The deviation is that of structures that the run goes through, not of those that a fix probes.
bool DeviationRecorder::due(bool requested)
{
  if (!announced_forces || !announced_forces->test_and_clear()) return false;
  line_is_due = update->ntimestep % every == 0;
  if (!line_is_due) warn_of_skipped_frames();
  return line_is_due || requested || (capture && capture->due());
}

// rerun sets up each frame anew; those between the multiples of out_freq are missed in the file.
void DeviationRecorder::warn_of_skipped_frames()
{
  if (warned_of_skipped_frames || !update->setupflag || update->ntimestep == update->firststep)
    return;
  warned_of_skipped_frames = true;
  if (comm->me == 0)
    error->warning(
        FLERR,
        "Pair style pwmlff: out_freq is {}: frames of other steps, like {}, get no line in "
        "'{}'; 'out_freq 1' gives one to each frame",
        every, update->ntimestep, out_file);
}

void DeviationRecorder::store(int model, const Neighbors &neighbors, const Evaluation *result,
                              double unit)
{
  forces[model].assign(3 * static_cast<std::size_t>(atom->nlocal + atom->nghost), 0.0);
  energies[model].assign(atom->nlocal, 0.0);
  double *const total = &totals[TOTALS * static_cast<std::size_t>(model)];
  std::fill_n(total, TOTALS, 0.0);
  if (!result) return;
  total[0] = unit * result->energy;
  for (int k = 0; k < 6; ++k) total[1 + k] = unit * result->virial[k];
  for (int row = 0; row < neighbors.nrows(); ++row)
    for (int k = 0; k < 3; ++k)
      forces[model][3 * neighbors.atom()[row] + k] = unit * result->force[3 * row + k];
  for (int row = 0; row < neighbors.ncenters(); ++row)
    energies[model][neighbors.atom()[row]] = unit * result->atom_energy[row];
}

const Deviation *DeviationRecorder::of_this_step() const
{
  return compared_step == update->ntimestep ? &found : nullptr;
}

void DeviationRecorder::compare(Pair *pair, const Neighbors &neighbors)
{
  for (auto &values : forces) {
    reverse = values.data();
    comm->reverse_comm(pair, 3);
  }
  found.force = deviation(forces, 3, neighbors, force_sigma);
  found.energy = deviation(energies, 1, neighbors, energy_sigma);
  compare_totals(neighbors.ncenters());
  compared_step = update->ntimestep;
  const bool begins = update->setupflag != 0;
  if (line_is_due) {
    const std::vector<double> of_atoms = atomic ? by_id(force_sigma) : std::vector<double>{};
    all_or_stop(lmp, [&] {
      if (file) file->write(update->ntimestep, found, of_atoms, begins);
    });
  }
  if (capture && capture->due()) capture->look(found, force_sigma, energy_sigma, begins);
  if (capture && announced_forces) announced_forces->read_atoms(capture->is_pending());
}

// Of the total energy and the virial, per atom. Collective.
void DeviationRecorder::compare_totals(int ncenters)
{
  std::vector<double> all = totals;
  all.push_back(ncenters);
  MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_DOUBLE, MPI_SUM, world);
  const double natoms = std::max(all.back(), 1.0), nmodels = static_cast<double>(forces.size());
  double sigma[TOTALS];
  for (int k = 0; k < TOTALS; ++k) {
    double mean = 0.0, variance = 0.0;
    for (std::size_t m = 0; m < forces.size(); ++m) mean += all[TOTALS * m + k] / nmodels;
    for (std::size_t m = 0; m < forces.size(); ++m)
      variance += (all[TOTALS * m + k] - mean) * (all[TOTALS * m + k] - mean) / nmodels;
    sigma[k] = std::sqrt(variance) / natoms;
  }
  found.total_energy = sigma[0];
  double squares = 0.0;    // xx yy zz once, xy xz yz twice
  for (int k = 1; k < TOTALS; ++k) squares += (k < 4 ? 1.0 : 2.0) * sigma[k] * sigma[k];
  found.virial = {std::sqrt(squares / 9.0), *std::min_element(sigma + 1, sigma + TOTALS),
                  *std::max_element(sigma + 1, sigma + TOTALS)};
}

// A number of each atom of all ranks, in the order of IDs, on rank 0. Collective.
std::vector<double> DeviationRecorder::by_id(const std::vector<double> &of_atoms) const
{
  std::vector<double> mine;
  for (int i = 0; i < atom->nlocal; ++i) {
    mine.push_back(static_cast<double>(atom->tag[i]));
    mine.push_back(of_atoms[i]);
  }
  const std::vector<double> all = gathered_by_id(world, mine, 2);
  std::vector<double> values;
  for (std::size_t k = 1; k < all.size(); k += 2) values.push_back(all[k]);
  return values;
}

// Of each local atom, and its spread over all atoms of all ranks, which may have none. Collective.
// values: a per-atom array for each model, `width` numbers for an atom.
Spread DeviationRecorder::deviation(const PerModel &values, int width, const Neighbors &neighbors,
                                    std::vector<double> &sigma) const
{
  const auto nmodels = static_cast<double>(values.size());
  double sum[2] = {0.0, static_cast<double>(neighbors.ncenters())};
  double extreme[2] = {-std::numeric_limits<double>::infinity(), 0.0};    // of -sigma and sigma
  sigma.assign(atom->nlocal, 0.0);
  for (int row = 0; row < neighbors.ncenters(); ++row) {
    const int i = neighbors.atom()[row];
    double variance = 0.0, square = 0.0;
    for (int k = 0; k < width; ++k) {
      const std::size_t index = static_cast<std::size_t>(i) * width + k;
      double mean = 0.0;
      for (const auto &model : values) mean += model[index];
      mean /= nmodels;
      for (const auto &model : values) variance += (model[index] - mean) * (model[index] - mean);
      square += mean * mean;
    }
    sigma[i] = std::sqrt(variance / nmodels);
    if (width == 3 && relative > 0.0) sigma[i] /= std::sqrt(square) + relative;
    sum[0] += sigma[i];
    extreme[0] = std::max(extreme[0], -sigma[i]);
    extreme[1] = std::max(extreme[1], sigma[i]);
  }
  MPI_Allreduce(MPI_IN_PLACE, sum, 2, MPI_DOUBLE, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, extreme, 2, MPI_DOUBLE, MPI_MAX, world);
  if (sum[1] == 0.0) return {0.0, 0.0, 0.0};
  return {sum[0] / sum[1], -extreme[0], extreme[1]};
}

double *DeviationRecorder::of_this_step(std::vector<double> &sigma) const
{
  if (compared_step != update->ntimestep || static_cast<int>(sigma.size()) != atom->nlocal)
    return nullptr;
  sigma.reserve(1);    // a rank without atoms has an array too
  return sigma.data();
}

int DeviationRecorder::pack(int n, int first, double *buf) const
{
  std::copy_n(&reverse[3 * first], 3 * n, buf);
  return 3 * n;
}

void DeviationRecorder::unpack(int n, const int *list, const double *buf)
{
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < 3; ++k) reverse[3 * list[i] + k] += *buf++;
}

double DeviationRecorder::memory_usage() const
{
  std::size_t numbers = force_sigma.capacity() + energy_sigma.capacity();
  for (const auto *const arrays : {&forces, &energies})
    for (const auto &values : *arrays) numbers += values.capacity();
  return static_cast<double>(numbers * sizeof(double));
}

}    // namespace pair_pwmlff
