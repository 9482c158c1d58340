// SPDX-License-Identifier: GPL-2.0-or-later

// Direct sums over reciprocal lattice vectors, by the formulas of reciprocal_lattice.h. Atoms
// are the lanes of vectors.

#pragma once

#include "../../core/cpu/simd.h"
#include "../half_cosine.h"
#include "reciprocal_lattice.h"

namespace pwmlff::PWMLFF_ISA {

/// Sums over some of the atoms.
class EwaldSums {
 public:
  static constexpr int width = lanes<double>;
  /// Vectors of atoms that stay in registers together: of structure factors, and of potentials.
  static constexpr int vectors = PWMLFF_REGISTERS > 16 ? 8 : 4;
  static constexpr int few = PWMLFF_REGISTERS > 16 ? 4 : 2;
  static constexpr int chunk = vectors * width;

  /// Take atoms; the lattice outlives this or the next call.
  /// @param x     [., 3]
  /// @param atom  [n] where they are in x
  void set(const ReciprocalLattice &lattice_, const double *x, const int *atom, int n)
  {
    lattice = &lattice_;
    nchunks = (n + chunk - 1) / chunk;
    const std::size_t padded = static_cast<std::size_t>(nchunks) * chunk;
    base.reserve(6 * padded);
    results.reserve(4 * padded);
    charge.reserve(padded);
    const double *const axes = lattice->box().axis;
    for (int k = 0; k < nchunks * chunk; k += width) {
      Vec<double> position[3];
      for (int c = 0; c < 3; ++c)
        position[c] = gather<double>([&](int l) {
          return k + l < n ? x[3 * static_cast<std::ptrdiff_t>(atom[k + l]) + c] : 0.0;
        });
      for (int d = 0; d < 3; ++d) {
        const Vec<double> turns = 0.5 * std::numbers::inv_pi *
                                  (axes[3 * d] * position[0] + axes[3 * d + 1] * position[1] +
                                   axes[3 * d + 2] * position[2]);
        Vec<double> sine, cosine;
        whole_cosine<double>(turns - nearest(turns), sine, cosine);
        double *const to =
            &base[static_cast<std::size_t>(k / chunk * 6 + 2 * d) * chunk + k % chunk];
        store(to, cosine);
        store(to + chunk, sine);
      }
    }
    for (std::size_t k = n; k < padded; ++k) charge[k] = 0.0;
    std::size_t largest = 0;
    for (int d = 0; d < 3; ++d) {
      start[d] = largest;
      largest += 2 * static_cast<std::size_t>(lattice->ranges()[d] + 1) * chunk;
    }
    powers.reserve(largest);
  }
  double *charges() { return charge.get(); }    // [n] to be set

  /// Add to the sums of a lattice [lattice.size()].
  void sum_structure(double *sums)
  {
    for (int c = 0; c < nchunks; ++c) {
      make_powers(c);
      for (int g = 0; g < lattice->ngroups(); ++g) {
        const ReciprocalLattice::Group &group = lattice->group(g);
        Vec<double> re[vectors], im[vectors];
        for (int v = 0; v < vectors; ++v) {
          plane(group, v, re[v], im[v]);
          const Vec<double> q = load(&charge[static_cast<std::size_t>(c) * chunk + v * width]);
          re[v] *= q;
          im[v] *= q;
        }
        double *to = sums + 4 * static_cast<std::size_t>(group.first);
        const double *along = &powers[start[2]];
        for (int n3 = 0; n3 <= group.most; ++n3, along += 2 * chunk, to += 4) {
          Vec<double> sum[4] = {};
#pragma GCC unroll 8
          for (int v = 0; v < vectors; ++v) {
            const Vec<double> cosine = load(along + v * width);
            const Vec<double> sine = load(along + chunk + v * width);
            sum[0] += re[v] * cosine;
            sum[1] += im[v] * sine;
            sum[2] += re[v] * sine;
            sum[3] += im[v] * cosine;
          }
          alignas(64) double four[4];
          sum4<double>(sum[0], sum[1], sum[2], sum[3], four);
          for (int k = 0; k < 4; ++k) to[k] += four[k];
        }
      }
    }
  }

  /// Potentials and their gradients from the sums over all atoms.
  void find_potentials(const double *sums)
  {
    make_coefficients(sums);
    for (int c = 0; c < nchunks; ++c) {
      make_powers(c);
      for (int v = 0; v < vectors; v += few) find_potentials_of(c, v);
    }
  }
  /// Of atom k, V.
  double potential(int k) const { return results[place(k)]; }
  /// Less its derivatives by the phases along the axes, [3].
  void by_phases(int k, double *to) const
  {
    for (int d = 0; d < 3; ++d) to[d] = results[place(k) + static_cast<std::size_t>(d + 1) * chunk];
  }
  /// -dphi/dx at fixed charges, [3]
  void field(int k, double *to) const
  {
    const double *const axes = lattice->box().axis;
    double by[3];
    by_phases(k, by);
    for (int c = 0; c < 3; ++c) to[c] = axes[c] * by[0] + axes[3 + c] * by[1] + axes[6 + c] * by[2];
  }

  /// Add the virial of all [9], row by row.
  /// @param sums  over all atoms
  static void add_virial(const ReciprocalLattice &lattice, const double *sums, double share,
                         double *virial)
  {
    for (int g = 0; g < lattice.ngroups(); ++g) {
      const ReciprocalLattice::Group &group = lattice.group(g);
      for (int n3 = 0; n3 <= group.most; ++n3) {
        const int pair = group.first + n3;
        const StructureFactors s(sums + 4 * static_cast<std::size_t>(pair));
        for (int side = 0; side < 2; ++side) {
          const double w = lattice.weights(pair)[side];
          if (w == 0.0) continue;
          lattice.box().add_virial(group.n1, group.n2, side ? -n3 : n3,
                                   share * w * (s.re[side] * s.re[side] + s.im[side] * s.im[side]),
                                   virial);
        }
      }
    }
  }

  /// The part of the virial of atom k: sum of 2 g q Re(S* exp(i k.x)) (1 - 2 (..) k (x) k), [9].
  void find_virial(const double *sums, int k, double *to)
  {
    if (k % chunk == 0) make_powers(k / chunk);
    const int lane = k % chunk;
    for (int c = 0; c < 9; ++c) to[c] = 0.0;
    for (int g = 0; g < lattice->ngroups(); ++g) {
      const ReciprocalLattice::Group &group = lattice->group(g);
      Vec<double> res, ims;
      plane(group, lane / width, res, ims);
      const double re = res[lane % width], im = ims[lane % width];
      for (int n3 = 0; n3 <= group.most; ++n3) {
        const int pair = group.first + n3;
        const StructureFactors s(sums + 4 * static_cast<std::size_t>(pair));
        const double *const along = &powers[start[2] + 2 * static_cast<std::size_t>(n3) * chunk];
        for (int side = 0; side < 2; ++side) {
          const double w = lattice->weights(pair)[side];
          if (w == 0.0) continue;
          const double cosine = along[lane],
                       sine = side ? -along[chunk + lane] : along[chunk + lane];
          const double energy =
              w * charge[k] *
              (s.re[side] * (re * cosine - im * sine) + s.im[side] * (re * sine + im * cosine));
          lattice->box().add_virial(group.n1, group.n2, side ? -n3 : n3, energy, to);
        }
      }
    }
  }

 private:
  std::size_t place(int k) const
  {
    return static_cast<std::size_t>(k / chunk) * 4 * chunk + k % chunk;
  }

  /// exp(i n b.x) of a chunk for n = 0 .. range along each axis: [n, re or im, chunk].
  void make_powers(int c)
  {
    for (int d = 0; d < 3; ++d) {
      const double *const from = &base[static_cast<std::size_t>(c * 6 + 2 * d) * chunk];
      double *to = &powers[start[d]];
      for (int v = 0; v < vectors; ++v) {
        const Vec<double> cosine = load(from + v * width), sine = load(from + chunk + v * width);
        Vec<double> re = broadcast<double>(1.0), im{};
        for (int n = 0; n <= lattice->ranges()[d]; ++n) {
          store(to + 2 * static_cast<std::size_t>(n) * chunk + v * width, re);
          store(to + (2 * static_cast<std::size_t>(n) + 1) * chunk + v * width, im);
          const Vec<double> next = re * cosine - im * sine;
          im = re * sine + im * cosine;
          re = next;
        }
      }
    }
  }

  /// exp(i (n1 b1 + n2 b2).x) of a vector of atoms.
  void plane(const ReciprocalLattice::Group &group, int v, Vec<double> &re, Vec<double> &im) const
  {
    const int n2 = group.n2 < 0 ? -group.n2 : group.n2;
    const double *const first = &powers[start[0] + 2 * static_cast<std::size_t>(group.n1) * chunk];
    const double *const second = &powers[start[1] + 2 * static_cast<std::size_t>(n2) * chunk];
    const Vec<double> a = load(first + v * width), b = load(first + chunk + v * width);
    const Vec<double> c = load(second + v * width);
    Vec<double> d = load(second + chunk + v * width);
    if (group.n2 < 0) d = -d;
    re = a * c - b * d;
    im = a * d + b * c;
  }

  void make_coefficients(const double *sums)
  {
    coefficients.reserve(2 * lattice->size());
    for (int g = 0; g < lattice->ngroups(); ++g)
      for (int n3 = 0; n3 <= lattice->group(g).most; ++n3) {
        const std::size_t pair = lattice->group(g).first + n3;
        StructureFactors(sums + 4 * pair)
            .coefficients(lattice->weights(static_cast<int>(pair)), n3, &coefficients[8 * pair]);
      }
  }

  void find_potentials_of(int c, int first)
  {
    Vec<double> phi[few] = {}, by[3][few] = {};    // by phases along the axes
    for (int g = 0; g < lattice->ngroups(); ++g) {
      const ReciprocalLattice::Group &group = lattice->group(g);
      Vec<double> u[2][few] = {}, w[2][few] = {};
      const double *a = &coefficients[8 * static_cast<std::size_t>(group.first)];
      const double *along = &powers[start[2] + static_cast<std::size_t>(first) * width];
      for (int n3 = 0; n3 <= group.most; ++n3, along += 2 * chunk, a += 8)
#pragma GCC unroll 4
        for (int v = 0; v < few; ++v) {
          const Vec<double> cosine = load(along + v * width);
          const Vec<double> sine = load(along + chunk + v * width);
          u[0][v] += a[0] * cosine - a[1] * sine;
          u[1][v] += a[2] * cosine + a[3] * sine;
          w[0][v] += a[7] * cosine - a[6] * sine;
          w[1][v] += a[5] * cosine + a[4] * sine;
        }
      for (int v = 0; v < few; ++v) {
        Vec<double> re, im;
        plane(group, first + v, re, im);
        const Vec<double> turned = u[0][v] * im + u[1][v] * re;
        phi[v] += u[0][v] * re - u[1][v] * im;
        by[0][v] += static_cast<double>(group.n1) * turned;
        by[1][v] += static_cast<double>(group.n2) * turned;
        by[2][v] += w[0][v] * im + w[1][v] * re;
      }
    }
    double *const to = &results[static_cast<std::size_t>(c) * 4 * chunk];
    for (int v = 0; v < few; ++v) {
      store(to + (first + v) * width, phi[v]);
      for (int d = 0; d < 3; ++d) store(to + (d + 1) * chunk + (first + v) * width, by[d][v]);
    }
  }

  const ReciprocalLattice *lattice = nullptr;
  int nchunks = 0;
  std::size_t start[3] = {};      // of an axis in powers
  Buffer<double> base;            // [nchunks, 3, 2, chunk] exp(i b.x)
  Buffer<double> charge;          // [nchunks, chunk] 0 of padding
  Buffer<double> powers;          // of a chunk
  Buffer<double> coefficients;    // [npairs, 8]
  Buffer<double> results;         // [nchunks, 4, chunk]
};

}    // namespace pwmlff::PWMLFF_ISA
