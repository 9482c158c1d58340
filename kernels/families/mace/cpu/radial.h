// SPDX-License-Identifier: GPL-2.0-or-later

// The functions of the distance of a MACE layer (formulas in ../network.h): as they stand, and as
// uniform quintic B-splines of the distance,
//
//   y = (r - start)/spacing, i = floor(y), R(r) = sum over k = 0..5 of B_k(y - i) coef[i + k],
//
// with coefficients from values at nearby nodes alone (de Boor, A Practical Guide to Splines, 2001,
// chapter XII; error ~ spacing^6). Beyond the cutoff the nodes have the analytic continuation of
// the polynomial cutoff, so nothing jumps inside.

#pragma once

#include "../../../core/cpu/simd.h"
#include "../../../math/spline_terms.h"
#include "../plan.h"
#include "../radial_formulas.h"
#include "mace_tables.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA::mace {

/// Functions of a layer, and their derivatives by r: R_p,k at p*stride + k, and rho at paths*stride
/// where there is a density.
class RadialFunctions {
 public:
  /// @param weights  [layers of the net] those of layer.radial
  /// @param stride   at least K
  /// @param columns  of value and slope; those beyond what is evaluated are zero
  RadialFunctions(const MaceNetwork &network, const MaceLayer &layer,
                  const std::vector<Buffer<double>> &weights, int stride, int columns) :
      value(columns),
      slope(columns),
      network(network),
      layer(layer),
      weights(weights),
      stride(stride),
      nbasis(static_cast<int>(network.frequency.size()))
  {
    widest = nbasis;
    for (std::size_t n = 0; n < layer.radial.size(); ++n)
      if (layer.radial[n].columns > widest) widest = layer.radial[n].columns;
    const auto room = static_cast<std::size_t>(widest);
    for (Buffer<double> *buffer : {&x, &dx, &y, &dy}) buffer->reserve(room);
    value.fill(0.0);
    slope.fill(0.0);
  }

  /// @param radius  half of the sum of the covalent radii, for the transform
  void evaluate(double r, double radius)
  {
    double df = 0.0;
    const double f = polynomial_cutoff(network.power, r / network.cutoff, df);
    df /= network.cutoff;
    double t = r, dt = 1.0;
    if (!network.agnesi.empty()) t = agnesi_transform(network.agnesi.data(), r, radius, dt);
    const double inner = network.cutoff_first ? f : 1.0, dinner = network.cutoff_first ? df : 0.0;
    const double outer = network.cutoff_first ? 1.0 : f, douter = network.cutoff_first ? 0.0 : df;
    for (int n = 0; n < nbasis; ++n) {
      double db = 0.0;
      const double b = radial_function(network.basis == MaceBasis::bessel, network.factor,
                                       network.frequency[n], t, db);
      db *= dt;
      x[n] = b * inner;
      dx[n] = db * inner + b * dinner;
    }
    if (!layer.density.empty()) {
      double z = 0.0, dz = 0.0;
      for (int n = 0; n < nbasis; ++n) {
        z += layer.density[n] * x[n];
        dz += layer.density[n] * dx[n];
      }
      const double rho = __builtin_tanh(z * z), drho = (1.0 - rho * rho) * 2.0 * z * dz;
      const int place = static_cast<int>(layer.paths.size()) * stride;
      value[place] = rho * outer;
      slope[place] = drho * outer + rho * douter;
    }
    const auto nlayers = static_cast<int>(layer.radial.size());
    const auto nchannels = network.channels;
    for (int n = 0; n < nlayers; ++n) {
      product(n);
      if (n + 1 < nlayers) {
        for (int k = 0; k < layer.radial[n].columns; ++k) {
          double slope_of_silu = 0.0;
          x[k] = silu(y[k], slope_of_silu);
          dx[k] = slope_of_silu * dy[k];
        }
        continue;
      }
      for (int path = 0; path < static_cast<int>(layer.paths.size()); ++path)
        for (int k = 0; k < nchannels; ++k) {
          const double v = y[path * nchannels + k], dv = dy[path * nchannels + k];
          value[path * stride + k] = v * outer;
          slope[path * stride + k] = dv * outer + v * douter;
        }
    }
  }

  /// Those of the last distance, derivatives unless `to_slope` is null.
  template <class T> void copy(T *to_value, T *to_slope) const
  {
    for (std::size_t k = 0; k < value.size(); ++k) to_value[k] = static_cast<T>(value[k]);
    for (std::size_t k = 0; to_slope && k < slope.size(); ++k)
      to_slope[k] = static_cast<T>(slope[k]);
  }

  Buffer<double> value, slope;    // [columns] of the last distance

 private:
  void product(int n)
  {
    const int columns = layer.radial[n].columns, rows = layer.radial[n].rows;
    double *const out = y.get(), *const dout = dy.get();
    for (int k = 0; k < columns; ++k) out[k] = dout[k] = 0.0;
    for (int i = 0; i < rows; ++i) {
      const double a = x[i], da = dx[i];
      const double *const w = weights[n].get() + static_cast<std::size_t>(i) * columns;
#pragma GCC ivdep
      for (int k = 0; k < columns; ++k) {
        out[k] += a * w[k];
        dout[k] += da * w[k];
      }
    }
  }

  const MaceNetwork &network;
  const MaceLayer &layer;
  const std::vector<Buffer<double>> &weights;
  int stride, nbasis, widest;
  Buffer<double> x, dx, y, dy;
};

/// How far a table may be off, as a share of the largest value and slope.
struct RadialTolerance {
  double value, slope;
};

template <class T> class RadialTable {
 public:
  /// @param columns  a multiple of the lanes; those beyond what the functions fill are zero
  RadialTable(RadialFunctions &functions, double radius, double cutoff, int columns,
              const RadialTolerance &tolerance) :
      columns(columns), radius(radius)
  {
    constexpr double nearest = 1.0 / 16.0;    // of the cutoff
    lowest = nearest * cutoff;
    for (int intervals = first_intervals;; intervals += intervals / 2) {
      fit(functions, cutoff, intervals);
      if (2 * intervals > most_intervals || holds(functions, tolerance)) break;
    }
  }

  /// Values of all columns, and derivatives unless `slope` is null.
  void evaluate(RadialFunctions &functions, double r, T *value, T *slope) const
  {
    if (r < lowest) {
      functions.evaluate(r, radius);
      functions.copy(value, slope);
      return;
    }
    const double y = (r - start) * per_spacing;
    int i = static_cast<int>(y);
    if (i > intervals - 1) i = intervals - 1;
    double weight[5], slope_weight[5];
    spline_weights<double>(y - i, per_spacing, weight, slope_weight);
    Vec<T> w[5], s[5];
    for (int k = 0; k < 5; ++k) {
      w[k] = broadcast<T>(static_cast<T>(weight[k]));
      s[k] = broadcast<T>(static_cast<T>(slope_weight[k]));
    }
    const T *const row = coef.get() + static_cast<std::size_t>(i) * columns;
    for (int k = 0; k < columns; k += lanes<T>) {
      Vec<T> left = load(row + k), sum = left, rate{};
      for (int n = 0; n < 5; ++n) {
        const Vec<T> right = load(row + static_cast<std::size_t>(n + 1) * columns + k);
        const Vec<T> difference = right - left;
        left = right;
        sum += w[n] * difference;
        rate += s[n] * difference;
      }
      store(value + k, sum);
      if (slope) store(slope + k, rate);
    }
  }

  std::size_t bytes() const { return coef.size() * sizeof(T); }

  MaceTable<T> view() const { return {coef.get(), intervals, lowest, start, per_spacing}; }

 private:
  static constexpr int first_intervals = 96, most_intervals = 1 << 14;

  // Nodes -4 .. intervals+4 give the coefficients of nodes -2 .. intervals+2. There are so many
  // intervals that all of them are at distances above zero.
  void fit(RadialFunctions &functions, double cutoff, int intervals_)
  {
    intervals = intervals_;
    start = lowest;
    const double spacing = (cutoff - start) / intervals;
    per_spacing = 1.0 / spacing;
    const int nodes = intervals + 9;
    Buffer<double> at_nodes(static_cast<std::size_t>(nodes) * columns);
    largest_value = largest_slope = 0.0;
    for (int i = 0; i < nodes; ++i) {
      functions.evaluate(start + (i - 4) * spacing, radius);
      for (int k = 0; k < columns; ++k) {
        const double value = functions.value[k], slope = functions.slope[k];
        at_nodes[static_cast<std::size_t>(i) * columns + k] = value;
        if (__builtin_fabs(value) > largest_value) largest_value = __builtin_fabs(value);
        if (__builtin_fabs(slope) > largest_slope) largest_slope = __builtin_fabs(slope);
      }
    }
    // 1 - d^2/4 + 13 d^4/240 with central differences d: the inverse, up to order 6, of the average
    // (1, 26, 66, 26, 1)/120 that a quintic spline takes at its nodes.
    constexpr double c2 = 13.0 / 240.0, c1 = -1.0 / 4.0 - 4.0 * c2, c0 = 1.0 + 2.0 / 4.0 + 6.0 * c2;
    coef.reserve(static_cast<std::size_t>(intervals + 5) * columns);
    for (int i = 0; i < intervals + 5; ++i)
      for (int k = 0; k < columns; ++k) {
        const double *const f = &at_nodes[static_cast<std::size_t>(i + 2) * columns + k];
        coef[static_cast<std::size_t>(i) * columns + k] = static_cast<T>(
            c0 * f[0] + c1 * (f[-columns] + f[columns]) + c2 * (f[-2 * columns] + f[2 * columns]));
      }
  }

  bool holds(RadialFunctions &functions, const RadialTolerance &tolerance) const
  {
    Buffer<T> found(columns), rate(columns);
    for (int i = 0; i < intervals; ++i) {
      // All of the first ones, where functions change most, and then every other.
      if (i > intervals / 8 && i % 2) continue;
      const double r = start + (i + (i % 4 ? 0.5 : 0.2)) / per_spacing;
      functions.evaluate(r, radius);
      evaluate(functions, r, found.get(), rate.get());
      for (int k = 0; k < columns; ++k)
        if (__builtin_fabs(static_cast<double>(found[k]) - functions.value[k]) >
                tolerance.value * largest_value ||
            __builtin_fabs(static_cast<double>(rate[k]) - functions.slope[k]) >
                tolerance.slope * largest_slope)
          return false;
    }
    return true;
  }

  int columns, intervals = 0;
  double radius, lowest = 0.0, start = 0.0, per_spacing = 0.0;
  double largest_value = 0.0, largest_slope = 0.0;
  Buffer<T> coef;
};

/// The radial functions of a layer, packed.
template <class T> struct PackedRadial {
  /// @param stride   at least K, a multiple of the lanes
  /// @param density  columns behind the paths for the density, where there is one
  PackedRadial(const MaceLayer &layer, int stride, int density) :
      stride(stride),
      columns(static_cast<int>(layer.paths.size()) * stride + (layer.density.empty() ? 0 : density))
  {
    for (const MaceMatrix &matrix : layer.radial) {
      weights.emplace_back(matrix.values.size());
      for (std::size_t k = 0; k < matrix.values.size(); ++k) weights.back()[k] = matrix.values[k];
    }
  }

  RadialFunctions functions(const MaceNetwork &network, const MaceLayer &layer) const
  {
    return {network, layer, weights, stride, columns};
  }

  void tabulate(const MacePlan &plan, const MaceLayer &layer)
  {
    const MaceNetwork &network = plan.network;
    const RadialTolerance tolerance =
        sizeof(T) == 8 ? RadialTolerance{1e-10, 1e-8} : RadialTolerance{1e-6, 1e-5};
    RadialFunctions formulas = functions(network, layer);
    tables.resize(network.npairs());
    for (const int a : plan.species)
      for (const int b : plan.species) {
        auto &table = tables[network.pair_of(a, b)];
        if (!table)
          table = std::make_unique<RadialTable<T>>(formulas, network.radius_of(a, b),
                                                   network.cutoff, columns, tolerance);
      }
  }

  std::size_t table_bytes() const
  {
    std::size_t bytes = 0;
    for (const auto &table : tables)
      if (table) bytes += table->bytes();
    return bytes;
  }

  const int stride, columns;
  std::vector<Buffer<double>> weights;    // of the net, aligned: four percent of `exact`
  std::vector<std::unique_ptr<RadialTable<T>>> tables;    // [pairs], or empty
};

}    // namespace pwmlff::PWMLFF_ISA::mace
