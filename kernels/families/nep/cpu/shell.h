// SPDX-License-Identifier: GPL-2.0-or-later

// Neighbors of one center by species, in whole vectors.

#pragma once

#include "../../../core/cpu/program.h"
#include "../../../core/team.h"
#include "../../../core/virial_terms.h"
#include "radial.h"

namespace pwmlff::PWMLFF_ISA::nep {

/// Neighbors of one species: vectors begin .. begin+vectors-1, the last of them padded.
struct VectorRun {
  int begin, vectors, count;
};

/// Neighbors of a center that are evaluated alike. Each vector of neighbors has its numbers side by
/// side (Field, then those of the angular part), so that they are in few pages and spread over the
/// sets of the first cache.
template <class T> class Shell {
 public:
  static constexpr int width = lanes<T>;
  enum Field { ux, uy, uz, inverse, fc, dfc, x, dx, nfields };

  /// @param more  vectors of numbers behind the fields
  void set_stride(int more) { stride = (nfields + more) * width; }
  void reserve(std::size_t neighbors, int nruns)
  {
    const std::size_t n = neighbors + static_cast<std::size_t>(nruns + 1) * width;
    for (auto *array : {&rx, &ry, &rz}) array->reserve(n);
    row.reserve(n);
    numbers.reserve(n / width * stride);
  }
  T *vector(int v) { return &numbers[static_cast<std::size_t>(v) * stride]; }
  T *field(int v, int k) { return vector(v) + k * width; }

  /// Differences of positions, then directions and the radial cutoff function of a run whose rows
  /// have been written.
  void locate(const VectorRun &run, const double *positions, const double *center, double cutoff)
  {
    const int first = run.begin * width;
    for (int e = first; e < first + run.count; ++e) {
      const double *const xj = positions + 3 * static_cast<std::ptrdiff_t>(row[e]);
      rx[e] = xj[0] - center[0];
      ry[e] = xj[1] - center[1];
      rz[e] = xj[2] - center[2];
    }
    for (int e = first + run.count; e < first + run.vectors * width; ++e) {
      rx[e] = 2.0 * cutoff;    // beyond each cutoff
      ry[e] = rz[e] = 0.0;
    }
    const T per_cutoff = static_cast<T>(1.0 / cutoff);
    for (int v = run.begin; v < run.begin + run.vectors; ++v) {
      const Vec<T> d[3] = {narrow(&rx[v * width]), narrow(&ry[v * width]), narrow(&rz[v * width])};
      const Vec<T> r = square_root(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      const Vec<T> inv = T(1) / r;
      const CutoffTerms<T> terms(r, per_cutoff);
      T *const p = vector(v);
      for (int c = 0; c < 3; ++c) store(p + c * width, d[c] * inv);
      store(p + inverse * width, inv);
      store(p + fc * width, terms.fc);
      store(p + dfc * width, terms.dfc);
      store(p + x * width, terms.x);
      store(p + dx * width, terms.dx);
    }
  }

  double distance(int e) const
  {
    return __builtin_sqrt(rx[e] * rx[e] + ry[e] * ry[e] + rz[e] * rz[e]);
  }

  /// dE/dr_ij = radial u + across, of vector v, to `to` [3, width], which may be vector(v): there
  /// spread() looks for it, and it takes the place of u.
  void keep_gradient(int v, Vec<T> radial, const Vec<T> *across, T *to)
  {
    const T *const p = vector(v);
    const Vec<T> u[3] = {load(p), load(p + width), load(p + 2 * width)};
    for (int c = 0; c < 3; ++c) store(to + c * width, radial * u[c] + across[c]);
  }

  /// Add the gradients of a run to the force on the center and the virial, lane by lane.
  /// @param gradients  of its first vector; those of the others follow `step` numbers apart
  /// @param totals     [3 + 9]
  void add_totals(const VectorRun &run, const T *gradients, int step, Vec<T> *totals) const
  {
    Vec<T> total[12];    // not in memory, which the arrays could be
    for (int k = 0; k < 12; ++k) total[k] = totals[k];
    for (int v = run.begin; v < run.begin + run.vectors; ++v, gradients += step) {
      const Vec<T> d[3] = {narrow(&rx[v * width]), narrow(&ry[v * width]), narrow(&rz[v * width])};
      for (int c = 0; c < 3; ++c) {
        const Vec<T> g = load(gradients + c * width);
        total[c] += g;
        for (int k = 0; k < 3; ++k) total[3 + 3 * k + c] -= d[k] * g;
      }
    }
    for (int k = 0; k < 12; ++k) totals[k] = total[k];
  }

  /// Forces on the neighbors of a run. The gradients of padding are zero.
  /// @param totals  as add_totals()
  void spread(const VectorRun &run, Vec<T> *totals, PartialSums &sums)
  {
    add_totals(run, vector(run.begin), stride, totals);
    for (int v = run.begin; v < run.begin + run.vectors; ++v) {
      const T *const p = vector(v);
      const int left = run.count - (v - run.begin) * width;
      const int *const rows = &row[v * width];
      for (int l = 0; l < (left < width ? left : width); ++l) {
        double *const f = sums.force + 3 * static_cast<std::ptrdiff_t>(rows[l]);
        f[0] -= static_cast<double>(p[l]);
        f[1] -= static_cast<double>(p[width + l]);
        f[2] -= static_cast<double>(p[2 * width + l]);
      }
    }
  }

  /// Virials of atoms of a run that has been spread.
  void spread_virials(const VectorRun &run, int center, PartialSums &sums)
  {
    for (int e = run.begin * width; e < run.begin * width + run.count; ++e) {
      const T *const p = vector(e / width) + e % width;
      const double d[3] = {rx[e], ry[e], rz[e]};
      const double force[3] = {-static_cast<double>(p[0]), -static_cast<double>(p[width]),
                               -static_cast<double>(p[2 * width])};
      spread_virial(Alone{}, d, force, center, row[e], sums.atom_virial, sums.centroid_virial);
    }
  }

  /// All of that for one neighbor and the force `factor` r_ij on it.
  void spread_one(int e, double factor, int center, double *own, PartialSums &sums)
  {
    const double d[3] = {rx[e], ry[e], rz[e]};
    const double force[3] = {factor * d[0], factor * d[1], factor * d[2]};
    for (int c = 0; c < 3; ++c) {
      sums.force[3 * static_cast<std::ptrdiff_t>(row[e]) + c] += force[c];
      own[c] -= force[c];
      for (int k = 0; k < 3; ++k) sums.virial[3 * c + k] += d[c] * force[k];
    }
    spread_virial(Alone{}, d, force, center, row[e], sums.atom_virial, sums.centroid_virial);
  }

  Buffer<double> rx, ry, rz;    // r_ij
  Buffer<int> row;              // of the neighbor
  int stride = 0;

 private:
  static Vec<T> narrow(const double *p)
  {
    if constexpr (sizeof(T) == 8) {
      return load(p);
    } else {
      typedef double Wide __attribute__((vector_size(2 * PWMLFF_VECTOR_BYTES)));
      Wide wide;
      __builtin_memcpy(&wide, p, sizeof(wide));
      return __builtin_convertvector(wide, Vec<T>);
    }
  }
  static Vec<T> square_root(Vec<T> v)
  {
    return gather<T>(
        [&](int l) { return sizeof(T) == 8 ? __builtin_sqrt(v[l]) : __builtin_sqrtf(v[l]); });
  }

  Buffer<T> numbers;
};

/// The species that take part, in ascending order.
inline Buffer<int> present_of(const std::vector<bool> &which)
{
  int n = 0;
  for (std::size_t k = 0; k < which.size(); ++k) n += which[k];
  Buffer<int> result(n);
  n = 0;
  for (std::size_t k = 0; k < which.size(); ++k)
    if (which[k]) result[n++] = static_cast<int>(k);
  return result;
}

/// How far neighbors of a species count.
struct Reach {
  double near = 0.0;      // of the angular part
  double cutoff = 0.0;    // of all
};

/// The neighbors of a center: near ones, within the angular cutoff, and those beyond it.
template <class T> struct Surroundings {
  static constexpr int width = lanes<T>;

  Shell<T> near, far;
  Buffer<VectorRun> near_runs, far_runs;    // [npresent]
  int near_vectors = 0;

  /// @param more  vectors of numbers behind the fields of near ones
  void set_stride(int more)
  {
    near.set_stride(more);
    far.set_stride(0);
  }
  void reserve(std::size_t neighbors, int npresent)
  {
    near.reserve(neighbors, npresent);
    far.reserve(neighbors, npresent);
    near_runs.reserve(npresent);
    far_runs.reserve(npresent);
  }

  /// Sort the candidates of center i; their rows are written, and located by Shell::locate().
  /// @param nspecies of the model
  /// @param present [npresent] those that neighbors are of, in ascending order
  /// @param reach   [npresent]
  /// @param squares scratch for the candidates of one species
  void find(const Input &input, int i, int nspecies, const Buffer<int> &present, const Reach *reach,
            Buffer<double> &squares)
  {
    const double *const xi = input.x + 3 * static_cast<std::ptrdiff_t>(i);
    const double x0 = xi[0], x1 = xi[1], x2 = xi[2];
    int near_end = 0, far_end = 0;    // vectors
    const int npresent = static_cast<int>(present.size());
    for (int b = 0; b < npresent; ++b) {
      const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies + present[b];
      const double inner = reach[b].near * reach[b].near;
      const double outer = reach[b].cutoff * reach[b].cutoff;
      int *const near_row = &near.row[near_end * width], *const far_row = &far.row[far_end * width];
      int n = 0, m = 0;
      const int *const candidate = input.candidate + first[0];
      const int ncandidates = first[1] - first[0];
      for (int k = 0; k < ncandidates; ++k) {
        const double *const xj = input.x + 3 * static_cast<std::ptrdiff_t>(candidate[k]);
        const double d0 = x0 - xj[0], d1 = x1 - xj[1], d2 = x2 - xj[2];
        squares[k] = d0 * d0 + d1 * d1 + d2 * d2;
      }
      // No branches: their prediction would often fail.
      if (inner >= outer) {
        for (int k = 0; k < ncandidates; ++k) {
          near_row[n] = candidate[k];
          n += squares[k] < inner;
        }
      } else {
        for (int k = 0; k < ncandidates; ++k) {
          near_row[n] = far_row[m] = candidate[k];
          const bool is_near = squares[k] < inner;
          n += is_near;
          m += (squares[k] < outer) & !is_near;
        }
      }
      near_runs[b] = {near_end, (n + width - 1) / width, n};
      far_runs[b] = {far_end, (m + width - 1) / width, m};
      near_end += near_runs[b].vectors;
      far_end += far_runs[b].vectors;
    }
    near_vectors = near_end;
  }
};

}    // namespace pwmlff::PWMLFF_ISA::nep
