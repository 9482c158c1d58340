// SPDX-License-Identifier: GPL-2.0-or-later

#include "ensemble.h"

#include "archive/other_files.h"
#include "collective.h"
#include "core/periodic_table.h"

#include "atom.h"
#include "comm.h"
#include "compute.h"
#include "error.h"
#include "lammps.h"
#include "modify.h"
#include "utils.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>

using namespace LAMMPS_NS;
using namespace pwmlff::models;
using pwmlff::ATOMIC_WEIGHTS, pwmlff::symbol, pwmlff::symbols;

namespace pair_pwmlff {
namespace {

/// @throws std::runtime_error
std::string read_file(const std::string &file)
{
  const std::string path = utils::get_potential_file_path(file);
  std::error_code unknown;    // of a file that is not there: then reading it says so
  if (std::filesystem::is_directory(path, unknown))
    throw std::runtime_error(fmt::format("model file '{}' {}", file, pwmlff::name_of_folder(path)));
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream buffer;
  if (!stream)
    throw std::runtime_error(
        fmt::format("cannot read model file '{}'; give a path that is valid in the folder where "
                    "lmp was started ('{}' is no keyword either: {})",
                    file, file, keywords()));
  buffer << stream.rdbuf();
  if (stream.bad())
    throw std::runtime_error(fmt::format("cannot read model file '{}' to its end", file));
  std::string contents = buffer.str();
  if (contents.empty())
    throw std::runtime_error(fmt::format("model file '{}' is empty; copy it again", file));
  return contents;
}

/// The contents of a file, which rank 0 reads and sends to all others. Collective.
std::string broadcast_file(LAMMPS *lmp, const std::string &file)
{
  const MPI_Comm world = lmp->world;
  std::string contents;
  all_or_stop(lmp, [&] {
    if (lmp->comm->me == 0) contents = read_file(file);
  });
  bigint size = static_cast<bigint>(contents.size());
  MPI_Bcast(&size, 1, MPI_LMP_BIGINT, 0, world);
  const std::string no_memory = first_failure(world, [&] { contents.resize(size); });
  if (!no_memory.empty())
    lmp->error->all(FLERR,
                    "Pair style pwmlff: a rank has no memory for model file '{}' of {} bytes", file,
                    size);
  constexpr bigint CHUNK = 1 << 30;    // MPI counts are int
  for (bigint offset = 0; offset < size; offset += CHUNK)
    MPI_Bcast(&contents[offset], static_cast<int>(std::min(CHUNK, size - offset)), MPI_CHAR, 0,
              world);
  return contents;
}

void check_alike(LAMMPS *lmp, const ModelInfo &first, const ModelInfo &info)
{
  struct Property {
    const char *name;
    std::string found, expected;
  };
  const auto elements = [](const ModelInfo &one) {
    return symbols(std::set<int>(one.atom_type.begin(), one.atom_type.end()));
  };
  for (const auto &[name, found, expected] :
       {Property{"elements", elements(info), elements(first)},
        Property{"cutoff", fmt::format("{}", info.cutoff), fmt::format("{}", first.cutoff)},
        Property{"units", info.units, first.units}})
    if (found != expected)
      lmp->error->all(
          FLERR,
          "Pair style pwmlff: models of an ensemble differ in their {}: '{}' has {}, '{}' has "
          "{}; use models trained alike",
          name, info.file, found, first.file, expected);
}

std::string most_neighbors(const ModelInfo &info)
{
  if (info.max_neighbor == 0) return "";
  std::string most;
  const bool differ = std::ranges::adjacent_find(info.sel, std::not_equal_to()) != info.sel.end();
  for (std::size_t s = 0; differ && s < info.sel.size(); ++s)
    most += fmt::format("{}{} {}", s > 0 ? ", " : "", info.sel[s], symbol(info.atom_type[s]));
  if (!most.empty()) return ", at most " + most + " neighbors";
  return fmt::format(", at most {} neighbors of an element", info.max_neighbor);
}

}    // namespace

Ensemble load_ensemble(LAMMPS *lmp, const std::vector<std::string> &files,
                       const EngineOptions &options,
                       const std::function<void(const std::string &)> &read)
{
  Ensemble models;
  for (const auto &file : files) {
    const std::string contents = broadcast_file(lmp, file);
    read(contents);
    all_or_stop(lmp, [&] {
      std::unique_ptr<Model> model = load_without_torch(file, contents, options);
      if (!model) {
        options.open_torch();
        model = load_model(file, contents, options);
      }
      models.push_back(std::move(model));
    });
  }
  const ModelInfo &first = models.front()->info();
  for (const auto &model : models) {
    check_alike(lmp, first, model->info());
    if (model->info().atom_type == first.atom_type) continue;
    for (const int number : model->info().atom_type)
      model->order.push_back(
          static_cast<int>(std::ranges::find(first.atom_type, number) - first.atom_type.begin()));
  }
  return models;
}

int hops(const Ensemble &models)
{
  int most = -1;
  for (const auto &model : models) most = std::max(most, model->needs().hops);
  return most;
}

int exchange_width(const Ensemble &models)
{
  int most = 0;
  for (const auto &model : models) most = std::max(most, model->needs().exchange_width);
  return most;
}

// Ranks whose processors or GPUs run other engines would wait for ever, or the others for them.
void require_one_exchange(LAMMPS *lmp, const Ensemble &models)
{
  for (const auto &model : models) {
    const Needs needs = model->needs();
    const std::array<int, 3> mine = {needs.exchange_width, needs.hops, needs.exchanges_single};
    std::array<int, 3> least{}, most{};
    MPI_Allreduce(mine.data(), least.data(), 3, MPI_INT, MPI_MIN, lmp->world);
    MPI_Allreduce(mine.data(), most.data(), 3, MPI_INT, MPI_MAX, lmp->world);
    if (most[0] == 0 || least == most) continue;
    std::string engines;
    for (const std::string &one : gathered(lmp->world, model->engine()))
      if (engines.find(one) == std::string::npos) engines += (engines.empty() ? "" : "; ") + one;
    lmp->error->all(
        FLERR,
        "Pair style pwmlff: ranks evaluate model '{}' in ways that cannot exchange features "
        "with each other ({}); use 'engine torchscript', or ranks that are alike",
        model->info().file, engines);
  }
}

std::vector<std::string> identities(const Ensemble &models, const std::vector<std::string> &hashes)
{
  std::vector<std::string> lines;
  for (std::size_t k = 0; k < models.size(); ++k) {
    const ModelInfo &info = models[k]->info();
    lines.push_back(fmt::format("model {}: {}, SHA-256 {}, kind {}, engine {}", k + 1, info.file,
                                hashes[k], info.kind, models[k]->engine()));
  }
  return lines;
}

std::string summary(const Ensemble &models, const std::string &style,
                    const std::vector<int> &species_of_type, const Settings &settings)
{
  std::string text = "Pair style pwmlff:\n  pair-pwmlff " PWMLFF_VERSION;
  text += *PWMLFF_COMMIT ? ", commit " PWMLFF_COMMIT "\n" : "\n";
  if (is_matpl(style))
    text += fmt::format("  pair_style {} is run by pair_style pwmlff, with the defaults out_freq 1 "
                        "and out_file explr.error\n",
                        style);
  else if (is_nep_cpu(style) || is_pace(style))
    text += fmt::format("  pair_style {} is run by pair_style pwmlff\n", style);
  const std::vector<int> &elements = models.front()->info().atom_type;
  std::set<int> named;
  for (const int species : species_of_type)
    if (species >= 0) named.insert(elements[species]);
  int index = 0;
  for (const auto &model : models) {
    const ModelInfo &info = model->info();
    const std::string dtype = info.dtype.empty() ? "" : " in " + info.dtype;
    text +=
        fmt::format("  model {}: {}\n    kind {}, elements {}, units {}, cutoff {}{}{}, {} "
                    "parameters{}\n    engine {}\n",
                    ++index, info.file, info.kind, symbols(info.atom_type), info.units, info.cutoff,
                    info.interaction_range > info.cutoff
                        ? fmt::format(", interaction range {}", info.interaction_range)
                        : "",
                    most_neighbors(info), info.nparameters, dtype, model->engine());
    if (info.kind == "DP" && info.sel.empty() && named.size() < info.atom_type.size())
      text += fmt::format("    its descriptor is divided by the slots of {} alone, the elements "
                          "that pair_coeff names: {} of {}\n",
                          symbols(named), named.size(), info.atom_type.size());
  }
  text += "  types:";
  for (std::size_t type = 1; type < species_of_type.size(); ++type) {
    const int species = species_of_type[type];
    text += fmt::format("{} {} {}", type > 1 ? "," : "", type,
                        species < 0 ? "NULL" : symbol(elements[species]));
  }
  text += "\n";
  if (models.size() > 1)
    text += fmt::format("  {}; deviation of {} models every {} steps to {}\n",
                        settings.mean_drives ? "the mean drives" : "model 1 drives", models.size(),
                        settings.out_freq, settings.out_file);
  if (const auto &capture = settings.capture)
    text += fmt::format("  structures with a largest force deviation from {} to {} go to {}\n",
                        capture->lo, capture->hi, capture->file);
  return text;
}

void warn_of_elements(LAMMPS *lmp, const Ensemble &models, const std::vector<int> &species_of_type)
{
  const std::vector<int> &elements = models.front()->info().atom_type;
  for (const auto &model : models)
    for (std::size_t type = 1; type < species_of_type.size(); ++type) {
      const int species = species_of_type[type];
      if (species < 0 || std::ranges::count(model->info().without_data, elements[species]) == 0)
        continue;
      lmp->error->warning(
          FLERR,
          "Pair style pwmlff: the data of model '{}' had no atom of {}, which atom type {} is: its "
          "numbers for {} mean nothing; train with data of it",
          model->info().file, symbol(elements[species]), type, symbol(elements[species]));
    }
}

void check_masses(LAMMPS *lmp, const ModelInfo &info, const std::vector<int> &species_of_type)
{
  const Atom *const atom = lmp->atom;
  if (info.units != "metal" || !atom->mass) return;    // masses are in g/mol, for types
  constexpr double TOLERANCE = 0.1;
  const auto fits = [](double mass, int number) {
    const double weight = ATOMIC_WEIGHTS[number];
    return std::abs(mass - weight) <= TOLERANCE * weight;
  };
  for (int type = 1; type <= atom->ntypes; ++type) {
    const int species = species_of_type[type];
    if (species < 0 || !atom->mass_setflag[type]) continue;
    const double mass = atom->mass[type];
    const int number = info.atom_type[species];
    if (fits(mass, number)) continue;
    std::string like;
    for (const int other : info.atom_type)
      if (fits(mass, other)) like += (like.empty() ? ", like " : " or ") + symbol(other);
    lmp->error->warning(
        FLERR,
        "Pair style pwmlff: atom type {} has mass {:.6g}{}, but pair_coeff makes it {} ({}); "
        "check the order of the elements",
        type, mass, like, symbol(number), ATOMIC_WEIGHTS[number]);
  }
}

void check_heat_flux(LAMMPS *lmp, const Ensemble &models)
{
  if (lmp->comm->me != 0) return;
  const auto flux = lmp->modify->get_compute_by_style("^heat/flux$");
  if (flux.empty()) return;
  const std::string name = flux.front()->id;
  if (hops(models) > 0)
    lmp->error->warning(
        FLERR,
        "Pair style pwmlff: compute heat/flux '{}' is wrong for model '{}': with message passing "
        "the energy of an atom depends on more than its cutoff, which no compute of LAMMPS has",
        name, models.front()->info().file);
  for (const auto &model : models)
    if (model->has_charges())
      lmp->error->warning(
          FLERR,
          "Pair style pwmlff: compute heat/flux '{}' is wrong for model '{}': with charges the "
          "energy of an atom depends on all atoms, which no compute of LAMMPS has",
          name, model->info().file);
  std::string even, centroid;    // IDs; it does not say which one it takes
  for (const Compute *const compute : lmp->modify->get_compute_list()) {
    if (compute->pressatomflag == 0) continue;
    std::string &ids = compute->pressatomflag == 1 ? even : centroid;
    ids += (ids.empty() ? "'" : ", '") + std::string(compute->id) + "'";
  }
  if (!even.empty())
    lmp->error->warning(
        FLERR,
        "Pair style pwmlff: compute heat/flux '{}' is wrong with the virials of compute "
        "stress/atom ({}), as the potential is one of many atoms; {}",
        name, even,
        centroid.empty()
            ? "give it those of a compute centroid/stress/atom"
            : "see that it takes those of compute centroid/stress/atom (" + centroid + ")");
}

}    // namespace pair_pwmlff
