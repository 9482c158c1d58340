// SPDX-License-Identifier: GPL-2.0-or-later

#include "deviation_file.h"

#include "utils.h"    // fmt of LAMMPS

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace pair_pwmlff {
namespace {

constexpr const char *FIRST_WORD = "#    step";

}    // namespace

bool Spread::is_close_to(const Spread &other) const
{
  const double allowed = 1e-3 * std::max(maximum, other.maximum);
  return std::abs(average - other.average) <= allowed &&
         std::abs(minimum - other.minimum) <= allowed &&
         std::abs(maximum - other.maximum) <= allowed;
}

bool Deviation::is_close_to(const Deviation &other) const
{
  return force.is_close_to(other.force) && energy.is_close_to(other.energy);
}

DeviationFile::DeviationFile(const Settings &settings) :
    name(settings.out_file),
    format(settings.out_format),
    file(settings.out_file, "the model deviation file", "out_file")
{
}

std::string DeviationFile::names() const
{
  const bool matpl = format == DeviationFormat::matpl;
  std::string line = FIRST_WORD;
  for (const char *const quantity : {matpl ? "f" : "v", matpl ? "e" : "f"})
    for (const char *const kind : {matpl ? "avg" : "max", "min", matpl ? "max" : "avg"})
      line += fmt::format(" {:>16}", fmt::format("{}_devi_{}", kind, quantity));
  return line;
}

void DeviationFile::open(bool append, std::int64_t first, const std::vector<std::string> &header)
{
  file.open([&](const std::string &path) { return append ? end_of_lines_before(path, first) : 0; });
  if (file.size() > 0) return;
  std::string text = names() + "\n";
  for (const std::string &line : header) text += "# " + line + "\n";
  file.append(text);
}

void DeviationFile::write(std::int64_t step, const Deviation &deviation,
                          const std::vector<double> &of_atoms, bool begins)
{
  const bool again = step == last_step;
  if (again && begins && deviation.is_close_to(last)) return;
  if (again && !begins) file.shorten(last_start);
  last_step = step;
  last_start = file.size();
  last = deviation;

  std::string line = fmt::format("{:9}", step);
  const auto add = [&](double value) { line += fmt::format(" {:16.9f}", value); };
  const auto add_scientific = [&](double value) { line += fmt::format(" {:16.9e}", value); };
  if (format == DeviationFormat::matpl) {
    for (const Spread &spread : {deviation.force, deviation.energy})
      for (const double value : {spread.average, spread.minimum, spread.maximum}) add(value);
    for (const double value : of_atoms) add(value);
  } else {
    for (const Spread &spread : {deviation.virial, deviation.force})
      for (const double value : {spread.maximum, spread.minimum, spread.average})
        add_scientific(value);
    for (const double value : of_atoms) add_scientific(value);
  }
  file.append(line + "\n");
}

// 0 where there is no file, or no line of names.
std::int64_t DeviationFile::end_of_lines_before(const std::string &path, std::int64_t step) const
{
  std::ifstream old(path);
  std::string line;
  if (!std::getline(old, line) || old.eof()) return 0;
  if (line.rfind(FIRST_WORD, 0) != 0)
    throw std::runtime_error(
        "file " + path + " starts with '" + line.substr(0, 40) +
        "', so it is no model deviation file; choose another one with out_file");
  if (line != names())
    throw std::runtime_error("file " + path + " has the columns '" + line.substr(1) +
                             "', not those of this out_format; choose another one with out_file");
  std::int64_t end = old.tellg();
  // getline meets the end of the file before the end of an incomplete line
  while (std::getline(old, line) && !old.eof() &&
         (line.rfind('#', 0) == 0 || std::strtoll(line.c_str(), nullptr, 10) < step))
    end = old.tellg();
  return end;
}

}    // namespace pair_pwmlff
