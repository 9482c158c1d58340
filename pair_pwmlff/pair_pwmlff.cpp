// SPDX-License-Identifier: GPL-2.0-or-later

#include "pair_pwmlff.h"

#include "archive/sha256.h"
#include "collective.h"
#include "core/device.h"
#include "core/periodic_table.h"
#include "core/threads.h"

#include "atom.h"
#include "comm.h"
#include "compute.h"
#include "domain.h"
#include "error.h"
#include "exceptions.h"
#include "force.h"
#include "memory.h"
#include "modify.h"
#include "neighbor.h"
#include "universe.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

using namespace LAMMPS_NS;
using namespace pair_pwmlff;
using namespace pwmlff::models;
using pwmlff::atomic_number, pwmlff::in_parts, pwmlff::RowMove, pwmlff::symbol, pwmlff::symbols;

// Threads of torch and freed memory are settings of the process: the last instance that goes sets
// them back.
static std::mutex instances_mutex;
static int instances = 0, threads_before = 0;

PairPWMLFF::PairPWMLFF(LAMMPS *lmp, const std::string &name, OpenTorch *open_torch) :
    Pair(lmp), halo(lmp, this), style(name), open_torch(open_torch)
{
  if (style.ends_with("/kk")) kokkos = KokkosAtoms::make(lmp, no_kokkos);
  if (kokkos) kokkos->announce(this);
  reset();
  single_enable = 0;
  restartinfo = 0;
  one_coeff = 1;
  manybody_flag = 1;
  no_virial_fdotr_compute = 1;            // the models give the virial
  centroidstressflag = CENTROID_AVAIL;    // a hybrid style asks before the model is there
  comm_reverse = 3;
  pvector = deviations.data();    // compute pair reads it where nextra is not 0
}

PairPWMLFF::~PairPWMLFF()
{
  if (has_torch) {
    const std::lock_guard lock(instances_mutex);
    if (--instances == 0) {
      recorder.reset();    // their memory goes with them
      source.reset();
      models.clear();
      torch_part().set_num_threads(threads_before);
      keep_memory(false);
    }
  }
  if (copymode) return;
  if (allocated) {
    memory->destroy(setflag);
    memory->destroy(cutsq);
    memory->destroy(cutghost);
    memory->destroy(scale);
  }
}

// Without models, mapping and files.
void PairPWMLFF::reset(Settings with)
{
  options = std::move(with);
  device = {};
  models.clear();
  recorder.reset();    // lets go of its file
  calibration.reset();
  check.reset();
  guard.reset();
  extrapolation = std::make_unique<Extrapolation>(lmp, options.gamma);
  budget = std::make_unique<GraphBudget>(lmp);
  charges.reset();
  mesh.reset();
  // The sample of a check and the pairs of a guard are parts of LAMMPS's list.
  source = std::make_unique<NeighborSource>(
      lmp, options.lammps_list || options.check > 0 || options.min_distance, kokkos.get());
  supervision.reset();    // its end is written before the next begins
  supervision = std::make_unique<Supervision>(lmp);
  logged = has_grade = false;
  atom_energy_step = -1;
  nextra = 0;
  deviations.fill(0.0);
  clear_mapping();
}

// No pair_coeff holds any more.
void PairPWMLFF::clear_mapping()
{
  species_of_type.clear();
  if (allocated) std::fill_n(&setflag[0][0], (atom->ntypes + 1) * (atom->ntypes + 1), 0);
}

void PairPWMLFF::allocate()
{
  allocated = 1;
  const int n = atom->ntypes + 1;
  memory->create(setflag, n, n, "pair:setflag");
  memory->create(cutsq, n, n, "pair:cutsq");
  memory->create(cutghost, n, n, "pair:cutghost");    // LAMMPS reads it where ghostneigh is set
  memory->create(scale, n, n, "pair:scale");
  std::fill_n(&setflag[0][0], n * n, 0);
}

void PairPWMLFF::settings(int narg, char **arg)
try {
  reset(parse_settings(lmp, style, narg, arg));    // other models need another pair_coeff
  if (options.files.size() > 1) {
    recorder = std::make_unique<DeviationRecorder>(lmp, options);
    nextra = 5;
  } else if (options.watches_gamma()) {
    nextra = 1;
  }
  if (!options.calibration.empty()) {
    calibration = std::make_unique<Calibration>(lmp, options.calibration);
    ++nextra;
  }
  if (options.check > 0)
    check = std::make_unique<EngineCheck>(lmp, options.check, gate_of(options.engine.precision));
  if (options.min_distance) guard = std::make_unique<DistanceGuard>(lmp, *options.min_distance);
  choose_device();
  if (!options.file_in_coeff) load(options.files);
  else ewaldflag = pppmflag = 1;    // the file may have charges
} catch (...) {
  reset();    // nothing half done, where the caller goes on (Python)
  throw;
}

void PairPWMLFF::load(const std::vector<std::string> &files)
{
  hashes.clear();
  const auto hash = [this](const std::string &contents) {
    if (options.out_header || calibration) hashes.push_back(pwmlff::sha256(contents));
  };
  options.engine.open_torch = [this] { take_torch(); };
  models = load_ensemble(lmp, files, options.engine, hash);
  if (calibration) calibration->require(hashes);
  const auto taker = std::find_if(models.begin(), models.end(), [](const auto &model) {
    return model->info().takes_temperature;
  });
  if (taker != models.end() && options.temperature == 0.0)
    error->all(
        FLERR,
        "Pair style pwmlff: model '{}' has the temperature as a descriptor; give it in K with "
        "the keyword temperature of pair_style",
        (*taker)->info().file);
  if (taker == models.end() && options.temperature != 0.0)
    error->all(FLERR,
               "Pair style pwmlff: pair_style has the keyword temperature, but no model has the "
               "temperature as a descriptor; leave it out");
  charges.reset();
  mesh.reset();
  const auto charged =
      std::ranges::find_if(models, [](const auto &model) { return model->has_charges(); });
  ewaldflag = pppmflag = charged != models.end();    // a hybrid style asks for it before a run
  if (charged != models.end()) {
    charges = std::make_unique<AtomCharges>(lmp);
    mesh = std::make_unique<CoulombMesh>(lmp, options.reciprocal, (*charged)->info().screening);
  } else if (options.reciprocal.asked) {
    error->all(FLERR,
               "Pair style pwmlff: pair_style has the keyword kspace, but no model has charges; "
               "leave it out");
  }
  cutoff = models.front()->info().cutoff;
  nmodels = static_cast<int>(models.size());
}

// Get torch ready before it loads a file. Ranks may need it one without the others.
// @throws std::runtime_error
void PairPWMLFF::take_torch()
{
  open_torch();
  if (!has_torch) {
    const std::lock_guard lock(instances_mutex);
    if (instances++ == 0) threads_before = torch_part().num_threads();
    has_torch = true;
  }
  torch_part().set_num_threads(comm->nthreads);
  // A GPU for the file's own code needs torch's CUDA part, and that before torch computes anything.
  // Whether it is there matters to models that need it; they ask again.
  if (device.gpu != pwmlff::CPU && options.engine.engine != Engine::fused) torch_part().open_cuda();
}

void PairPWMLFF::choose_device()
{
  const Ranks ranks{world, universe->nworlds, universe->root_proc[universe->iworld]};
  // What stands in for a GPU makes up for one that is not there. Ranks may differ in that.
  pwmlff::DevicePolicy policy = options.device;
  if (policy.demands_gpu() && !gpu_stand_in().empty()) policy = {};
  all_or_stop(lmp, [&] { device = pair_pwmlff::choose_device(ranks, policy); });
  // KOKKOS has a GPU already.
  if (kokkos && kokkos->gpu() != pwmlff::CPU && device.gpu != pwmlff::CPU &&
      policy.mode != pwmlff::DevicePolicy::Mode::list)
    device.gpu = kokkos->gpu();
  options.engine.gpu = device.gpu;
  options.engine.alone = comm->nprocs == 1;
  options.engine.gpu_demanded = options.device.demands_gpu();
}

// Models are in eV and angstrom, or in reduced units if they say so.
double PairPWMLFF::unit_of_energy() const
{
  const std::string units = update->unit_style;
  const ModelInfo &info = models.front()->info();
  if ((info.units == "lj" || info.units == "metal") && units == info.units) return 1.0;
  if (info.units == "metal" && units == "real")
    return utils::get_conversion_factor(utils::ENERGY, utils::METAL2REAL);
  error->all(FLERR,
             "Pair style pwmlff: model '{}' is in units {}, but the input says units {}; use {}",
             info.file, info.units, units, info.units == "lj" ? "units lj" : "units metal or real");
}

void PairPWMLFF::log_models()
{
  const bool on_gpu =
      std::any_of(models.begin(), models.end(), [](const auto &model) { return model->on_gpu(); });
  // Each rank on its own may have had to take something else than the others.
  const std::string idle_because = on_gpu ? "" : "engine " + models.front()->engine();
  const DeviceReport devices = report_devices(world, device, idle_because, comm->nthreads);
  if (comm->me != 0) return;
  utils::logmesg(lmp, summary(models, style, species_of_type, options) +
                          (mesh ? mesh->description() : "") + devices.table);
  for (const auto &model : models)
    for (const auto &warning : model->info().warnings)
      error->warning(FLERR, "Pair style pwmlff: model '{}': {}", model->info().file, warning);
  warn_of_elements(lmp, models, species_of_type);
  const auto computes_nothing = [](const auto &model) {
    const std::shared_ptr<pwmlff::Device> runs_on = model->needs().device;
    return runs_on && runs_on->mode() == pwmlff::Device::Mode::none;
  };
  if (std::ranges::any_of(models, computes_nothing))
    error->warning(FLERR,
                   "Pair style pwmlff: with PWMLFF_GPU_STAND_IN=none forces are zero, and only the "
                   "time of the host means anything");
  for (const auto &warning : devices.warnings)
    error->warning(FLERR, "Pair style pwmlff: {}", warning);
  const std::string separate = separate_simulations(universe->nprocs);
  if (!separate.empty()) error->warning(FLERR, "Pair style pwmlff: {}", separate);
  check_masses(lmp, models.front()->info(), species_of_type);
}

// The species of each type, by symbol or atomic number or NULL; without names, types are the
// elements of the model in turn.
std::vector<int> PairPWMLFF::species_of_names(int nnames, char **names) const
{
  const ModelInfo &info = models.front()->info();
  const bool in_turn =
      nnames == 0 && is_nep_cpu(style) && atom->ntypes <= static_cast<int>(info.atom_type.size());
  if (nnames != atom->ntypes && !in_turn)
    error->all(
        FLERR,
        "Pair style pwmlff: pair_coeff names {} element(s), but there are {} atom types; name "
        "one of '{}' for each type in turn, or NULL",
        nnames, atom->ntypes, symbols(info.atom_type));

  std::vector<int> mapping(atom->ntypes + 1, -1);
  for (int type = 1; type <= atom->ntypes; ++type) {
    if (in_turn) {
      mapping[type] = type - 1;
      continue;
    }
    const std::string name = names[type - 1];
    if (name == "NULL") continue;
    const auto found = std::find(info.atom_type.begin(), info.atom_type.end(), atomic_number(name));
    if (found == info.atom_type.end())
      error->all(
          FLERR,
          "Pair style pwmlff: element '{}' of atom type {} is not in model '{}', which has {}",
          name, type, info.file, symbols(info.atom_type));
    mapping[type] = static_cast<int>(found - info.atom_type.begin());
  }
  return mapping;
}

// pair_coeff * * [file] element ...    one element per atom type; the file where pair_style has
// named none.
void PairPWMLFF::coeff(int narg, char **arg)
{
  const int first = options.file_in_coeff ? 3 : 2;
  if (narg < first) utils::missing_cmd_args(FLERR, "pair_coeff", error);
  if (options.file_in_coeff) {
    clear_mapping();
    models.clear();
    load({arg[2]});
  }
  if (models.empty())
    error->all(FLERR, "Pair style pwmlff: the last pair_style command failed; repeat it first");
  if (!allocated) allocate();

  // What holds now is changed last, when nothing can fail any more.
  std::vector<int> mapping = species_of_names(narg - first, arg + first);
  if (*std::max_element(mapping.begin(), mapping.end()) < 0)
    error->all(FLERR,
               "Pair style pwmlff: pair_coeff maps no atom type to an element; name one of '{}'",
               symbols(models.front()->info().atom_type));
  const double unit = unit_of_energy();
  const std::string unusable = select_species(mapping);
  if (!unusable.empty()) {
    // Models that were ready for the elements before get ready for them again.
    if (!species_of_type.empty() && !select_species(species_of_type).empty()) clear_mapping();
    error->all(FLERR, "Pair style pwmlff: " + unusable);
  }

  for (int i = 1; i <= atom->ntypes; ++i)
    for (int j = i; j <= atom->ntypes; ++j) setflag[i][j] = mapping[i] >= 0 && mapping[j] >= 0;
  std::fill_n(&scale[0][0], (atom->ntypes + 1) * (atom->ntypes + 1), 1.0);
  species_of_type = std::move(mapping);
  energy_unit = unit;
  take_engines();
}

// What follows from the engines that evaluate the models.
void PairPWMLFF::take_engines()
{
  // Of the models that drive.
  const auto driving = options.mean_drives ? models.end() : models.begin() + 1;
  has_atom_virial = on_all_ranks(world, std::all_of(models.begin(), driving, [](const auto &model) {
                                   return model->has_atom_virial();
                                 }));
  centroidstressflag = has_atom_virial ? CENTROID_AVAIL : CENTROID_NOTAVAIL;
  has_grade = on_all_ranks(world, models.front()->has_grade());
  require_one_exchange(lmp, models);
  source->invalidate();
  logged = false;
  const bool tensors =
      has_torch && std::any_of(models.begin(), models.end(), [](const auto &model) {
        return !model->on_gpu() && model->name() != "fused";
      });
  if (tensors) {
    const std::lock_guard lock(instances_mutex);
    keep_memory(true);
  }
}

// Let all models get ready for the elements of a mapping; returns what failed, on all ranks.
std::string PairPWMLFF::select_species(const std::vector<int> &mapping)
{
  std::vector<bool> present(models.front()->info().atom_type.size(), false);
  for (const int species : mapping)
    if (species >= 0) present[species] = true;
  return first_failure(world, [&] {
    try {
      for (auto &model : models) {
        std::vector<bool> own = present;
        for (std::size_t s = 0; s < model->order.size(); ++s) own[s] = present[model->order[s]];
        model->select_species(own);
      }
    } catch (const std::exception &failure) {
      throw std::runtime_error(failure.what() + device_label());
    }
  });
}

// Where this rank computes, for errors; empty on the CPU.
std::string PairPWMLFF::device_label() const
{
  if (device.gpu == pwmlff::CPU) return {};
  return " [" + rank_on_host(world) + ", " + gpu_label(device.visible, device.gpu) + "]";
}

// What is between LAMMPS and the models in each step.
std::string PairPWMLFF::kokkos_line() const
{
  if (!no_kokkos.empty())
    return fmt::format("  pair_style {} runs as it does without /kk: {}\n", style, no_kokkos);
  if (!kokkos) return {};
  const std::string what = kokkos->name();
  if (source->is_resident()) return "  " + what + ": positions and forces stay on its device\n";
  if (kokkos->gpu() == pwmlff::CPU && !models.front()->finds_neighbors())
    return "  " + what + " makes the list of neighbors\n";
  const std::string reason = source->not_resident();
  return fmt::format("  {}: positions and forces are copied for the models and back, as {}\n", what,
                     reason.empty() ? "not all pairs of atoms count" : reason);
}

// What moves atoms on the host and evaluates them outside of a step goes unseen by KOKKOS on a GPU,
// and leaves its forces there.
void PairPWMLFF::refuse_probes() const
{
  if (!kokkos || kokkos->gpu() == pwmlff::CPU) return;
  for (const char *const probe : {"^fep", "^born/matrix"})
    for (const Compute *const found : modify->get_compute_by_style(probe))
      error->all(FLERR,
                 "Pair style pwmlff: compute {} of style {} moves atoms on the host and evaluates "
                 "them there, which KOKKOS on a GPU does not see; run it without /kk",
                 found->id, found->style);
}

// What charges need of the input.
void PairPWMLFF::init_charges()
{
  if (!charges) return;
  mesh->init(this, models);
  if (kokkos && kokkos->gpu() != pwmlff::CPU && domain->triclinic && mesh->solver())
    error->all(FLERR,
               "Pair style pwmlff: a mesh in a tilted box and KOKKOS on a GPU do not see the same "
               "positions; use 'kspace ewald'");
  if (check)
    error->all(FLERR,
               "Pair style pwmlff: the keyword check evaluates a part of the atoms once more, but "
               "energies of charges depend on all of them; leave it out");
}

void PairPWMLFF::init_style()
{
  if (models.empty())    // a hybrid style takes what held before
    error->all(FLERR, "Pair style pwmlff: the last pair_coeff command failed; repeat it first");
  if (kokkos) kokkos->all_to_host();
  refuse_probes();
  if (force->newton_pair == 0)
    error->all(FLERR,
               "Pair style pwmlff needs newton pair on: remove 'newton off' from the input{}",
               kokkos ? ", and start lmp with '-pk kokkos newton on neigh half'" : "");
  if (atom->tag_enable == 0)
    error->all(FLERR,
               "Pair style pwmlff needs atom IDs: remove 'atom_modify id no' from the input");
  if (source->leaves_out_bonded() && comm->me == 0)
    error->warning(FLERR,
                   "Pair style pwmlff sees no neighbors that special_bonds leaves out; models of "
                   "all interactions need 'special_bonds lj/coul 1.0 1.0 1.0'");
  if (hops(models) > 0 && comm->mode != Comm::SINGLE)
    error->all(FLERR,
               "Pair style pwmlff: message passing needs ghosts of all types within one distance; "
               "use comm_modify mode single");
  if (hops(models) > 0 && comm->nprocs > 1 && neighbor->style > Neighbor::BIN)
    error->all(FLERR,
               "Pair style pwmlff: message passing over several ranks needs lists of ghosts, which "
               "LAMMPS does not make with neighbor multi; use neighbor bin, or one rank");
  check_heat_flux(lmp, models);
  init_charges();
  if (has_torch) torch_part().set_num_threads(comm->nthreads);

  if (recorder) {
    std::vector<std::string> symbol_of_type(species_of_type.size(), "X");
    for (std::size_t type = 1; type < species_of_type.size(); ++type)
      if (species_of_type[type] >= 0)
        symbol_of_type[type] = symbol(models.front()->info().atom_type[species_of_type[type]]);
    recorder->init(options.out_header ? identities(models, hashes) : std::vector<std::string>{},
                   std::move(symbol_of_type), energy_unit);
  }
  if (guard) guard->init(models);
  if (options.watches_gamma() && !has_grade)
    error->all(FLERR,
               "Pair style pwmlff: the keyword {} needs the extrapolation grade that files of "
               "'pwmlff train' of kind DP have, and ACEs converted with an active set, evaluated "
               "by the fused engine; model '{}' runs with engine {}",
               options.gamma ? "gamma" : "calibration", models.front()->info().file,
               models.front()->engine());
  budget->init(!logged);
  if (!logged) log_models();
  halo.init(std::max({exchange_width(models), has_grade ? 1 : 0, charges ? 9 : 0}), kokkos.get());
  supervision->init();
  source->request(this, models);    // last: after an error it would stay, and outlive this style
  // What LAMMPS brings to where compute() works, and takes as changed after it.
  execution_space = source->is_resident() ? Device : Host;
  if (!logged) was_resident.reset();
  logged = true;
}

double PairPWMLFF::init_one(int i, int j)
{
  // Only a hybrid style asks for types that are NULL here: where it does not forget what they were
  // before.
  cutghost[i][j] = cutghost[j][i] = models.front()->info().cutoff;
  return models.front()->info().cutoff;
}

// End the run for what this rank alone has found.
void PairPWMLFF::stop_rank(const std::string &text)
{
  source->discard();    // a model that failed may have left anything in its inputs
  stop_when_printed([&] { error->one(FLERR, "Pair style pwmlff: " + text); });
}

// Work that can fail on this rank alone, which then ends the run.
template <typename Work> void PairPWMLFF::or_stop_rank(Work &&work)
{
  try {
    work();
  } catch (const LAMMPSException &) {
    throw;    // already said
  } catch (const std::exception &failure) {
    stop_rank(failure.what());
  }
}

// End the run for what all ranks know, after the structure is stored where structures are.
void PairPWMLFF::stop_all(const std::string &text)
{
  source->discard();
  // A device that has failed may end the run in its own way.
  if (kokkos && comm->me == 0) utils::logmesg(lmp, "Pair style pwmlff: {}\n", text);
  const std::string lost = first_failure(world, [&] {
    if (kokkos) kokkos->all_to_host();
  });
  if (!lost.empty())
    error->all(FLERR, "Pair style pwmlff: {}; the structure is lost with its device: {}", text,
               lost);
  const std::string stored = recorder->frames()->store_failed(text);
  error->all(FLERR, "Pair style pwmlff: {}; the structure is in '{}'", text, stored);
}

// The same, with the structure stored where structures are. Collective there.
template <typename Work> void PairPWMLFF::or_stop_with_frame(Work &&work)
{
  if (!recorder || !recorder->frames()) {
    or_stop_rank(work);
    return;
  }
  const std::string failure = first_failure(world, work);
  if (!failure.empty()) stop_all(failure);
}

// Evaluate one model, and where forces are on a device add its own there.
// @throws std::runtime_error
const Evaluation &PairPWMLFF::evaluate(int model, const Wanted &wanted)
{
  Model &m = *models[model];
  Neighbors &neighbors = source->get();
  try {
    pwmlff::Input input = neighbors.input(m.needs(), comm->nthreads, m.order);
    input.temperature = options.temperature;
    const bool drives = model == 0 || options.mean_drives;
    input.want_atom_virial = drives && vflag_atom;
    input.want_centroid_virial = drives && cvflag_atom;
    input.want_grade = wanted.grade && model == 0;
    if (m.has_charges()) {
      input.want_born = drives && wants_born;
      input.reciprocal = mesh->solver();
    }
    if (drives) input.force_on_device = wanted.forces;
    input.force_factor = wanted.weight * energy_unit;
    input.want_rows = wanted.rows || !wanted.forces || input.want_born;
    return m.evaluate(input);
  } catch (const TooManyNeighbors &excess) {
    if (kokkos) kokkos->to_host();
    throw std::runtime_error(fmt::format(
        "model '{}': {}", m.info().file,
        excess.text(fmt::format("atom {}", atom->tag[neighbors.atom()[excess.row]]),
                    fmt::format("element {}", symbol(m.info().atom_type[excess.species])))));
  } catch (const std::exception &failure) {
    throw std::runtime_error(failure.what() + (m.on_gpu() ? device_label() : ""));
  }
}

// Of an array [n], by all threads.
bool PairPWMLFF::all_finite(const double *values, std::ptrdiff_t n) const
{
  std::atomic<bool> found = true;
  in_parts(n, comm->nthreads, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    constexpr double largest = std::numeric_limits<double>::max();
    int others = 0;    // a sum, which compilers make of several numbers at a time
    for (std::ptrdiff_t k = begin; k < end; ++k) others += !(std::abs(values[k]) <= largest);
    if (others > 0) found = false;
  });
  return found;
}

// Refuse what is no number.
// @throws std::runtime_error
void PairPWMLFF::require_finite(int model, const Evaluation &result) const
{
  const ModelInfo &info = models[model]->info();
  const Neighbors &neighbors = source->get();
  const auto require = [&](int row, double value) {
    if (!std::isfinite(value))
      throw std::runtime_error(fmt::format(
          "model '{}' gives a non-finite energy or force for atom {} at step {}; look for "
          "overlapping atoms or a time step that is too long",
          info.file, atom->tag[neighbors.atom()[row]], update->ntimestep));
  };
  const double *const f = result.force;
  const bool finite =
      result.known_finite || (all_finite(result.atom_energy, neighbors.ncenters()) &&
                              all_finite(f, 3 * static_cast<std::ptrdiff_t>(neighbors.nrows())));
  if (!finite) {
    if (kokkos) kokkos->to_host();
    // Energies first: where that of an atom is no number, forces on its neighbors are none either.
    for (int row = 0; row < neighbors.ncenters(); ++row) require(row, result.atom_energy[row]);
    for (int row = 0; row < 3 * neighbors.nrows(); ++row) require(row / 3, f[row]);
  }
  double sum = result.energy;
  for (const double component : result.virial) sum += component;
  if (!std::isfinite(sum))
    throw std::runtime_error(
        fmt::format("model '{}' gives finite energies and forces of atoms, but a non-finite energy "
                    "of the whole or virial at step {}; its file is not sound",
                    info.file, update->ntimestep));
}

// Both, or end the run: alone, or, where structures are captured, together. Null on a rank without
// centers, unless the model exchanges features. A rank that fails in an evaluation that does ends
// the run alone: others may be waiting for what it has not sent.
const Evaluation *PairPWMLFF::evaluate_here(int model, const Wanted &wanted)
{
  const Evaluation *result = nullptr;
  const bool exchanges = models[model]->needs().exchange_width > 0;
  const auto work = [&] {
    if (source->get().ncenters() > 0 || exchanges) result = &evaluate(model, wanted);
  };
  if (exchanges) or_stop_rank(work);
  or_stop_with_frame([&] {
    if (!exchanges) work();
    if (result) require_finite(model, *result);
  });
  return result;
}

// What fix adapt and compute ti have set for all pairs of types.
double PairPWMLFF::common_scale() const
{
  double common = 1.0;
  bool found = false;
  for (int i = 1; i <= atom->ntypes; ++i)
    for (int j = i; j <= atom->ntypes; ++j) {
      if (!setflag[i][j]) continue;
      if (found && scale[i][j] != common)
        error->all(FLERR,
                   "Pair style pwmlff: its scale is {} for types {} and {}, and {} for others; a "
                   "potential of many atoms has one for all: use 'scale * *'",
                   scale[i][j], i, j, common);
      common = scale[i][j];
      found = true;
    }
  return common;
}

// LAMMPS schedules a compute for the steps on which something reads it.
bool PairPWMLFF::wanted_by_compute() const
{
  if (nextra == 0) return false;
  const auto pairs = modify->get_compute_by_style("^pair$");
  return std::any_of(pairs.begin(), pairs.end(), [this](Compute *compute) {
    return compute->matchstep(update->ntimestep) != 0;
  });
}

// For compute pair, which sums over ranks: largest, smallest and average deviation of forces, those
// of energy and virial, and the bound of the largest error. What was not compared on this step is
// no number. Of one model: the largest gamma, and the bound of the largest error.
void PairPWMLFF::take_deviation(bool graded)
{
  deviations.fill(0.0);
  if (graded && !recorder && nextra > 0) {
    const std::vector<double> gamma = extrapolation->largest();
    const std::vector<int> &elements = models.front()->info().atom_type;
    if (comm->me == 0)
      deviations = {*std::max_element(gamma.begin(), gamma.end()),
                    calibration ? energy_unit * calibration->bound(gamma, elements) : 0.0};
    return;
  }
  if (nextra == 0 || comm->me != 0) return;
  if (const Deviation *const found = recorder ? recorder->of_this_step() : nullptr)
    deviations = {found->force.maximum,
                  found->force.minimum,
                  found->force.average,
                  found->total_energy,
                  found->virial.maximum,
                  calibration ? energy_unit * calibration->bound(found->force.maximum / energy_unit)
                              : 0.0};
  else deviations.fill(std::numeric_limits<double>::quiet_NaN());
}

void PairPWMLFF::compute(int eflag, int vflag)
{
  const bool resident = source->is_resident();
  if (was_resident != resident && comm->me == 0) utils::logmesg(lmp, kokkos_line());
  was_resident = resident;
  if (kokkos && !resident) kokkos->to_host();
  compute_there(eflag, vflag);
  if (kokkos && resident) kokkos->forces_changed();
  else if (execution_space == Device) kokkos->forces_from_host();    // LAMMPS looks for them there
}

// Where LAMMPS has its arrays, or KOKKOS.
void PairPWMLFF::compute_there(int eflag, int vflag)
{
  ev_init(eflag, vflag);
  if ((vflag_atom || cvflag_atom) && !has_atom_virial)
    error->all(
        FLERR,
        "Pair style pwmlff: model '{}' runs with engine {}, which gives no per-atom virial; take "
        "the pair contribution out of the compute that asks for it",
        models.front()->info().file, models.front()->engine());
  or_stop_rank([&] { source->refresh(list, models, species_of_type); });
  const bool asked = wanted_by_compute();
  const bool want_grade =
      has_grade && (gamma_flag || options.gamma || (options.watches_gamma() && asked));
  if (want_grade || exchange_width(models) > 0) halo.take(source->get().atom());
  source->get().set_exchange(&halo);
  if (charges) {
    charges->clear(wants_born);
    mesh->take(source->get().atom());
  }

  or_stop_rank([&] {
    if (!budget->look(models, source->get(), comm->nthreads)) return;
    const std::lock_guard lock(instances_mutex);
    keep_memory(false);
  });
  Neighbors &neighbors = source->get();
  if (guard) or_stop_with_frame([&] { guard->look(neighbors, source->lists()); });
  if (check) check->watch(neighbors, source->lists());
  const bool deviation =
      recorder && recorder->due(asked || force_deviation_flag || energy_deviation_flag);
  const bool mean = options.mean_drives;
  const double weight = common_scale() / (mean ? nmodels : 1);
  wants_atom_energy |= energy_flag != 0;
  atom_energy_step = -1;
  if (wants_atom_energy) {
    atom_energy.reserve(1);    // a rank without atoms has an array too
    atom_energy.assign(atom->nlocal, 0.0);
  }
  const bool of_atoms = eflag_atom || vflag_atom || cvflag_atom || wants_atom_energy;
  if (deviation && kokkos) kokkos->all_to_host();    // what is stored of a structure
  if (charges && mesh->solver() && source->is_resident()) kokkos->to_host();    // where meshes are
  // Asked for once: LAMMPS may take those on the host for the newer ones whenever it is asked.
  double *const forces = source->is_resident() ? kokkos->forces() : nullptr;
  const Wanted wanted{want_grade, of_atoms || deviation || want_grade, forces, weight};
  for (int model = 0; model < (deviation || mean ? nmodels : 1); ++model) {
    // A rank without atoms still takes part below.
    const Evaluation *const result = evaluate_here(model, wanted);
    if (want_grade && model == 0)
      or_stop_with_frame([&] {
        extrapolation->take(models.front()->info(), neighbors, result, asked || gamma_flag);
      });
    if (result && (model == 0 || mean)) tally(*result, wanted);
    if (models[model]->has_charges() && (model == 0 || mean))
      charges->add(source->get(), result, 1.0 / (mean ? nmodels : 1), halo);
    if (deviation) recorder->store(model, neighbors, result, energy_unit);
  }
  if (charges) {
    if (kokkos) kokkos->charges_to_host();
    if (charges->show(source->get()) && kokkos) kokkos->charges_changed();
  }
  if (wants_atom_energy) atom_energy_step = update->ntimestep;
  if (deviation) recorder->compare(this, neighbors);
  take_deviation(want_grade && asked);
  if (check && check->due())    // last: it takes over results
    or_stop_rank([&] { check->compare(models, neighbors, options.temperature); });
  supervision->poll();
}

// Add energies, forces and virials to LAMMPS's, in its units.
void PairPWMLFF::tally(const Evaluation &result, const Wanted &wanted)
{
  const Neighbors &neighbors = source->get();
  const double unit = wanted.weight * energy_unit;
  const int *const atom_of_row = neighbors.atom().data();
  if (eflag_global) eng_vdwl += unit * result.energy;
  if (vflag_global)
    for (int k = 0; k < 6; ++k) virial[k] += unit * result.virial[k];
  if (!result.force) return;    // they are on a device
  in_parts(neighbors.nrows(), comm->nthreads, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    const auto add = [&](double *const *to, const double *values, auto width) {
      for (std::ptrdiff_t row = begin; row < end; ++row)
        for (int k = 0; k < width; ++k) to[atom_of_row[row]][k] += unit * values[width * row + k];
    };
    if (!wanted.forces) add(atom->f, result.force, std::integral_constant<int, 3>());
    if (vflag_atom) add(vatom, result.atom_virial, std::integral_constant<int, 6>());
    if (cvflag_atom) add(cvatom, result.centroid_virial, std::integral_constant<int, 9>());
    for (std::ptrdiff_t row = begin; row < std::min<std::ptrdiff_t>(end, neighbors.ncenters());
         ++row) {
      if (eflag_atom) eatom[atom_of_row[row]] += unit * result.atom_energy[row];
      if (wants_atom_energy) atom_energy[atom_of_row[row]] += unit * result.atom_energy[row];
    }
  });
}

int PairPWMLFF::pack_forward_comm(int n, int *list, double *buf, int /*pbc_flag*/, int * /*pbc*/)
{
  return halo.move(RowMove::pack, {list, 0, n}, buf);
}

void PairPWMLFF::unpack_forward_comm(int n, int first, double *buf)
{
  halo.move(RowMove::set, {nullptr, first, n}, buf);
}

int PairPWMLFF::pack_reverse_comm(int n, int first, double *buf)
{
  return halo.active() ? halo.move(RowMove::pack, {nullptr, first, n}, buf)
                       : recorder->pack(n, first, buf);
}

void PairPWMLFF::unpack_reverse_comm(int n, int *list, double *buf)
{
  if (halo.active()) halo.move(RowMove::add, {list, 0, n}, buf);
  else recorder->unpack(n, list, buf);
}

void *PairPWMLFF::extract(const char *name, int &dim)
{
  dim = 0;
  const std::string asked = name;
  if (asked == "cutoff") return models.empty() ? nullptr : &cutoff;
  if (asked == "nmodels") return models.empty() ? nullptr : &nmodels;
  if (asked == "energy_flag") return &energy_flag;
  if (charges && asked == "cut_coul") {    // as a kspace style does first
    mesh->tell_screening();
    return &cutoff;
  }
  if (charges && (asked == "charge_flag" || asked == "potential_flag")) return &charge_flag;
  if (charges && asked == "born_flag") return &born_flag;
  if (has_grade && asked == "gamma_flag") return &gamma_flag;
  if (recorder && asked == "force_deviation_flag") return &force_deviation_flag;
  if (recorder && asked == "energy_deviation_flag") return &energy_deviation_flag;
  if (asked == "scale") {
    dim = 2;
    return static_cast<void *>(scale);
  }
  return nullptr;
}

void *PairPWMLFF::extract_peratom(const char *name, int &ncol)
{
  ncol = 0;
  const std::string asked = name;
  if (recorder && asked == "force_deviation") return recorder->force_deviation();
  if (recorder && asked == "energy_deviation") return recorder->energy_deviation();
  if (asked == "gamma") return extrapolation->of_this_step();
  if (charges && asked == "charge") return charges->charge();
  if (charges && asked == "potential") return charges->potential();
  if (asked == "born") {
    ncol = 9;
    wants_born = true;    // from the next evaluation on
    return charges ? static_cast<void *>(charges->born()) : nullptr;
  }
  if (asked != "energy") return nullptr;
  wants_atom_energy = true;    // from the next evaluation on
  const bool is_current =
      atom_energy_step == update->ntimestep && static_cast<int>(atom_energy.size()) == atom->nlocal;
  return is_current ? atom_energy.data() : nullptr;
}

double PairPWMLFF::memory_usage()
{
  const double n = atom->ntypes + 1;
  double bytes = Pair::memory_usage() + source->memory_usage();
  if (allocated) bytes += n * n * (sizeof(int) + 3 * sizeof(double));
  if (recorder) bytes += recorder->memory_usage();
  bytes += extrapolation->memory_usage();
  if (charges) bytes += charges->memory_usage();
  for (const auto &model : models) bytes += model->info().nparameters * sizeof(double);
  return bytes + atom_energy.capacity() * sizeof(double);
}

// What libpwmlff_loader.so looks up after it has opened this library.
extern "C" __attribute__((visibility("default"))) void *pwmlff_create_pair(void *lmp,
                                                                           const char *style,
                                                                           OpenTorch *open_torch)
{
  return make_pair(static_cast<LAMMPS *>(lmp), style, open_torch);
}
