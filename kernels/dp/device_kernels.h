/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

// The steps of a Deep Potential on a device as team kernels (common/team.h); formulas in network.h,
// signs in engine.h, splines in geometry.h. T is the type of tables, moments and what flows back
// through them; distances, fitting nets, forces and sums are in float64.
//
//   FindEdges     candidates -> edges within the cutoff, environment, place in the table
//   EdgeMoments   edges -> T, with the slots without neighbour in closed form
//   Fit           T -> E_i, dE_i/dT
//   Differentiate dE_i/dT -> dE_i/dG, dE_i/dR~ of each edge
//   Forces        these -> forces, virials
//
// An item is a centre: `order` lists centres by species. A chunk of items at a time goes through all
// steps, so the memory for edges does not grow with the system.

#ifndef PWMLFF_DP_DEVICE_KERNELS_H
#define PWMLFF_DP_DEVICE_KERNELS_H

#include "../common/team.h"
#include "geometry.h"
#include "pair_terms.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// One layer of a net on the device (DPLayer).
struct DeviceLayer {
  int in, out;
  bool residual;
  const double *weight;        // [in, out]
  const double *transposed;    // [out, in]; fitting nets only
  const double *bias;          // [out]
  const double *step;          // [out] factor of tanh; fitting nets only
};

template <class T> struct DevicePair {
  bool present;    // both species take part
  PairGeometry geometry;
  const T *table;          // [rows, padded] G - G(rmax); null: the net is evaluated
  const double *beyond;    // [padded] G at and beyond the cutoff
  int nlayers;
  const DeviceLayer *layers;
};

struct DeviceFitting {
  int nlayers;    // hidden ones
  const DeviceLayer *layers;
  int nlast;    // inputs of the last, linear layer
  const double *last;
  double last_bias;
};

template <class T> struct DeviceModel {
  int nspecies, max_neighbor;
  int width, padded;                // M, and rounded up to whole vectors
  int m2;                           // axis width
  int widest_embedding;             // layer
  double cutsq, scale;              // scale: 1/(max_neighbor * species that take part)
  const DevicePair<T> *pairs;       // [nspecies, nspecies] centre first
  const DeviceFitting *fittings;    // [nspecies]
};

/// Atoms and candidates on the device, as in DPInput.
struct DeviceList {
  const double *x;       // [nrows, 3]
  const int *species;    // [nrows]
  const int *first;      // [ncentres*nspecies + 1]
  const int *candidate;
};

/// What the items of a chunk hand from step to step. Edges of an item start at item*stride, by
/// species of the neighbour.
template <class T> struct DeviceChunk {
  const int *order;    // [items] centres
  int stride;
  int *count;            // [items, nspecies] edges
  double *slots;         // [items, nspecies, 4] sum of R~ over all slots
  int *neighbour;        // [items, stride] row
  int *row;              // first coefficient in the table; negative: evaluate the net
  T *place;              // in the interval
  T *environment;        // [items, stride, 4] R~
  T *derivative;         // [items, stride, 5] dE/dr through G, dE/dR~
  double *moments;       // [items, 4, padded]
  T *moment_gradient;    // [items, 4, padded] dE/d(sum over slots), scale included
  std::int64_t base;     // items of earlier chunks
};

/// A centre with too many neighbours, as a number that is the larger the earlier its row is; 0: none.
struct DeviceOverflow {
  static constexpr int MOST_ROWS = 0x7fffffff, MOST_SPECIES = 0xff, MOST_COUNT = 0xffffff;
  int row, species, count;

  PWMLFF_HOST_DEVICE long long key() const
  {
    return (static_cast<long long>(MOST_ROWS - row) << 32) |
           (static_cast<long long>(MOST_SPECIES - species) << 24) |
           (count < MOST_COUNT ? count : MOST_COUNT);
  }
  static DeviceOverflow of(long long key)
  {
    return {MOST_ROWS - static_cast<int>(key >> 32),
            MOST_SPECIES - static_cast<int>(key >> 24 & MOST_SPECIES),
            static_cast<int>(key & MOST_COUNT)};
  }
};

/// Centres of one species that are fitted together.
struct DeviceBlock {
  int species, first, count;    // items first .. first+count-1 of the chunk
};

/// r and what follows from it.
PWMLFF_FORMULA RadialTerms<double, double> radial_terms(double r, const PairGeometry &pair)
{
  return {r, switch_place(r, pair.rmin, pair.inv_width), pair.inv_width};
}

/// Value and derivative of an embedding net, evaluated by a whole team.
struct NetValue {
  const double *value, *slope;    // [M]
};

/// @param scratch [4*widest]; holds the result until the next call
template <class Team, class T>
PWMLFF_HOST_DEVICE NetValue evaluate_net(const Team &team, const DevicePair<T> &pair, double x,
                                         int widest, double *scratch)
{
  double *f = scratch, *d = f + widest, *nf = d + widest, *nd = nf + widest;
  team.sync();
  if (team.lane() == 0) {
    f[0] = x;
    d[0] = 1.0;
  }
  team.sync();
  for (int l = 0; l < pair.nlayers; ++l) {
    const DeviceLayer &layer = pair.layers[l];
    for (int o = team.lane(); o < layer.out; o += team.lanes()) {
      const double *const weights = in_memory(layer.weight) + o;
      double z = in_memory(layer.bias)[o], dz = 0.0;
      for (int i = 0; i < layer.in; ++i) {
        const double weight = weights[i * layer.out];
        z += weight * f[i];
        dz += weight * d[i];
      }
      const int i = o % layer.in;
      embedding_output(layer.residual, f[i], d[i], tanh(z), dz, nf[o], nd[o]);
    }
    team.sync();
    double *const spent_f = f, *const spent_d = d;
    f = nf, d = nd, nf = spent_f, nd = spent_d;
  }
  return {f, d};
}

/// Edges that a team works on together, in its scratch.
template <class T, int N> struct EdgeTile {
  static constexpr int size = N;
  T value_weight[N][5], slope_weight[N][5], environment[N][4];
  int row[N];

  /// Read `n` edges from `begin` on.
  /// @return whether all of them are in the table
  template <class Team>
  PWMLFF_HOST_DEVICE bool load(const Team &team, const DeviceChunk<T> &chunk,
                               const PairGeometry &pair, std::int64_t begin, int n)
  {
    int outside = 0;
    team.sync();
    for (int k = team.lane(); k < n; k += team.lanes()) {
      const std::int64_t e = begin + k;
      row[k] = chunk.row[e];
      outside += row[k] < 0;
      for (int c = 0; c < 4; ++c) environment[k][c] = chunk.environment[4 * e + c];
      const bool upper = row[k] >= static_cast<int>(pair.segment[1].first);
      const T per_spacing = static_cast<T>(pair.segment[upper].inv_spacing);
      spline_weights<T>(chunk.place[e], per_spacing, value_weight[k], slope_weight[k]);
    }
    team.sync();
    return team.sum(outside) == 0;
  }

  static constexpr std::size_t bytes(int widest)
  {
    return 4 * static_cast<std::size_t>(widest) * sizeof(double) + sizeof(EdgeTile);
  }
};

/// The scratch of a team: room for a net, then a tile.
template <class Tile, class Team> PWMLFF_HOST_DEVICE Tile *tile_of(const Team &team, int widest)
{
  return reinterpret_cast<Tile *>(team.template scratch<double>() + 4 * widest);
}

/* ---- candidates to edges ---- */

template <class T> struct FindEdges {
  static constexpr int lanes = 32;
  static constexpr const char *name = "FindEdges";
  DeviceModel<T> model;
  DeviceList list;
  DeviceChunk<T> chunk;
  long long *overflow;    // DeviceOverflow of the first centre

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const int i = chunk.order[item];
    const double *const xi = list.x + 3 * static_cast<std::int64_t>(i);
    int begin = 0;
    for (int b = 0; b < model.nspecies; ++b) {
      const DevicePair<T> &pair = model.pairs[list.species[i] * model.nspecies + b];
      const int *const first = list.first + static_cast<std::int64_t>(i) * model.nspecies + b;
      const int ncandidates = pair.present ? first[1] - first[0] : 0;
      double sum[4] = {0.0, 0.0, 0.0, 0.0};
      int n = 0;
      for (int k0 = 0; k0 < ncandidates; k0 += team.lanes()) {
        const int k = k0 + team.lane();
        int j = -1;
        double d[3] = {0.0, 0.0, 0.0}, rsq = model.cutsq;
        if (k < ncandidates) {
          j = list.candidate[first[0] + k];
          const double *const xj = list.x + 3 * static_cast<std::int64_t>(j);
          for (int c = 0; c < 3; ++c) d[c] = xj[c] - xi[c];
          rsq = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
        }
        int found;
        const int before = team.rank(rsq < model.cutsq, found);
        if (rsq < model.cutsq)
          write(item * chunk.stride + begin + n + before, j, d, sqrt(rsq), pair.geometry, sum);
        n += found;
      }
      for (int c = 0; c < 4; ++c) sum[c] = team.sum(sum[c]);
      if (team.lane() == 0) {
        const std::int64_t at = item * model.nspecies + b;
        chunk.count[at] = n;
        for (int c = 0; c < 4; ++c)
          chunk.slots[4 * at + c] = sum[c] + model.max_neighbor * pair.geometry.shift[c];
        if (n > model.max_neighbor) team.raise(overflow, DeviceOverflow{i, b, n}.key());
      }
      begin += n;
    }
  }

 private:
  PWMLFF_HOST_DEVICE void write(std::int64_t e, int j, const double *d, double r,
                                const PairGeometry &pair, double *sum) const
  {
    const auto radial = radial_terms(r, pair);
    const double environment[4] = {radial.s * pair.scale[0], radial.q * d[0] * pair.scale[1],
                                   radial.q * d[1] * pair.scale[2],
                                   radial.q * d[2] * pair.scale[3]};
    for (int c = 0; c < 4; ++c) {
      sum[c] += environment[c];
      chunk.environment[4 * e + c] = static_cast<T>(environment[c] + pair.shift[c]);
    }
    chunk.neighbour[e] = j;
    if (!(r >= pair.lowest)) {
      chunk.row[e] = -1;
      chunk.place[e] = T(0);
      return;
    }
    const PairGeometry::Segment &segment = pair.segment[r >= pair.split];
    const double y = (r - segment.start) * segment.inv_spacing;
    const int interval = static_cast<int>(y < segment.last ? y : segment.last);
    chunk.place[e] = static_cast<T>(y - interval);
    chunk.row[e] = interval + static_cast<int>(segment.first);
  }
};

/* ---- edges to moments: a lane for each column of T ---- */

template <class T> struct EdgeMoments {
  static constexpr int lanes = 32;
  static constexpr const char *name = "EdgeMoments";
  using Tile = EdgeTile<T, 32>;
  DeviceModel<T> model;
  const int *species;    // [nrows]
  DeviceChunk<T> chunk;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const DevicePair<T> *const pairs = model.pairs + species[chunk.order[item]] * model.nspecies;
    double *const net = team.template scratch<double>();
    Tile &tile = *tile_of<Tile>(team, model.widest_embedding);
    for (int m0 = 0; m0 < model.padded; m0 += team.lanes()) {
      const int m = m0 + team.lane();
      const bool mine = m < model.padded;
      double total[4] = {0.0, 0.0, 0.0, 0.0};
      T sum[4] = {T(0), T(0), T(0), T(0)};
      std::int64_t begin = item * chunk.stride;
      for (int b = 0; b < model.nspecies; ++b) {
        const DevicePair<T> &pair = pairs[b];
        if (!pair.present) continue;
        const std::int64_t group = item * model.nspecies + b;
        const int count = chunk.count[group];
        for (int t = 0; t < count; t += Tile::size) {
          const int n = count - t < Tile::size ? count - t : Tile::size;
          if (tile.load(team, chunk, pair.geometry, begin + t, n)) {
            if (!mine) continue;
            const T *const table = in_memory(pair.table) + m;
            PWMLFF_UNROLL_BY_4
            for (int k = 0; k < n; ++k) add(tile, k, table_value(table, tile, k), sum);
            continue;
          }
          for (int k = 0; k < n; ++k) {
            T value = T(0);
            if (tile.row[k] < 0) {
              const NetValue exact =
                  evaluate_net(team, pair, tile.environment[k][0], model.widest_embedding, net);
              if (m < model.width) value = static_cast<T>(exact.value[m] - pair.beyond[m]);
            } else if (mine) {
              value = table_value(in_memory(pair.table) + m, tile, k);
            }
            add(tile, k, value, sum);
          }
        }
        if (mine)
          for (int c = 0; c < 4; ++c) total[c] += chunk.slots[4 * group + c] * pair.beyond[m];
        begin += count;
      }
      if (!mine) continue;
      for (int c = 0; c < 4; ++c)
        chunk.moments[(4 * item + c) * model.padded + m] = (total[c] + sum[c]) * model.scale;
    }
  }

 private:
  PWMLFF_HOST_DEVICE T table_value(const T *column, const Tile &tile, int k) const
  {
    const T *coef = column + tile.row[k] * std::int64_t(model.padded);
    T left = coef[0], value = left;
    for (int i = 0; i < 5; ++i) {
      coef += model.padded;
      const T right = *coef;
      value += tile.value_weight[k][i] * (right - left);
      left = right;
    }
    return value;
  }
  PWMLFF_HOST_DEVICE static void add(const Tile &tile, int k, T value, T *sum)
  {
    for (int c = 0; c < 4; ++c) sum[c] += tile.environment[k][c] * value;
  }
};

/* ---- moments to energies and back ---- */

/// G atoms are in the registers of a lane, `atoms` (a multiple of G) in the scratch of a team.
///
/// D = T^T T[:, :m2] is symmetric in its first m2 rows, so only elements (m, k) with k <= m enter,
/// element by element of k; the weights of (m, k) and (k, m) are added on the host.
///
/// Arrays in scratch are [.., step()]: values of the atoms of a block lie side by side, with a gap
/// that sends consecutive rows to different banks.
template <class T, int G> struct Fit {
  static constexpr int lanes = 256;
  static constexpr const char *name = "Fit";
  DeviceModel<T> model;
  DeviceChunk<T> chunk;
  const DeviceBlock *blocks;
  int atoms, widest, depth;    // widest hidden layer, and all of them together
  double *atom_energy;         // [ncentres]

  PWMLFF_HOST_DEVICE static int npairs(int width, int m2)
  {
    return m2 * (m2 + 1) / 2 + (width - m2) * m2;
  }
  /// Place of element (m, k), k <= m, of D.
  PWMLFF_HOST_DEVICE int place(int m, int k) const
  {
    return k * model.width - k * (k - 1) / 2 + m - k;
  }
  /// From one row in scratch to the next; even where two values are loaded at once.
  PWMLFF_HOST_DEVICE static int step(int atoms) { return atoms > 1 ? atoms + 2 : 1; }
  static std::size_t scratch_bytes(int atoms, int width, int m2, int depth, int widest)
  {
    return sizeof(double) * step(atoms) *
           (static_cast<std::size_t>(4) * width + npairs(width, m2) + depth + 2 * widest);
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const DeviceBlock block = blocks[item];
    const DeviceFitting &net = model.fittings[block.species];
    const int ld = step(atoms);
    double *const moments = team.template scratch<double>();      // [4, width, ld]
    double *const descriptor = moments + 4 * model.width * ld;    // [npairs, ld], then dE/dD
    double *const tanhs = descriptor + npairs(model.width, model.m2) * ld;    // [depth, ld]
    double *const dy = tanhs + depth * ld;                                    // [widest, ld]
    double *const dz = dy + widest * ld;                                      // [widest, ld]

    for (int w = team.lane(); w < 4 * model.width * atoms; w += team.lanes()) {
      const int m = w % model.width, c = w / model.width % 4, a = w / model.width / 4;
      const std::int64_t at = (4 * (std::int64_t(block.first) + a) + c) * model.padded + m;
      moments[(c * model.width + m) * ld + a] = a < block.count ? chunk.moments[at] : 0.0;
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
    for (int a = team.lane(); a < block.count; a += team.lanes()) {
      double energy = net.last_bias;
      for (int i = 0; i < net.nlast; ++i) energy += in_memory(net.last)[i] * x[i * ld + a];
      atom_energy[chunk.order[block.first + a]] = energy;
    }
    team.sync();

    double *const dlast = net.nlayers > 0 ? dy : descriptor;
    for (int w = team.lane(); w < net.nlast * atoms; w += team.lanes())
      dlast[w / atoms * ld + w % atoms] = in_memory(net.last)[w / atoms];
    team.sync();
    for (int l = net.nlayers - 1; l >= 0; --l) {
      const DeviceLayer &layer = net.layers[l];
      t -= layer.out * ld;
      for (int w = team.lane(); w < layer.out * atoms; w += team.lanes()) {
        const int o = w / atoms, at = o * ld + w % atoms;
        dz[at] = in_memory(layer.step)[o] * dy[at] * (1.0 - t[at] * t[at]);
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
        d[place(m, k) * ld + a] =
            axis[0] * p[0] + axis[q] * p[q] + axis[2 * q] * p[2 * q] + axis[3 * q] * p[3 * q];
      }
    }
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void forward(const Team &team, const DeviceLayer &layer, const double *x,
                                  double *t, double *y) const
  {
    const int ld = step(atoms);
    for (int w = team.lane(); w < layer.out * (atoms / G); w += team.lanes()) {
      const int o = w % layer.out, a = w / layer.out * G;
      double sum[G], xs[G];
      const double *const weights = in_memory(layer.weight) + o;
      for (int g = 0; g < G; ++g) sum[g] = in_memory(layer.bias)[o];
      for (int i = 0; i < layer.in; ++i) {
        const double weight = weights[i * layer.out];
        load_together<G>(x + i * ld + a, xs);
        for (int g = 0; g < G; ++g) sum[g] += weight * xs[g];
      }
      for (int g = 0; g < G; ++g) {
        const int at = o * ld + a + g;
        t[at] = tanh(sum[g]);
        y[at] = layer.residual ? x[at] + in_memory(layer.step)[o] * t[at] : t[at];
      }
    }
  }

  // dx may be dy: a lane reads only those of its elements that it writes.
  template <class Team>
  PWMLFF_HOST_DEVICE void backward(const Team &team, const DeviceLayer &layer, const double *dy,
                                   const double *dz, double *dx) const
  {
    const int ld = step(atoms);
    for (int w = team.lane(); w < layer.in * (atoms / G); w += team.lanes()) {
      const int i = w % layer.in, a = w / layer.in * G;
      const double *const weights = in_memory(layer.transposed) + i;
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
                                            const double *d, const DeviceBlock &block) const
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
          const double here = d[place(n, k) * ld + a];
          for (int c = 0; c < 4; ++c) sum[c] += here * moments[c * q + k * ld + a];
        }
      if (n < model.m2)    // the diagonal counts twice
        for (int m = n; m < model.width; ++m) {
          const double here = d[place(m, n) * ld + a];
          for (int c = 0; c < 4; ++c) sum[c] += here * moments[c * q + m * ld + a];
        }
      const std::int64_t at = 4 * (std::int64_t(block.first) + a) * model.padded + n;
      for (int c = 0; c < 4; ++c)
        chunk.moment_gradient[at + c * model.padded] = static_cast<T>(sum[c] * model.scale);
    }
  }
};

/* ---- back to the edges: a small team for each centre, columns shared by its lanes ---- */

template <class T> struct Differentiate {
  static constexpr int lanes = 8;
  static constexpr const char *name = "Differentiate";
  using Tile = EdgeTile<T, 8>;
  DeviceModel<T> model;
  const int *species;    // [nrows]
  DeviceChunk<T> chunk;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const DevicePair<T> *const pairs = model.pairs + species[chunk.order[item]] * model.nspecies;
    const T *const gradient = chunk.moment_gradient + 4 * item * model.padded;
    double *const net = team.template scratch<double>();
    Tile &tile = *tile_of<Tile>(team, model.widest_embedding);
    std::int64_t begin = item * chunk.stride;
    for (int b = 0; b < model.nspecies; ++b) {
      const DevicePair<T> &pair = pairs[b];
      const int count = chunk.count[item * model.nspecies + b];
      for (int t = 0; t < count; t += Tile::size) {
        const int n = count - t < Tile::size ? count - t : Tile::size;
        const bool in_table = tile.load(team, chunk, pair.geometry, begin + t, n);
        for (int k = 0; k < n; ++k) {
          T sum[5] = {T(0), T(0), T(0), T(0), T(0)};
          if (in_table || tile.row[k] >= 0) by_table(team, pair, gradient, tile, k, sum);
          else by_net(team, pair, gradient, tile.environment[k], net, sum);
          for (int c = 0; c < 5; ++c) sum[c] = team.sum(sum[c]);
          if (team.lane() == 0)
            for (int c = 0; c < 5; ++c) chunk.derivative[5 * (begin + t + k) + c] = sum[c];
        }
      }
      begin += count;
    }
  }

 private:
  // sum[0] += dE/dG . dG/dx, sum[1..4] += dE/dR~
  PWMLFF_HOST_DEVICE void add(const T *gradient, int m, T value, T slope, const T *environment,
                              T *sum) const
  {
    T by_g = T(0);
    for (int c = 0; c < 4; ++c) {
      const T g = gradient[c * model.padded + m];
      by_g += environment[c] * g;
      sum[c + 1] += g * value;
    }
    sum[0] += by_g * slope;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void by_table(const Team &team, const DevicePair<T> &pair, const T *gradient,
                                   const Tile &tile, int k, T *sum) const
  {
    const T *const first = in_memory(pair.table) + tile.row[k] * std::int64_t(model.padded);
    for (int m = team.lane(); m < model.padded; m += team.lanes()) {
      const T *coef = first + m;
      T left = coef[0], value = left, slope = T(0);
      for (int i = 0; i < 5; ++i) {
        coef += model.padded;
        const T right = *coef;
        value += tile.value_weight[k][i] * (right - left);
        slope += tile.slope_weight[k][i] * (right - left);
        left = right;
      }
      add(gradient, m, value, slope, tile.environment[k], sum);
    }
  }

  // The net's derivative is by R~_0: it goes where dE/dR~_0 goes.
  template <class Team>
  PWMLFF_HOST_DEVICE void by_net(const Team &team, const DevicePair<T> &pair, const T *gradient,
                                 const T *environment, double *net, T *sum) const
  {
    const NetValue exact = evaluate_net(team, pair, environment[0], model.widest_embedding, net);
    for (int m = team.lane(); m < model.width; m += team.lanes())
      add(gradient, m, static_cast<T>(exact.value[m] - pair.beyond[m]),
          static_cast<T>(exact.slope[m]), environment, sum);
    sum[1] += sum[0];
    sum[0] = T(0);
  }
};

/* ---- forces and virials: a lane for each edge ---- */

template <class T> struct Forces {
  static constexpr int lanes = 32;
  static constexpr const char *name = "Forces";
  DeviceModel<T> model;
  DeviceList list;
  DeviceChunk<T> chunk;
  double *force;              // [nrows, 3] added to
  double *virial;             // [ncentres, 9] by item
  double *atom_virial;        // [nrows, 6] added to, or null
  double *centroid_virial;    // [nrows, 9] added to, or null

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const int i = chunk.order[item];
    const double *const xi = list.x + 3 * static_cast<std::int64_t>(i);
    double own[3] = {0.0, 0.0, 0.0}, v[9] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    std::int64_t begin = item * chunk.stride;
    for (int b = 0; b < model.nspecies; ++b) {
      const DevicePair<T> &pair = model.pairs[list.species[i] * model.nspecies + b];
      const int count = chunk.count[item * model.nspecies + b];
      if (count == 0) continue;
      double common[4];    // dE/dR~ that all edges share, from the slots' part of the moments
      for (int c = 0; c < 4; ++c) {
        const T *const g = chunk.moment_gradient + (4 * item + c) * model.padded;
        double part = 0.0;
        for (int m = team.lane(); m < model.padded; m += team.lanes())
          part += g[m] * pair.beyond[m];
        common[c] = team.sum(part);
      }
      for (int k = team.lane(); k < count; k += team.lanes())
        edge(team, begin + k, i, xi, pair.geometry, common, own, v);
      begin += count;
    }
    for (int c = 0; c < 3; ++c) own[c] = team.sum(own[c]);
    for (int c = 0; c < 9; ++c) v[c] = team.sum(v[c]);
    if (team.lane() != 0) return;
    for (int c = 0; c < 3; ++c) team.add(force + 3 * static_cast<std::int64_t>(i) + c, own[c]);
    for (int c = 0; c < 9; ++c) virial[9 * (chunk.base + item) + c] = v[c];
  }

 private:
  template <class Team>
  PWMLFF_HOST_DEVICE void edge(const Team &team, std::int64_t e, int i, const double *xi,
                               const PairGeometry &pair, const double *common, double *own,
                               double *v) const
  {
    const std::int64_t j = chunk.neighbour[e];
    double d[3], a[4];
    for (int c = 0; c < 3; ++c) d[c] = list.x[3 * j + c] - xi[c];
    const auto radial = radial_terms(sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]), pair);
    for (int c = 0; c < 4; ++c)
      a[c] = (chunk.derivative[5 * e + 1 + c] + common[c]) * pair.scale[c];
    double f[3];    // on the neighbour
    edge_gradient(chunk.derivative[5 * e] + a[0] * radial.s1, a + 1, d, radial.inv_r, radial.q,
                  radial.qp, f);
    for (int c = 0; c < 3; ++c) {
      f[c] = -f[c];
      own[c] -= f[c];
      team.add(force + 3 * j + c, f[c]);
    }
    for (int c = 0; c < 9; ++c) v[c] += d[c / 3] * f[c % 3];
    spread_virial(team, d, f, i, j, atom_virial, centroid_virial);
  }
};

/* ---- sums over rows, always in the same order ---- */

struct SumRows {
  static constexpr int lanes = 256;
  static constexpr const char *name = "SumRows";
  std::int64_t nrows;
  int ncolumns, nteams;
  const double *values;    // [nrows, ncolumns]
  double *sums;            // [nteams, ncolumns]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    double *const partial = team.template scratch<double>();    // [lanes]
    for (int c = 0; c < ncolumns; ++c) {
      double sum = 0.0;
      for (std::int64_t r = item * team.lanes() + team.lane(); r < nrows;
           r += static_cast<std::int64_t>(nteams) * team.lanes())
        sum += values[r * ncolumns + c];
      team.sync();
      partial[team.lane()] = sum;
      for (int half = team.lanes() / 2; half > 0; half /= 2) {
        team.sync();
        if (team.lane() < half) partial[team.lane()] += partial[team.lane() + half];
      }
      if (team.lane() == 0) sums[item * ncolumns + c] = partial[0];
    }
  }
};

}    // namespace pwmlff

#endif
