// SPDX-License-Identifier: GPL-2.0-or-later

// The model deviation of an ensemble: when the models are compared in a run, and what comes of it.

#pragma once

#include "deviation_file.h"
#include "frame_capture.h"
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
/// over M models, q_im being its force or its energy, in LAMMPS's units; with Settings::relative,
/// that of the force is divided by |<F_i>| + relative (DeePMD-kit's form). The deviations of the
/// total energy and of the virial's components are likewise, divided by the number of atoms.
class DeviationRecorder : private LAMMPS_NS::Pointers {
 public:
  /// Claim the files, or stop LAMMPS on all ranks. Collective.
  DeviationRecorder(LAMMPS_NS::LAMMPS *lmp, const Settings &settings);
  ~DeviationRecorder() override;
  DeviationRecorder(const DeviationRecorder &) = delete;
  DeviationRecorder &operator=(const DeviationRecorder &) = delete;

  /// Before a run: open the files, or stop LAMMPS on all ranks. Collective.
  /// @param header          of the deviation file; may be empty
  /// @param symbol_of_type  [ntypes+1]
  /// @param unit            LAMMPS's unit of energy in the model's
  void init(const std::vector<std::string> &header, std::vector<std::string> symbol_of_type,
            double unit);

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
  /// atom, and write the line and the structure that are due, or stop LAMMPS on all ranks.
  /// Collective.
  /// @param pair  calls pack() and unpack() when LAMMPS asks it
  void compare(LAMMPS_NS::Pair *pair, const pwmlff::models::Neighbors &neighbors);

  /// Null where the models were not compared on this step.
  const Deviation *of_this_step() const;

  /// Null where structures are not captured.
  FrameCapture *frames() { return capture.get(); }

  /// [nlocal] deviation of each atom's force or energy, 0 for those that are no centers; null where
  /// the models were not compared on this step.
  double *force_deviation() { return of_this_step(force_sigma); }
  double *energy_deviation() { return of_this_step(energy_sigma); }

  int pack(int n, int first, double *buf) const;
  void unpack(int n, const int *list, const double *buf);
  double memory_usage() const;    // bytes

 private:
  using PerModel = std::vector<std::vector<double>>;

  void warn_of_skipped_frames();
  Spread deviation(const PerModel &values, int width, const pwmlff::models::Neighbors &neighbors,
                   std::vector<double> &sigma) const;
  void compare_totals(int ncenters);
  std::vector<double> by_id(const std::vector<double> &of_atoms) const;
  double *of_this_step(std::vector<double> &sigma) const;

  const int every;
  const std::string out_file;
  const bool append, atomic;
  const double relative;
  std::unique_ptr<DeviationFile> file;            // on rank 0
  std::unique_ptr<FrameCapture> capture;          // where structures are captured
  AnnouncedForces *announced_forces = nullptr;    // null where a user removed it
  bool opened = false, warned_of_skipped_frames = false, line_is_due = false;
  PerModel forces, energies;     // [nall, 3], [nlocal]
  std::vector<double> totals;    // [nmodels, 7] energy and virial of this rank
  Deviation found;
  std::vector<double> force_sigma, energy_sigma;
  std::int64_t compared_step = -1;
  double *reverse = nullptr;    // the forces that are in reverse communication
};

}    // namespace pair_pwmlff
