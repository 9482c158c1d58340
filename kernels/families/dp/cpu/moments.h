// SPDX-License-Identifier: GPL-2.0-or-later

// Moments of the neighbors of one center, sum over j of R~_j (x) g_j with g = G - G(rmax), and the
// way back from derivatives by the moments to those by distance and direction.

#pragma once

#include "edges.h"
#include "embedding.h"

namespace pwmlff::PWMLFF_ISA {

/// g = G - G(rmax) and dG/dr from the splines of one pair of species; channels in lanes. Towards
/// the cutoff g vanishes, and with it the rounding errors of the many neighbors there.
///
/// Channels are padded to whole vectors and cut into tiles of one or more vectors, each of which is
/// an array [rows, channels of the tile].
template <class T> class Channels {
 public:
  // Vectors of a tile: their moments and values in progress have to fit the registers.
  static constexpr int tile_max = PWMLFF_REGISTERS >= 32 ? 4 : 2;

  static constexpr int vectors(int width) { return round_up(width, lanes<T>) / lanes<T>; }
  static int tile_size(int remaining) { return remaining < tile_max ? remaining : tile_max; }

  Channels(const SplineTable &table, int width) :
      nvectors(vectors(width)),
      rows(static_cast<int>(table.coef.size() / width)),
      data(static_cast<std::size_t>(rows) * nvectors * lanes<T>)
  {
    T *p = data.get();
    for (int v = 0; v < nvectors; v += tile_size(nvectors - v)) {
      const int begin = v * lanes<T>, end = begin + tile_size(nvectors - v) * lanes<T>;
      for (int row = 0; row < rows; ++row)
        for (int m = begin; m < end; ++m)
          *p++ = m < width ? static_cast<T>(table.coef[static_cast<std::size_t>(row) * width + m] -
                                            table.g_rmax[m])
                           : T(0);
    }
  }

  std::size_t bytes() const { return data.size() * sizeof(T); }

  /// Add the moments of a run for the vectors from v on, as many as tile_size says.
  /// @param moments [4, channels]
  /// @param stored [vectors, stride, 2, lanes] gets g and dG/dr of the run's edges
  void add(int v, const Edges<T> &edges, const Run &run, T *moments, T *stored, int stride) const
  {
    choose<tile_max>(tile_size(nvectors - v), v, edges, run, moments, stored, stride);
  }

 private:
  template <int N>
  void choose(int n, int v, const Edges<T> &edges, const Run &run, T *moments, T *stored,
              std::ptrdiff_t stride) const
  {
    if constexpr (N > 1)
      if (n < N) return choose<N - 1>(n, v, edges, run, moments, stored, stride);
    add_tile<N>(v, edges, run, moments, stored, stride);
  }

  template <int N>
  __attribute__((noinline)) void add_tile(int v, const Edges<T> &edges, const Run &run, T *moments,
                                          T *stored, std::ptrdiff_t stride) const
  {
    constexpr int L = lanes<T>;
    const int padded = nvectors * L;
    const T *const tile = data.get() + static_cast<std::size_t>(rows) * v * L;
    Vec<T> sum[4][N];
    for (int c = 0; c < 4; ++c)
      for (int k = 0; k < N; ++k) sum[c][k] = load(moments + c * padded + (v + k) * L);
    using E = Edges<T>;
    const int end = run.begin + run.count;
    const int *const row = &edges.row[run.begin];
    T *out = stored + (v * stride + run.begin) * 2 * L;
    for (int vector = run.begin; vector < end; vector += L) {
      const T *field = edges.field(vector, 0);
      const int n = end - vector < L ? end - vector : L;
      for (int l = 0; l < n; ++l, ++field, out += 2 * L) {
        const T *coef = tile + static_cast<std::ptrdiff_t>(row[vector - run.begin + l]) * (N * L);
        Vec<T> value[N], slope[N], left[N];
        for (int k = 0; k < N; ++k) {
          value[k] = left[k] = load(coef + k * L);
          slope[k] = Vec<T>{};
        }
        for (int i = 0; i < 5; ++i) {
          const T vw = field[(E::value_weight + i) * L], sw = field[(E::slope_weight + i) * L];
          coef += N * L;
          for (int k = 0; k < N; ++k) {
            Vec<T> right = load(coef + k * L);
            keep<T>(right);
            const Vec<T> difference = right - left[k];
            left[k] = right;
            value[k] += vw * difference;
            slope[k] = i == 0 ? sw * difference : slope[k] + sw * difference;
          }
        }
        for (int k = 0; k < N; ++k) {
          store(out + k * stride * 2 * L, value[k]);
          store(out + k * stride * 2 * L + L, slope[k]);
        }
        for (int c = 0; c < 4; ++c) {
          const T w = field[(E::environment + c) * L];
          for (int k = 0; k < N; ++k) sum[c][k] += w * value[k];
        }
      }
    }
    for (int c = 0; c < 4; ++c)
      for (int k = 0; k < N; ++k) store(moments + c * padded + (v + k) * L, sum[c][k]);
  }

  int nvectors, rows;
  Buffer<T> data;
};

/// Fill Edges::derivative for a run from what Channels::add stored.
/// @param gradient [4, channels] dE/dT, padding zero
template <class T>
inline void back_from_moments(int nvectors, const T *stored, int stride, const T *gradient,
                              const Run &run, Edges<T> &edges)
{
  using E = Edges<T>;
  constexpr int L = lanes<T>;
  const int padded = nvectors * L;
  const int end = run.begin + run.count;
  const T *edge_terms = stored + static_cast<std::size_t>(run.begin) * 2 * L;
  const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(stride) * 2 * L;
  T *out = &edges.derivative[4 * run.begin];
  for (int vector = run.begin; vector < end; vector += L) {
    const T *field = edges.field(vector, 0);
    const int n = end - vector < L ? end - vector : L;
    for (int l = 0; l < n; ++l, ++field, edge_terms += 2 * L, out += 4) {
      Vec<T> by_value[4] = {},
             by_slope[4] = {};    // sums over channels of dE/dT_c G and dE/dT_c dG/dr
      const T *p = edge_terms;
      for (int v = 0; v < padded; v += L, p += next) {
        Vec<T> value = load(p), slope = load(p + L);
        keep<T>(value);
        keep<T>(slope);
        for (int c = 0; c < 4; ++c) {
          Vec<T> t = load(gradient + c * padded + v);
          keep<T>(t);
          by_value[c] += t * value;
          by_slope[c] += t * slope;
        }
      }
      Vec<T> radial = by_value[0] * field[E::slope * L];
      for (int c = 0; c < 4; ++c) radial += by_slope[c] * field[(E::environment + c) * L];
      sum4<T>(radial, by_value[1], by_value[2], by_value[3], out);
    }
  }
}

/// The same by the nets: g and dG/dR~_0 are kept in `stored`, [vectors of edges, 2, width,
/// lanes].
/// @param g_rmax [width] G(rmax)
/// @param moments [4, width] added to
template <class T>
inline void exact_moments(const Embedding &net, int width, const double *g_rmax,
                          const Edges<T> &edges, const Run &run, double *scratch, double *moments,
                          double *stored)
{
  constexpr int L = lanes<double>;
  for (int e = run.begin; e < run.begin + run.count; e += L, stored += 2 * width * L) {
    DoubleVector w[4];
    for (int c = 0; c < 4; ++c)
      w[c] = gather<double>([&](int l) {
        return e + l < run.begin + run.count ? *edges.field(e + l, Edges<T>::environment + c)
                                             : T(0);
      });
    net.evaluate(w[0], scratch, stored, stored + width * L);
    for (int m = 0; m < width; ++m) {
      const DoubleVector g = load(stored + m * L) - g_rmax[m];
      store(stored + m * L, g);
      for (int c = 0; c < 4; ++c) moments[c * width + m] += sum<double>(w[c] * g);
    }
  }
}

/// @param gradient [4, width] dE/dT
template <class T>
inline void back_from_exact_moments(int width, const double *stored, const double *gradient,
                                    const Run &run, Edges<T> &edges)
{
  constexpr int L = lanes<double>;
  const int end = run.begin + run.count;
  for (int e = run.begin; e < end; e += L, stored += 2 * width * L) {
    DoubleVector w[4], a[4] = {}, net_gradient{};
    for (int c = 0; c < 4; ++c)
      w[c] = gather<double>([&](int l) { return *edges.field(e + l, Edges<T>::environment + c); });
    for (int m = 0; m < width; ++m) {
      DoubleVector by_g{};
      for (int c = 0; c < 4; ++c) {
        a[c] += gradient[c * width + m] * load(stored + m * L);
        by_g += gradient[c * width + m] * w[c];
      }
      net_gradient += by_g * load(stored + (width + m) * L);
    }
    for (int l = 0; l < L && e + l < end; ++l) {
      T *const out = &edges.derivative[4 * (e + l)];
      out[0] = static_cast<T>((a[0][l] + net_gradient[l]) * *edges.field(e + l, Edges<T>::slope));
      for (int c = 1; c < 4; ++c) out[c] = static_cast<T>(a[c][l]);
    }
  }
}

}    // namespace pwmlff::PWMLFF_ISA
