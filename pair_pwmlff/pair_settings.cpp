// SPDX-License-Identifier: GPL-2.0-or-later

#include "pair_settings.h"

#include "error.h"
#include "lammps.h"
#include "universe.h"
#include "utils.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string_view>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

constexpr std::array<std::string_view, 8> KEYWORDS = {"out_freq",  "out_file",   "out_append",
                                                      "engine",    "precision",  "device",
                                                      "neighbors", "temperature"};

bool is_keyword(const std::string &word)
{
  return std::find(KEYWORDS.begin(), KEYWORDS.end(), word) != KEYWORDS.end();
}

void set(LAMMPS *lmp, Settings &settings, const std::string &keyword, const std::string &value)
try {
  Error *const error = lmp->error;
  if (keyword == "out_freq") {
    settings.out_freq = utils::inumeric(FLERR, value, false, lmp);
    if (settings.out_freq < 1)
      error->all(FLERR, "Pair style pwmlff: out_freq is {}, expected at least 1",
                 settings.out_freq);
  } else if (keyword == "out_file") {
    settings.out_file = value;
  } else if (keyword == "out_append") {
    settings.out_append = utils::logical(FLERR, value, false, lmp) != 0;
  } else if (keyword == "engine") {
    settings.engine.engine = pwmlff::models::parse_engine(value);
  } else if (keyword == "precision") {
    settings.engine.precision = pwmlff::models::checked_precision(value);
  } else if (keyword == "device") {
    settings.device = pwmlff::parse_device_policy(value);
  } else if (keyword == "temperature") {
    settings.temperature = utils::numeric(FLERR, value, false, lmp);
    if (!(settings.temperature > 0.0))
      error->all(FLERR, "Pair style pwmlff: temperature is {}, expected more than 0 K", value);
  } else {
    if (value != "auto" && value != "lammps")
      error->all(FLERR, "Pair style pwmlff: neighbors is '{}', expected auto or lammps", value);
    settings.lammps_list = value == "lammps";
  }
} catch (const std::invalid_argument &unknown) {
  lmp->error->all(FLERR, "Pair style pwmlff: {}", unknown.what());
}

}    // namespace

const std::string &keywords()
{
  static const std::string text = utils::join_words({KEYWORDS.begin(), KEYWORDS.end()}, ", ");
  return text;
}

bool is_matpl(const std::string &style) { return style.rfind("matpl", 0) == 0; }
bool is_nep_cpu(const std::string &style) { return style == "nep"; }

Settings parse_settings(LAMMPS *lmp, const std::string &style, int narg, char **arg)
{
  Error *const error = lmp->error;
  if (narg < 1 && !is_nep_cpu(style)) utils::missing_cmd_args(FLERR, "pair_style pwmlff", error);
  Settings settings;
  if (is_matpl(style)) {
    settings.out_freq = 1;
    settings.out_file = "explr.error";
  }
  const std::string default_out_file = settings.out_file;

  int iarg = 0;
  std::optional<int> nmodels;
  if (narg > 0 && utils::is_integer(arg[0]))
    nmodels = utils::inumeric(FLERR, arg[iarg++], false, lmp);
  if (nmodels && *nmodels < 1)
    error->all(FLERR, "Pair style pwmlff: number of models is {}, expected at least 1", *nmodels);
  while (iarg < narg && !is_keyword(arg[iarg]) &&
         (!nmodels || static_cast<int>(settings.files.size()) < *nmodels))
    settings.files.emplace_back(arg[iarg++]);
  const int found = static_cast<int>(settings.files.size());
  settings.file_in_coeff = found == 0 && is_nep_cpu(style);
  if (found == 0 && !settings.file_in_coeff)
    error->all(FLERR, "Pair style pwmlff: found no model file before the keywords");
  if (nmodels && found != *nmodels)
    error->all(FLERR, "Pair style pwmlff: number of models is {}, but {} model file(s) follow",
               *nmodels, found);

  for (; iarg < narg; iarg += 2) {
    const std::string keyword = arg[iarg];
    if (!is_keyword(keyword))
      error->all(FLERR,
                 "Pair style pwmlff: found '{}' after {} model file(s), expected a keyword ({})",
                 keyword, found, keywords());
    if (iarg + 1 >= narg) utils::missing_cmd_args(FLERR, "pair_style pwmlff " + keyword, error);
    const std::string value = arg[iarg + 1];
    if (is_keyword(value))
      error->all(FLERR, "Pair style pwmlff: keyword {} has no value, '{}' follows", keyword, value);
    set(lmp, settings, keyword, value);
  }

  // Replicas of a multi-partition run share a folder and, by default, would share this file.
  if (lmp->universe->existflag && settings.out_file == default_out_file)
    settings.out_file += fmt::format(".{}", lmp->universe->iworld);
  return settings;
}

}    // namespace pair_pwmlff
