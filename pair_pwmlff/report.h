// SPDX-License-Identifier: GPL-2.0-or-later

// What the log says of the models before a run.

#ifndef PWMLFF_REPORT_H
#define PWMLFF_REPORT_H

#include "ensemble.h"

#include <string>
#include <vector>

namespace LAMMPS_NS {
class LAMMPS;
}

namespace pair_pwmlff {

/// Files, kinds, engines, elements, and what becomes of the deviation of several models.
/// @param style  its name in the input
/// @param species_of_type [ntypes+1] -1 for NULL
std::string describe(const Ensemble &models, const std::string &style,
                     const std::vector<int> &species_of_type, int out_freq,
                     const std::string &out_file);

/// Warn of types with the mass of another element: elements in the wrong order run without a word,
/// and give wrong numbers.
void check_masses(LAMMPS_NS::LAMMPS *lmp, const pwmlff::models::ModelInfo &info,
                  const std::vector<int> &species_of_type);

}    // namespace pair_pwmlff

#endif
