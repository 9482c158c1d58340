// SPDX-License-Identifier: GPL-2.0-or-later

// The arguments of a pair_style command.

#pragma once

#include "models/model.h"
#include "placement/device_mapping.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace LAMMPS_NS {
class LAMMPS;
}

namespace pair_pwmlff {

/// Whose columns the model deviation file has.
enum class DeviationFormat { matpl, dpgen };

/// Structures to store, by their largest force deviation.
struct Capture {
  double lo = 0.0, hi = 0.0;    // lo <= deviation < hi, in LAMMPS's units
  std::string file;
  int most = 0;                // structures in the file; 0 for no limit
  int every = 0;               // steps; 0 for out_freq
  bool stop_beyond = false;    // end the run at a deviation of hi or more
};

/// What becomes of atoms that are too close.
struct MinDistance {
  std::optional<double> distance;    // in LAMMPS's units; that of the model's data where not given
  bool stop = false;                 // end the run, else warn
};

/// What becomes of atoms that are too far from the training data.
struct GradeLimit {
  double gamma = 0.0;
  bool stop = false;    // end the run, else warn
};

/// How the reciprocal part of a Coulomb energy is found, where the input has no kspace_style.
struct Reciprocal {
  bool asked = false;           // whether the line says anything of it
  bool pppm = false;            // by a mesh of LAMMPS, else by Ewald's sum
  double accuracy = 0.0;        // of the mesh, as kspace_style has it; 0 for 1e-5
  std::array<int, 3> mesh{};    // its points; 0 for as many as the accuracy wants
};

/// pair_style pwmlff [N] file ... keyword value ..., with the defaults of the keywords.
struct Settings {
  std::vector<std::string> files;
  bool file_in_coeff = false;              // pair_coeff names the file, before the elements
  pwmlff::models::EngineOptions engine;    // without the GPU, which is the rank's own
  pwmlff::DevicePolicy device;
  double temperature = 0.0;    // K, for models that take one; 0 where none is given
  bool lammps_list = false;    // LAMMPS's neighbor list, also for a device that can do without
  int out_freq = 100;
  std::string out_file = "model_devi.out";
  bool out_append = false;
  DeviationFormat out_format = DeviationFormat::matpl;
  bool out_header = false;    // the models, in comments of the file
  bool out_atomic = false;    // deviations of atoms in the file
  double relative = 0.0;      // force at which the force deviation is halved; 0 for the plain one
  std::string calibration;    // file that a training has kept; none if empty
  bool mean_drives = false;
  std::optional<Capture> capture;
  std::optional<MinDistance> min_distance;
  std::optional<GradeLimit> gamma;
  Reciprocal reciprocal;
  int check = 0;    // steps between comparisons of engines with float64; 0 for none

  /// Whether gamma is wanted on each step, for a limit or for the calibration of one model.
  bool watches_gamma() const { return gamma || (files.size() < 2 && !calibration.empty()); }
};

/// Whether a style goes by a name of MatPL's, and so by MatPL's defaults.
bool is_matpl(const std::string &style);

/// Whether it goes by the name of NEP_CPU's. Its inputs name the file in pair_coeff (since release
/// 1.3), or in pair_style and then no elements: types are those of the file in turn.
bool is_nep_cpu(const std::string &style);

/// Whether it goes by a name of ML-PACE's for ACE, pace or grace/fs. Its inputs name the file in
/// pair_coeff; product, recursive and chunksize say how ML-PACE evaluates, and have no effect.
bool is_pace(const std::string &style);

/// Parse the arguments of the command, or stop LAMMPS on all ranks.
/// @param style  its name in the input
/// @param arg    [narg] what follows it
Settings parse_settings(LAMMPS_NS::LAMMPS *lmp, const std::string &style, int narg, char **arg);

/// "out_freq, out_file, ..."
const std::string &keywords();

}    // namespace pair_pwmlff
