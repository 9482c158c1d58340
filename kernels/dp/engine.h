/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// Energies, forces and virials of a Deep Potential on the CPU, without torch and autograd.
//
// Formulas are in network.h. Embedding nets are splines of the distance (spline.h), or evaluated as
// they are in precision exact and for atoms with a neighbour closer than the splines reach. Slots
// without neighbour enter in closed form, so energy and forces are continuous when atoms cross the
// cutoff. Forces are the derivatives of what is evaluated, splines included.
//
// Signs: with r_ij = x_j - x_i and E the sum of atomic energies E_i,
//   force_k  = -dE/dx_k
//   virial   = -sum over i, j of r_ij (x) dE_i/dr_ij, the sign of LAMMPS's virial
//   atom_virial: each term of that sum half to i and half to j, as LAMMPS's compute stress/atom
//   centroid_virial: each term to j, where E_i depends on the position of j
//     (Fan et al. 2015, doi:10.1103/PhysRevB.92.094301)

#ifndef PWMLFF_DP_ENGINE_H
#define PWMLFF_DP_ENGINE_H

#include "../common/export.h"
#include "network.h"
#include "spline.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace pwmlff {

enum class DPPrecision {
  exact,           // float64, nets evaluated as they are
  double_table,    // float64, tabulated embedding nets
  mixed            // float32 tables, moments and fitting nets; float64 distances and sums
};

/// @param name "exact", "double" or "mixed"
/// @throws std::invalid_argument for another name
PWMLFF_KERNELS_API DPPrecision dp_precision(const std::string &name);

/// The embedding nets of the species that take part, tabulated for a precision.
struct DPTables {
  /// @param present [nspecies]
  /// @throws std::invalid_argument, or std::runtime_error for a net that cannot be tabulated
  DPTables(const DPNetwork &network, DPPrecision precision, const std::vector<bool> &present);

  std::vector<SplineTable> tables;    // [nspecies*nspecies] centre first; empty in precision exact
  double value_error = 0.0, slope_error = 0.0;    // the largest of all tables
};

/// Rows are atoms; the first ncentres of them are those whose energies are wanted.
struct DPInput {
  int ncentres, nrows;
  const double *x;         // [nrows, 3]
  const int *species;      // [nrows] index into the model's elements, or -1: takes no part
  const int *first;        // [ncentres*nspecies + 1]
  const int *candidate;    // rows of species s near centre i, from first[i*nspecies+s] up to
                           // first[i*nspecies+s+1]; all within the cutoff, and any beyond it
  int nthreads = 1;
  bool want_atom_virial = false, want_centroid_virial = false;
};

/// Centres that take part: order[first[s]] .. order[first[s+1]-1] are those of species s.
struct DPCentres {
  /// @param species [ncentres] as in DPInput
  /// @param present [nspecies]
  /// @throws std::invalid_argument for a centre of a species that does not take part
  DPCentres(const int *species, int ncentres, const std::vector<bool> &present);

  std::vector<int> order, first;
};

/// Everything is overwritten; arrays keep their memory between evaluations.
struct DPOutput {
  double energy;
  double virial[9];                       // xx xy xz yx yy yz zx zy zz
  std::vector<double> atom_energy;        // [ncentres] zero for centres that take no part
  std::vector<double> force;              // [nrows, 3]
  std::vector<double> atom_virial;        // [nrows, 6] xx yy zz xy xz yz, or empty
  std::vector<double> centroid_virial;    // [nrows, 9] xx yy zz xy xz yz yx zx zy, or empty
};

/// A centre has more neighbours of one species within the cutoff than the model has slots.
struct PWMLFF_KERNELS_API DPOverflow : std::exception {
  DPOverflow(int row_, int species_, int count_, int limit_);
  const char *what() const noexcept override;
  int row, species, count, limit;

 private:
  std::string text;
};

/// Name of the code that engines on the CPU run: "baseline", "avx2" or "avx512", the best that the processor has, or
/// what the environment variable PWMLFF_CPU asks for.
/// @throws std::runtime_error PWMLFF_CPU is none of those that this processor runs; the text lists them
PWMLFF_KERNELS_API const char *dp_instruction_set();

/// Evaluates one model. The same input and nthreads give the same bits.
class PWMLFF_KERNELS_API DPEngine {
 public:
  /// @param present [nspecies] the species that take part: their number divides the descriptor, and
  ///                slots of others are ignored
  /// @throws std::invalid_argument, std::runtime_error (a net that cannot be tabulated, or an
  ///         unusable PWMLFF_CPU)
  DPEngine(DPNetwork network, DPPrecision precision, std::vector<bool> present);
  ~DPEngine();
  DPEngine(const DPEngine &) = delete;
  DPEngine &operator=(const DPEngine &) = delete;

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @throws DPOverflow, std::invalid_argument
  void evaluate(const DPInput &input, DPOutput &output);

  const DPNetwork &network() const;
  std::size_t table_bytes() const;    // of all tables together; 0 in precision exact
  double value_error() const;         // largest error of the tables before rounding (spline.h), of
  double slope_error() const;         // G and dG/dr
  const char *isa() const;            // what dp_instruction_set() was when it was made

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

}    // namespace pwmlff

#endif
