// SPDX-License-Identifier: GPL-2.0-or-later

// Edges to moments, descriptors and the energy of the network, and back to the slopes by radial
// descriptors and moments. A lane has an edge, then a place (l, m), then a descriptor, then a
// neuron. With charges the way back is a kernel of its own, as potentials come in between: the
// charges of all atoms make them.

#pragma once

#include "formulas.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// What a kernel does: all of it; the way to energies and charges; the way back, of the energy with
/// potentials, or of the charge alone.
enum class NepWay { all, forth, back, back_of_charge };

template <class T, NepWay way = NepWay::all> struct NepEnergies {
  static constexpr int lanes = 32;
  static constexpr int resident = sizeof(T) == 8 ? 512 : 640;
  static constexpr bool is_forth = way == NepWay::all || way == NepWay::forth;
  static constexpr bool is_back = way != NepWay::forth;
  static constexpr const char *name = way == NepWay::all     ? "NepEnergies"
                                      : way == NepWay::forth ? "NepCharges"
                                      : way == NepWay::back  ? "NepSlopes"
                                                             : "NepChargeSlopes";
  NepGpuModel<T> model;
  GpuList list;
  NepGpuChunk<T> chunk;
  double temperature;          // K
  double *atom_energy;         // [ncenters] set, or the Coulomb energy is added on the way back
  NepGpuCharges<T> charges;    // unless the way is all

  static std::size_t scratch_bytes(const NepGpuModel<T> &model)
  {
    const std::size_t moments = static_cast<std::size_t>(model.places) * model.row();
    return sizeof(T) * (moments + lanes * (function_step(model) + step(model)) +
                        2 * (model.ndescriptors + model.nhidden));
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const int i = chunk.order[item], species = list.species[i];
    T *const moments = team.template scratch<T>();                // [places, row]
    T *const functions = moments + model.places * model.row();    // [lanes, step] a tile of g_n
    T *const q = functions + lanes * (function_step(model) + step(model));    // [ndescriptors]
    T *const by_q = q + model.ndescriptors;                                   // [ndescriptors]
    T *const hidden = by_q + model.ndescriptors;                              // [nhidden]
    T *const back = hidden + model.nhidden;    // [nhidden] slopes by these

    const NepGpuNetwork<T> &network = model.networks[species];
    if constexpr (is_forth) {
      add_radial(team, item, species, q);
      add_moments(team, item, species, moments, functions);
      team.sync();
      describe(team, moments, q);
      team.sync();
      const T energy = run_network(team, network, q, hidden);
      if (team.lane() == 0) atom_energy[i] = network.shift + static_cast<double>(energy);
    }
    if constexpr (way == NepWay::forth) {
      T charge = T(0);
      for (int h = team.lane(); h < model.nhidden; h += team.lanes())
        charge += network.last_charge[h] * hidden[h];
      charge = team.sum(charge);
      if (team.lane() == 0 && charges.charge) charges.charge[i] = static_cast<double>(charge);
      copy_kept(team, item, [](T *kept, T *value) { *kept = *value; }, moments, hidden);
    } else if constexpr (way != NepWay::all) {
      copy_kept(team, item, [](T *kept, T *value) { *value = *kept; }, moments, hidden);
      team.sync();
      if (way == NepWay::back && team.lane() == 0)
        atom_energy[i] += 0.5 * charges.charge[i] * charges.potential[i];
    }
    if constexpr (is_back) {
      pull_back_network(team, network, i, hidden, back, by_q);
      pull_back(team, item, i, moments, by_q);
    }
  }

 private:
  /// Numbers from the harmonics of an edge to those of the next: odd, for the banks of scratch.
  PWMLFF_HOST_DEVICE static int step(const NepGpuModel<T> &model) { return model.places | 1; }

  /// Likewise of its functions: a whole number of 128 bits, other than a power of two.
  PWMLFF_HOST_DEVICE static int function_step(const NepGpuModel<T> &model)
  {
    return model.row() + static_cast<int>(16 / sizeof(T));
  }

  /// q of the radial part.
  template <class Team>
  PWMLFF_HOST_DEVICE void add_radial(const Team &team, std::int64_t item, int species, T *q) const
  {
    const int near = chunk.count[2 * item], count = near + chunk.count[2 * item + 1];
    const NepGpuPair<T> *const pairs = model.pairs + species * model.nspecies;
    for (int group = 0; group < model.radial_groups; ++group) {
      T sum[NEP_GROUP] = {};
      for (int k = team.lane(); k < count; k += team.lanes()) {
        const std::int64_t e = chunk.index(item, k, near);
        const NepGpuSeries<T> &series = pairs[chunk.kind[e]].radial;
        const NepFunctions<T> g(series, group, model.kradial,
                                NepCutoff<T>(chunk.edge[4 * e + 3], series.per_cutoff));
        for (int n = 0; n < NEP_GROUP; ++n) sum[n] += g.value[n];
      }
      for (int n = 0; n < NEP_GROUP; ++n) {
        const T total = team.sum(sum[n]);
        if (team.lane() == 0 && group * NEP_GROUP + n < model.nradial)
          q[group * NEP_GROUP + n] = total;
      }
    }
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void add_moments(const Team &team, std::int64_t item, int species, T *moments,
                                      T *functions) const
  {
    const int row = model.row(), wide = function_step(model), gap = step(model);
    T *const harmonics = functions + lanes * wide;
    for (int k = team.lane(); k < model.places * row; k += team.lanes()) moments[k] = T(0);
    if (model.degree == 0) return;
    const int near = chunk.count[2 * item];
    for (int first = 0; first < near; first += team.lanes()) {
      const int count = near - first < team.lanes() ? near - first : team.lanes();
      if (team.lane() < count)
        write_edge(item * chunk.stride + first + team.lane(), species,
                   functions + team.lane() * wide, harmonics + team.lane() * gap);
      team.sync();
      for (int place = team.lane(); place < model.places; place += team.lanes())
        for (int n0 = 0; n0 < row; n0 += NEP_GROUP) {
          T *const moment = moments + place * row + n0;
          T sum[NEP_GROUP];
          load_together<NEP_GROUP>(moment, sum);
          for (int e = 0; e < count; ++e) {
            T g[NEP_GROUP];
            load_together<NEP_GROUP>(functions + e * wide + n0, g);
            for (int n = 0; n < NEP_GROUP; ++n) sum[n] += g[n] * harmonics[e * gap + place];
          }
          store_together<NEP_GROUP>(sum, moment);
        }
      team.sync();
    }
  }

  PWMLFF_HOST_DEVICE void write_edge(std::int64_t e, int species, T *functions, T *harmonics) const
  {
    T edge[4];
    load_together<4>(chunk.edge + 4 * e, edge);
    const NepGpuSeries<T> &series = model.pairs[species * model.nspecies + chunk.kind[e]].angular;
    const NepCutoff<T> cutoff(edge[3], series.per_cutoff);
    for (int group = 0; group < model.angular_groups; ++group) {
      const NepFunctions<T> g(series, group, model.kangular, cutoff);
      store_together<NEP_GROUP>(g.value, functions + group * NEP_GROUP);
    }
    T u[3];
    for (int c = 0; c < 3; ++c) u[c] = edge[c] / edge[3];
    harmonics_by_place(model.sphere, model.degree, u,
                       [&](int place, T value) { harmonics[place] = value; });
  }

  /// Sum of squares of a function's moments of one degree.
  PWMLFF_HOST_DEVICE T square(const T *moments, int n, int l) const
  {
    T sum = T(0);
    for (int place = l * l - 1; place < l * (l + 2); ++place) {
      const T a = moments[place * model.row() + n];
      sum += a * a;
    }
    return sum;
  }

  /// Descriptors behind the radial ones.
  template <class Team>
  PWMLFF_HOST_DEVICE void describe(const Team &team, const T *moments, T *q) const
  {
    const int count = (model.l_max + model.ninvariants) * model.nangular, row = model.row();
    for (int d = team.lane(); d < count; d += team.lanes()) {
      const int block = d / model.nangular, n = d % model.nangular;
      T value = T(0);
      if (block < model.l_max) {
        value = square(moments, n, block + 1);
      } else {
        const NepGpuInvariant invariant = model.invariants[block - model.l_max];
        if (invariant.squared) {
          const T s = square(moments, n, 1);
          value = T(7.0 / 15.0) * s * s;
        }
        for (int k = invariant.first; k < invariant.last; ++k) {
          const NepGpuProduct<T> &p = model.products[k];
          value +=
              p.factor * moments[p.i * row + n] * moments[p.j * row + n] * moments[p.k * row + n];
        }
      }
      q[model.nradial + d] = value;
    }
    if (model.temperature && team.lane() == 0)
      q[model.ndescriptors - 1] = static_cast<T>(temperature);
  }

  /// Copy between what stays of an item from kernel to kernel and scratch.
  template <class Team, class Copy>
  PWMLFF_HOST_DEVICE void copy_kept(const Team &team, std::int64_t item, const Copy &copy,
                                    T *moments, T *hidden) const
  {
    const int nmoments = model.places * model.row();
    T *const kept = charges.kept + item * (nmoments + model.nhidden);
    for (int k = team.lane(); k < nmoments; k += team.lanes()) copy(kept + k, moments + k);
    for (int h = team.lane(); h < model.nhidden; h += team.lanes())
      copy(kept + nmoments + h, hidden + h);
  }

  /// @return the energy without shift, on all lanes
  template <class Team>
  PWMLFF_HOST_DEVICE T run_network(const Team &team, const NepGpuNetwork<T> &network, const T *q,
                                   T *hidden) const
  {
    const T *in = q;
    T *out = hidden;
    T part = T(0);
    for (int l = 0; l < network.nlayers; ++l) {
      // One or two of them. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
      const auto &layer = network.layer[l];
      const T *const weight = global_pointer(layer.transposed);
      for (int h = team.lane(); h < layer.out; h += team.lanes()) {
        T z = layer.bias[h];
        for (int d = 0; d < layer.in; ++d) z += weight[d * layer.out + h] * in[d];
        out[h] = std::tanh(z);
        if (l + 1 == network.nlayers) part += network.last[h] * out[h];
      }
      team.sync();
      in = out;
      out += layer.out;
    }
    return team.sum(part);
  }

  /// Leaves dE/dq: of the energy, of it with charges at their potentials, or of the charge.
  template <class Team>
  PWMLFF_HOST_DEVICE void pull_back_network(const Team &team, const NepGpuNetwork<T> &network,
                                            int i, const T *hidden, T *back, T *by_q) const
  {
    const int top = network.nlayers - 1;
    const T *const last_hidden = hidden + (top > 0 ? network.layer[0].out : 0);
    T *const slope_of_top = back + (last_hidden - hidden);    // by what goes into tanh
    for (int h = team.lane(); h < network.layer[top].out; h += team.lanes())
      slope_of_top[h] = last(network, i, h) * (T(1) - last_hidden[h] * last_hidden[h]);
    team.sync();
    const T *slope = slope_of_top;
    for (int l = top; l >= 0; --l) {
      // Likewise. NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
      const auto &layer = network.layer[l];
      const T *const weight = global_pointer(layer.weight);
      T *const to = l > 0 ? back : by_q;
      for (int d = team.lane(); d < layer.in; d += team.lanes()) {
        T sum = T(0);
        for (int h = 0; h < layer.out; ++h) sum += weight[h * layer.in + d] * slope[h];
        to[d] = l > 0 ? sum * (T(1) - hidden[d] * hidden[d]) : sum;
      }
      team.sync();
      slope = back;
    }
  }

  /// The weight of a neuron of the last layer.
  PWMLFF_HOST_DEVICE T last(const NepGpuNetwork<T> &network, int i, int h) const
  {
    if constexpr (way == NepWay::all) return network.last[h];
    if constexpr (way == NepWay::back_of_charge) return network.last_charge[h];
    return network.last[h] +
           static_cast<T>(charges.potential[i] - charges.mean) * network.last_charge[h];
  }

  /// From slopes by descriptors to those by moments.
  template <class Team>
  PWMLFF_HOST_DEVICE void pull_back(const Team &team, std::int64_t item, int i, const T *moments,
                                    const T *by_q) const
  {
    const int row = model.row(), radial = model.radial_size();
    T *const slope = chunk.slope + item * model.slopes();
    for (int n = team.lane(); n < radial; n += team.lanes()) {
      slope[n] = n < model.nradial ? by_q[n] : T(0);
      if (chunk.radial) chunk.radial[static_cast<std::int64_t>(i) * radial + n] = slope[n];
    }
    const T *const angular = by_q + model.nradial;
    const T *const behind = angular + model.l_max * model.nangular;
    for (int k = team.lane(); k < model.places * row; k += team.lanes()) {
      const int place = k / row, n = k % row;
      T sum = T(0);
      if (n < model.nangular) {
        int l = 1;
        while (l * (l + 2) <= place) ++l;
        if (l <= model.l_max) sum = T(2) * angular[(l - 1) * model.nangular + n] * moments[k];
        if (l == 1 && model.squared >= 0)
          sum += T(28.0 / 15.0) * behind[model.squared * model.nangular + n] *
                 square(moments, n, 1) * moments[k];
        for (int t = model.first_derivative[place]; t < model.first_derivative[place + 1]; ++t) {
          const NepGpuProduct<T> &p = model.derivatives[t];
          sum += p.factor * behind[p.block * model.nangular + n] * moments[p.i * row + n] *
                 moments[p.j * row + n];
        }
      }
      slope[radial + k] = sum;
    }
  }
};

}    // namespace pwmlff
