// SPDX-License-Identifier: GPL-2.0-or-later

#include "pair_pwmlff.h"

#include "collective.h"
#include "deviation_recorder.h"
#include "elements.h"
#include "ensemble.h"
#include "neighbor_source.h"
#include "options.h"
#include "placement.h"
#include "report.h"
#include "supervision.h"

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "exceptions.h"
#include "force.h"
#include "memory.h"
#include "universe.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <utility>

using namespace LAMMPS_NS;
using namespace pair_pwmlff;
using namespace pwmlff::models;

struct PairPWMLFF::Impl {
  explicit Impl(LAMMPS *lmp, Options read = {}) :
      options(std::move(read)), source(lmp, options.lammps_list), supervision(lmp)
  {
  }

  Options options;
  DeviceChoice device;
  Ensemble models;
  std::vector<int> species_of_type;    // [ntypes+1] -1 for NULL
  double energy_unit = 1.0;            // LAMMPS's unit of energy in the model's
  bool has_atom_virial = false;        // on all ranks
  bool announced = false;              // models and devices are in the log
  NeighborSource source;
  std::unique_ptr<DeviationRecorder> recorder;    // of several models
  Supervision supervision;
};

/* ---------------------------------------------------------------------- */

// Threads of torch and freed memory are settings of the process: the last instance that goes sets
// them back.
static std::mutex instances_mutex;
static int instances = 0, threads_before = 0;

PairPWMLFF::PairPWMLFF(LAMMPS *lmp, const std::string &name) : Pair(lmp), style(name)
{
  {
    const std::lock_guard lock(instances_mutex);
    if (instances++ == 0) threads_before = num_threads();
  }
  reset();
  single_enable = 0;
  restartinfo = 0;
  one_coeff = 1;
  manybody_flag = 1;
  no_virial_fdotr_compute = 1;            // the models give the virial
  centroidstressflag = CENTROID_AVAIL;    // a hybrid style asks before the model is there
  comm_reverse = 3;
}

PairPWMLFF::~PairPWMLFF()
{
  {
    const std::lock_guard lock(instances_mutex);
    if (--instances == 0) {
      impl.reset();    // the models' memory goes with them
      set_num_threads(threads_before);
      keep_memory(false);
    }
  }
  if (copymode) return;
  if (allocated) {
    memory->destroy(setflag);
    memory->destroy(cutsq);
    memory->destroy(cutghost);
  }
}

/* ----------------------------------------------------------------------
   without models, mapping and files, with the defaults of the style
------------------------------------------------------------------------- */

void PairPWMLFF::reset()
{
  impl = std::make_unique<Impl>(lmp);
  forget_mapping();
}

// No pair_coeff holds any more.
void PairPWMLFF::forget_mapping()
{
  impl->species_of_type.clear();
  if (allocated) std::fill_n(&setflag[0][0], (atom->ntypes + 1) * (atom->ntypes + 1), 0);
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::allocate()
{
  allocated = 1;
  const int n = atom->ntypes + 1;
  memory->create(setflag, n, n, "pair:setflag");
  memory->create(cutsq, n, n, "pair:cutsq");
  memory->create(cutghost, n, n, "pair:cutghost");    // LAMMPS reads it where ghostneigh is set
  std::fill_n(&setflag[0][0], n * n, 0);
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::settings(int narg, char **arg)
try {
  reset();    // other models need a pair_coeff of their own
  impl = std::make_unique<Impl>(lmp, read_options(lmp, style, narg, arg));
  if (impl->options.files.size() > 1)
    impl->recorder = std::make_unique<DeviationRecorder>(lmp, impl->options);
  choose_device();
  set_num_threads(comm->nthreads);
  impl->models = load_ensemble(lmp, impl->options.files, impl->options.engine);
} catch (...) {
  reset();    // nothing half done, where the caller goes on (Python)
  throw;
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::choose_device()
{
  const Ranks ranks{world, universe->nworlds, universe->root_proc[universe->iworld]};
  // What stands in for a GPU makes up for one that is not there. Ranks may differ in that.
  pwmlff::DevicePolicy policy = impl->options.device;
  if (policy.demands_gpu() && gpu_has_stand_in()) policy = {};
  const std::string unusable =
      first_failure(world, [&] { impl->device = pair_pwmlff::choose_device(ranks, policy); });
  if (!unusable.empty()) error->all(FLERR, "Pair style pwmlff: " + unusable);
  impl->options.engine.gpu = impl->device.gpu;
  impl->options.engine.gpu_demanded = impl->options.device.demands_gpu();
  // A GPU for the file's own code needs torch's CUDA part, and that before torch computes anything.
  // Whether it is there matters to models that need it; they ask again.
  if (impl->device.gpu != pwmlff::CPU && impl->options.engine.engine != Engine::fused)
    open_torch_cuda();
}

/* ----------------------------------------------------------------------
   models are in eV and angstrom, or in reduced units if they say so
------------------------------------------------------------------------- */

double PairPWMLFF::unit_of_energy() const
{
  const std::string units = update->unit_style;
  const ModelInfo &info = impl->models.front()->info();
  if ((info.units == "lj" || info.units == "metal") && units == info.units) return 1.0;
  if (info.units == "metal" && units == "real")
    return utils::get_conversion_factor(utils::ENERGY, utils::METAL2REAL);
  error->all(FLERR,
             "Pair style pwmlff: model '{}' is in units {}, but the input says units {}; use {}",
             info.file, info.units, units, info.units == "lj" ? "units lj" : "units metal or real");
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::log_models()
{
  const bool on_gpu = std::any_of(impl->models.begin(), impl->models.end(),
                                  [](const auto &model) { return model->on_gpu(); });
  // Each rank on its own may have had to take something else than the others.
  const std::string idle_because = on_gpu ? "" : "engine " + impl->models.front()->engine();
  const DeviceReport devices = report_devices(world, impl->device, idle_because, comm->nthreads);
  if (comm->me != 0) return;
  utils::logmesg(lmp, describe(impl->models, style, impl->species_of_type, impl->options.out_freq,
                               impl->options.out_file) +
                          devices.table);
  for (const auto &warning : devices.warnings)
    error->warning(FLERR, "Pair style pwmlff: {}", warning);
  const std::string alone = one_of_many(universe->nprocs);
  if (!alone.empty()) error->warning(FLERR, "Pair style pwmlff: {}", alone);
  check_masses(lmp, impl->models.front()->info(), impl->species_of_type);
}

/* ----------------------------------------------------------------------
   pair_coeff * * element ...    one per atom type, symbol or atomic number or NULL
------------------------------------------------------------------------- */

void PairPWMLFF::coeff(int narg, char **arg)
{
  if (impl->models.empty())
    error->all(FLERR, "Pair style pwmlff: the last pair_style command failed; repeat it first");
  if (!allocated) allocate();
  const ModelInfo &info = impl->models.front()->info();
  if (narg - 2 != atom->ntypes)
    error->all(
        FLERR,
        "Pair style pwmlff: pair_coeff names {} element(s), but there are {} atom types; name "
        "one of '{}' for each type in turn, or NULL",
        narg - 2, atom->ntypes, symbols(info.atom_type));

  // What holds now is changed last, when nothing can fail any more.
  std::vector<int> species_of_type(atom->ntypes + 1, -1);
  for (int type = 1; type <= atom->ntypes; ++type) {
    const std::string name = arg[type + 1];
    if (name == "NULL") continue;
    const auto found = std::find(info.atom_type.begin(), info.atom_type.end(), atomic_number(name));
    if (found == info.atom_type.end())
      error->all(
          FLERR,
          "Pair style pwmlff: element '{}' of atom type {} is not in model '{}', which has {}",
          name, type, info.file, symbols(info.atom_type));
    species_of_type[type] = static_cast<int>(found - info.atom_type.begin());
  }
  if (*std::max_element(species_of_type.begin(), species_of_type.end()) < 0)
    error->all(FLERR,
               "Pair style pwmlff: pair_coeff maps no atom type to an element; name one of '{}'",
               symbols(info.atom_type));
  const double energy_unit = unit_of_energy();
  const std::string unusable = select_species(species_of_type);
  if (!unusable.empty()) {
    // Models that were ready for the elements before get ready for them again.
    if (!impl->species_of_type.empty() && !select_species(impl->species_of_type).empty())
      forget_mapping();
    error->all(FLERR, "Pair style pwmlff: " + unusable);
  }

  for (int i = 1; i <= atom->ntypes; ++i)
    for (int j = i; j <= atom->ntypes; ++j)
      setflag[i][j] = species_of_type[i] >= 0 && species_of_type[j] >= 0;
  impl->species_of_type = std::move(species_of_type);
  impl->energy_unit = energy_unit;
  impl->has_atom_virial = on_all_ranks(world, impl->models.front()->has_atom_virial());
  centroidstressflag = impl->has_atom_virial ? CENTROID_AVAIL : CENTROID_NOTAVAIL;
  impl->source.forget();
  impl->announced = false;
  const bool tensors = std::any_of(impl->models.begin(), impl->models.end(), [](const auto &model) {
    return !model->on_gpu() && model->name() != "fused";
  });
  if (tensors) {
    const std::lock_guard lock(instances_mutex);
    keep_memory(true);
  }
}

/* ----------------------------------------------------------------------
   let all models get ready for the elements of a mapping; returns what failed, on all ranks
------------------------------------------------------------------------- */

std::string PairPWMLFF::select_species(const std::vector<int> &species_of_type)
{
  std::vector<bool> present(impl->models.front()->info().atom_type.size(), false);
  for (const int species : species_of_type)
    if (species >= 0) present[species] = true;
  return first_failure(world, [&] {
    try {
      for (auto &model : impl->models) model->select_species(present);
    } catch (const std::exception &failure) {
      throw std::runtime_error(failure.what() + place());
    }
  });
}

/* ----------------------------------------------------------------------
   where this rank computes, for errors that others need not see
------------------------------------------------------------------------- */

std::string PairPWMLFF::place() const
{
  if (impl->device.gpu == pwmlff::CPU) return {};
  return " [" + rank_on_host(world) + ", " + describe(impl->device.visible, impl->device.gpu) + "]";
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::init_style()
{
  if (force->newton_pair == 0)
    error->all(FLERR, "Pair style pwmlff needs newton pair on: remove 'newton off' from the input");
  if (atom->tag_enable == 0)
    error->all(FLERR,
               "Pair style pwmlff needs atom IDs: remove 'atom_modify id no' from the input");
  for (int i = 1; atom->molecular != Atom::ATOMIC && i <= 3; ++i) {
    if (force->special_lj[i] == 0.0 && comm->me == 0) {
      error->warning(
          FLERR, "Pair style pwmlff sees no neighbors that special_bonds leaves out; models of all "
                 "interactions need 'special_bonds lj/coul 1.0 1.0 1.0'");
      break;
    }
  }
  if (hops(impl->models) > 0 && comm->mode != Comm::SINGLE)
    error->all(FLERR,
               "Pair style pwmlff: message passing needs ghosts of all types within one distance; "
               "use comm_modify mode single");
  set_num_threads(comm->nthreads);

  if (impl->recorder) impl->recorder->init();
  if (!impl->announced) log_models();
  impl->announced = true;
  impl->supervision.init();
  impl->source.request(
      this, impl->models);    // last: after an error it would stay, and outlive this style
}

double PairPWMLFF::init_one(int i, int j)
{
  // Only a hybrid style asks for types that are NULL here: where it does not forget what they were
  // before.
  const double cutoff = impl->models.front()->info().cutoff;
  cutghost[i][j] = cutghost[j][i] = cutoff;
  return cutoff;
}

/* ----------------------------------------------------------------------
   end the run for what this rank alone has found
------------------------------------------------------------------------- */

void PairPWMLFF::stop_rank(const std::string &text)
{
  impl->source.discard();    // a model that failed may have left anything in its inputs
  stop_when_printed([&] { error->one(FLERR, "Pair style pwmlff: " + text); });
}

/* ----------------------------------------------------------------------
   evaluate one model and refuse results that are not numbers
------------------------------------------------------------------------- */

const Evaluation &PairPWMLFF::evaluate(int model)
{
  Model &m = *impl->models[model];
  Neighbors &neighbors = impl->source.get();
  const Evaluation *evaluation = nullptr;
  try {
    pwmlff::Input input = neighbors.input(m.needs());
    input.nthreads = comm->nthreads;
    input.want_atom_virial = model == 0 && vflag_atom;
    input.want_centroid_virial = model == 0 && cvflag_atom;
    evaluation = &m.evaluate(input);
  } catch (const TooManyNeighbors &excess) {
    stop_rank(fmt::format(
        "model '{}': {}", m.info().file,
        excess.text(fmt::format("atom {}", atom->tag[neighbors.atom()[excess.row]]),
                    fmt::format("element {}", symbol(m.info().atom_type[excess.species])))));
  } catch (const std::exception &failure) {
    stop_rank(failure.what() + (m.on_gpu() ? place() : ""));
  }

  const Evaluation &result = *evaluation;
  const auto require_finite = [&](int row, double value) {
    if (!std::isfinite(value))
      stop_rank(fmt::format(
          "model '{}' gives a non-finite energy or force for atom {} at step {}; look for "
          "overlapping atoms or a time step that is too long",
          m.info().file, atom->tag[neighbors.atom()[row]], update->ntimestep));
  };
  // Energies first: where that of an atom is no number, forces on its neighbors are none either.
  for (int row = 0; row < neighbors.ncenters(); ++row) require_finite(row, result.atom_energy[row]);
  const double *const f = result.force;
  for (int row = 0; row < neighbors.nrows(); ++row)
    require_finite(row, f[3 * row] + f[3 * row + 1] + f[3 * row + 2]);
  double sum = result.energy;
  for (const double component : result.virial) sum += component;
  if (!std::isfinite(sum))
    stop_rank(fmt::format("model '{}' gives finite energies and forces of atoms, but a non-finite "
                          "energy of the whole or virial at step {}; its file is not sound",
                          m.info().file, update->ntimestep));
  return result;
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::compute(int eflag, int vflag)
{
  ev_init(eflag, vflag);
  if ((vflag_atom || cvflag_atom) && !impl->has_atom_virial)
    error->all(
        FLERR,
        "Pair style pwmlff: model '{}' runs with engine {}, which gives no per-atom virial; take "
        "the pair contribution out of the compute that asks for it",
        impl->models.front()->info().file, impl->models.front()->engine());
  try {
    impl->source.bring_up_to_date(list, impl->models, impl->species_of_type);
  } catch (const LAMMPSException &) {
    throw;    // already said
  } catch (const std::exception &failure) {
    stop_rank(failure.what());
  }

  const Neighbors &neighbors = impl->source.get();
  const bool deviation = impl->recorder && impl->recorder->due();
  const int nmodels = deviation ? static_cast<int>(impl->models.size()) : 1;
  for (int model = 0; model < nmodels; ++model) {
    // A rank without atoms still takes part below.
    const Evaluation *const result = neighbors.ncenters() > 0 ? &evaluate(model) : nullptr;
    if (model == 0 && result) tally(*result);
    if (deviation) impl->recorder->keep(model, neighbors, result, impl->energy_unit);
  }
  if (deviation) impl->recorder->write(this, neighbors);
  impl->supervision.look();
}

/* ----------------------------------------------------------------------
   add energies, forces and virials to LAMMPS's, in its units
------------------------------------------------------------------------- */

void PairPWMLFF::tally(const Evaluation &result)
{
  const Neighbors &neighbors = impl->source.get();
  const double unit = impl->energy_unit;
  for (int row = 0; row < neighbors.nrows(); ++row) {
    double *const f = atom->f[neighbors.atom()[row]];
    for (int k = 0; k < 3; ++k) f[k] += unit * result.force[3 * row + k];
  }
  if (eflag_global) eng_vdwl += unit * result.energy;
  if (eflag_atom)
    for (int row = 0; row < neighbors.ncenters(); ++row)
      eatom[neighbors.atom()[row]] += unit * result.atom_energy[row];
  if (vflag_global)
    for (int k = 0; k < 6; ++k) virial[k] += unit * result.virial[k];
  for (int row = 0; (vflag_atom || cvflag_atom) && row < neighbors.nrows(); ++row) {
    const int i = neighbors.atom()[row];
    for (int k = 0; vflag_atom && k < 6; ++k) vatom[i][k] += unit * result.atom_virial[6 * row + k];
    for (int k = 0; cvflag_atom && k < 9; ++k)
      cvatom[i][k] += unit * result.centroid_virial[9 * row + k];
  }
}

/* ---------------------------------------------------------------------- */

int PairPWMLFF::pack_reverse_comm(int n, int first, double *buf)
{
  return impl->recorder->pack(n, first, buf);
}

void PairPWMLFF::unpack_reverse_comm(int n, int *list, double *buf)
{
  impl->recorder->unpack(n, list, buf);
}

/* ----------------------------------------------------------------------
   what pwmlffplugin.so looks up after it has opened this library
------------------------------------------------------------------------- */

extern "C" __attribute__((visibility("default"))) void *pwmlff_create_pair(void *lmp,
                                                                           const char *style)
{
  return static_cast<Pair *>(new PairPWMLFF(static_cast<LAMMPS *>(lmp), style));
}
