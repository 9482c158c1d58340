// SPDX-License-Identifier: GPL-2.0-or-later

#include "calibration.h"

#include "collective.h"
#include "core/periodic_table.h"

#include "comm.h"
#include "error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

using namespace LAMMPS_NS;

namespace pair_pwmlff {

Calibration::Calibration(LAMMPS *lmp, const std::string &file) : Pointers(lmp), file(file)
{
  all_or_stop(lmp, [&] {
    if (comm->me != 0) return;
    std::ifstream lines(file);
    if (!lines)
      throw std::runtime_error("cannot read the calibration '" + file +
                               "': " + std::strerror(errno));
    const std::string of_model = "# model ";
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(of_model, 0) == 0) models.push_back(line.substr(line.rfind(' ') + 1));
      std::istringstream numbers(line);
      if (line.rfind("# error ", 0) == 0) {
        std::string element;
        double rms = 0.0;
        numbers.ignore(8) >> element >> rms;
        errors[element] = rms;
      }
      if (line.empty() || line[0] == '#') continue;
      double deviation = 0.0, bound = 0.0;
      const bool ascends =
          numbers >> deviation >> bound && (deviations.empty() || deviation >= deviations.back());
      if (!ascends)
        throw std::runtime_error("the calibration '" + file + "' has the line '" +
                                 line.substr(0, 60) +
                                 "', expected a growing deviation and a bound");
      deviations.push_back(deviation);
      bounds.push_back(bound);
    }
    if (models.empty() || deviations.empty())
      throw std::runtime_error("'" + file +
                               "' is no calibration.txt of 'pwmlff train': it names no model, or "
                               "has no line");
  });
}

void Calibration::require(const std::vector<std::string> &hashes) const
{
  all_or_stop(lmp, [&] {
    if (comm->me == 0 &&
        !std::is_permutation(hashes.begin(), hashes.end(), models.begin(), models.end()))
      throw std::runtime_error("the calibration '" + file + "' is not of these models, but of " +
                               std::to_string(models.size()) +
                               " files with other contents; take that of their training");
  });
}

double Calibration::bound(double deviation) const
{
  const auto next = std::upper_bound(deviations.begin(), deviations.end(), deviation);
  const std::size_t place = next == deviations.begin() ? 0 : next - deviations.begin() - 1;
  return bounds[place] * std::max(1.0, deviation / deviations.back());
}

double Calibration::bound(const std::vector<double> &gamma, const std::vector<int> &elements) const
{
  double of_others = errors.empty() ? 1.0 : 0.0;
  for (const auto &[element, rms] : errors) of_others = std::max(of_others, rms);
  double deviation = 0.0;
  for (std::size_t k = 0; k < elements.size(); ++k) {
    const auto found = errors.find(pwmlff::symbol(elements[k]));
    deviation = std::max(deviation, gamma[k] * (found == errors.end() ? of_others : found->second));
  }
  return bound(deviation);
}

}    // namespace pair_pwmlff
