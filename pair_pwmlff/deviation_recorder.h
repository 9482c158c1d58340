// SPDX-License-Identifier: GPL-2.0-or-later

// The model deviation of an ensemble: when the models are compared in a run, and what comes of it.

#pragma once

#include "models/model.h"
#include "models/neighbors.h"
#include "pair_settings.h"

#include "pointers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace LAMMPS_NS {
class Pair;
}

namespace pair_pwmlff {

class AnnouncedForces;

/// For ensembles of at least two models. Rank 0 has the file. The deviation of atom i is
///   sigma_i = sqrt( 1/M sum_m |q_im - <q_i>|^2 ),   <q_i> = 1/M sum_m q_im
/// over M models, q_im being its force or its energy, in LAMMPS's units.
class DeviationRecorder : private LAMMPS_NS::Pointers {
 public:
  /// Claim the file, or stop LAMMPS on all ranks. Collective.
  DeviationRecorder(LAMMPS_NS::LAMMPS *lmp, const Settings &settings);
  ~DeviationRecorder() override;
  DeviationRecorder(const DeviationRecorder &) = delete;
  DeviationRecorder &operator=(const DeviationRecorder &) = delete;

  /// Before a run: open the file, or stop LAMMPS on all ranks. Collective.
  void init();

  /// Whether the models are to be compared for the forces that are asked for now; to be called once
  /// an evaluation.
  /// @param requested  compare them also between the steps that get a line
  bool due(bool requested);

  /// Store what a model gives.
  /// @param result null on a rank without centers
  /// @param unit   LAMMPS's unit of energy in the model's
  void store(int model, const pwmlff::models::Neighbors &neighbors,
             const pwmlff::models::Evaluation *result, double unit);

  /// Add the forces on ghosts to those of the atoms they are copies of, compare the models atom by
  /// atom, and write the line that is due, or stop LAMMPS on all ranks. Collective.
  /// @param pair  calls pack() and unpack() when LAMMPS asks it
  void compare(LAMMPS_NS::Pair *pair, const pwmlff::models::Neighbors &neighbors);

  /// [nlocal] deviation of each atom's force or energy, 0 for those that are no centers; null where
  /// the models were not compared on this step.
  double *force_deviation() { return of_this_step(force_sigma); }
  double *energy_deviation() { return of_this_step(energy_sigma); }

  int pack(int n, int first, double *buf) const;
  void unpack(int n, const int *list, const double *buf);
  double memory_usage() const;    // bytes

 private:
  class File;
  struct Spread;
  using PerModel = std::vector<std::vector<double>>;

  void warn_of_skipped_frames();
  Spread deviation(const PerModel &values, int width, const pwmlff::models::Neighbors &neighbors,
                   std::vector<double> &sigma) const;
  double *of_this_step(std::vector<double> &sigma) const;

  int every;
  std::string out_file;
  bool append;
  std::unique_ptr<File> file;                     // on rank 0
  AnnouncedForces *announced_forces = nullptr;    // null where a user removed it
  bool opened = false, warned_of_skipped_frames = false, line_is_due = false;
  PerModel forces, energies;    // [nall, 3], [nlocal]
  std::vector<double> force_sigma, energy_sigma;
  std::int64_t compared_step = -1;
  double *reverse = nullptr;    // the forces that are in reverse communication
};

}    // namespace pair_pwmlff
