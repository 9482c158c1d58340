// SPDX-License-Identifier: GPL-2.0-or-later

// What engines for Deep Potentials take and give.
//
// Signs: with r_ij = x_j - x_i and E the sum of atomic energies E_i,
//   force_k  = -dE/dx_k
//   virial   = -sum over i, j of r_ij (x) dE_i/dr_ij, the sign of LAMMPS's virial
//   atom_virial: each term of that sum half to i and half to j, as LAMMPS's compute stress/atom
//   centroid_virial: each term to j, where E_i depends on the position of j
//     (Fan et al. 2015, doi:10.1103/PhysRevB.92.094301)

#ifndef PWMLFF_DP_EVALUATION_H
#define PWMLFF_DP_EVALUATION_H

#include "../common/export.h"

#include <exception>
#include <string>
#include <vector>

namespace pwmlff {

/// Rows are atoms; the first ncenters of them are those whose energies are wanted.
struct DPInput {
  int ncenters, nrows;
  const double *x;         // [nrows, 3]
  const int *species;      // [nrows] index into the model's elements, or -1: takes no part
  const int *first;        // [ncenters*nspecies + 1]
  const int *candidate;    // rows of species s near center i, from first[i*nspecies+s] up to
                           // first[i*nspecies+s+1]; all within the cutoff, and any beyond it
  int nthreads = 1;
  bool want_atom_virial = false, want_centroid_virial = false;
};

/// Centers that take part: order[first[s]] .. order[first[s+1]-1] are those of species s.
struct DPCenters {
  /// @param species [ncenters] as in DPInput
  /// @param present [nspecies]
  /// @throws std::invalid_argument for a center of a species that does not take part
  DPCenters(const int *species, int ncenters, const std::vector<bool> &present);

  std::vector<int> order, first;
};

/// Everything is overwritten; arrays keep their memory between evaluations.
struct DPOutput {
  double energy;
  double virial[9];                       // xx xy xz yx yy yz zx zy zz
  std::vector<double> atom_energy;        // [ncenters] zero for centers that take no part
  std::vector<double> force;              // [nrows, 3]
  std::vector<double> atom_virial;        // [nrows, 6] xx yy zz xy xz yz, or empty
  std::vector<double> centroid_virial;    // [nrows, 9] xx yy zz xy xz yz yx zx zy, or empty
};

/// A center has more neighbors of one species within the cutoff than the model has slots.
struct PWMLFF_KERNELS_API DPOverflow : std::exception {
  DPOverflow(int row_, int species_, int count_, int limit_);
  const char *what() const noexcept override;
  int row, species, count, limit;

 private:
  std::string text;
};

}    // namespace pwmlff

#endif
