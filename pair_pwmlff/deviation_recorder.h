// SPDX-License-Identifier: GPL-2.0-or-later

// When the models of an ensemble are compared in a run, and what is kept of them until then.

#ifndef PWMLFF_DEVIATION_RECORDER_H
#define PWMLFF_DEVIATION_RECORDER_H

#include "deviation.h"
#include "models/model.h"
#include "models/neighbors.h"
#include "options.h"

#include "pointers.h"

#include <optional>
#include <string>
#include <vector>

namespace LAMMPS_NS {
class Pair;
}

namespace pair_pwmlff {

class AnnouncedForces;

/// For ensembles of at least two models. Rank 0 has the file.
class DeviationRecorder : private LAMMPS_NS::Pointers {
 public:
  /// Claim the file, or stop LAMMPS on all ranks. Collective.
  DeviationRecorder(LAMMPS_NS::LAMMPS *lmp, const Options &options);
  ~DeviationRecorder() override;
  DeviationRecorder(const DeviationRecorder &) = delete;
  DeviationRecorder &operator=(const DeviationRecorder &) = delete;

  /// Before a run: start the file, or stop LAMMPS on all ranks. Collective.
  void init();

  /// Whether the forces that are asked for now get a line; to be asked once an evaluation.
  bool due();

  /// Keep what a model gives, in LAMMPS's units.
  /// @param result null on a rank without centers
  void keep(int model, const pwmlff::models::Neighbors &neighbors,
            const pwmlff::models::Evaluation *result, double unit);

  /// Add the forces on ghosts to those of the atoms they are copies of, compare the models atom by
  /// atom, and write the line, or stop LAMMPS on all ranks. Collective.
  /// @param pair  calls pack() and unpack() when LAMMPS asks it
  void write(LAMMPS_NS::Pair *pair, const pwmlff::models::Neighbors &neighbors);

  int pack(int n, int first, double *buf) const;
  void unpack(int n, const int *list, const double *buf);

 private:
  void tell_of_skipped_frames();

  int nmodels, every;
  std::string out_file;
  bool append;
  std::optional<FileClaim> claim;                 // on rank 0
  AnnouncedForces *announced_forces = nullptr;    // null where a user removed it
  bool started = false, told_of_skipped_frames = false;
  DeviationFile file;                           // open on rank 0 only
  std::vector<std::vector<double>> forces;      // per model [nall, 3]
  std::vector<std::vector<double>> energies;    // per model [ncenters]
  double *reverse = nullptr;                    // the forces that are in reverse communication
};

}    // namespace pair_pwmlff

#endif
