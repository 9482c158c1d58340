// SPDX-License-Identifier: GPL-2.0-or-later

// Features of ghosts, by LAMMPS's own communication.

#pragma once

#include "core/gpu/row_packer.h"

#include "pointers.h"

#include <vector>

namespace LAMMPS_NS {
class Pair;
}

namespace pair_pwmlff {

class KokkosAtoms;

/// Rows of ghosts get what their atoms have, on this rank or another one, and give back.
class HaloExchange : public pwmlff::RowExchange, private LAMMPS_NS::Pointers {
 public:
  /// @param pair  whose pack and unpack functions call those of this object while active()
  HaloExchange(LAMMPS_NS::LAMMPS *lmp, LAMMPS_NS::Pair *pair) : Pointers(lmp), pair(pair) {}
  ~HaloExchange() noexcept override = default;

  /// Before a run: let LAMMPS make room for so many numbers of an atom.
  /// @param kokkos  or null: where rows are on its GPU, LAMMPS's package may ask for them there
  void init(int width, const KokkosAtoms *kokkos);

  /// @param atom [nrows] atom of each row, until the next call
  void take(const std::vector<int> &atom);

  void forward(const pwmlff::ExchangedRows &rows) override;
  void reverse(const pwmlff::ExchangedRows &rows) override;
  void sum(double *numbers, int n) override;
  bool has_others() const override;

  bool active() const { return active_rows; }

  /// What LAMMPS asks for while it communicates.
  /// @return how many numbers of the buffer were written or read
  int move(pwmlff::RowMove move, const pwmlff::AtomsToMove &atoms, double *buffer);
  /// The same, done when it returns, for atoms and buffer in memory of the GPU of the rows.
  int move_there(pwmlff::RowMove move, const pwmlff::AtomsToMove &atoms, double *buffer);

 private:
  class Active;

  LAMMPS_NS::Pair *pair;
  const KokkosAtoms *kokkos = nullptr;
  pwmlff::RowPacker packer;
  const pwmlff::ExchangedRows *active_rows = nullptr;
};

}    // namespace pair_pwmlff
