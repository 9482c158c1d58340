// SPDX-License-Identifier: GPL-2.0-or-later

// Candidates to edges within the cutoff, a lane for each candidate, and the radial functions of
// those that have no table.

#pragma once

#include "../../../core/team.h"
#include "../radial_formulas.h"
#include "types.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// Edges are in the order of shells of distance, so that teams that run at the same time read the
/// same part of tables.
template <class T> struct MaceFindEdges {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MaceFindEdges";
  static constexpr int SHELLS = 8;    // of one volume
  MaceGpuModel<T> model;
  const MaceTable<T> *tables;    // of the first layer, or null: no edge has a table
  GpuList list;
  MaceGpuChunk<T> chunk;
  std::int64_t *most_short;    // raised to the number of short edges

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t i = chunk.order[item];
    const int begin = list.first[i * model.nspecies], end = list.first[(i + 1) * model.nspecies];
    int next[SHELLS] = {};    // edges of each, then the place of its next one
    for (int k = begin; k < end; k += team.lanes()) {
      const Candidate candidate = this->candidate(i, k + team.lane(), end);
      PWMLFF_UNROLL_ALL
      for (int s = 0; s < SHELLS; ++s) {
        int found;
        team.count_below(candidate.shell == s, found);
        next[s] += found;
      }
    }
    int count = 0;
    PWMLFF_UNROLL_ALL
    for (int s = 0; s < SHELLS; ++s) {
      const int n = next[s];
      next[s] = count;
      count += n;
    }
    for (int k = begin; k < end; k += team.lanes()) {
      const Candidate candidate = this->candidate(i, k + team.lane(), end);
      int place = 0;
      PWMLFF_UNROLL_ALL
      for (int s = 0; s < SHELLS; ++s) {
        int found;
        const int before = team.count_below(candidate.shell == s, found);
        if (candidate.shell == s) place = next[s] + before;
        next[s] += found;
      }
      if (candidate.shell >= 0) write(team, i, candidate, item * chunk.stride + place);
    }
    if (team.lane() == 0) chunk.count[item] = count;
  }

 private:
  struct Candidate {
    int row, shell;    // shell -1: beyond the cutoff
    double d[3], r;
  };

  PWMLFF_FORMULA Candidate candidate(std::int64_t i, int k, int end) const
  {
    Candidate result{-1, -1, {0.0, 0.0, 0.0}, 0.0};
    if (k >= end) return result;
    result.row = list.candidate[k];
    double squared = 0.0;
    for (int c = 0; c < 3; ++c) {
      result.d[c] = list.x[3 * static_cast<std::int64_t>(result.row) + c] - list.x[3 * i + c];
      squared += result.d[c] * result.d[c];
    }
    if (!(squared < model.cutoff * model.cutoff)) return result;
    result.r = sqrt(squared);
    const double share = result.r / model.cutoff;
    const int shell = static_cast<int>(SHELLS * share * share * share);
    result.shell = shell < SHELLS ? shell : SHELLS - 1;
    return result;
  }

  template <class Team>
  PWMLFF_FORMULA void write(const Team &team, std::int64_t i, const Candidate &candidate,
                            std::int64_t e) const
  {
    const T edge[4] = {static_cast<T>(candidate.d[0]), static_cast<T>(candidate.d[1]),
                       static_cast<T>(candidate.d[2]), static_cast<T>(candidate.r)};
    store_together<4>(edge, chunk.edge + 4 * e);
    chunk.neighbor[e] = candidate.row;
    const int a = list.species[i], b = list.species[candidate.row];
    if (tables && !(candidate.r < tables[model.pair_of(a, b)].lowest)) return;
    const std::int64_t n = team.add(chunk.nshort, std::int64_t{1});
    team.raise(most_short, n + 1);
    if (n >= chunk.most_short) return;    // all is evaluated again with more room
    chunk.short_edge[n] = {candidate.row, a, b, candidate.r};
    chunk.neighbor[e] = static_cast<int>(~n);
  }
};

/// Formulas in ../network.h; an item takes every nitems-th short edge.
template <class T> struct MaceShortEdges {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MaceShortEdges";
  MaceGpuModel<T> model;
  MaceGpuLayer<T> layer;
  MaceGpuChunk<T> chunk;
  std::int64_t nitems;

  static std::size_t scratch_bytes(const MaceGpuLayer<T> &layer)
  {
    return 4 * sizeof(double) * layer.widest;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t all = *chunk.nshort, end = all < chunk.most_short ? all : chunk.most_short;
    for (std::int64_t n = item; n < end; n += nitems)
      evaluate(team, chunk.short_edge[n], chunk.short_radial + 2 * n * layer.columns);
  }

 private:
  template <class Team>
  PWMLFF_FORMULA void evaluate(const Team &team, const MaceGpuShort &edge, T *value) const
  {
    double *x = team.template scratch<double>(), *dx = x + layer.widest;
    double *y = dx + layer.widest, *dy = y + layer.widest;
    T *const slope = value + layer.columns;
    double df = 0.0;
    const double f = polynomial_cutoff(model.power, edge.r / model.cutoff, df);
    df /= model.cutoff;
    double t = edge.r, dt = 1.0;
    if (model.has_agnesi)
      t = agnesi_transform(model.agnesi, edge.r, 0.5 * (model.radii[edge.a] + model.radii[edge.b]),
                           dt);
    const double inner = model.cutoff_first ? f : 1.0, dinner = model.cutoff_first ? df : 0.0;
    const double outer = model.cutoff_first ? 1.0 : f, douter = model.cutoff_first ? 0.0 : df;
    for (int n = team.lane(); n < model.nbasis; n += team.lanes()) {
      double db = 0.0;
      const double b = radial_function(model.is_bessel, model.factor, model.frequency[n], t, db);
      x[n] = b * inner;
      dx[n] = db * dt * inner + b * dinner;
    }
    for (int k = team.lane(); k < layer.columns; k += team.lanes()) value[k] = slope[k] = T(0);
    team.sync();
    if (layer.density && team.lane() == 0) {
      double z = 0.0, dz = 0.0;
      for (int n = 0; n < model.nbasis; ++n) {
        z += layer.density_weights[n] * x[n];
        dz += layer.density_weights[n] * dx[n];
      }
      const double rho = tanh(z * z), drho = (1.0 - rho * rho) * 2.0 * z * dz;
      value[layer.npaths * model.row] = static_cast<T>(rho * outer);
      slope[layer.npaths * model.row] = static_cast<T>(drho * outer + rho * douter);
    }
    int rows = model.nbasis;
    for (int n = 0; n + 1 < layer.nlayers; ++n) {
      const int columns = layer.columns_of[n];
      for (int k = team.lane(); k < columns; k += team.lanes()) {
        double sum = 0.0, dsum = 0.0, rate = 0.0;
        multiply(layer.weights[n] + k, columns, rows, x, dx, sum, dsum);
        y[k] = silu(sum, rate);
        dy[k] = rate * dsum;
      }
      team.sync();
      double *const spare = x, *const dspare = dx;
      x = y;
      dx = dy;
      y = spare;
      dy = dspare;
      rows = columns;
    }
    const int columns = layer.npaths * model.channels;
    for (int k = team.lane(); k < columns; k += team.lanes()) {
      double sum = 0.0, dsum = 0.0;
      multiply(layer.weights[layer.nlayers - 1] + k, columns, rows, x, dx, sum, dsum);
      const int at = k / model.channels * model.row + k % model.channels;
      value[at] = static_cast<T>(sum * outer);
      slope[at] = static_cast<T>(dsum * outer + sum * douter);
    }
    team.sync();    // before x is overwritten
  }

  PWMLFF_FORMULA static void multiply(const double *weight, int columns, int rows, const double *x,
                                      const double *dx, double &sum, double &dsum)
  {
    for (int i = 0; i < rows; ++i) {
      const double w = weight[static_cast<std::int64_t>(i) * columns];
      sum += w * x[i];
      dsum += w * dx[i];
    }
  }
};

}    // namespace pwmlff
