// SPDX-License-Identifier: GPL-2.0-or-later

// Point charges in a periodic box: the part of Ewald's sum in reciprocal space, by direct sums over
// reciprocal lattice vectors k = n1 b1 + n2 b2 + n3 b3, of which the box has 2 pi/V in its weight.
//
//   E     = sum over k != 0 of g(k) |S(k)|^2,   S(k) = sum over i of q_i exp(i k.x_i)
//   g(k)  = K 2 pi/V exp(-k^2/4 alpha^2)/k^2                             |k| < largest, else 0
//   phi_i = dE/dq_i = 2 sum over k of g Re(S* exp(i k.x_i))
//   f_i   = -dE/dx_i = 2 q_i sum over k of g k Im(S* exp(i k.x_i))
//   W     = sum over k of g |S|^2 (1 - 2 (1/k^2 + 1/4 alpha^2) k (x) k), the virial, at fixed q
//
// Of k and -k one is enough. Vectors (n1, n2, n3) and (n1, n2, -n3) are a pair: both follow from
// four sums over real numbers. Atoms are the lanes of vectors. Lengths in angstrom, charges in e.
//
// Source: Ewald 1921, doi:10.1002/andp.19213690304; the virial is Nose and Klein's of 1983,
// doi:10.1080/00268978300102851.

#pragma once

#include "simd.h"

#include <numbers>

namespace pwmlff::PWMLFF_ISA {

class ReciprocalLattice {
 public:
  /// Pairs of the same n1 and n2: n3 = 0 .. most, from the pair `first` on.
  struct Group {
    int n1, n2, most, first;
  };

  /// @param alpha    1/angstrom
  /// @param coulomb  K, eV angstrom/e^2
  /// @param largest  of |k|, in units of alpha
  ReciprocalLattice(double alpha, double coulomb, double largest) :
      quarter(0.25 / (alpha * alpha)), coulomb(coulomb), largest(largest * alpha)
  {
  }

  /// Take a box [3, 3], its edges row by row; nothing is done where it is as before.
  void set(const double *cell)
  {
    bool same = ngroups > 0;
    for (int k = 0; k < 9; ++k) same = same && box[k] == cell[k];
    if (same) return;
    for (int k = 0; k < 9; ++k) box[k] = cell[k];
    invert();
    const double square = largest * largest;
    for (const bool count : {true, false}) {
      ngroups = npairs = 0;
      for (int n1 = 0; n1 <= range[0]; ++n1)
        for (int n2 = n1 > 0 ? -range[1] : 0; n2 <= range[1]; ++n2) {
          int most = -1;
          for (int n3 = -range[2]; n3 <= range[2]; ++n3) {
            double k[3];
            const double k2 = vector(n1, n2, n3, k);
            const int n = n3 < 0 ? -n3 : n3;
            if (k2 < square && k2 > 0.0 && n > most) most = n;
          }
          if (most < 0) continue;
          if (!count) groups[ngroups] = {n1, n2, most, npairs};
          for (int n3 = 0; n3 <= most && !count; ++n3) {
            // With n1 = n2 = 0 the other of a pair is the same by -k, with n3 = 0 the same.
            weight[2 * (npairs + n3)] = weight_of(n1, n2, n3);
            weight[2 * (npairs + n3) + 1] =
                n3 == 0 || (n1 == 0 && n2 == 0) ? 0.0 : weight_of(n1, n2, -n3);
          }
          ngroups += 1;
          npairs += most + 1;
        }
      if (count) {
        groups.reserve(ngroups);
        weight.reserve(2 * static_cast<std::size_t>(npairs));
      }
    }
  }

  /// Numbers that sum_structure() adds to.
  std::size_t size() const { return 4 * static_cast<std::size_t>(npairs); }
  /// The largest n1, n2, n3 that may occur.
  const int *ranges() const { return range; }
  /// Components of 2 pi times the fractional coordinates: x . b.
  const double *axes() const { return axis; }
  int group_count() const { return ngroups; }
  const Group &group(int k) const { return groups[k]; }

  /// The sums S(k) of a pair, with n3 and -n3.
  struct Structure {
    double re[2], im[2];
  };
  static Structure structure(const double *sums)
  {
    return {{sums[0] - sums[1], sums[0] + sums[1]}, {sums[2] + sums[3], sums[3] - sums[2]}};
  }
  /// The sums that have it.
  static void set_structure(const Structure &s, double *sums)
  {
    sums[0] = 0.5 * (s.re[0] + s.re[1]);
    sums[1] = 0.5 * (s.re[1] - s.re[0]);
    sums[2] = 0.5 * (s.im[0] - s.im[1]);
    sums[3] = 0.5 * (s.im[0] + s.im[1]);
  }
  /// 2 g of both, as each stands for -k too.
  const double *weights(int pair) const { return &weight[2 * static_cast<std::size_t>(pair)]; }

  /// @return k^2 of a vector
  double vector(int n1, int n2, int n3, double *k) const
  {
    for (int c = 0; c < 3; ++c) k[c] = n1 * axis[c] + n2 * axis[3 + c] + n3 * axis[6 + c];
    return k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
  }
  /// 2 (1/k^2 + 1/4 alpha^2)
  double spread(double k2) const { return 2.0 / k2 + 2.0 * quarter; }

  /// Add the virial [9], row by row.
  void add_virial(const double *sums, double share, double *virial) const
  {
    for (int g = 0; g < ngroups; ++g)
      for (int n3 = 0; n3 <= groups[g].most; ++n3) {
        const int pair = groups[g].first + n3;
        const Structure s = structure(sums + 4 * static_cast<std::size_t>(pair));
        for (int side = 0; side < 2; ++side) {
          const double w = weights(pair)[side];
          if (w == 0.0) continue;
          const double energy = share * w * (s.re[side] * s.re[side] + s.im[side] * s.im[side]);
          add_virial_of(groups[g], side ? -n3 : n3, energy, virial);
        }
      }
  }
  /// That of a vector with an energy.
  void add_virial_of(const Group &group, int n3, double energy, double *virial) const
  {
    double k[3];
    const double factor = spread(vector(group.n1, group.n2, n3, k)) * energy;
    for (int a = 0; a < 3; ++a)
      for (int b = 0; b < 3; ++b)
        virial[3 * a + b] += (a == b ? energy : 0.0) - factor * k[a] * k[b];
  }

 private:
  static constexpr double two_pi = 2.0 * std::numbers::pi;

  void invert()
  {
    const double *const a = box, *const b = box + 3, *const c = box + 6;
    const auto cross = [](const double *u, const double *v, double *to) {
      to[0] = u[1] * v[2] - u[2] * v[1];
      to[1] = u[2] * v[0] - u[0] * v[2];
      to[2] = u[0] * v[1] - u[1] * v[0];
    };
    cross(b, c, axis);
    cross(c, a, axis + 3);
    cross(a, b, axis + 6);
    const double signed_volume = a[0] * axis[0] + a[1] * axis[1] + a[2] * axis[2];
    volume = signed_volume < 0.0 ? -signed_volume : signed_volume;
    for (double &component : axis) component *= two_pi / signed_volume;
    for (int d = 0; d < 3; ++d) {
      const double *const edge = box + 3 * d;
      const double length =
          __builtin_sqrt(edge[0] * edge[0] + edge[1] * edge[1] + edge[2] * edge[2]);
      range[d] = static_cast<int>(largest * length / two_pi);
    }
  }
  double weight_of(int n1, int n2, int n3) const
  {
    double k[3];
    const double k2 = vector(n1, n2, n3, k);
    if (!(k2 < largest * largest) || k2 == 0.0) return 0.0;
    return 2.0 * coulomb * two_pi / volume * __builtin_exp(-k2 * quarter) / k2;
  }

  const double quarter, coulomb, largest;            // 1/4 alpha^2
  double box[9] = {}, axis[9] = {}, volume = 0.0;    // axis: b1, b2, b3
  int range[3] = {};
  int ngroups = 0, npairs = 0;
  Buffer<Group> groups;
  Buffer<double> weight;    // [npairs, 2]
};

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
    const double *const axes = lattice->axes();
    for (std::size_t k = 0; k < padded; ++k)
      for (int d = 0; d < 3; ++d) {
        double phase = 0.0;
        if (k < static_cast<std::size_t>(n))
          for (int c = 0; c < 3; ++c)
            phase += axes[3 * d + c] * x[3 * static_cast<std::ptrdiff_t>(atom[k]) + c];
        double *const to = &base[(k / chunk * 6 + 2 * d) * chunk + k % chunk];
        to[0] = __builtin_cos(phase);
        to[chunk] = __builtin_sin(phase);
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
      for (int g = 0; g < lattice->group_count(); ++g) {
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
    const double *const axes = lattice->axes();
    double by[3];
    by_phases(k, by);
    for (int c = 0; c < 3; ++c) to[c] = axes[c] * by[0] + axes[3 + c] * by[1] + axes[6 + c] * by[2];
  }

  /// The part of the virial of atom k: sum of 2 g q Re(S* exp(i k.x)) (1 - 2 (..) k (x) k), [9].
  void find_virial(const double *sums, int k, double *to)
  {
    if (k % chunk == 0) make_powers(k / chunk);
    const int lane = k % chunk;
    for (int c = 0; c < 9; ++c) to[c] = 0.0;
    for (int g = 0; g < lattice->group_count(); ++g) {
      const ReciprocalLattice::Group &group = lattice->group(g);
      Vec<double> res, ims;
      plane(group, lane / width, res, ims);
      const double re = res[lane % width], im = ims[lane % width];
      for (int n3 = 0; n3 <= group.most; ++n3) {
        const int pair = group.first + n3;
        const auto s = ReciprocalLattice::structure(sums + 4 * static_cast<std::size_t>(pair));
        const double *const along = &powers[start[2] + 2 * static_cast<std::size_t>(n3) * chunk];
        for (int side = 0; side < 2; ++side) {
          const double w = lattice->weights(pair)[side];
          if (w == 0.0) continue;
          const double cosine = along[lane],
                       sine = side ? -along[chunk + lane] : along[chunk + lane];
          const double energy =
              w * charge[k] *
              (s.re[side] * (re * cosine - im * sine) + s.im[side] * (re * sine + im * cosine));
          lattice->add_virial_of(group, side ? -n3 : n3, energy, to);
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

  /// Of each pair, with A = 4 g S* of n3 and B = that of -n3: Re(A + B), Im(A - B), Im(A + B),
  /// Re(A - B), and these times n3.
  void make_coefficients(const double *sums)
  {
    coefficients.reserve(2 * lattice->size());
    for (int g = 0; g < lattice->group_count(); ++g)
      for (int n3 = 0; n3 <= lattice->group(g).most; ++n3) {
        const std::size_t pair = lattice->group(g).first + n3;
        const auto s = ReciprocalLattice::structure(sums + 4 * pair);
        const double *const w = lattice->weights(static_cast<int>(pair));
        const double a[2] = {2.0 * w[0] * s.re[0], -2.0 * w[0] * s.im[0]};
        const double b[2] = {2.0 * w[1] * s.re[1], -2.0 * w[1] * s.im[1]};
        double *const to = &coefficients[8 * pair];
        to[0] = a[0] + b[0];
        to[1] = a[1] - b[1];
        to[2] = a[1] + b[1];
        to[3] = a[0] - b[0];
        for (int k = 0; k < 4; ++k) to[4 + k] = n3 * to[k];
      }
  }

  void find_potentials_of(int c, int first)
  {
    Vec<double> phi[few] = {}, by[3][few] = {};    // by phases along the axes
    for (int g = 0; g < lattice->group_count(); ++g) {
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
