// SPDX-License-Identifier: GPL-2.0-or-later

// A Deep Potential (DP) as plain arrays.
//
// For center i of species a and its neighbors j of species b, r_ij = x_j - x_i:
//
//   s(r)   = 1/r                                     r < rmin
//          = (1/r) (u^3 (-6 u^2 + 15 u - 10) + 1)    rmin <= r < rmax, u = (r - rmin)/(rmax - rmin)
//          = 0                                       r >= rmax
//   R_j    = s (1, x/r, y/r, z/r)
//   R~_j   = (R_j - davg[a,b]) / dstd[a,b]           an empty slot holds -davg/dstd
//   G_j    = embedding[a,b](R~_j[0])                 in R^M
//   T      = sum over slots of R~_j (x) G_j / number of slots                            [4, M]
//   E_i    = fitting[a](T^T T[:, :m2], flattened row by row) + half of the ZBL energy of each pair
//
// Neighbor species b has sel[b] slots. Lengths and energies are those of the model's units. The ZBL
// energy of a pair is in math/zbl.h.
//
// Sources: Zhang et al. 2018, arXiv:1805.09003 (DeepPot-SE);
// Zhang et al. 2018, doi:10.1103/PhysRevLett.120.143001 (Deep Potential molecular dynamics).

#pragma once

#include "../../core/export.h"
#include "../../math/zbl.h"

#include <vector>

namespace pwmlff {

/// z = x weight + bias. A hidden layer gives tanh(z), or with a residual x + step*tanh(z): x once
/// where out == in, side by side with itself where out == 2*in.
struct DPLayer {
  int in, out;
  std::vector<double> weight;    // [in, out]
  std::vector<double> bias;      // [out]
  std::vector<double> step;      // [out]
  bool residual;
};

/// Hidden layers and, for a fitting net, the linear one at the end. Those of a fitting net have a
/// residual only after the first layer and where the width stays.
struct DPNet {
  std::vector<DPLayer> layers;
};

/// How far the last hidden layer y [n] of a fitting net is from what its training data gave, the
/// grade of an atom alone:
///
///   g = |factor (y - mean)|
///
/// The factor is a root of the inverse of the covariance of y over the atoms of a species in the
/// training data, scaled so that g is 1 at a quantile near the end of them. How they are made, what
/// gamma is by them, and the sources, are in python/pwmlff/train/extrapolation.py.
struct DPGrade {
  std::vector<double> mean;      // [n]
  std::vector<double> factor;    // [n, n] row by row
};

struct DPNetwork {
  double rmin, rmax;
  std::vector<int> sel;              // [nspecies] slots for neighbors of each species
  bool all_species;                  // have slots, also those that take no part
  int width;                         // M, of the last embedding layers
  int m2;                            // axis width
  std::vector<int> atom_type;        // [nspecies] atomic numbers
  std::vector<double> davg, dstd;    // [nspecies center, nspecies neighbor, 4]
  std::vector<DPNet> embedding;      // [nspecies*nspecies] center species first
  std::vector<DPNet> fitting;        // [nspecies]
  std::vector<ZblPair> zbl;          // [nspecies*nspecies], symmetric; empty without ZBL
  std::vector<DPGrade> grades;       // [nspecies], of fitting nets with hidden layers; or empty
  bool ambiguous;                    // whether layers have residuals is a guess (read_dp.h)

  int nspecies() const { return static_cast<int>(atom_type.size()); }

  /// [nspecies] the species whose slots count: those that take part, or all.
  std::vector<bool> with_slots(const std::vector<bool> &present) const;
  /// 1/(number of slots) of these.
  double scale(const std::vector<bool> &with_slots) const;
};

/// @throws std::runtime_error that names the number or the shape that does not fit the others
PWMLFF_KERNELS_API void check_network(const DPNetwork &network);

/// Weights [width*m2, n] of the descriptor D, which is symmetric in its first m2 rows, to those of
/// its elements (m, k) with k <= m, ordered by k, then m: the weights of (m, k) and (k, m) are
/// added.
std::vector<double> fold_weights(const std::vector<double> &weight, int width, int m2);

/// A function of one variable with its first and second derivatives.
struct Jet {
  double f, d1, d2;
};

/// An embedding net, in float64, and its first two derivatives along a curve.
class EmbeddingJets {
 public:
  explicit EmbeddingJets(const DPNet &net);

  /// @param x the input of the net, with its derivatives by the variable of the curve
  void evaluate(const Jet &x);

  std::vector<double> f, d1, d2;    // [M and more] of the last evaluation

 private:
  void step(const DPLayer &layer);

  const DPNet &net;
  std::vector<double> nf, nd1, nd2;
};

}    // namespace pwmlff
