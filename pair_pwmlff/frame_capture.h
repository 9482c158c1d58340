// SPDX-License-Identifier: GPL-2.0-or-later

// Structures that the models of an ensemble do not agree on, for labelling.

#pragma once

#include "deviation_file.h"
#include "owned_file.h"
#include "pair_settings.h"

#include "pointers.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pair_pwmlff {

/// Appends structures whose largest force deviation is in a window to a file in extended XYZ,
/// atoms in the order of their IDs: cell, boundaries, step and deviations, and of each atom its
/// element (X where no element is mapped), position (angstrom, from the corner of the box),
/// velocity (angstrom/ps), ID, and deviations (eV/angstrom, or none where they are relative; eV);
/// in reduced units all of them in these. No energies and forces: they would be taken for labels.
/// Rank 0 has the file. Integrators bring velocities to the step after the forces, so a structure
/// of a run is written at the end of the step.
class FrameCapture : private LAMMPS_NS::Pointers {
 public:
  /// Claim the file, or stop LAMMPS on all ranks. Collective.
  FrameCapture(LAMMPS_NS::LAMMPS *lmp, const Capture &capture, const Settings &settings);
  ~FrameCapture() override;

  /// Before a run: open the file, or stop LAMMPS on all ranks. One that is continued loses
  /// structures of this step and later ones, which are about to be computed again, and a last one
  /// that is not complete. Collective.
  /// @param symbol_of_type [ntypes+1]
  void init(std::vector<std::string> symbol_of_type, double energy_unit);

  /// Whether a structure waits for the end of its step.
  bool is_pending() const { return pending.has_value(); }

  /// Whether structures of this step are looked at.
  bool due() const;

  /// Take the structure if its deviation is in the window, and store it if no end of the step is
  /// to come. Where a step is computed more than once, the last one counts (DeviationFile::write).
  /// Collective.
  /// @param of_force, of_energy [nlocal] deviations of atoms
  void look(const Deviation &deviation, const std::vector<double> &of_force,
            const std::vector<double> &of_energy, bool begins);

  /// At the end of a step: store the structure that was taken, with the velocities that atoms have
  /// now, and end the run where that of the step is beyond the window. Collective.
  void complete();

  /// Store a structure that ends the run, in a file of its own beside the other: a.failed.xyz
  /// beside a.xyz, in the place of an older one. Collective.
  /// @param why  in one line
  /// @return the name of the file
  std::string store_failed(const std::string &why);

 private:
  /// A structure of this step, but for velocities.
  struct Frame {
    std::string comment;
    std::vector<double> rows;    // [nlocal, WIDTH]
  };

  void stop_beyond();
  Frame taken(const std::string &properties, const std::vector<double> &of_force,
              const std::vector<double> &of_energy) const;
  std::string text(Frame frame) const;
  std::int64_t end_of_frames_before(const std::string &path, std::int64_t step);

  const Capture capture;
  const int every;
  const bool append;
  std::unique_ptr<OwnedFile> file;    // on rank 0
  const std::string failed_name;
  const std::string failed_path;    // absolute
  bool opened = false;
  std::vector<std::string> symbol_of_type;
  const bool relative;    // the deviations of forces are, which have no unit then
  double unit = 1.0, unit_of_force = 1.0;    // LAMMPS's units of energy and force in the file's
  std::optional<Frame> pending;              // on all ranks or none
  double beyond = 0.0;    // deviation of the newest structure if that ends the run; on all ranks
  int nframes = 0;        // in the file; on all ranks
  std::int64_t last_step = -1, last_start = 0;
  Deviation last;
};

}    // namespace pair_pwmlff
