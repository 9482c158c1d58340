/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "pair_pwmlff.h"

#include "announced_forces.h"
#include "collective.h"
#include "deviation.h"
#include "device_map.h"
#include "elements.h"
#include "ghost_cutoff.h"

#include "models/model.h"
#include "models/neighbors.h"

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "exceptions.h"
#include "force.h"
#include "group.h"
#include "memory.h"
#include "modify.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "universe.h"
#include "update.h"
#include "utils.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

using namespace LAMMPS_NS;
using namespace pair_pwmlff;
using namespace pwmlff::models;

static const std::vector<std::string> KEYWORD_LIST = {
    "out_freq", "out_file", "out_append", "engine", "precision", "device", "neighbors"};
static const std::string KEYWORDS = utils::join_words(KEYWORD_LIST, ", ");
static constexpr const char *MATPL = "matpl";    // how the names of its styles begin

struct PairPWMLFF::Impl {
  std::vector<std::string> files;
  std::vector<std::unique_ptr<Model>> models;    // the first one drives the simulation
  EngineOptions options;
  pwmlff::DevicePolicy device_policy;
  DeviceChoice device;
  bool has_atom_virial = false;        // on all ranks
  bool announced = false;              // models and devices are in the log
  std::vector<int> species_of_type;    // [ntypes+1] -1 for NULL
  double energy_unit = 1.0;            // LAMMPS's unit of energy in the model's

  Neighbors neighbors;
  bool neighbors_valid = false;
  bool lammps_list = false;              // the user wants LAMMPS's list
  bool finds_neighbors = false;          // and LAMMPS makes one only where atoms are left out
  const Evaluation *result = nullptr;    // of the model that was evaluated last
  std::unique_ptr<GhostCutoff> ghost_cutoff;    // for message passing

  int out_freq = 100;
  std::string out_file = "model_devi.out";
  bool out_append = false;
  std::optional<FileClaim> out_file_claim;    // on rank 0 of an ensemble
  bool deviation_file_started = false;
  bool told_of_skipped_frames = false;
  DeviationFile deviation_file;                 // open on rank 0 only
  std::vector<std::vector<double>> forces;      // per model [nall, 3], for the deviation
  std::vector<std::vector<double>> energies;    // per model [ncentres]
  double *reverse = nullptr;                    // the forces that are in reverse communication

  int hops() const
  {
    int most = -1;
    for (const auto &model : models) most = std::max(most, pwmlff::models::hops(model->info()));
    return most;
  }

  double interaction_range() const
  {
    double longest = 0.0;
    for (const auto &model : models) longest = std::max(longest, model->info().interaction_range);
    return longest;
  }
};

/* ---------------------------------------------------------------------- */

// Threads of torch are a setting of the process: the last instance that goes sets them back.
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
    if (--instances == 0) set_num_threads(threads_before);
  }
  if (copymode) return;
  if (announced_forces) announced_forces->remove();
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
  impl = std::make_unique<Impl>();
  if (style.rfind(MATPL, 0) == 0) {
    impl->out_freq = 1;
    impl->out_file = "explr.error";
  }
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

/* ----------------------------------------------------------------------
   pair_style pwmlff [N] file ... keyword value ...
------------------------------------------------------------------------- */

void PairPWMLFF::settings(int narg, char **arg)
try {
  if (narg < 1) utils::missing_cmd_args(FLERR, "pair_style pwmlff", error);
  reset();    // other models want a pair_coeff of their own
  const std::string default_out_file = impl->out_file;

  const auto is_keyword = [](const std::string &word) {
    return std::find(KEYWORD_LIST.begin(), KEYWORD_LIST.end(), word) != KEYWORD_LIST.end();
  };

  int iarg = 0;
  std::optional<int> nmodels;
  if (utils::is_integer(arg[0])) nmodels = utils::inumeric(FLERR, arg[iarg++], false, lmp);
  if (nmodels && *nmodels < 1)
    error->all(FLERR, "Pair style pwmlff: number of models is {}, expected at least 1", *nmodels);
  while (iarg < narg && !is_keyword(arg[iarg]) &&
         (!nmodels || static_cast<int>(impl->files.size()) < *nmodels))
    impl->files.emplace_back(arg[iarg++]);
  const int found = static_cast<int>(impl->files.size());
  if (found == 0) error->all(FLERR, "Pair style pwmlff: found no model file before the keywords");
  if (nmodels && found != *nmodels)
    error->all(FLERR, "Pair style pwmlff: number of models is {}, but {} model file(s) follow",
               *nmodels, found);

  while (iarg < narg) {
    const std::string keyword = arg[iarg];
    if (!is_keyword(arg[iarg]))
      error->all(FLERR,
                 "Pair style pwmlff: found '{}' after {} model file(s), expected a keyword ({})",
                 keyword, found, KEYWORDS);
    if (iarg + 1 >= narg) utils::missing_cmd_args(FLERR, "pair_style pwmlff " + keyword, error);
    const std::string value = arg[iarg + 1];
    if (is_keyword(value))
      error->all(FLERR, "Pair style pwmlff: keyword {} has no value, '{}' follows", keyword, value);
    if (keyword == "out_freq") {
      impl->out_freq = utils::inumeric(FLERR, value, false, lmp);
      if (impl->out_freq < 1)
        error->all(FLERR, "Pair style pwmlff: out_freq is {}, expected at least 1", impl->out_freq);
    } else if (keyword == "out_file") {
      impl->out_file = value;
    } else if (keyword == "out_append") {
      impl->out_append = utils::logical(FLERR, value, false, lmp) != 0;
    } else if (keyword == "engine") {
      if (value == "auto") impl->options.engine = Engine::automatic;
      else if (value == "fused") impl->options.engine = Engine::fused;
      else if (value == "torchscript") impl->options.engine = Engine::torchscript;
      else
        error->all(FLERR, "Pair style pwmlff: engine is '{}', expected auto, fused or torchscript",
                   value);
    } else if (keyword == "neighbors") {
      if (value != "auto" && value != "lammps")
        error->all(FLERR, "Pair style pwmlff: neighbors is '{}', expected auto or lammps", value);
      impl->lammps_list = value == "lammps";
    } else if (keyword == "device") {
      try {
        impl->device_policy = pwmlff::parse_device_policy(value);
      } catch (const std::invalid_argument &unknown) {
        error->all(FLERR, "Pair style pwmlff: {}", unknown.what());
      }
    } else {
      if (value != "exact" && value != "double" && value != "mixed")
        error->all(FLERR, "Pair style pwmlff: precision is '{}', expected exact, double or mixed",
                   value);
      impl->options.precision = value;
    }
    iarg += 2;
  }

  // Replicas of a multi-partition run share a folder and, by default, would share this file.
  if (universe->existflag && impl->out_file == default_out_file)
    impl->out_file += fmt::format(".{}", universe->iworld);
  const std::string taken = first_failure(world, [&] {
    if (comm->me == 0 && impl->files.size() > 1) impl->out_file_claim.emplace(impl->out_file);
  });
  if (!taken.empty()) error->all(FLERR, "Pair style pwmlff: " + taken);

  choose_device();
  set_num_threads(comm->nthreads);
  load_models();
  check_ensemble();
} catch (...) {
  reset();    // nothing half done, where the caller goes on (Python)
  throw;
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::choose_device()
{
  const Ranks ranks{world, universe->nworlds, universe->root_proc[universe->iworld]};
  // What stands in for a GPU makes up for one that is not there. Ranks may differ in that.
  pwmlff::DevicePolicy policy = impl->device_policy;
  if (policy.demands_gpu() && gpu_has_stand_in()) policy = {};
  const std::string unusable =
      first_failure(world, [&] { impl->device = pair_pwmlff::choose_device(ranks, policy); });
  if (!unusable.empty()) error->all(FLERR, "Pair style pwmlff: " + unusable);
  impl->options.gpu = impl->device.gpu;
  impl->options.gpu_demanded = impl->device_policy.demands_gpu();
  // A GPU for the file's own code wants torch's CUDA part, and that before torch computes anything.
  // Whether it is there matters to models that need it; they ask again.
  if (impl->device.gpu != pwmlff::CPU && impl->options.engine != Engine::fused) open_torch_cuda();
}

/* ----------------------------------------------------------------------
   rank 0 reads each file once and hands it on
------------------------------------------------------------------------- */

void PairPWMLFF::load_models()
{
  for (const auto &file : impl->files) {
    std::string contents;
    const std::string unreadable = first_failure(world, [&] {
      if (comm->me != 0) return;
      const std::string path = utils::get_potential_file_path(file);
      std::error_code ignored;
      if (std::filesystem::is_directory(path.empty() ? file : path, ignored))
        throw std::runtime_error(
            fmt::format("model file '{}' is a folder; name the file in it", file));
      std::ifstream stream(path.empty() ? file : path, std::ios::binary);
      std::ostringstream buffer;
      if (!stream)
        throw std::runtime_error(fmt::format(
            "cannot read model file '{}'; give a path that is valid in the folder where "
            "lmp was started ('{}' is no keyword either: {})",
            file, file, KEYWORDS));
      buffer << stream.rdbuf();
      if (stream.bad())
        throw std::runtime_error(fmt::format("cannot read model file '{}' to its end", file));
      contents = buffer.str();
      if (contents.empty())
        throw std::runtime_error(fmt::format("model file '{}' is empty; copy it again", file));
    });
    if (!unreadable.empty()) error->all(FLERR, "Pair style pwmlff: " + unreadable);

    bigint size = static_cast<bigint>(contents.size());
    MPI_Bcast(&size, 1, MPI_LMP_BIGINT, 0, world);
    const std::string no_memory = first_failure(world, [&] { contents.resize(size); });
    if (!no_memory.empty())
      error->all(FLERR, "Pair style pwmlff: a rank has no memory for model file '{}' of {} bytes",
                 file, size);
    constexpr bigint CHUNK = 1 << 30;    // MPI counts are int
    for (bigint at = 0; at < size; at += CHUNK)
      MPI_Bcast(&contents[at], static_cast<int>(std::min(CHUNK, size - at)), MPI_CHAR, 0, world);

    const std::string unusable = first_failure(
        world, [&] { impl->models.push_back(load_model(file, contents, impl->options)); });
    if (!unusable.empty()) error->all(FLERR, "Pair style pwmlff: " + unusable);
  }
}

/* ----------------------------------------------------------------------
   models of an ensemble must be able to stand in for each other
------------------------------------------------------------------------- */

void PairPWMLFF::check_ensemble()
{
  const ModelInfo &first = impl->models.front()->info();
  for (const auto &model : impl->models) {
    const ModelInfo &info = model->info();
    const char *what = nullptr;
    std::string found, expected;
    if (info.atom_type != first.atom_type) {
      what = "elements";
      found = symbols(info.atom_type);
      expected = symbols(first.atom_type);
    } else if (info.cutoff != first.cutoff) {
      what = "cutoff";
      found = fmt::format("{}", info.cutoff);
      expected = fmt::format("{}", first.cutoff);
    } else if (info.units != first.units) {
      what = "units";
      found = info.units;
      expected = first.units;
    }
    if (what)
      error->all(
          FLERR,
          "Pair style pwmlff: models of an ensemble differ in their {}: '{}' has {}, '{}' has "
          "{}; use models trained alike",
          what, info.file, found, first.file, expected);
  }
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
  std::string text = "Pair style pwmlff:\n";
  if (style.rfind(MATPL, 0) == 0)
    text += fmt::format("  pair_style {} is run by pair_style pwmlff, with the defaults out_freq 1 "
                        "and out_file explr.error\n",
                        style);
  int index = 0;
  for (const auto &model : impl->models) {
    const ModelInfo &info = model->info();
    const std::string dtype = info.dtype.empty() ? "" : " in " + info.dtype;
    text +=
        fmt::format("  model {}: {}\n    kind {}, elements {}, units {}, cutoff {}{}{}, {} "
                    "parameters{}\n    engine {}\n",
                    ++index, info.file, info.kind, symbols(info.atom_type), info.units, info.cutoff,
                    info.interaction_range > info.cutoff
                        ? fmt::format(", interaction range {}", info.interaction_range)
                        : "",
                    info.max_neighbor > 0
                        ? fmt::format(", at most {} neighbors of an element", info.max_neighbor)
                        : "",
                    info.nparameters, dtype, model->engine());
  }
  const std::vector<int> &elements = impl->models.front()->info().atom_type;
  text += "  types:";
  for (int type = 1; type <= atom->ntypes; ++type) {
    const int species = impl->species_of_type[type];
    text += fmt::format("{} {} {}", type > 1 ? "," : "", type,
                        species < 0 ? "NULL" : symbol(elements[species]));
  }
  text += "\n";
  if (impl->models.size() > 1)
    text += fmt::format("  model 1 drives; deviation of {} models every {} steps to {}\n",
                        impl->models.size(), impl->out_freq, impl->out_file);
  utils::logmesg(lmp, text + devices.table);
  for (const auto &warning : devices.warnings)
    error->warning(FLERR, "Pair style pwmlff: {}", warning);
  check_masses();
}

/* ----------------------------------------------------------------------
   elements in the wrong order run without a word, and give wrong numbers
------------------------------------------------------------------------- */

void PairPWMLFF::check_masses() const
{
  const ModelInfo &info = impl->models.front()->info();
  if (info.units != "metal" || !atom->mass) return;    // masses are in g/mol, for types
  constexpr double TOLERANCE = 0.1;
  const auto fits = [](double mass, int number) {
    const double weight = ATOMIC_WEIGHTS[number];
    return std::abs(mass - weight) <= TOLERANCE * weight;
  };
  for (int type = 1; type <= atom->ntypes; ++type) {
    const int species = impl->species_of_type[type];
    if (species < 0 || !atom->mass_setflag[type]) continue;
    const double mass = atom->mass[type];
    const int number = info.atom_type[species];
    if (fits(mass, number)) continue;
    std::string like;
    for (const int other : info.atom_type)
      if (fits(mass, other)) like += (like.empty() ? ", like " : " or ") + symbol(other);
    error->warning(
        FLERR,
        "Pair style pwmlff: atom type {} has mass {:.6g}{}, but pair_coeff makes it {} ({}); "
        "check the order of the elements",
        type, mass, like, symbol(number), ATOMIC_WEIGHTS[number]);
  }
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
    const auto at = std::find(info.atom_type.begin(), info.atom_type.end(), atomic_number(name));
    if (at == info.atom_type.end())
      error->all(
          FLERR,
          "Pair style pwmlff: element '{}' of atom type {} is not in model '{}', which has {}",
          name, type, info.file, symbols(info.atom_type));
    species_of_type[type] = static_cast<int>(at - info.atom_type.begin());
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
  impl->has_atom_virial = on_all_ranks(impl->models.front()->has_atom_virial());
  centroidstressflag = impl->has_atom_virial ? CENTROID_AVAIL : CENTROID_NOTAVAIL;
  impl->neighbors_valid = false;
  impl->announced = false;
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
    if (force->special_lj[i] == 0.0 && force->special_coul[i] == 0.0 && comm->me == 0) {
      error->warning(
          FLERR, "Pair style pwmlff sees no neighbors that special_bonds leaves out; models of all "
                 "interactions need 'special_bonds lj/coul 1.0 1.0 1.0'");
      break;
    }
  }
  if (impl->hops() > 0 && comm->mode != Comm::SINGLE)
    error->all(FLERR,
               "Pair style pwmlff: message passing needs ghosts of all types within one distance; "
               "use comm_modify mode single");
  set_num_threads(comm->nthreads);

  if (impl->models.size() > 1 && !announced_forces) AnnouncedForces::add(lmp, announced_forces);
  if (impl->models.size() > 1 && !impl->deviation_file_started) {
    const std::string failure = first_failure(world, [&] {
      if (comm->me != 0) return;
      const std::string &path = impl->out_file_claim->path();
      if (impl->out_append) impl->deviation_file.resume(path, update->ntimestep);
      else impl->deviation_file.open(path);
    });
    if (!failure.empty()) error->all(FLERR, "Pair style pwmlff: " + failure);
    impl->deviation_file_started = true;
  }
  if (!impl->announced) log_models();
  impl->announced = true;
  request_neighbors();    // last: after an error it would stay, and outlive this style
}

double PairPWMLFF::init_one(int i, int j)
{
  // Only a hybrid style asks for types that are NULL here: where it does not forget what they were before.
  const double cutoff = impl->models.front()->info().cutoff;
  cutghost[i][j] = cutghost[j][i] = cutoff;
  return cutoff;
}

/* ----------------------------------------------------------------------
   message passing needs the edges of ghosts too, and ghosts as far as the energy of an atom reaches
------------------------------------------------------------------------- */

void PairPWMLFF::request_neighbors()
{
  impl->neighbors_valid = false;
  impl->ghost_cutoff.reset();
  impl->finds_neighbors = on_all_ranks(can_find_neighbors());
  ghostneigh = impl->hops() > 0;
  int flags = NeighConst::REQ_FULL;
  if (ghostneigh) flags |= NeighConst::REQ_GHOST;
  if (impl->finds_neighbors) flags |= NeighConst::REQ_OCCASIONAL;    // not built unless needed
  neighbor->add_request(this, flags);
  if (!ghostneigh) return;
  impl->ghost_cutoff = std::make_unique<GhostCutoff>(comm);
  impl->ghost_cutoff->need(impl->interaction_range() + neighbor->skin);
}

/* ----------------------------------------------------------------------
   ranks may run on different devices; where LAMMPS is told one thing, all have to tell it the same
------------------------------------------------------------------------- */

bool PairPWMLFF::on_all_ranks(bool here) const
{
  int mine = here, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, world);
  return all != 0;
}

/* ----------------------------------------------------------------------
   whether the models on a GPU can do without a list of LAMMPS: it is needed where not all pairs
   within the cutoff count, or not all atoms
------------------------------------------------------------------------- */

bool PairPWMLFF::can_find_neighbors() const
{
  return !impl->lammps_list && force->pair == this && !leaves_out() &&
         atom->molecular == Atom::ATOMIC &&
         std::all_of(impl->models.begin(), impl->models.end(),
                     [](const auto &model) { return model->finds_neighbors(); });
}

// Fixes that do so say it after init_style(): what is asked there has to be asked again.
bool PairPWMLFF::leaves_out() const
{
  return neighbor->nex_type + neighbor->nex_group + neighbor->nex_mol > 0 ||
         neighbor->includegroup != 0;
}

/* ----------------------------------------------------------------------
   bits of the groups whose atoms are excluded from all others: they are not there, as for fix gcmc
   when it tries what the energy would be without them
------------------------------------------------------------------------- */

int PairPWMLFF::absent_groups() const
{
  constexpr int ALL = 0;    // index of the group of all atoms
  int bits = 0;
  for (int k = 0; k < neighbor->nex_group; ++k) {
    const int one = neighbor->ex1_group[k], two = neighbor->ex2_group[k];
    if (two == ALL) bits |= group->bitmask[one];
    if (one == ALL) bits |= group->bitmask[two];
  }
  return bits;
}

/* ----------------------------------------------------------------------
   have LAMMPS make the list that it makes on demand
------------------------------------------------------------------------- */

void PairPWMLFF::build_occasional_list()
{
  // Made once a step by itself; fix gcmc moves on from one structure to the next within a step.
  struct Restore {
    bigint &value;
    const bigint before = value;
    ~Restore() { value = before; }
  } const restore{neighbor->lastcall};
  neighbor->lastcall = update->ntimestep + 1;
  neighbor->build_one(list);
}

/* ---------------------------------------------------------------------- */

void PairPWMLFF::update_neighbors()
try {
  const int nall = atom->nlocal + atom->nghost;
  if (neighbor->ago == 0 || !impl->neighbors_valid) {
    const ModelInfo &info = impl->models.front()->info();
    const int nspecies = static_cast<int>(info.atom_type.size());
    if (impl->finds_neighbors && !leaves_out()) {
      impl->neighbors.rebuild(atom->nlocal, nall, atom->type, impl->species_of_type, nspecies,
                              info.cutoff + neighbor->skin);
    } else {
      if (impl->finds_neighbors) build_occasional_list();
      const LocalAtoms atoms{nall,        atom->type,     list->inum,       list->gnum,
                             list->ilist, list->numneigh, list->firstneigh, NEIGHMASK,
                             atom->mask,  absent_groups()};
      impl->neighbors.rebuild(atoms, impl->species_of_type, nspecies, impl->hops());
    }
    impl->neighbors_valid = true;
  }
  impl->neighbors.update(atom->x);
} catch (const LAMMPSException &) {
  throw;    // of build_one(), already said
} catch (const std::exception &failure) {
  stop_rank(failure.what());
}

/* ----------------------------------------------------------------------
   end the run for what this rank alone has found
------------------------------------------------------------------------- */

void PairPWMLFF::stop_rank(const std::string &text)
{
  // One rank that aborts ends all, and what is on its way through the launcher then can get lost.
  static constexpr std::chrono::milliseconds time_to_print(300);
  impl->neighbors = Neighbors();    // a model that failed may have left anything in its inputs
  impl->neighbors_valid = false;
  try {
    error->one(FLERR, "Pair style pwmlff: " + text);
  } catch (...) {
    std::fflush(nullptr);
    std::this_thread::sleep_for(time_to_print);
    throw;
  }
}

/* ----------------------------------------------------------------------
   evaluate one model and refuse results that are not numbers
------------------------------------------------------------------------- */

void PairPWMLFF::evaluate(int model)
{
  Model &m = *impl->models[model];
  const Neighbors &neighbors = impl->neighbors;
  try {
    Request request;
    request.nthreads = comm->nthreads;
    request.atom_virial = model == 0 && vflag_atom;
    request.centroid_virial = model == 0 && cvflag_atom;
    impl->result = &m.evaluate(impl->neighbors, request);
  } catch (const TooManyNeighbors &excess) {
    stop_rank(fmt::format("atom {} has {} neighbors of element {} within the cutoff of {}, but "
                          "model '{}' takes at most "
                          "{}; such a density is outside of what it was trained for",
                          atom->tag[neighbors.atom()[excess.row]], excess.count,
                          symbol(m.info().atom_type[excess.species]), m.info().cutoff,
                          m.info().file, excess.limit));
  } catch (const std::exception &failure) {
    stop_rank(failure.what() + (m.on_gpu() ? place() : ""));
  }

  const auto require_finite = [&](int row, double value) {
    if (!std::isfinite(value))
      stop_rank(fmt::format(
          "model '{}' gives a non-finite energy or force for atom {} at step {}; look for "
          "overlapping atoms or a time step that is too long",
          m.info().file, atom->tag[neighbors.atom()[row]], update->ntimestep));
  };
  // Energies first: forces on all neighbours of the atom to blame are no numbers either.
  for (int row = 0; row < neighbors.ncentres(); ++row)
    require_finite(row, impl->result->atom_energy[row]);
  const double *const f = impl->result->force;
  for (int row = 0; row < neighbors.nrows(); ++row)
    require_finite(row, f[3 * row] + f[3 * row + 1] + f[3 * row + 2]);
  double sum = impl->result->energy;
  for (const double component : impl->result->virial) sum += component;
  if (!std::isfinite(sum))
    stop_rank(fmt::format("model '{}' gives finite energies and forces of atoms, but a non-finite "
                          "energy of the whole or virial at step {}; its file is not sound",
                          m.info().file, update->ntimestep));
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
  update_neighbors();

  const Neighbors &neighbors = impl->neighbors;
  const int ncentres = neighbors.ncentres();
  const int nmodels = static_cast<int>(impl->models.size());
  // The deviation is that of structures that the run goes through, not of those that a fix probes.
  const bool announced = announced_forces && announced_forces->take();
  const bool deviation = nmodels > 1 && announced && update->ntimestep % impl->out_freq == 0;
  if (nmodels > 1 && announced && !deviation) tell_of_skipped_frames();
  impl->forces.resize(deviation ? nmodels : 0);
  impl->energies.resize(deviation ? nmodels : 0);

  for (int model = 0; model < (deviation ? nmodels : 1); ++model) {
    if (ncentres > 0) evaluate(model);    // a rank without atoms still takes part below
    if (deviation) {
      impl->forces[model].assign(3 * static_cast<std::size_t>(neighbors.nrows()), 0.0);
      impl->energies[model].clear();
    }
    if (ncentres == 0) continue;

    const Evaluation &result = *impl->result;
    const double unit = impl->energy_unit;
    if (model == 0) {
      for (int row = 0; row < neighbors.nrows(); ++row) {
        double *const f = atom->f[neighbors.atom()[row]];
        for (int k = 0; k < 3; ++k) f[k] += unit * result.force[3 * row + k];
      }
      if (eflag_global) eng_vdwl += unit * result.energy;
      if (eflag_atom)
        for (int row = 0; row < ncentres; ++row)
          eatom[neighbors.atom()[row]] += unit * result.atom_energy[row];
      if (vflag_global)
        for (int k = 0; k < 6; ++k) virial[k] += unit * result.virial[k];
      for (int row = 0; (vflag_atom || cvflag_atom) && row < neighbors.nrows(); ++row) {
        const int i = neighbors.atom()[row];
        for (int k = 0; vflag_atom && k < 6; ++k)
          vatom[i][k] += unit * result.atom_virial[6 * row + k];
        for (int k = 0; cvflag_atom && k < 9; ++k)
          cvatom[i][k] += unit * result.centroid_virial[9 * row + k];
      }
    }
    if (deviation) {
      for (int row = 0; row < neighbors.nrows(); ++row)
        for (int k = 0; k < 3; ++k)
          impl->forces[model][3 * neighbors.atom()[row] + k] = unit * result.force[3 * row + k];
      for (int row = 0; row < ncentres; ++row)
        impl->energies[model].push_back(unit * result.atom_energy[row]);
    }
  }
  if (deviation) write_deviation();
}

/* ----------------------------------------------------------------------
   rerun sets up each frame anew; those between the multiples of out_freq are missed in the file
------------------------------------------------------------------------- */

void PairPWMLFF::tell_of_skipped_frames()
{
  if (impl->told_of_skipped_frames || !update->setupflag || update->ntimestep == update->firststep)
    return;
  impl->told_of_skipped_frames = true;
  if (comm->me == 0)
    error->warning(
        FLERR,
        "Pair style pwmlff: out_freq is {}: frames of other steps, like {}, get no line in "
        "'{}'; 'out_freq 1' gives one to each frame",
        impl->out_freq, update->ntimestep, impl->out_file);
}

/* ----------------------------------------------------------------------
   bring the forces on ghosts home, then compare the models atom by atom
------------------------------------------------------------------------- */

void PairPWMLFF::write_deviation()
{
  const Neighbors &neighbors = impl->neighbors;
  for (auto &forces : impl->forces) {
    impl->reverse = forces.data();
    comm->reverse_comm(this);
    std::vector<double> of_centres;
    for (int row = 0; row < neighbors.ncentres(); ++row)
      of_centres.insert(of_centres.end(), &forces[3 * neighbors.atom()[row]],
                        &forces[3 * neighbors.atom()[row]] + 3);
    forces = std::move(of_centres);
  }
  const Spread force = ensemble_deviation(impl->forces, neighbors.ncentres(), 3, world);
  const Spread energy = ensemble_deviation(impl->energies, neighbors.ncentres(), 1, world);
  const std::string failure = first_failure(world, [&] {
    if (comm->me == 0)
      impl->deviation_file.write(update->ntimestep, force, energy, update->setupflag != 0);
  });
  if (!failure.empty()) error->all(FLERR, "Pair style pwmlff: " + failure);
}

int PairPWMLFF::pack_reverse_comm(int n, int first, double *buf)
{
  std::copy_n(&impl->reverse[3 * first], 3 * n, buf);
  return 3 * n;
}

void PairPWMLFF::unpack_reverse_comm(int n, int *list, double *buf)
{
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < 3; ++k) impl->reverse[3 * list[i] + k] += *buf++;
}

/* ----------------------------------------------------------------------
   what pwmlffplugin.so looks up after it has opened this library
------------------------------------------------------------------------- */

extern "C" __attribute__((visibility("default"))) void *pwmlff_create_pair(void *lmp,
                                                                           const char *style)
{
  return static_cast<Pair *>(new PairPWMLFF(static_cast<LAMMPS *>(lmp), style));
}
