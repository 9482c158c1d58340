// SPDX-License-Identifier: GPL-2.0-or-later

// LAMMPS's atoms where its package KOKKOS keeps them: in memory of the device that KOKKOS runs on.
//
// An interface without a word of Kokkos: kokkos_atoms.cpp is compiled where the LAMMPS has the
// package, by nvcc where its device is a GPU.

#pragma once

#include "loader.h"

#include "models/neighbors.h"

#include <memory>
#include <string>

namespace LAMMPS_NS {
class LAMMPS;
class NeighList;
class Pair;
}    // namespace LAMMPS_NS

namespace pair_pwmlff {

class KokkosAtoms {
 public:
  /// @param absent  why null is returned, where it is
  /// @return null where this LAMMPS does not run with KOKKOS, has been compiled without, or with
  ///         another device or precision of it than the plugin
  static std::unique_ptr<KokkosAtoms> make(LAMMPS_NS::LAMMPS *lmp, std::string &absent);

  virtual ~KokkosAtoms() = default;

  /// "KOKKOS 4.5.1 on OpenMP"
  virtual std::string name() const = 0;

  /// The GPU that it runs on, among the visible ones; pwmlff::CPU where it runs on the host.
  virtual int gpu() const = 0;

  /// Whether positions and forces are rows of double there, which is up to how it was compiled.
  virtual bool has_rows() const = 0;

  /// Positions and forces [nlocal + nghost, 3] in memory of its device, up to date, with nothing
  /// that LAMMPS has started still at work on them. Null without has_rows(). Forces are asked for
  /// once before forces_changed(): LAMMPS may copy those of the host over them at each time.
  virtual double *positions() = 0;
  virtual double *forces() = 0;

  /// Forces were changed there.
  virtual void forces_changed() = 0;

  /// Bring to LAMMPS's arrays on the host all that it knows of atoms; all but velocities; or what a
  /// new list brings: types, IDs, groups.
  virtual void all_to_host() = 0;
  virtual void to_host() = 0;
  virtual void names_to_host() = 0;

  /// Bring forces back from there, which were changed.
  virtual void forces_from_host() = 0;

  /// Bring charges to the host, where they will be changed; and they were changed there.
  virtual void charges_to_host() = 0;
  virtual void charges_changed() = 0;

  /// Tell LAMMPS what the pair style reads and changes of atoms.
  virtual void announce(LAMMPS_NS::Pair *pair) const = 0;

  /// Have KOKKOS make the list of neighbors that the pair style has asked LAMMPS for.
  virtual void take_list(LAMMPS_NS::Pair *pair) = 0;

  /// That list, on the host.
  /// @param atoms  of which the list is filled in; it points into this object or into the list
  virtual void show_list(LAMMPS_NS::NeighList *list, pwmlff::models::LocalAtoms &atoms) = 0;
};

/// The pair style, as one that KOKKOS asks for rows of ghosts in memory of its device; without the
/// package, as it is.
LAMMPS_NS::Pair *make_pair(LAMMPS_NS::LAMMPS *lmp, const std::string &style, OpenTorch *open_torch);

}    // namespace pair_pwmlff
