// SPDX-License-Identifier: GPL-2.0-or-later

// A NEP by the formulas of network.h as they stand there, in float64 and on one thread: what faster
// engines are compared with. Forces are the derivatives of the energy. Both are continuous where
// atoms cross a cutoff, except where ZBL reaches beyond the angular one, of which read_nep warns.

#pragma once

#include "../../core/evaluation.h"
#include "../../core/export.h"
#include "../../math/harmonics.h"
#include "network.h"

#include <array>
#include <complex>
#include <vector>

namespace pwmlff {

class PWMLFF_KERNELS_API PlainNep : public FusedEngine {
 public:
  explicit PlainNep(NepNetwork network);

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @param input  with candidates on the host; nthreads has no effect
  /// @throws std::invalid_argument for a center of a species that the model does not have
  const Evaluation &evaluate(const Input &input) override;

  const NepNetwork &network() const { return network_; }

 private:
  using Complex = std::complex<double>;

  /// A neighbor within a cutoff.
  struct Edge {
    int row, pair;    // pair: species of the center times nspecies, plus that of the neighbor
    double r;
    std::array<double, 3> d, u;    // x_j - x_i, and of length 1
  };
  /// A term of an invariant of three A.
  struct Term {
    std::array<int, 3> m;
    double factor;
  };
  /// Functions g_n of an edge and their derivatives.
  struct Functions {
    std::vector<double> value, slope;
    void evaluate(double r, double cut, const double *c, int nfunctions, int nbasis);
  };

  void find_edges(const Input &input, int center);
  bool find_radial(const Edge &edge);
  bool find_angular(const Edge &edge);
  void find_descriptors(double temperature);
  double energy_of_network(int species);
  double charge_of_network(int species);
  void pull_back_to_moments();
  std::array<double, 3> force_on_neighbor(const Edge &edge);
  std::array<double, 3> force_of_zbl(const Edge &edge, double &energy) const;
  void add_forces(int i, double *virial);
  void evaluate_charges(const Input &input, double *virial);

  Complex moment(int n, int l, int m) const;

  const NepNetwork network_;
  Harmonics harmonics;
  std::array<std::vector<Term>, NEP_INVARIANTS> terms;

  // of a center
  std::vector<Edge> edges;
  Functions functions;
  std::vector<Complex> moments;        // [nangular, harmonics.size()] A_nlm of m >= 0
  std::vector<Complex> slopes;         // likewise dE/dA_nlm, where A_nlm and A_nl-m are apart
  std::vector<double> q, y;            // [ndescriptors] y = q_scaler q
  std::vector<double> slope;           // [ndescriptors] dE/dq
  std::vector<double> charge_slope;    // [ndescriptors] likewise of the charge
  std::vector<double> hidden0, hidden1, back1;

  std::vector<double> sums, atom_energy, charge, potential;
  Evaluation result;
};

}    // namespace pwmlff
