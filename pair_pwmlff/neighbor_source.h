// SPDX-License-Identifier: GPL-2.0-or-later

// Where the neighbors of a rank's atoms come from: a list of LAMMPS, or the device that evaluates
// the models.

#pragma once

#include "ensemble.h"
#include "models/neighbors.h"

#include "pointers.h"

#include <string>
#include <vector>

namespace LAMMPS_NS {
class NeighList;
class Pair;
}    // namespace LAMMPS_NS

namespace pair_pwmlff {

class KokkosAtoms;

class NeighborSource : private LAMMPS_NS::Pointers {
 public:
  /// @param lammps_list  take LAMMPS's list in any case, with the candidates of each species
  /// @param kokkos  outlives this object; null where atoms are on the host alone
  NeighborSource(LAMMPS_NS::LAMMPS *lmp, bool lammps_list, KokkosAtoms *kokkos) :
      Pointers(lmp), kokkos(kokkos), lammps_list(lammps_list)
  {
  }
  ~NeighborSource() override;
  NeighborSource(const NeighborSource &) = delete;
  NeighborSource &operator=(const NeighborSource &) = delete;

  /// Before a run: ask LAMMPS for the list and the ghosts that the models need. Collective.
  /// @throws LAMMPS_NS::LAMMPSException where the list could not hold the neighbors of an atom
  void request(LAMMPS_NS::Pair *pair, const Ensemble &models);

  /// Whether the next refresh takes positions, and forces are to be added, where KOKKOS has them:
  /// on the device of the models, which makes the list.
  bool is_resident() const { return resident && !has_exclusions(); }

  /// Why not, in one line.
  const std::string &not_resident() const { return reason; }

  /// Whether special_bonds leaves out pairs of atoms that there are. Collective.
  bool leaves_out_bonded() const;

  /// Take over new neighbors at the next refresh.
  void invalidate() { valid = false; }

  /// Discard also what a failed evaluation may have left in them.
  void discard();

  /// Bring the neighbors up to this step.
  /// @param list LAMMPS's
  /// @param species_of_type [ntypes+1] -1 for NULL
  /// @throws std::runtime_error, LAMMPS_NS::LAMMPSException
  void refresh(LAMMPS_NS::NeighList *list, const Ensemble &models,
               const std::vector<int> &species_of_type);

  /// How many lists there were so far.
  int lists() const { return nlists; }

  /// As of the last refresh. Models keep in them what they derive from them.
  pwmlff::models::Neighbors &get() { return neighbors; }

  /// Bytes of the list that the models share, without what they derive from it.
  double memory_usage() const;

 private:
  bool needs_no_list(const LAMMPS_NS::Pair *pair, const Ensemble &models) const;
  std::string reason_against_residence(const Ensemble &models) const;
  bool has_exclusions() const;
  int absent_groups() const;
  unsigned excluded_bonds(const pwmlff::models::LocalAtoms &atoms, const Ensemble &models,
                          const std::vector<int> &species_of_type);
  bool has_bonded(int i, int nbonds) const;
  void require_room(const pwmlff::models::ModelInfo &info) const;
  void build_occasional(LAMMPS_NS::NeighList *list) const;
  std::vector<int> owners() const;
  void set_ghost_cutoff(double cutoff);

  pwmlff::models::Neighbors neighbors;
  KokkosAtoms *kokkos;
  bool lammps_list;
  bool resident = false;
  std::string reason;
  bool valid = false;
  int nlists = 0;
  bool has_ghost_cutoff = false;    // for message passing
  bool on_device = false;           // LAMMPS makes a list only where atoms are left out
};

/// Whether it is so on all ranks. They may run on different devices; where LAMMPS is told one
/// thing, all have to tell it the same.
bool on_all_ranks(MPI_Comm comm, bool condition);

}    // namespace pair_pwmlff
