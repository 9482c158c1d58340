// SPDX-License-Identifier: GPL-2.0-or-later

// Features of ghosts, by LAMMPS's own communication.

#pragma once

#include "models/neighbors.h"

#include "pointers.h"

#include <vector>

namespace LAMMPS_NS {
class Pair;
}

namespace pair_pwmlff {

/// Rows of ghosts get what their atoms have, on this rank or another one, and give back.
class HaloExchange : public pwmlff::RowExchange, private LAMMPS_NS::Pointers {
 public:
  /// @param pair  whose pack and unpack functions call those of this object while active()
  HaloExchange(LAMMPS_NS::LAMMPS *lmp, LAMMPS_NS::Pair *pair) : Pointers(lmp), pair(pair) {}
  ~HaloExchange() noexcept override = default;

  /// Before a run: let LAMMPS make room for so many numbers of an atom.
  void init(int width);

  /// @param atom [nrows] atom of each row, until the next call
  void take(const std::vector<int> &atom);

  void forward(double *rows, int width) override;
  void forward(float *rows, int width) override;
  void reverse(double *rows, int width) override;
  void reverse(float *rows, int width) override;
  void sum(double *numbers, int n) override;
  bool has_others() const override;

  bool active() const { return width > 0; }
  int pack_forward(int n, const int *list, double *buffer) const;
  void unpack_forward(int n, int first, const double *buffer);
  int pack_reverse(int n, int first, double *buffer) const;
  void unpack_reverse(int n, const int *list, const double *buffer);

 private:
  template <class Communicate>
  void communicate(double *of_double, float *of_float, int width, const Communicate &work);

  LAMMPS_NS::Pair *pair;
  std::vector<int> row;         // [nall]
  double *doubles = nullptr;    // the array at hand, one of the two
  float *floats = nullptr;
  int width = 0;
};

}    // namespace pair_pwmlff
