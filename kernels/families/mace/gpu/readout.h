// SPDX-License-Identifier: GPL-2.0-or-later

// Features of degree 0 to energies and back, and rows that stand for a center of the same rank.

#pragma once

#include "../../../core/team.h"
#include "../radial_formulas.h"
#include "types.h"

#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// An item is a center. Sums are in float64.
template <class T> struct MaceReadout {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MaceReadout";
  MaceGpuModel<T> model;
  MaceGpuLayer<T> layer;
  GpuList list;
  const int *order;
  const T *features;      // [items, components that leave, row]
  T *by_features;         // likewise, dE/dh written, maybe in their place; or null
  double *atom_energy;    // [ncenters] added to; or null
  bool first_layer;       // energies of the species are added, too

  static std::size_t scratch_bytes(const MaceGpuLayer<T> &layer)
  {
    return sizeof(double) * layer.nhidden;
  }

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t size = static_cast<std::int64_t>(layer.components(layer.out)) * model.row;
    const T *const h = features + item * size;
    double *const z = team.template scratch<double>();
    double energy = 0.0;
    if (layer.readout && atom_energy)
      for (int k = team.lane(); k < model.channels; k += team.lanes())
        energy += static_cast<double>(h[k]) * layer.readout[k];
    for (int n = team.lane(); n < layer.nhidden; n += team.lanes()) {
      double sum = 0.0, slope = 0.0;
      for (int k = 0; k < model.channels; ++k)
        sum += static_cast<double>(h[k]) *
               layer.readout_first[static_cast<std::int64_t>(k) * layer.nhidden + n];
      energy += layer.readout_last[n] * silu(sum, slope);
      z[n] = model.scale * layer.readout_last[n] * slope;
    }
    energy = team.sum(energy);
    if (atom_energy && team.lane() == 0) {
      const std::int64_t i = order[item];
      atom_energy[i] += model.scale * energy + (first_layer ? model.energy[list.species[i]] : 0.0);
    }
    if (!by_features) return;
    team.sync();
    T *const gradient = by_features + item * size;
    for (std::int64_t k = team.lane(); k < size; k += team.lanes()) {
      double sum = 0.0;
      if (k < model.channels) {
        if (layer.readout) sum = model.scale * layer.readout[k];
        for (int n = 0; n < layer.nhidden; ++n)
          sum += layer.readout_first[k * layer.nhidden + n] * z[n];
      }
      gradient[k] = static_cast<T>(sum);
    }
  }
};

/// Set rows that stand for a center of this rank to what that has. An item is such a row.
template <class T> struct MaceCopyRows {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MaceCopyRows";
  const int *origin;    // [items] or -1
  std::int64_t first, width;
  T *rows;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    if (origin[item] < 0) return;    // a row of nobody
    for (std::int64_t k = team.lane(); k < width; k += team.lanes())
      rows[(first + item) * width + k] = rows[origin[item] * width + k];
  }
};

/// Add what they have to that of their centers.
template <class T> struct MaceAddRows {
  static constexpr int lanes = 32;
  static constexpr const char *name = "MaceAddRows";
  const int *origin;
  std::int64_t first, width;
  T *rows;

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    if (origin[item] < 0) return;
    for (std::int64_t k = team.lane(); k < width; k += team.lanes())
      team.add(rows + origin[item] * width + k, rows[(first + item) * width + k]);
  }
};

}    // namespace pwmlff
