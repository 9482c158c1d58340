// SPDX-License-Identifier: GPL-2.0-or-later

#include "pair_settings.h"

#include "error.h"
#include "force.h"
#include "lammps.h"
#include "universe.h"
#include "utils.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

using namespace LAMMPS_NS;

namespace pair_pwmlff {
namespace {

// kspace_method, pppm_mesh and pppm_spacing are MatPL's.
constexpr std::array<std::string_view, 23> KEYWORDS = {
    "out_freq",        "out_file",    "out_append", "engine",       "precision",    "device",
    "neighbors",       "temperature", "out_format", "out_header",   "atomic",       "relative",
    "drive",           "capture",     "check",      "min_distance", "calibration",  "gamma",
    "kspace_accuracy", "kspace",      "pppm_mesh",  "pppm_spacing", "kspace_method"};

bool is_keyword(const std::string &word)
{
  return std::find(KEYWORDS.begin(), KEYWORDS.end(), word) != KEYWORDS.end();
}

int at_least_one(LAMMPS *lmp, const std::string &keyword, const std::string &value)
{
  const int number = utils::inumeric(FLERR, value, false, lmp);
  if (number < 1)
    lmp->error->all(FLERR, "Pair style pwmlff: {} is {}, expected at least 1", keyword, number);
  return number;
}

// One of two words; whether it is the second.
bool choose(LAMMPS *lmp, const std::string &keyword, const std::string &value,
            const std::string &first, const std::string &second)
{
  if (value != first && value != second)
    lmp->error->all(FLERR, "Pair style pwmlff: {} is '{}', expected {} or {}", keyword, value,
                    first, second);
  return value == second;
}

// capture lo hi file [max n] [every k] [beyond go|stop]; returns how many words it took.
int set_capture(LAMMPS *lmp, Settings &settings, int narg, char **arg)
{
  if (narg < 3) utils::missing_cmd_args(FLERR, "pair_style pwmlff capture", lmp->error);
  Capture capture;
  capture.lo = utils::numeric(FLERR, arg[0], false, lmp);
  capture.hi = utils::numeric(FLERR, arg[1], false, lmp);
  if (!(capture.lo >= 0.0 && capture.hi > capture.lo))
    lmp->error->all(FLERR, "Pair style pwmlff: capture is from {} to {}, expected 0 <= lo < hi",
                    arg[0], arg[1]);
  capture.file = arg[2];
  int iarg = 3;
  for (; iarg < narg; iarg += 2) {
    const std::string word = arg[iarg];
    if (word != "max" && word != "every" && word != "beyond") break;
    if (iarg + 1 >= narg)
      utils::missing_cmd_args(FLERR, "pair_style pwmlff capture " + word, lmp->error);
    const std::string value = arg[iarg + 1], name = "capture " + word;
    if (word == "max") capture.most = at_least_one(lmp, name, value);
    else if (word == "every") capture.every = at_least_one(lmp, name, value);
    else capture.stop_beyond = choose(lmp, name, value, "go", "stop");
  }
  settings.capture = capture;
  return iarg;
}

// min_distance r|auto warn|stop; returns how many words it took.
int set_min_distance(LAMMPS *lmp, Settings &settings, int narg, char **arg)
{
  if (narg < 2) utils::missing_cmd_args(FLERR, "pair_style pwmlff min_distance", lmp->error);
  MinDistance guard;
  if (std::string_view(arg[0]) != "auto") {
    guard.distance = utils::numeric(FLERR, arg[0], false, lmp);
    if (!(*guard.distance > 0.0))
      lmp->error->all(FLERR, "Pair style pwmlff: min_distance is {}, expected more than 0, or auto",
                      arg[0]);
  }
  guard.stop = choose(lmp, "min_distance", arg[1], "warn", "stop");
  settings.min_distance = guard;
  return 2;
}

// gamma limit warn|stop; returns how many words it took.
int set_gamma(LAMMPS *lmp, Settings &settings, int narg, char **arg)
{
  if (narg < 2) utils::missing_cmd_args(FLERR, "pair_style pwmlff gamma", lmp->error);
  GradeLimit limit;
  limit.gamma = utils::numeric(FLERR, arg[0], false, lmp);
  if (!(limit.gamma > 0.0))
    lmp->error->all(FLERR, "Pair style pwmlff: gamma is {}, expected more than 0", arg[0]);
  limit.stop = choose(lmp, "gamma", arg[1], "warn", "stop");
  settings.gamma = limit;
  return 2;
}

// pppm_mesh power2|friendly|NX NY NZ; returns how many words it took.
int set_mesh(LAMMPS *lmp, Settings &settings, int narg, char **arg)
{
  if (narg < 1) utils::missing_cmd_args(FLERR, "pair_style pwmlff pppm_mesh", lmp->error);
  const std::string_view word = arg[0];
  if (word == "power2" || word == "friendly") return 1;    // LAMMPS has rules of its own
  if (narg < 3) utils::missing_cmd_args(FLERR, "pair_style pwmlff pppm_mesh", lmp->error);
  for (int d = 0; d < 3; ++d) settings.reciprocal.mesh[d] = at_least_one(lmp, "pppm_mesh", arg[d]);
  return 3;
}

double above_zero(LAMMPS *lmp, const std::string &keyword, const std::string &value)
{
  const double number = utils::numeric(FLERR, value, false, lmp);
  if (!(number > 0.0))
    lmp->error->all(FLERR, "Pair style pwmlff: {} is {}, expected more than 0", keyword, value);
  return number;
}

void set(LAMMPS *lmp, Settings &settings, const std::string &keyword, const std::string &value)
try {
  Error *const error = lmp->error;
  if (keyword == "out_freq") {
    settings.out_freq = at_least_one(lmp, keyword, value);
  } else if (keyword == "out_file") {
    settings.out_file = value;
  } else if (keyword == "out_append") {
    settings.out_append = utils::logical(FLERR, value, false, lmp) != 0;
  } else if (keyword == "out_format") {
    const std::string format = value == "pwact" ? "matpl" : value;    // no name of a pair style
    settings.out_format = choose(lmp, keyword, format, "matpl", "dpgen") ? DeviationFormat::dpgen
                                                                         : DeviationFormat::matpl;
  } else if (keyword == "calibration") {
    settings.calibration = value;
  } else if (keyword == "check") {
    settings.check = at_least_one(lmp, keyword, value);
  } else if (keyword == "out_header") {
    settings.out_header = utils::logical(FLERR, value, false, lmp) != 0;
  } else if (keyword == "atomic") {
    settings.out_atomic = utils::logical(FLERR, value, false, lmp) != 0;
  } else if (keyword == "relative") {
    settings.relative = utils::numeric(FLERR, value, false, lmp);
    if (!(settings.relative > 0.0))
      error->all(FLERR, "Pair style pwmlff: relative is {}, expected a force of more than 0",
                 value);
  } else if (keyword == "kspace" || keyword == "kspace_method") {
    settings.reciprocal.pppm = choose(lmp, keyword, value, "ewald", "pppm");
    settings.reciprocal.asked = true;
  } else if (keyword == "kspace_accuracy") {
    settings.reciprocal.accuracy = above_zero(lmp, keyword, value);
  } else if (keyword == "pppm_spacing") {
    above_zero(lmp, keyword, value);    // the accuracy tells the mesh
  } else if (keyword == "drive") {
    settings.mean_drives = choose(lmp, keyword, value, "first", "mean");
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
    settings.lammps_list = choose(lmp, keyword, value, "auto", "lammps");
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
bool is_nep_cpu(const std::string &style) { return style == "nep" || style == "nep/kk"; }
bool is_pace(const std::string &style)
{
  return style == "pace" || style == "pace/kk" || style == "grace/fs" || style == "grace/fs/kk";
}

Settings parse_settings(LAMMPS *lmp, const std::string &style, int narg, char **arg)
{
  Error *const error = lmp->error;
  const bool file_in_coeff = is_nep_cpu(style) || is_pace(style);
  if (narg < 1 && !file_in_coeff) utils::missing_cmd_args(FLERR, "pair_style pwmlff", error);
  for (int words = 0; is_pace(style) && narg > 0; narg -= words, arg += words) {
    const std::string word = arg[0];
    words = word == "product" || word == "recursive" ? 1 : word == "chunksize" && narg > 1 ? 2 : 0;
    if (words == 0) break;
  }
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
  settings.file_in_coeff = found == 0 && file_in_coeff;
  if (found == 0 && !settings.file_in_coeff)
    error->all(FLERR, "Pair style pwmlff: found no model file before the keywords");
  if (nmodels && found != *nmodels)
    error->all(FLERR, "Pair style pwmlff: number of models is {}, but {} model file(s) follow",
               *nmodels, found);

  while (iarg < narg) {
    const std::string keyword = arg[iarg];
    if (!is_keyword(keyword))
      error->all(FLERR,
                 "Pair style pwmlff: found '{}' after {} model file(s), expected a keyword ({})",
                 keyword, found, keywords());
    if (iarg + 1 >= narg && utils::strmatch(lmp->force->pair_style, "^hybrid"))
      error->all(FLERR,
                 "Pair style pwmlff: keyword {} has no value; LAMMPS ends the words of a part of a "
                 "hybrid style at the name of a pair style, which matpl is: write out_format pwact",
                 keyword);
    if (iarg + 1 >= narg) utils::missing_cmd_args(FLERR, "pair_style pwmlff " + keyword, error);
    const std::string value = arg[iarg + 1];
    if (is_keyword(value))
      error->all(FLERR, "Pair style pwmlff: keyword {} has no value, '{}' follows", keyword, value);
    const auto of_several = keyword == "capture"        ? set_capture
                            : keyword == "min_distance" ? set_min_distance
                            : keyword == "gamma"        ? set_gamma
                            : keyword == "pppm_mesh"    ? set_mesh
                                                        : nullptr;
    if (of_several) {
      iarg += 1 + of_several(lmp, settings, narg - iarg - 1, arg + iarg + 1);
      continue;
    }
    set(lmp, settings, keyword, value);
    iarg += 2;
  }
  for (const auto &[given, what] : {std::pair{settings.mean_drives, "drive mean"},
                                    {settings.capture.has_value(), "capture"},
                                    {settings.out_atomic, "atomic"},
                                    {settings.relative > 0.0, "relative"}})
    if (given && found < 2)
      error->all(FLERR,
                 "Pair style pwmlff: the keyword {} compares models, but there is one model file; "
                 "name at least two",
                 what);

  if (settings.reciprocal.accuracy > 0.0 && !settings.reciprocal.pppm)
    error->all(FLERR,
               "Pair style pwmlff: kspace_accuracy is of a mesh, but Ewald's sum is exact; write "
               "'kspace pppm', too, or leave it out");
  if (!settings.calibration.empty() && settings.relative > 0.0)
    error->all(FLERR,
               "Pair style pwmlff: a calibration is of deviations that are not relative; leave out "
               "relative or calibration");

  // Replicas of a multi-partition run share a folder and, by default, would share this file.
  if (lmp->universe->existflag && settings.out_file == default_out_file)
    settings.out_file += fmt::format(".{}", lmp->universe->iworld);
  return settings;
}

}    // namespace pair_pwmlff
