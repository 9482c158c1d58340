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

  /// From one row in scratch to the next; even where two values are loaded at once.
  PWMLFF_HOST_DEVICE static int step(int atoms) { return atoms > 1 ? atoms + 2 : 1; }
  static std::size_t scratch_bytes(int atoms, int width, int m2, int depth, int widest)
  {
    return sizeof(double) * step(atoms) *
           (static_cast<std::size_t>(4) * width + descriptor_size(width, m2) + depth + 2 * widest);
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const GpuBlock block = blocks[item];
    const GpuFitting &net = model.fittings[block.species];
    const int ld = step(atoms);
    double *const moments = team.template scratch<double>();      // [4, width, ld]
    double *const descriptor = moments + 4 * model.width * ld;    // [ndescriptor, ld], then dE/dD
    double *const tanhs =
        descriptor + descriptor_size(model.width, model.m2) * ld;    // [depth, ld]
    double *const dy = tanhs + depth * ld;                           // [widest, ld]
    double *const dz = dy + widest * ld;                             // [widest, ld]

    for (int w = team.lane(); w < 4 * model.width * atoms; w += team.lanes()) {
      const int m = w % model.width, c = w / model.width % 4, a = w / model.width / 4;
      const std::int64_t position = (4 * (std::int64_t(block.first) + a) + c) * model.padded + m;
      moments[(c * model.width + m) * ld + a] = a < block.count ? chunk.moments[position] : 0.0;
    }
    team.sync();
    describe(team, moments, descriptor);
    team.sync();

    const double *x = descriptor;
    double *y = dy, *spare = dz, *t = tanhs;
    for (int l = 0; l < net.nlayers; ++l) {
      forward(team, net.layers[l], x, t, y);
      team.sync();
      t += net.layers[l].out * ld;
      double *const done = y;
      y = spare;
      spare = done;
      x = done;
    }
    if (grade) {
      scale_distance(team, net, x, y);
      team.sync();
    }
    for (int a = team.lane(); a < block.count; a += team.lanes()) {
      const int center = chunk.order[block.first + a];
      double energy = net.last_bias;
      for (int i = 0; i < net.nlast; ++i) energy += global_pointer(net.last)[i] * x[i * ld + a];
      atom_energy[center] = energy;
      if (!grade) continue;
      double sum = 0.0;
      for (int i = 0; i < net.nlast; ++i) sum += y[i * ld + a] * y[i * ld + a];
      grade[center] = sqrt(sum);
    }
    team.sync();

    double *const dlast = net.nlayers > 0 ? dy : descriptor;
    for (int w = team.lane(); w < net.nlast * atoms; w += team.lanes())
      dlast[w / atoms * ld + w % atoms] = global_pointer(net.last)[w / atoms];
    team.sync();
    for (int l = net.nlayers - 1; l >= 0; --l) {
      const GpuLayer &layer = net.layers[l];
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
  template <class Team>
  PWMLFF_HOST_DEVICE void describe(const Team &team, const double *moments, double *d) const
  {
    const int ld = step(atoms);
    const int q = model.width * ld;    // from one of the four rows of T to the next
    for (int w = team.lane(); w < model.width * atoms; w += team.lanes()) {
      const int a = w % atoms, m = w / atoms;
      const double *const p = moments + m * ld + a;
      for (int k = 0; k <= m && k < model.m2; ++k) {
        const double *const axis = moments + k * ld + a;
        d[descriptor_place(model.width, m, k) * ld + a] =
            axis[0] * p[0] + axis[q] * p[q] + axis[2 * q] * p[2 * q] + axis[3 * q] * p[3 * q];
      }
    }
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void forward(const Team &team, const GpuLayer &layer, const double *x,
                                  double *t, double *y) const
  {
    const int ld = step(atoms);
    for (int w = team.lane(); w < layer.out * (atoms / G); w += team.lanes()) {
      const int o = w % layer.out, a = w / layer.out * G;
      double sum[G], xs[G];
      const double *const weights = global_pointer(layer.weight) + o;
      for (int g = 0; g < G; ++g) sum[g] = global_pointer(layer.bias)[o];
      for (int i = 0; i < layer.in; ++i) {
        const double weight = weights[i * layer.out];
        load_together<G>(x + i * ld + a, xs);
        for (int g = 0; g < G; ++g) sum[g] += weight * xs[g];
      }
      for (int g = 0; g < G; ++g) {
        const int position = o * ld + a + g;
        t[position] = tanh(sum[g]);
        y[position] = hidden_output(layer.residual, global_pointer(layer.step)[o],
                                    layer.residual ? x[position] : 0.0, t[position]);
      }
    }
  }

  // y = factor (x - mean), whose length is gamma (network.h).
  template <class Team>
  PWMLFF_HOST_DEVICE void scale_distance(const Team &team, const GpuFitting &net, const double *x,
                                         double *y) const
  {
    const int ld = step(atoms);
    for (int w = team.lane(); w < net.nlast * (atoms / G); w += team.lanes()) {
      const int o = w % net.nlast, a = w / net.nlast * G;
      const double *const column = global_pointer(net.grade_factor) + o;
      double sum[G], xs[G];
      for (int g = 0; g < G; ++g) sum[g] = 0.0;
      for (int i = 0; i < net.nlast; ++i) {
        const double factor = column[i * net.nlast], mean = global_pointer(net.grade_mean)[i];
        load_together<G>(x + i * ld + a, xs);
        for (int g = 0; g < G; ++g) sum[g] += factor * (xs[g] - mean);
      }
      for (int g = 0; g < G; ++g) y[o * ld + a + g] = sum[g];
    }
  }

  // dx may be dy: a lane reads only those of its elements that it writes.
  template <class Team>
  PWMLFF_HOST_DEVICE void backward(const Team &team, const GpuLayer &layer, const double *dy,
                                   const double *dz, double *dx) const
  {
    const int ld = step(atoms);
    for (int w = team.lane(); w < layer.in * (atoms / G); w += team.lanes()) {
      const int i = w % layer.in, a = w / layer.in * G;
      const double *const weights = global_pointer(layer.transposed) + i;
      double sum[G], dzs[G];
      for (int g = 0; g < G; ++g) sum[g] = layer.residual ? dy[i * ld + a + g] : 0.0;
      for (int o = 0; o < layer.out; ++o) {
        const double weight = weights[o * layer.in];
        load_together<G>(dz + o * ld + a, dzs);
        for (int g = 0; g < G; ++g) sum[g] += weight * dzs[g];
      }
      for (int g = 0; g < G; ++g) dx[i * ld + a + g] = sum[g];
    }
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void describe_backward(const Team &team, const double *moments,
                                            const double *d, const GpuBlock &block) const
  {
    constexpr int SIDE = 8;    // columns that lanes side by side write: whole sectors of memory
    const int ld = step(atoms), q = model.width * ld;
    for (int w = team.lane(); w < (model.padded + SIDE - 1) / SIDE * SIDE * atoms;
         w += team.lanes()) {
      const int a = w / SIDE % atoms, n = w / SIDE / atoms * SIDE + w % SIDE;
      if (a >= block.count || n >= model.padded) continue;
      double sum[4] = {0.0, 0.0, 0.0, 0.0};
      if (n < model.width)
        for (int k = 0; k <= n && k < model.m2; ++k) {
          const double derivative = d[descriptor_place(model.width, n, k) * ld + a];
          for (int c = 0; c < 4; ++c) sum[c] += derivative * moments[c * q + k * ld + a];
        }
      if (n < model.m2)    // the diagonal counts twice
        for (int m = n; m < model.width; ++m) {
          const double derivative = d[descriptor_place(model.width, m, n) * ld + a];
          for (int c = 0; c < 4; ++c) sum[c] += derivative * moments[c * q + m * ld + a];
        }
      const std::int64_t position = 4 * (std::int64_t(block.first) + a) * model.padded + n;
      for (int c = 0; c < 4; ++c)
        chunk.moment_gradient[position + c * model.padded] = static_cast<T>(sum[c] * model.scale);
    }
  }
};

}    // namespace pwmlff
