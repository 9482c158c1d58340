// SPDX-License-Identifier: GPL-2.0-or-later

#include "ensemble.h"

#include "collective.h"
#include "elements.h"
#include "options.h"

#include "comm.h"
#include "error.h"
#include "lammps.h"
#include "utils.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

/// @throws std::runtime_error
std::string read_file(const std::string &file)
{
  const std::string found = utils::get_potential_file_path(file);
  const std::string &path = found.empty() ? file : found;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw std::runtime_error(fmt::format("model file '{}' is a folder; name the file in it", file));
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

/// Rank 0 reads the file and hands it on.
std::string contents_of(LAMMPS *lmp, const std::string &file)
{
  const MPI_Comm world = lmp->world;
  std::string contents;
  const std::string unreadable = first_failure(world, [&] {
    if (lmp->comm->me == 0) contents = read_file(file);
  });
  if (!unreadable.empty()) lmp->error->all(FLERR, "Pair style pwmlff: " + unreadable);

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

void check_alike(LAMMPS *lmp, const Ensemble &models)
{
  const ModelInfo &first = models.front()->info();
  for (const auto &model : models) {
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
      lmp->error->all(
          FLERR,
          "Pair style pwmlff: models of an ensemble differ in their {}: '{}' has {}, '{}' has "
          "{}; use models trained alike",
          what, info.file, found, first.file, expected);
  }
}

}    // namespace

Ensemble load_ensemble(LAMMPS *lmp, const std::vector<std::string> &files,
                       const EngineOptions &options)
{
  Ensemble models;
  for (const auto &file : files) {
    const std::string contents = contents_of(lmp, file);
    const std::string unusable =
        first_failure(lmp->world, [&] { models.push_back(load_model(file, contents, options)); });
    if (!unusable.empty()) lmp->error->all(FLERR, "Pair style pwmlff: " + unusable);
  }
  check_alike(lmp, models);
  return models;
}

int hops(const Ensemble &models)
{
  int most = -1;
  for (const auto &model : models) most = std::max(most, pwmlff::models::hops(model->info()));
  return most;
}

double interaction_range(const Ensemble &models)
{
  double longest = 0.0;
  for (const auto &model : models) longest = std::max(longest, model->info().interaction_range);
  return longest;
}

}    // namespace pair_pwmlff
