// SPDX-License-Identifier: GPL-2.0-or-later

// An ACE by the formulas of network.h as they stand there, in float64 and on one thread: what
// faster engines are compared with. Forces are the derivatives of the energy.

#pragma once

#include "../../core/evaluation.h"
#include "../../core/export.h"
#include "../../math/harmonics.h"
#include "formulas.h"

#include <array>
#include <complex>
#include <vector>

namespace pwmlff {

class PWMLFF_KERNELS_API PlainAce : public FusedEngine {
 public:
  explicit PlainAce(AceNetwork network);

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @param input  with candidates on the host; nthreads has no effect
  /// @throws std::invalid_argument for a center of a species that the model does not have
  const Evaluation &evaluate(const Input &input) override;

  const AceNetwork &network() const { return network_; }
  /// Of the last center: the sum of the absolute terms of its densities, each times the derivative
  /// of the energy by it, by which rounding errors are to be measured where terms cancel.
  double size_of_terms() const { return size; }

 private:
  using Complex = std::complex<double>;

  /// A neighbor within the cutoff.
  struct Edge {
    int row, species;
    double r;
    std::array<double, 3> d, u;          // x_j - x_i, and of length 1
    AceFunctions base;                   // between nodes, the core repulsion last
    std::vector<double> value, slope;    // [nradial, l_max + 1] R
  };

  void find_edges(const Input &input, int center);
  void add_up_moments();
  double find_energy(int species);
  std::array<double, 3> gradient(const Edge &edge, const AceEnergy &energy);

  /// Where A of neighbors of a species is; m >= 0.
  std::size_t place(int species, int n, int l, int m) const
  {
    const std::size_t slot = network_.grace() ? 0 : species;
    return (slot * network_.nradial + n - 1) * nharmonics + l * (l + 1) / 2 + m;
  }
  Complex value_of(const AceFactor &factor) const;
  void add_slope(const AceFactor &factor, Complex slope);
  double chemical(int species, int n) const
  {
    return network_.grace() ? network_.chemical[species * network_.nradial + n] : 1.0;
  }
  /// Y_lm of an edge and its gradient along the sphere.
  void harmonics_of(const Edge &edge);

  const AceNetwork network_;
  Harmonics harmonics;
  const int nharmonics;    // m >= 0, l >= 0

  // of a center
  std::vector<Edge> edges;
  std::vector<Complex> y;                            // [nharmonics]
  std::vector<std::array<Complex, 3>> y_gradient;    // [nharmonics]
  std::vector<Complex> moments, slopes;              // by place(): A, and dE/dA
  std::vector<double> base_sums, base_slopes;    // [nspecies, nbase] sums of g, and dE/d of them
  std::vector<double> rho, by_rho;
  AceSurroundings around;
  AceEnergy found{};
  int nearest = -1;    // edge
  double size = 0.0;

  std::vector<double> sums, atom_energy;
  Evaluation result;
};

/// The largest size_of_terms() in crystals of atoms of the species that take part, with 54 and 140
/// neighbors: as dense as matter, and denser.
double ace_size_of_terms(const AceNetwork &network, const std::vector<bool> &present);

}    // namespace pwmlff
