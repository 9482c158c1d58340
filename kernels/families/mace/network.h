// SPDX-License-Identifier: GPL-2.0-or-later

// A MACE model as plain arrays.
//
// Features of an atom, h_i, have K channels for each degree l up to one that may differ by layer,
// and 2l+1 components each. At first there is degree 0 alone: h_i = embedding[species of i]. A
// layer with edges r = |r_ij|, Y the spherical harmonics of the direction from j to i, and k a
// channel:
//
//   g_i   = up h_i                                           (mixes the channels of each degree,
//                                                            to as many as edges have)
//   A_p,M = sum over j of R_p(r) sum over m1, m2 of coupling_p[m1, m2, M] g_j,m1 Y_m2
//                                                            for each path p = (l1, l2, L)
//   m_L   = message_L A / (a + b D_i)                        A of all paths to L; one for each
//                                                            species, or one for all
//   D_i   = sum over j of rho(r)                             0 in a layer without a density
//   B_L,M = sum over terms of weight[species, parameter] coefficient m_a m_b m_c
//                                                            orders 1 to 3 (symmetric contraction)
//   h'_i  = product B + skip[species] h_i                    the second where the layer has it
//   E_i  += readout(h')                                      of degree 0: linear, or with one
//                                                            hidden layer of silu, or two, of
//                                                            which the second has a bias
//
// A layer with gates has in the place of m_L
//
//   n_L   = message_L A / (a + b D_i) + own_L g_i
//   z_L   = the same with other matrices of degree 0, for each L above 0
//   m_0   = mix_0 silu(n_0),   m_L = mix_L (sigmoid(z_L) n_L)
//
// and in the end E_i = energy[species] + scale (sum of readouts + half of ZBL energies) + shift.
//
// With b the radial functions of r (or of what the Agnesi transform makes of it), f the polynomial
// cutoff of r, and net a multilayer perceptron of silu:
//
//   R     = net(b f),   rho = tanh(net(b f)^2)               or R = f net(b), rho likewise
//   b_n   = factor sin(w_n r)/r                              or exp(factor (r - w_n)^2)
//   f     = 1 - (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) - p(p+1)/2 x^(p+2),   x = r/cutoff
//   zbl   = f(r/d) z/r sum over n of c_n exp(-w_n r/a),   w = 3.2, 0.9423, 0.4028, 0.2016
//   agnesi(r) = 1/(1 + a y^q/(1 + y^(q-p))),   y = r / (half of the sum of the covalent radii)
//
// Lengths are in angstrom, energies in eV.
//
// Sources: Batatia et al. 2022, arXiv:2206.07697 (MACE); Batatia et al. 2024, arXiv:2401.00096
// (density, Agnesi transform, ZBL); Witt et al. 2023, doi:10.1063/5.0158783 (that transform);
// Batatia et al. 2025, arXiv:2510.25380 (gates).

#pragma once

#include "../../core/host_device.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace pwmlff {

/// Arrays are row by row, their last index is the fastest.
struct MaceMatrix {
  int rows = 0, columns = 0;
  std::vector<double> values;
};

/// A multilayer perceptron: y = bias + x weight for one matrix after the other, and silu between
/// them. There are no biases or one for each matrix.
struct MaceNet {
  std::vector<MaceMatrix> weights;
  std::vector<std::vector<double>> bias;
  /// [matrices but the last] [2, columns] or none: y is then normalized to mean 0 and variance 1
  /// before silu, multiplied by the first and added to the second.
  std::vector<std::vector<double>> norm;
  /// [species of the center, of the neighbor, columns] is added to y of the first one; or empty
  std::vector<double> of_pair;
  /// Below the square root by which normalization divides.
  static constexpr double EPSILON = 1e-5;

  bool empty() const { return weights.empty(); }
  /// Whether there are matrices alone.
  bool is_plain() const { return bias.empty() && norm.empty() && of_pair.empty(); }
};

struct MacePath {
  int feature, harmonic, degree;    // l1, l2, L
  std::vector<double> coupling;     // [2l1+1, 2l2+1, 2L+1]
};

/// The terms of one order of B_L.
struct MaceTerms {
  struct Term {
    int component, parameter;
    double coefficient;
    std::array<int, 3> factor;    // components of m, ascending; as many as the order
  };
  int order = 0, nparameters = 0;
  std::vector<Term> terms;
  std::vector<double> weights;    // [nspecies, nparameters, K]
};

/// What a layer with gates has besides.
struct MaceGates {
  std::vector<MaceMatrix> message, own_gate;    // [1 .. L] of z: [rows of message_0, K], [Ke, K]
  std::vector<MaceMatrix> own;                  // [degrees that enter, at most L] [Ke, K]
  std::vector<MaceMatrix> mix;                  // [0 .. L] [K, K]
};

struct MaceLayer {
  std::vector<MaceMatrix> up;    // [degrees that enter] [K, Ke], from rows to columns
  std::vector<MacePath> paths;
  MaceNet radial;                     // the last one has paths*Ke columns
  MaceNet density;                    // to one column, or empty
  double divisor[2] = {1.0, 1.0};     // a, b
  std::vector<MaceMatrix> message;    // [L][1 or species] flattened, see messages
  int messages = 1;                   // 1, or the number of species
  std::optional<MaceGates> gates;
  std::vector<std::vector<MaceTerms>> contraction;    // [degrees that leave]
  std::vector<MaceMatrix> product;                    // [degrees that leave] [K, K]
  std::vector<MaceMatrix> skip;        // [degree][1 or species] flattened [K, K], or empty
  int skips = 1;                       // 1, or the number of species
  std::vector<double> readout;         // [K], or empty
  MaceMatrix readout_first;            // [K, hidden], or empty
  MaceMatrix readout_mid;              // [hidden, hidden], or empty
  std::vector<double> readout_bias;    // [hidden] of it
  std::vector<double> readout_last;    // [hidden]

  int edge_channels() const { return up[0].columns; }                     // Ke
  int into() const { return static_cast<int>(up.size()) - 1; }            // largest degree
  int out() const { return static_cast<int>(contraction.size()) - 1; }    // likewise
  /// The matrix of degree L and a species.
  const MaceMatrix &message_of(int degree, int species) const
  {
    return message[degree * messages + (messages > 1 ? species : 0)];
  }
  const MaceMatrix &skip_of(int degree, int species) const
  {
    return skip[degree * skips + (skips > 1 ? species : 0)];
  }
};

enum class MaceBasis { bessel, gaussian };

/// Which radial functions two species have by the transform, the same in both directions.
PWMLFF_FORMULA int mace_pair(bool has_transform, int nspecies, int a, int b)
{
  if (!has_transform) return 0;
  return a > b ? a * nspecies + b : b * nspecies + a;
}

struct MaceNetwork {
  std::vector<int> atom_type;    // [nspecies] atomic numbers
  double cutoff = 0.0;
  int channels = 0;    // K
  int largest = 0;     // degree of harmonics and of m

  MaceBasis basis = MaceBasis::bessel;
  std::vector<double> frequency;    // w
  double factor = 1.0;
  double power = 0.0;            // p of the cutoff
  bool cutoff_first = true;      // f multiplies b, not the net
  std::vector<double> agnesi;    // q, p, a; or empty
  std::vector<double> radii;     // [nspecies] of the transform

  std::vector<double> embedding;    // [nspecies, K]
  std::vector<double> energy;       // [nspecies]
  double scale = 1.0, shift = 0.0;

  std::vector<double> zbl;                                    // p and c; or empty
  std::vector<double> zbl_length, zbl_strength, zbl_reach;    // [nspecies, nspecies] a, z, d

  std::vector<MaceLayer> layers;
  bool nets_of_pairs = false;    // some net differs by pair of species

  int nspecies() const { return static_cast<int>(atom_type.size()); }
  /// Which of npairs() radial functions those of two species are.
  [[gnu::always_inline]] int pair_of(int a, int b) const
  {
    if (nets_of_pairs) return a * nspecies() + b;
    return mace_pair(!agnesi.empty(), nspecies(), a, b);
  }
  int npairs() const { return agnesi.empty() && !nets_of_pairs ? 1 : nspecies() * nspecies(); }
  /// Half of the sum of the covalent radii; 1 without the transform.
  [[gnu::always_inline]] double radius_of(int a, int b) const
  {
    return agnesi.empty() ? 1.0 : 0.5 * (radii[a] + radii[b]);
  }
  /// Whether it has none of what MACE 0.3.14 brought: gates, other channels along edges, nets with
  /// biases, readouts of three layers, the same skip for all species.
  bool is_plain() const
  {
    return std::ranges::all_of(layers, [&](const MaceLayer &layer) {
      return !layer.gates && layer.edge_channels() == channels && layer.radial.is_plain() &&
             layer.density.is_plain() && layer.density.weights.size() <= 1 &&
             layer.readout_mid.values.empty() && layer.divisor[0] == 1.0 &&
             layer.divisor[1] == 1.0 && (layer.skip.empty() || layer.skips == nspecies());
    });
  }
};

/// What the engine has room for.
constexpr int MACE_MOST_DEGREE = 4, MACE_MOST_ORDER = 3;

}    // namespace pwmlff
