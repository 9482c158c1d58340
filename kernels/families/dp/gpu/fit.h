// SPDX-License-Identifier: GPL-2.0-or-later

// Moments to energies and back.

#pragma once

#include "types.h"

#include "../../../core/team.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// G atoms are in the registers of a lane, `atoms` (a multiple of G) in the scratch of a team.
///
/// Arrays in scratch are [.., step()]: values of the atoms of a block lie side by side, with a gap
/// that sends consecutive rows to different banks.
template <class T, int G> struct Fit {
  static constexpr int lanes = 256;
  static constexpr const char *name = "Fit";
  GpuModel<T> model;
  GpuChunk<T> chunk;
  const GpuBlock *blocks;
  int atoms, widest, depth;    // widest hidden layer, and all of them together
  double *atom_energy;         // [ncenters]
  double *grade;               // [ncenters], or null where not wanted

  /// From one row in scratch to the next; whole vectors, which are loaded at once.
  PWMLFF_HOST_DEVICE static int step(int atoms)
  {
    return atoms > 1 ? atoms + 16 / static_cast<int>(sizeof(T)) : 1;
  }
  static std::size_t scratch_bytes(int atoms, int width, int m2, int depth, int widest)
  {
    return lanes * PARTIAL + sizeof(T) * step(atoms) *
                                 (static_cast<std::size_t>(4) * width + descriptor_size(width, m2) +
                                  depth + 2 * widest);
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const GpuBlock block = blocks[item];
    const GpuFitting<T> &net = model.fittings[block.species];
    const int ld = step(atoms);
    T *const moments = reinterpret_cast<T *>(team.template scratch<char>() +
                                             team.lanes() * PARTIAL);    // [4, width, ld]
    T *const descriptor = moments + 4 * model.width * ld;    // [ndescriptor, ld], then dE/dD
    T *const tanhs = descriptor + descriptor_size(model.width, model.m2) * ld;    // [depth, ld]
    T *const dy = tanhs + depth * ld;                                             // [widest, ld]
    T *const dz = dy + widest * ld;                                               // [widest, ld]

    for (int w = team.lane(); w < 4 * model.width * atoms; w += team.lanes()) {
      const int m = w % model.width, c = w / model.width % 4, a = w / model.width / 4;
      const std::int64_t position = (4 * (std::int64_t(block.first) + a) + c) * model.padded + m;
      moments[(c * model.width + m) * ld + a] =
          a < block.count ? static_cast<T>(chunk.moments[position]) : T(0);
    }
    team.sync();
    describe(team, moments, descriptor);
    team.sync();

    const T *x = descriptor;
    T *y = dy, *spare = dz, *t = tanhs;
    for (int l = 0; l < net.nlayers; ++l) {
      forward(team, net.layers[l], x, t, y);
      team.sync();
      t += net.layers[l].out * ld;
      T *const done = y;
      y = spare;
      spare = done;
      x = done;
    }
    if (grade) {
      scale_distance(team, net, x, y);
      team.sync();
      length(team, net.nlast, y, block);
      team.sync();
    }
    energies(team, net, x, block);
    team.sync();

    T *const dlast = net.nlayers > 0 ? dy : descriptor;
    for (int w = team.lane(); w < net.nlast * atoms; w += team.lanes())
      dlast[w / atoms * ld + w % atoms] = global_pointer(net.last)[w / atoms];
    team.sync();
    for (int l = net.nlayers - 1; l >= 0; --l) {
      const GpuLayer<T> &layer = net.layers[l];
      t -= layer.out * ld;
      for (int w = team.lane(); w < layer.out * atoms; w += team.lanes()) {
        const int o = w / atoms, position = o * ld + w % atoms;
        dz[position] = hidden_gradient(global_pointer(layer.step)[o], t[position], dy[position]);
      }
      team.sync();
      backward(team, layer, dy, dz, l > 0 ? dy : descriptor);
      team.sync();
    }
    describe_backward(team, moments, descriptor, block);
  }

 private:
  // Bytes of scratch of a lane for its part of sums, for any G.
  static constexpr std::size_t PARTIAL = 32;

  /// `nsums` times N sums of `nterms` terms each. Where there are fewer than lanes, several lanes
  /// share one, or a small block would wait for one load after the other.
  /// @param add     (k, begin, end, sum [N]) adds terms begin .. end-1 of sums k
  /// @param finish  (k, sum [N])
  template <int N, class V, class Team, class Add, class Finish>
  PWMLFF_HOST_DEVICE static void in_sums(const Team &team, int nsums, int nterms, const Add &add,
                                         const Finish &finish)
  {
    static_assert(N * sizeof(V) <= PARTIAL);
    constexpr int fewest = 8;    // terms of a lane
    int parts = team.lanes() / nsums;
    if (parts > nterms / fewest) parts = nterms / fewest;
    if (parts <= 1) {
      for (int k = team.lane(); k < nsums; k += team.lanes()) {
        V sum[N] = {};
        add(k, 0, nterms, sum);
        finish(k, sum);
      }
      return;
    }
    V *const partial = team.template scratch<V>();
    const int part = team.lane() / nsums;
    if (part < parts) {
      V sum[N] = {};
      add(team.lane() % nsums, part * nterms / parts, (part + 1) * nterms / parts, sum);
      for (int n = 0; n < N; ++n) partial[team.lane() * N + n] = sum[n];
    }
    team.sync();
    if (team.lane() >= nsums) return;
    V sum[N] = {};
    for (int p = 0; p < parts; ++p)
      for (int n = 0; n < N; ++n) sum[n] += partial[(p * nsums + team.lane()) * N + n];
    finish(team.lane(), sum);
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void describe(const Team &team, const T *moments, T *d) const
  {
    const int ld = step(atoms);
    const int q = model.width * ld;    // from one of the four rows of T to the next
    for (int w = team.lane(); w < model.width * atoms; w += team.lanes()) {
      const int a = w % atoms, m = w / atoms;
      const T *const p = moments + m * ld + a;
      for (int k = 0; k <= m && k < model.m2; ++k) {
        const T *const axis = moments + k * ld + a;
        d[descriptor_place(model.width, m, k) * ld + a] =
            axis[0] * p[0] + axis[q] * p[q] + axis[2 * q] * p[2 * q] + axis[3 * q] * p[3 * q];
      }
    }
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void forward(const Team &team, const GpuLayer<T> &layer, const T *x, T *t,
                                  T *y) const
  {
    const int ld = step(atoms);
    in_sums<G, T>(
        team, layer.out * (atoms / G), layer.in,
        [&](int k, int begin, int end, T *sum) {
          multiply(global_pointer(layer.weight) + k % layer.out, layer.out, x + k / layer.out * G,
                   ld, begin, end, sum);
        },
        [&](int k, const T *sum) {
          const int o = k % layer.out;
          for (int g = 0; g < G; ++g) {
            const int position = o * ld + k / layer.out * G + g;
            t[position] = tanh(sum[g] + global_pointer(layer.bias)[o]);
            y[position] = hidden_output(layer.residual, global_pointer(layer.step)[o],
                                        layer.residual ? x[position] : T(0), t[position]);
          }
        });
  }

  /// sum[g] += sum over i of weights[i * stride] x[i * ld + g]
  PWMLFF_HOST_DEVICE static void multiply(const T *weights, int stride, const T *x, int ld,
                                          int begin, int end, T *sum)
  {
    T xs[G];
    PWMLFF_UNROLL_BY_8
    for (int i = begin; i < end; ++i) {
      const T weight = weights[i * stride];
      load_together<G>(x + i * ld, xs);
      for (int g = 0; g < G; ++g) sum[g] += weight * xs[g];
    }
  }

  // y = factor (x - mean), whose length is gamma (network.h).
  template <class Team>
  PWMLFF_HOST_DEVICE void scale_distance(const Team &team, const GpuFitting<T> &net, const T *x,
                                         T *y) const
  {
    const int ld = step(atoms);
    in_sums<G, T>(
        team, net.nlast * (atoms / G), net.nlast,
        [&](int k, int begin, int end, T *sum) {
          const T *const column = global_pointer(net.grade_factor) + k % net.nlast;
          T xs[G];
          for (int i = begin; i < end; ++i) {
            const T factor = column[i * net.nlast], mean = global_pointer(net.grade_mean)[i];
            load_together<G>(x + i * ld + k / net.nlast * G, xs);
            for (int g = 0; g < G; ++g) sum[g] += factor * (xs[g] - mean);
          }
        },
        [&](int k, const T *sum) {
          for (int g = 0; g < G; ++g) y[k % net.nlast * ld + k / net.nlast * G + g] = sum[g];
        });
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void length(const Team &team, int n, const T *y, const GpuBlock &block) const
  {
    const int ld = step(atoms);
    in_sums<1, double>(
        team, block.count, n,
        [&](int a, int begin, int end, double *sum) {
          for (int i = begin; i < end; ++i)
            sum[0] += static_cast<double>(y[i * ld + a]) * static_cast<double>(y[i * ld + a]);
        },
        [&](int a, const double *sum) { grade[chunk.order[block.first + a]] = sqrt(sum[0]); });
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void energies(const Team &team, const GpuFitting<T> &net, const T *x,
                                   const GpuBlock &block) const
  {
    const int ld = step(atoms);
    in_sums<1, double>(
        team, block.count, net.nlast,
        [&](int a, int begin, int end, double *sum) {
          for (int i = begin; i < end; ++i)
            sum[0] += static_cast<double>(global_pointer(net.last)[i]) *
                      static_cast<double>(x[i * ld + a]);
        },
        [&](int a, const double *sum) {
          atom_energy[chunk.order[block.first + a]] = sum[0] + net.last_bias;
        });
  }

  // dx may be dy: a lane reads only those of its elements that it writes.
  template <class Team>
  PWMLFF_HOST_DEVICE void backward(const Team &team, const GpuLayer<T> &layer, const T *dy,
                                   const T *dz, T *dx) const
  {
    const int ld = step(atoms);
    in_sums<G, T>(
        team, layer.in * (atoms / G), layer.out,
        [&](int k, int begin, int end, T *sum) {
          multiply(global_pointer(layer.transposed) + k % layer.in, layer.in, dz + k / layer.in * G,
                   ld, begin, end, sum);
        },
        [&](int k, const T *sum) {
          const int position = k % layer.in * ld + k / layer.in * G;
          for (int g = 0; g < G; ++g)
            dx[position + g] = sum[g] + (layer.residual ? dy[position + g] : T(0));
        });
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void describe_backward(const Team &team, const T *moments, const T *d,
                                            const GpuBlock &block) const
  {
    constexpr int SIDE = 8;    // columns that lanes side by side write: whole sectors of memory
    const int ld = step(atoms), q = model.width * ld;
    for (int w = team.lane(); w < (model.padded + SIDE - 1) / SIDE * SIDE * atoms;
         w += team.lanes()) {
      const int a = w / SIDE % atoms, n = w / SIDE / atoms * SIDE + w % SIDE;
      if (a >= block.count || n >= model.padded) continue;
      T sum[4] = {T(0), T(0), T(0), T(0)};
      if (n < model.width)
        for (int k = 0; k <= n && k < model.m2; ++k) {
          const T derivative = d[descriptor_place(model.width, n, k) * ld + a];
          for (int c = 0; c < 4; ++c) sum[c] += derivative * moments[c * q + k * ld + a];
        }
      if (n < model.m2)    // the diagonal counts twice
        for (int m = n; m < model.width; ++m) {
          const T derivative = d[descriptor_place(model.width, m, n) * ld + a];
          for (int c = 0; c < 4; ++c) sum[c] += derivative * moments[c * q + m * ld + a];
        }
      const std::int64_t position = 4 * (std::int64_t(block.first) + a) * model.padded + n;
      for (int c = 0; c < 4; ++c)
        chunk.moment_gradient[position + c * model.padded] =
            static_cast<T>(sum[c] * static_cast<T>(model.scale));
    }
  }
};

}    // namespace pwmlff
