// SPDX-License-Identifier: GPL-2.0-or-later

// Reciprocal lattice vectors k = n1 b1 + n2 b2 + n3 b3 of a periodic box, and their weights in the
// part of Ewald's sum over point charges q_i that is in reciprocal space:
//
//   E     = sum over k != 0 of g(k) |S(k)|^2,   S(k) = sum over i of q_i exp(i k.x_i)
//   g(k)  = K 2 pi/V exp(-k^2/4 alpha^2)/k^2                             |k| < largest, else 0
//   phi_i = dE/dq_i = 2 sum over k of g Re(S* exp(i k.x_i))
//   f_i   = -dE/dx_i = 2 q_i sum over k of g k Im(S* exp(i k.x_i))
//   W     = sum over k of g |S|^2 (1 - 2 (1/k^2 + 1/4 alpha^2) k (x) k), the virial, at fixed q
//
// Of k and -k one is enough. Vectors (n1, n2, n3) and (n1, n2, -n3) are a pair: both follow from
// four sums over real numbers. Lengths in angstrom, charges in e.
//
// Source: Ewald 1921, doi:10.1002/andp.19213690304; the virial is Nose and Klein's of 1983,
// doi:10.1080/00268978300102851.

#pragma once

#include "../../core/export.h"
#include "../../core/host_device.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace pwmlff {

/// What is known of each vector alone.
struct ReciprocalBox {
  double axis[9] = {};                 // b1, b2, b3
  double volume = 0.0;                 // angstrom^3
  double quarter, coulomb, largest;    // 1/4 alpha^2; K, eV angstrom/e^2; of |k|

  /// @return k^2 of a vector
  PWMLFF_FORMULA double vector(int n1, int n2, int n3, double *k) const
  {
    for (int c = 0; c < 3; ++c) k[c] = n1 * axis[c] + n2 * axis[3 + c] + n3 * axis[6 + c];
    return k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
  }
  /// 2 (1/k^2 + 1/4 alpha^2)
  PWMLFF_FORMULA double spread(double k2) const { return 2.0 / k2 + 2.0 * quarter; }

  /// 2 g of a pair, as each vector stands for -k too.
  PWMLFF_FORMULA void weigh(int n1, int n2, int n3, double *weights) const
  {
    weights[0] = weight(n1, n2, n3);
    // With n1 = n2 = 0 the other of a pair is the same by -k, with n3 = 0 the same.
    weights[1] = n3 == 0 || (n1 == 0 && n2 == 0) ? 0.0 : weight(n1, n2, -n3);
  }

  /// Add the virial [9], row by row, of a vector with an energy.
  PWMLFF_FORMULA void add_virial(int n1, int n2, int n3, double energy, double *virial) const
  {
    double k[3];
    const double factor = spread(vector(n1, n2, n3, k)) * energy;
    for (int a = 0; a < 3; ++a)
      for (int b = 0; b < 3; ++b)
        virial[3 * a + b] += (a == b ? energy : 0.0) - factor * k[a] * k[b];
  }

 private:
  PWMLFF_FORMULA double weight(int n1, int n2, int n3) const
  {
    double k[3];
    const double k2 = vector(n1, n2, n3, k);
    if (!(k2 < largest * largest) || k2 == 0.0) return 0.0;
    return 4.0 * std::numbers::pi * coulomb / volume * std::exp(-k2 * quarter) / k2;
  }
};

/// The sums S(k) of a pair, with n3 and -n3.
struct StructureFactors {
  double re[2], im[2];

  StructureFactors() = default;
  /// From sums of q Re P Re A, q Im P Im A, q Re P Im A, q Im P Re A over atoms, of which
  /// P = exp(i (n1 b1 + n2 b2).x) and A = exp(i n3 b3.x).
  PWMLFF_FORMULA explicit StructureFactors(const double *sums) :
      re{sums[0] - sums[1], sums[0] + sums[1]}, im{sums[2] + sums[3], sums[3] - sums[2]}
  {
  }
  /// The sums that have them.
  PWMLFF_FORMULA void store(double *sums) const
  {
    sums[0] = 0.5 * (re[0] + re[1]);
    sums[1] = 0.5 * (re[1] - re[0]);
    sums[2] = 0.5 * (im[0] - im[1]);
    sums[3] = 0.5 * (im[0] + im[1]);
  }
  /// With A = 4 g S* of n3 and B = that of -n3: Re(A + B), Im(A - B), Im(A + B), Re(A - B), and
  /// these times n3: what potentials and fields are sums of.
  PWMLFF_FORMULA void coefficients(const double *weights, int n3, double *to) const
  {
    const double a[2] = {2.0 * weights[0] * re[0], -2.0 * weights[0] * im[0]};
    const double b[2] = {2.0 * weights[1] * re[1], -2.0 * weights[1] * im[1]};
    to[0] = a[0] + b[0];
    to[1] = a[1] - b[1];
    to[2] = a[1] + b[1];
    to[3] = a[0] - b[0];
    for (int k = 0; k < 4; ++k) to[4 + k] = n3 * to[k];
  }
};

class PWMLFF_KERNELS_API ReciprocalLattice {
 public:
  /// Pairs of the same n1 and n2: n3 = 0 .. most, from the pair `first` on.
  struct Group {
    int n1, n2, most, first;
  };

  /// @param alpha    1/angstrom
  /// @param coulomb  K, eV angstrom/e^2
  /// @param largest  of |k|, in units of alpha
  ReciprocalLattice(double alpha, double coulomb, double largest);
  ReciprocalLattice(const ReciprocalLattice &) = delete;
  ~ReciprocalLattice();

  /// Take a box [3, 3], its edges row by row.
  /// @return false, with nothing done, where it is as before
  bool set(const double *cell);
  /// Find weights(), for code that does not find them from the box.
  void weigh();

  PWMLFF_FORMULA const ReciprocalBox &box() const { return box_; }
  PWMLFF_FORMULA int npairs() const { return npairs_; }
  /// Numbers that are summed up over atoms: of each pair four.
  PWMLFF_FORMULA std::size_t size() const { return 4 * static_cast<std::size_t>(npairs_); }
  /// The largest n1, n2, n3 that may occur.
  PWMLFF_FORMULA const int *ranges() const { return range; }
  PWMLFF_FORMULA int ngroups() const { return ngroups_; }
  PWMLFF_FORMULA const Group &group(int k) const { return group_at[k]; }
  /// Of a pair, ReciprocalBox::weigh().
  PWMLFF_FORMULA const double *weights(int pair) const
  {
    return weight_at + 2 * static_cast<std::size_t>(pair);
  }

 private:
  void invert();

  ReciprocalBox box_;
  double edges[9] = {};
  int range[3] = {};
  int ngroups_ = 0, npairs_ = 0;
  std::vector<Group> groups;
  std::vector<double> weights_;    // [npairs, 2]
  // Their memory, for code that is compiled for an instruction set.
  const Group *group_at = nullptr;
  const double *weight_at = nullptr;
};

}    // namespace pwmlff
