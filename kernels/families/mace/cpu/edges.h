// SPDX-License-Identifier: GPL-2.0-or-later

// The edges of one center: what of them depends on geometry alone, and the sums over them that a
// path of a layer takes (../network.h). Channels are in the lanes of vectors; what all channels
// share, the harmonics and their couplings, is computed with edges in the lanes.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../../../math/sphere.h"
#include "../plan.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA::mace {

/// Couplings of a path, packed.
template <class T> struct Coupled {
  struct Term {
    int target, y;
    T value;
  };
  explicit Coupled(const std::vector<MaceCoupling> &couplings) :
      nterms(static_cast<int>(couplings.size())), terms(couplings.size())
  {
    for (int n = 0; n < nterms; ++n)
      terms[n] = {couplings[n].target, couplings[n].y, static_cast<T>(couplings[n].value)};
  }
  int nterms;
  Buffer<Term> terms;
};

/// Directions u from neighbors to the center, harmonics of them, and the way back.
template <class T> class Directions {
 public:
  static constexpr int width = lanes<T>;

  /// @param largest  degree of harmonics
  explicit Directions(int largest) : largest(largest), ncomponents((largest + 1) * (largest + 1)) {}

  /// @param rij [n, 3] from the center to the neighbors
  void take(const double *rij, int n_)
  {
    n = n_;
    nvectors = (n + width - 1) / width;
    const auto padded = static_cast<std::size_t>(nvectors) * width;
    r.reserve(padded);
    u.reserve(3 * padded);
    y.reserve(padded * ncomponents);
    dy.reserve(padded * ncomponents);
    radial.reserve(padded);
    for (int e = 0; e < nvectors * width; ++e) {
      T *const p = &u[(e / width) * 3 * width + e % width];
      radial[e] = 0.0;
      if (e >= n) {
        p[0] = p[width] = 0;
        p[2 * width] = 1;
        continue;
      }
      const double *const d = rij + 3 * static_cast<std::ptrdiff_t>(e);
      const double length = __builtin_sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
      r[e] = length;
      for (int c = 0; c < 3; ++c) p[c * width] = static_cast<T>(-d[c] / length);
    }
    for (int v = 0; v < nvectors; ++v) {
      T *const out = &y[static_cast<std::size_t>(v) * ncomponents * width];
      store(out, broadcast<T>(1));
      if (largest == 0) continue;
      Vec<T> axes[3];
      in_axes(v, axes);
      nep::harmonics_of_degree<T>(largest, axes, out + width);
    }
  }

  void begin_back() { dy.fill(0); }

  /// dE/dr_ij from dE/dr, `radial`, and derivatives by harmonics.
  /// @param gradient [n, 3] added to
  void back(double *gradient)
  {
    for (int v = 0; v < nvectors; ++v) {
      Vec<T> g[3] = {}, axes[3];
      in_axes(v, axes);
      if (largest > 0)
        nep::harmonics_gradient_of_degree<T>(
            largest, axes, &dy[static_cast<std::size_t>(v) * ncomponents * width] + width, g);
      const Vec<T> along = axes[0] * g[0] + axes[1] * g[1] + axes[2] * g[2];
      for (int c = 0; c < 3; ++c) g[c] -= along * axes[c];
      for (int l = 0; l < width && v * width + l < n; ++l) {
        const int e = v * width + l;
        double *const out = gradient + 3 * static_cast<std::ptrdiff_t>(e);
        for (int c = 0; c < 3; ++c) {
          // Axis c of nature is axis (c + 1) mod 3 of the harmonics; u is -r_ij/r.
          const int axis = (c + 1) % 3;
          out[c] -= static_cast<double>(g[axis][l]) / r[e] +
                    radial[e] * static_cast<double>(axes[axis][l]);
        }
      }
    }
  }

  /// Couplings of all edges [nvectors, size, lanes].
  void couple(const Coupled<T> &coupled, int size, T *out) const
  {
    for (int v = 0; v < nvectors; ++v, out += size * width) {
      for (int k = 0; k < size; ++k) store(out + k * width, Vec<T>{});
      const T *const at = &y[static_cast<std::size_t>(v) * ncomponents * width];
      for (int t = 0; t < coupled.nterms; ++t) {
        const auto &term = coupled.terms[t];
        T *const target = out + term.target * width;
        store(target, load(target) + term.value * load(at + term.y * width));
      }
    }
  }

  /// Derivatives by harmonics from those by couplings.
  void couple_back(const Coupled<T> &coupled, int size, const T *in)
  {
    for (int v = 0; v < nvectors; ++v, in += size * width) {
      T *const at = &dy[static_cast<std::size_t>(v) * ncomponents * width];
      for (int t = 0; t < coupled.nterms; ++t) {
        const auto &term = coupled.terms[t];
        store(at + term.y * width,
              load(at + term.y * width) + term.value * load(in + term.target * width));
      }
    }
  }

  int n = 0, nvectors = 0;
  Buffer<double> r, radial;    // [n] distance, and dE/dr at fixed direction

 private:
  /// u of a vector of edges as (z, x, y).
  void in_axes(int v, Vec<T> *axes) const
  {
    const T *const p = &u[static_cast<std::size_t>(v) * 3 * width];
    axes[0] = load(p + 2 * width);
    axes[1] = load(p);
    axes[2] = load(p + width);
  }

  int largest, ncomponents;
  Buffer<T> u, y, dy;    // [nvectors, 3 or ncomponents, lanes]
};

/// What the sums of a path over edges read.
template <class T> struct PathEdges {
  int n;                      // edges
  const T *coupling;          // [nvectors, N1*N, lanes]
  const T *const *feature;    // [n] features of the neighbor, of degree l1 on
  const T *value, *slope;     // [n, columns] radial functions of the path, and derivatives
  int columns;
  int nchannels;    // padded
};

/// A_M = sum over edges of R sum over m1 of coupling[m1, M] h_m1.
/// @param out [N, nchannels]
template <class T, int N1, int N> void sum_path(const PathEdges<T> &path, T *out)
{
  constexpr int width = lanes<T>;
  for (int k = 0; k < path.nchannels; k += width) {
    Vec<T> sum[N] = {};
    for (int e = 0; e < path.n; ++e) {
      const T *const coupling = path.coupling + (e / width) * (N1 * N * width) + e % width;
      const T *const h = path.feature[e] + k;
      const Vec<T> radial = load(path.value + static_cast<std::ptrdiff_t>(e) * path.columns + k);
      for (int m1 = 0; m1 < N1; ++m1) {
        const Vec<T> x = radial * load(h + m1 * path.nchannels);
        for (int m = 0; m < N; ++m) sum[m] += x * coupling[(m1 * N + m) * width];
      }
    }
    for (int m = 0; m < N; ++m) store(out + m * path.nchannels + k, sum[m]);
  }
}

/// The way back of it.
/// @param gradient [N, nchannels] dE/dA
/// @param dcoupling [nvectors, N1*N, lanes] written
/// @param dfeature [n] added to, or null where features do not depend on positions
/// @param dr [n] dE/dr, added to
template <class T, int N1, int N>
void back_path(const PathEdges<T> &path, const T *gradient, T *dcoupling, T *const *dfeature,
               double *dr)
{
  constexpr int width = lanes<T>, size = N1 * N;
  for (int e = 0; e < path.n; ++e) {
    const std::ptrdiff_t offset = (e / width) * (size * width) + e % width;
    const T *const coupling = path.coupling + offset;
    Vec<T> sum[size] = {}, radial{};
    for (int k = 0; k < path.nchannels; k += width) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(e) * path.columns + k;
      const Vec<T> value = load(path.value + at);
      const T *const h = path.feature[e] + k;
      Vec<T> g[N];
      for (int m = 0; m < N; ++m) g[m] = load(gradient + m * path.nchannels + k);
      Vec<T> along{};
      for (int m1 = 0; m1 < N1; ++m1) {
        const Vec<T> feature = load(h + m1 * path.nchannels);
        const Vec<T> x = value * feature;
        Vec<T> q{};
        for (int m = 0; m < N; ++m) {
          q += g[m] * coupling[(m1 * N + m) * width];
          sum[m1 * N + m] += x * g[m];
        }
        along += feature * q;
        if (dfeature) {
          T *const target = dfeature[e] + m1 * path.nchannels + k;
          store(target, load(target) + value * q);
        }
      }
      radial += along * load(path.slope + at);
    }
    dr[e] += static_cast<double>(pwmlff::PWMLFF_ISA::sum<T>(radial));
    T *const out = dcoupling + offset;
    int c = 0;
    for (; c + 4 <= size; c += 4) {
      alignas(PWMLFF_VECTOR_BYTES) T four[4 > width ? 4 : width];
      sum4<T>(sum[c], sum[c + 1], sum[c + 2], sum[c + 3], four);
      for (int k = 0; k < 4; ++k) out[(c + k) * width] = four[k];
    }
    for (; c < size; ++c) out[c * width] = pwmlff::PWMLFF_ISA::sum<T>(sum[c]);
  }
}

/// Those two for degrees known at run time.
template <class T> struct PathSums {
  void (*sum)(const PathEdges<T> &, T *);
  void (*back)(const PathEdges<T> &, const T *, T *, T *const *, double *);
};

template <class T, int N1> PathSums<T> path_sums_to(int degree)
{
  switch (degree) {
    case 0:
      return {sum_path<T, N1, 1>, back_path<T, N1, 1>};
    case 1:
      return {sum_path<T, N1, 3>, back_path<T, N1, 3>};
    case 2:
      return {sum_path<T, N1, 5>, back_path<T, N1, 5>};
    case 3:
      return {sum_path<T, N1, 7>, back_path<T, N1, 7>};
    default:
      return {sum_path<T, N1, 9>, back_path<T, N1, 9>};
  }
}

template <class T> PathSums<T> path_sums(int feature, int degree)
{
  static_assert(MACE_MOST_DEGREE == 4);
  switch (feature) {
    case 0:
      return path_sums_to<T, 1>(degree);
    case 1:
      return path_sums_to<T, 3>(degree);
    case 2:
      return path_sums_to<T, 5>(degree);
    case 3:
      return path_sums_to<T, 7>(degree);
    default:
      return path_sums_to<T, 9>(degree);
  }
}

}    // namespace pwmlff::PWMLFF_ISA::mace
