// SPDX-License-Identifier: GPL-2.0-or-later

// Potentials of the charges of a NEP in training, and how they change as rows move and the box is
// strained (../nep_training.h). With q', v and w the rates of charges and positions and the strain,
// of which x' = v + w^T x, k.x changes by k.v alone, and
//
//   phi = sum over k of 2 g Re(S* exp(i k.x))        g of math/ewald/reciprocal_lattice.h
//   S'  = sum over j of (q'_j + i q_j k.v_j) exp(i k.x_j)
//   g'  = g (2 (1/k^2 + 1/4 alpha^2) k.w k - trace of w)
//   phi' = sum over k of 2 Re((g' S + g S')* exp(i k.x)) - 2 g k.v Im(S* exp(i k.x))

#pragma once

#include "../../../math/ewald/ewald_sums.h"
#include "../../../math/ewald/screened.h"
#include "../nep_ewald.h"
#include "nep_gradient.h"

namespace pwmlff::PWMLFF_ISA::nep {

class PotentialRates : public NepPotentials {
 public:
  explicit PotentialRates(const NepNetwork &network) :
      network(network), ewald(network), screened(ewald.alpha, ewald.cutoff)
  {
  }

  void evaluate(const Input &input, const double *velocity, const double *w, double *charge,
                double *potential) override
  {
    const int n = input.ncenters;
    take_mean(charge, n);
    if (ewald.lattice.set(input.cell)) ewald.lattice.weigh();
    index.reserve(n);
    for (int i = 0; i < n; ++i) index[i] = i;
    reciprocal.set(ewald.lattice, input.x, index.get(), n);
    find_structures(velocity, charge, n);
    add_strain(w);
    reciprocal.find_potentials(sums[1].get());
    for (int i = 0; i < n; ++i) potential[2 * i + 1] = reciprocal.potential(i);
    reciprocal.find_potentials(sums[0].get());
    for (int i = 0; i < n; ++i) {
      double by[3];
      reciprocal.by_phases(i, by);
      potential[2 * i] = reciprocal.potential(i);
      for (int d = 0; d < 3; ++d) potential[2 * i + 1] -= phase_rate(d, velocity + 3 * i) * by[d];
    }
    if (ewald.real_space) add_real_space(input, velocity, charge, potential);
    take_mean(potential, n);
  }

 private:
  static void take_mean(double *values, int n)
  {
    for (int part = 0; part < 2; ++part) {
      double sum = 0.0;
      for (int i = 0; i < n; ++i) sum += values[2 * i + part];
      for (int i = 0; i < n; ++i) values[2 * i + part] -= sum / n;
    }
  }

  double phase_rate(int d, const double *v) const
  {
    const double *const b = ewald.lattice.box().axis + 3 * d;
    return b[0] * v[0] + b[1] * v[1] + b[2] * v[2];
  }

  /// Sums of q, of q', and of q times the rates of the phases along the axes.
  void find_structures(const double *velocity, const double *charge, int n)
  {
    for (int part = 0; part < 5; ++part) {
      for (int i = 0; i < n; ++i)
        reciprocal.charges()[i] = part < 2 ? charge[2 * i + part]
                                           : charge[2 * i] * phase_rate(part - 2, velocity + 3 * i);
      sums[part].reserve(ewald.lattice.size());
      sums[part].fill(0.0);
      reciprocal.sum_structure(sums[part].get());
    }
  }

  /// From the sums of q' to those of S' + g'/g S.
  void add_strain(const double *w)
  {
    for (int g = 0; g < ewald.lattice.ngroups(); ++g) {
      const ReciprocalLattice::Group &group = ewald.lattice.group(g);
      for (int n3 = 0; n3 <= group.most; ++n3) {
        const std::size_t place = 4 * static_cast<std::size_t>(group.first + n3);
        StructureFactors s[5];
        for (int part = 0; part < 5; ++part) s[part] = StructureFactors(&sums[part][place]);
        StructureFactors &rate = s[1];
        for (int side = 0; side < 2; ++side) {
          const int along = side ? -n3 : n3;
          const double n[3] = {static_cast<double>(group.n1), static_cast<double>(group.n2),
                               static_cast<double>(along)};
          double k[3], strained = 0.0;
          const double k2 = ewald.lattice.box().vector(group.n1, group.n2, along, k);
          if (k2 == 0.0) continue;
          for (int c = 0; c < 9; ++c) strained += k[c / 3] * w[c] * k[c % 3];
          const double change = ewald.lattice.box().spread(k2) * strained - w[0] - w[4] - w[8];
          rate.re[side] += change * s[0].re[side];
          rate.im[side] += change * s[0].im[side];
          for (int d = 0; d < 3; ++d) {
            rate.re[side] -= n[d] * s[2 + d].im[side];
            rate.im[side] += n[d] * s[2 + d].re[side];
          }
        }
        rate.store(&sums[1][place]);
      }
    }
  }

  void add_real_space(const Input &input, const double *velocity, const double *charge,
                      double *potential) const
  {
    constexpr int wide = lanes<double>;
    const int nspecies = network.nspecies();
    for (int i = 0; i < input.ncenters; ++i) {
      const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies;
      const double *const cut =
          &network.cut_radial[static_cast<std::size_t>(input.species[i]) * nspecies];
      Vec<double> value{}, rate{};
      for (int e = first[0]; e < first[nspecies]; e += wide) {
        alignas(64) double square[wide], along[wide], q[2][wide];
        for (int l = 0; l < wide; ++l) {
          const int j = e + l < first[nspecies] ? input.candidate[e + l] : i;
          const int home = e + l < first[nspecies] ? input.node_row[j] : i;
          square[l] = along[l] = 0.0;
          for (int c = 0; c < 3; ++c) {
            const double d = input.x[3 * j + c] - input.x[3 * i + c];
            square[l] += d * d;
            along[l] += d * (velocity[3 * j + c] - velocity[3 * i + c]);
          }
          const double reach = cut[input.species[j]];
          const bool counts = square[l] > 0.0 && square[l] < reach * reach;
          if (!counts) square[l] = 1.0;
          for (int part = 0; part < 2; ++part) q[part][l] = counts ? charge[2 * home + part] : 0.0;
        }
        Vec<double> f, g;
        screened.evaluate(load(square), f, g);
        value += load(q[0]) * f;
        rate += load(q[1]) * f + load(q[0]) * g * load(along);
      }
      potential[2 * i] += COULOMB * sum<double>(value) - ewald.self * charge[2 * i];
      potential[2 * i + 1] += COULOMB * sum<double>(rate) - ewald.self * charge[2 * i + 1];
    }
  }

  const NepNetwork &network;
  NepEwald ewald;
  const Screened screened;
  EwaldSums reciprocal;
  Buffer<int> index;
  Buffer<double> sums[5];
};

}    // namespace pwmlff::PWMLFF_ISA::nep
