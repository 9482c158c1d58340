// SPDX-License-Identifier: GPL-2.0-or-later

// The neighbors within the cutoff of a block of centers: from candidates to distances and the
// environment, and from derivatives to forces.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../../../core/virial_terms.h"
#include "../../../math/spline_terms.h"
#include "../geometry.h"
#include "../pair_terms.h"
#include "dp_program.h"

#include <cmath>

namespace pwmlff::PWMLFF_ISA {

/// Edges of one center to neighbors of one species: begin .. begin+count-1, followed by padding up
/// to a multiple of the vector width.
struct Run {
  int begin, count;
  double environment[4];    // sum of R / dstd
  bool repelled;            // some are within the reach of ZBL
};

/// What the grade of a center adds to RowSums.
struct NearSums {
  double per_square;      // 1/rmax^2
  double square;          // of the grade
  double weight = 1.0;    // added to
};

/// Arrays over the edges of a block. T is the type of tables and moments.
template <class T> class Edges {
 public:
  static constexpr int padding = lanes<T>;

  /// Numbers of type T per edge. A vector of edges has one vector per field, one after another, so
  /// that all those of an edge are at constant distances from each other.
  enum Field {
    value_weight,                       // 5 for G; before weigh() the place in the interval
    slope_weight = value_weight + 5,    // 5 for dG/dr; before weigh() 1/spacing
    environment = slope_weight + 5,     // 4, R~
    slope = environment + 4,            // dR~_0/dr
    nfields
  };
  T *field(int e, int k) { return &fields[place(e) + k * padding]; }
  const T *field(int e, int k) const { return &fields[place(e) + k * padding]; }

  void reserve(std::size_t n)
  {
    n += 4 * padding;    // the filter writes one edge further
    for (auto *array : {&dx, &dy, &dz, &q, &inv_r, &qp}) array->reserve(n);
    for (auto *array : {&neighbor, &row}) array->reserve(n);
    fields.reserve(n * nfields);
    derivative.reserve(4 * n);
  }

  /// Write the candidates closer than rmax to xi from place `begin` on, then padding at rmax.
  /// @return their number
  int filter(const double *x, const double *xi, const int *candidate, int ncandidates, double rmax,
             int begin)
  {
    const double x0 = xi[0], x1 = xi[1], x2 = xi[2], limit = rmax * rmax;
    int *const found = &neighbor[begin];
    int n = 0;
    for (int k = 0; k < ncandidates; ++k) {
      const double *const xj = x + 3 * static_cast<std::ptrdiff_t>(candidate[k]);
      const double d0 = x0 - xj[0], d1 = x1 - xj[1], d2 = x2 - xj[2];
      found[n] = candidate[k];
      n += d0 * d0 + d1 * d1 + d2 * d2 < limit;    // no branch: its prediction would often fail
    }
    double *const px = &dx[begin], *const py = &dy[begin], *const pz = &dz[begin];
    for (int k = 0; k < n; ++k) {
      const double *const xj = x + 3 * static_cast<std::ptrdiff_t>(found[k]);
      px[k] = xj[0] - x0;
      py[k] = xj[1] - x1;
      pz[k] = xj[2] - x2;
    }
    for (int k = n; k % padding != 0; ++k) {
      found[k] = found[0];
      px[k] = rmax;
      py[k] = pz[k] = 0.0;
    }
    return n;
  }

  /// Environment and place in the table of a run that has been filtered.
  /// @return whether all its distances lie in the table
  bool locate(Run &run, const PairGeometry &pair)
  {
    const int end = run.begin + round_up(run.count, padding);
    LongVector outside{}, within{};
    DoubleVector total[4];
    for (auto &sum_of_lanes : total) sum_of_lanes = DoubleVector{};
    for (int e = run.begin; e < end; e += lanes<double>) {
      const DoubleVector d[3] = {load(&dx[e]), load(&dy[e]), load(&dz[e])};
      const DoubleVector r = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      const RadialTerms radial(r, switch_place(r, pair.rmin, pair.inv_width), pair.inv_width);
      store(&q[e], radial.q);
      store(&inv_r[e], radial.inv_r);
      store(&qp[e], radial.qp);
      put(field(e, slope), radial.s1 * pair.scale[0]);
      const DoubleVector scaled[4] = {radial.s * pair.scale[0], radial.q * d[0] * pair.scale[1],
                                      radial.q * d[1] * pair.scale[2],
                                      radial.q * d[2] * pair.scale[3]};
      for (int c = 0; c < 4; ++c) {
        total[c] += scaled[c];
        put(field(e, environment + c), scaled[c] + pair.shift[c]);
      }

      outside |= ~(r >= pair.lowest);
      within |= r < pair.zbl.reach;
      const LongVector upper = r >= pair.split;
      const auto pick = [&](double below, double above) {
        return upper ? broadcast(above) : broadcast(below);
      };
      const auto &low = pair.segment[0], &high = pair.segment[1];
      const DoubleVector per_spacing = pick(low.inv_spacing, high.inv_spacing);
      const DoubleVector y = (r - pick(low.start, high.start)) * per_spacing;
      const DoubleVector last = pick(low.last, high.last);
      const auto interval = __builtin_convertvector(y < last ? y : last, Row);
      put(field(e, value_weight), y - __builtin_convertvector(interval, DoubleVector));
      put(field(e, slope_weight), per_spacing);
      const auto table_row = interval + __builtin_convertvector(pick(low.first, high.first), Row);
      __builtin_memcpy(&row[e], &table_row, sizeof(table_row));
    }
    for (int c = 0; c < 4; ++c) run.environment[c] = sum<double>(total[c]);
    std::int64_t any = 0, close = 0;
    for (int l = 0; l < lanes<double>; ++l) {
      any |= outside[l];
      close |= within[l];
    }
    run.repelled = close != 0;
    return any == 0;
  }

  /// From the place in the interval to the weights of the coefficients (pair_terms.h).
  void weigh(const Run &run)
  {
    for (int e = run.begin; e < run.begin + run.count; e += lanes<T>) {
      T *const p = field(e, value_weight);
      T *const d = field(e, slope_weight);
      Vec<T> value[5], slope[5];
      spline_weights<T>(load(p), load(d), value, slope);
      for (int k = 0; k < 5; ++k) {
        store(p + k * padding, value[k]);
        store(d + k * padding, slope[k]);
      }
    }
  }

  /// Forces on both ends of a run's edges, and its part of the virial.
  ///
  /// On entry `derivative` holds, per edge, dE/dr at fixed direction of R~_0 and of G, and
  /// (a_x, a_y, a_z) = dE/dR~_c; R_c = q r_c depends on r_ij directly and through q.
  /// @param by_environment [4] to be added to dE/dR~
  /// @param own [3] force on the center, added to
  /// @param rows [nrows, 4] forces and near_square (RowSums) of rows, added to
  /// @param virial [9] added to
  /// @param near  null where no grade is wanted
  void finish(const Run &run, const PairGeometry &pair, const double *by_environment, double *own,
              double *rows, double *virial, NearSums *near)
  {
    DoubleVector center_force[3], of_lanes[9], weight{};
    for (auto &force : center_force) force = DoubleVector{};
    for (auto &element : of_lanes) element = DoubleVector{};
    const int end = run.begin + run.count;
    const DoubleVector lane = gather<double>([](int l) { return l; });
    for (int e = run.begin; e < end; e += lanes<double>) {
      const DoubleVector d[3] = {load(&dx[e]), load(&dy[e]), load(&dz[e])};
      DoubleVector radial, a[3];
      get4(&derivative[4 * e], radial, a[0], a[1], a[2]);
      radial += by_environment[0] * get(field(e, slope));
      for (int c = 0; c < 3; ++c) a[c] = (a[c] + by_environment[c + 1]) * pair.scale[c + 1];
      DoubleVector gradient[3], neighbor_force[3], share{};
      edge_gradient(radial, a, d, load(&inv_r[e]), load(&q[e]), load(&qp[e]), gradient);
      const LongVector inside = lane < static_cast<double>(end - e);
      for (int c = 0; c < 3; ++c) {
        neighbor_force[c] = inside ? -gradient[c] : DoubleVector{};
        center_force[c] -= neighbor_force[c];
      }
      for (int c = 0; c < 3; ++c)
        for (int k = 0; k < 3; ++k) of_lanes[3 * c + k] += d[c] * neighbor_force[k];
      store(&q[e], neighbor_force[0]);
      store(&inv_r[e], neighbor_force[1]);
      store(&qp[e], neighbor_force[2]);
      if (near) {    // the padding, at rmax, has no weight
        const DoubleVector one =
            near_weight((d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) * near->per_square);
        weight += one;
        share = one * near->square;
      }
      add4<double>(rows, &neighbor[e], neighbor_force[0], neighbor_force[1], neighbor_force[2],
                   share);
    }
    for (int c = 0; c < 3; ++c) own[c] += sum<double>(center_force[c]);
    for (int c = 0; c < 9; ++c) virial[c] += sum<double>(of_lanes[c]);
    if (near) near->weight += sum<double>(weight);
  }

  /// ZBL of a run that has been finished, in float64, as forces are large.
  /// @param own  [3] force on the center, added to
  /// @return half of the energy of each pair
  double repel(const Run &run, const ZblPair &zbl, double *own, PartialSums &sums)
  {
    double energy = 0.0;
    for (int e = run.begin; e < run.begin + run.count; ++e) {
      const double d[3] = {dx[e], dy[e], dz[e]};
      const double r = std::sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      if (!(r < zbl.reach)) continue;
      const ZblTerms terms(zbl, r);
      energy += 0.5 * terms.value;
      double *const total = sums.force + 3 * static_cast<std::ptrdiff_t>(neighbor[e]);
      double f[3];    // on the neighbor
      for (int c = 0; c < 3; ++c) {
        f[c] = -0.5 * terms.slope / r * d[c];
        own[c] -= f[c];
        total[c] += f[c];
        for (int k = 0; k < 3; ++k) sums.virial[3 * k + c] += d[k] * f[c];
      }
      q[e] += f[0];
      inv_r[e] += f[1];
      qp[e] += f[2];
    }
    return energy;
  }

  /// Per-atom virials of a run that has been finished.
  void spread_virial(const Run &run, int center, PartialSums &sums) const
  {
    for (int e = run.begin; e < run.begin + run.count; ++e) {
      const double d[3] = {dx[e], dy[e], dz[e]}, f[3] = {q[e], inv_r[e], qp[e]};
      pwmlff::spread_virial(Alone{}, d, f, center, neighbor[e], sums.atom_virial,
                            sums.centroid_virial);
    }
  }

  // Per edge: r_ij, q = s/r, 1/r, (dq/dr)/r; finish() replaces the last three by the
  // force on the neighbor.
  Buffer<double> dx, dy, dz, q, inv_r, qp;
  Buffer<int> neighbor;    // row of the neighbor
  Buffer<int> row;         // of the first of six coefficients in the table
  Buffer<T> fields;        // [vectors of edges, nfields, lanes]
  Buffer<T> derivative;    // [4] per edge, for finish()

 private:
  typedef std::int32_t Row __attribute__((vector_size(PWMLFF_VECTOR_BYTES / 2)));

  static std::size_t place(int e)
  {
    const std::size_t lane = static_cast<std::size_t>(e) % padding;
    return (e - lane) * nfields + lane;
  }

  static void put(double *p, DoubleVector v) { store(p, v); }
  static void put(float *p, DoubleVector v)
  {
    typedef float Half __attribute__((vector_size(PWMLFF_VECTOR_BYTES / 2)));
    const Half h = __builtin_convertvector(v, Half);
    __builtin_memcpy(p, &h, sizeof(h));
  }

  static DoubleVector get(const double *p) { return load(p); }
  static DoubleVector get(const float *p)
  {
    typedef float Half __attribute__((vector_size(PWMLFF_VECTOR_BYTES / 2)));
    Half h;
    __builtin_memcpy(&h, p, sizeof(h));
    return __builtin_convertvector(h, DoubleVector);
  }

  static void get4(const T *p, DoubleVector &a, DoubleVector &b, DoubleVector &c, DoubleVector &d)
  {
    if constexpr (sizeof(T) == 8) {
      load4<double>(p, a, b, c, d);
    } else {
      alignas(64) double wide[4 * lanes<double>];
      for (int k = 0; k < 4 * lanes<double>; ++k) wide[k] = p[k];
      load4<double>(wide, a, b, c, d);
    }
  }
};

}    // namespace pwmlff::PWMLFF_ISA
