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

/// A net, packed.
struct PackedNet {
  explicit PackedNet(const MaceNet &net) : source(net)
  {
    for (const MaceMatrix &matrix : net.weights) {
      weights.emplace_back(matrix.values.size());
      for (std::size_t k = 0; k < matrix.values.size(); ++k) weights.back()[k] = matrix.values[k];
    }
  }
  int widest() const
  {
    int most = 0;
    for (const MaceMatrix &matrix : source.weights)
      if (matrix.columns > most) most = matrix.columns;
    return most;
  }

  const MaceNet &source;
  std::vector<Buffer<double>> weights;    // aligned: four percent of `exact`
};

/// Functions of a layer, and their derivatives by r: R_p,k at p*stride + k, and rho at paths*stride
/// where there is a density.
class RadialFunctions {
 public:
  /// @param stride   at least Ke
  /// @param columns  of value and slope; those beyond what is evaluated are zero
  RadialFunctions(const MaceNetwork &network, const MaceLayer &layer, const PackedNet &radial,
                  const PackedNet &density, int stride, int columns) :
      value(columns),
      slope(columns),
      network(network),
      layer(layer),
      radial(radial),
      density(density),
      stride(stride),
      nbasis(static_cast<int>(network.frequency.size()))
  {
    int widest = nbasis;
    for (const PackedNet *const net : {&radial, &density})
      if (net->widest() > widest) widest = net->widest();
    const auto room = static_cast<std::size_t>(widest);
    for (Buffer<double> *buffer : {&basis, &dbasis, &x, &dx, &y, &dy}) buffer->reserve(room);
    value.fill(0.0);
    slope.fill(0.0);
  }

  /// @param a, b  species of the center and of the neighbor
  void evaluate(double r, int a, int b)
  {
    double df = 0.0;
    const double f = polynomial_cutoff(network.power, r / network.cutoff, df);
    df /= network.cutoff;
    double t = r, dt = 1.0;
    if (!network.agnesi.empty())
      t = agnesi_transform(network.agnesi.data(), r, network.radius_of(a, b), dt);
    const double inner = network.cutoff_first ? f : 1.0, dinner = network.cutoff_first ? df : 0.0;
    const double outer = network.cutoff_first ? 1.0 : f, douter = network.cutoff_first ? 0.0 : df;
    for (int n = 0; n < nbasis; ++n) {
      double db = 0.0;
      const double of_t = radial_function(network.basis == MaceBasis::bessel, network.factor,
                                          network.frequency[n], t, db);
      db *= dt;
      basis[n] = of_t * inner;
      dbasis[n] = db * inner + of_t * dinner;
    }
    const auto pair = static_cast<std::size_t>(a) * network.nspecies() + b;
    if (!layer.density.empty()) {
      evaluate(density, pair);
      const double z = y[0], rho = __builtin_tanh(z * z),
                   drho = (1.0 - rho * rho) * 2.0 * z * dy[0];
      const int place = static_cast<int>(layer.paths.size()) * stride;
      value[place] = rho * outer;
      slope[place] = drho * outer + rho * douter;
    }
    evaluate(radial, pair);
    const int nchannels = layer.edge_channels();
    for (int path = 0; path < static_cast<int>(layer.paths.size()); ++path)
      for (int k = 0; k < nchannels; ++k) {
        const double v = y[path * nchannels + k], dv = dy[path * nchannels + k];
        value[path * stride + k] = v * outer;
        slope[path * stride + k] = dv * outer + v * douter;
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
  /// y and dy from the basis.
  void evaluate(const PackedNet &net, std::size_t pair)
  {
    const double *in = basis.get(), *din = dbasis.get();
    for (std::size_t n = 0; n < net.weights.size(); ++n) {
      const MaceMatrix &matrix = net.source.weights[n];
      begin(net.source, n, pair);
      product(matrix, net.weights[n].get(), in, din);
      if (n + 1 == net.weights.size()) return;
      if (!net.source.norm.empty()) normalize(net.source.norm[n], matrix.columns);
      for (int k = 0; k < matrix.columns; ++k) {
        double slope_of_silu = 0.0;
        x[k] = silu(y[k], slope_of_silu);
        dx[k] = slope_of_silu * dy[k];
      }
      in = x.get();
      din = dx.get();
    }
  }

  /// What a product is added to.
  void begin(const MaceNet &net, std::size_t n, std::size_t pair)
  {
    const int columns = net.weights[n].columns;
    for (int k = 0; k < columns; ++k) {
      y[k] = net.bias.empty() ? 0.0 : net.bias[n][k];
      dy[k] = 0.0;
    }
    if (n == 0 && !net.of_pair.empty())
      for (int k = 0; k < columns; ++k) y[k] += net.of_pair[pair * columns + k];
  }

  void product(const MaceMatrix &matrix, const double *weights, const double *in, const double *din)
  {
    const int columns = matrix.columns;
    double *const out = y.get(), *const dout = dy.get();
    for (int i = 0; i < matrix.rows; ++i) {
      const double a = in[i], da = din[i];
      const double *const w = weights + static_cast<std::size_t>(i) * columns;
#pragma GCC ivdep
      for (int k = 0; k < columns; ++k) {
        out[k] += a * w[k];
        dout[k] += da * w[k];
      }
    }
  }

  void normalize(const std::vector<double> &norm, int n)
  {
    double mean = 0.0, dmean = 0.0, variance = 0.0, dvariance = 0.0;
    for (int k = 0; k < n; ++k) {
      mean += y[k] / n;
      dmean += dy[k] / n;
    }
    for (int k = 0; k < n; ++k) {
      y[k] -= mean;
      dy[k] -= dmean;
      variance += y[k] * y[k] / n;
      dvariance += 2.0 * y[k] * dy[k] / n;
    }
    const double scale = 1.0 / __builtin_sqrt(variance + MaceNet::EPSILON);
    const double dscale = -0.5 * scale * scale * scale * dvariance;
    for (int k = 0; k < n; ++k) {
      dy[k] = norm[k] * (dy[k] * scale + y[k] * dscale);
      y[k] = norm[k] * y[k] * scale + norm[n + k];
    }
  }

  const MaceNetwork &network;
  const MaceLayer &layer;
  const PackedNet &radial, &density;
  int stride, nbasis;
  Buffer<double> basis, dbasis, x, dx, y, dy;
};

/// How far a table may be off, as a share of the largest value and slope.
struct RadialTolerance {
  double value, slope;
};

template <class T> class RadialTable {
 public:
  /// @param columns  a multiple of the lanes; those beyond what the functions fill are zero
  /// @param a, b  species of the center and of the neighbor
  RadialTable(RadialFunctions &functions, int a, int b, double cutoff, int columns,
              const RadialTolerance &tolerance) :
      columns(columns), a(a), b(b)
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
      functions.evaluate(r, a, b);
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
      functions.evaluate(start + (i - 4) * spacing, a, b);
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
      functions.evaluate(r, a, b);
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

  int columns, a, b, intervals = 0;
  double lowest = 0.0, start = 0.0, per_spacing = 0.0;
  double largest_value = 0.0, largest_slope = 0.0;
  Buffer<T> coef;
};

/// The radial functions of a layer, packed.
template <class T> struct PackedRadial {
  template <class Number> using Tables = std::vector<std::unique_ptr<RadialTable<Number>>>;

  /// @param stride   at least Ke, a multiple of the lanes
  /// @param density  columns behind the paths for the density, where there is one
  PackedRadial(const MaceLayer &layer, int stride, int density) :
      stride(stride),
      columns(static_cast<int>(layer.paths.size()) * stride +
              (layer.density.empty() ? 0 : density)),
      radial(layer.radial),
      density(layer.density)
  {
  }

  RadialFunctions functions(const MaceNetwork &network, const MaceLayer &layer) const
  {
    return {network, layer, radial, density, stride, columns};
  }

  void tabulate(const MacePlan &plan, const MaceLayer &layer)
  {
    // Biases make values beside which slopes are small: in float32 these would be rounded away.
    if (sizeof(T) == 4 && !layer.radial.is_plain()) fill(wide_tables, plan, layer, {1e-7, 1e-6});
    else if (sizeof(T) == 4) fill(tables, plan, layer, {1e-6, 1e-5});
    else fill(tables, plan, layer, {1e-10, 1e-8});
  }

  bool has_tables() const { return !tables.empty() || !wide_tables.empty(); }

  /// Functions of a pair (MaceNetwork::pair_of) from its table, derivatives unless `slope` is null.
  void evaluate(int pair, RadialFunctions &functions, double r, T *value, T *slope) const
  {
    if (wide_tables.empty()) {
      tables[pair]->evaluate(functions, r, value, slope);
      return;
    }
    wide_tables[pair]->evaluate(functions, r, functions.value.get(),
                                slope ? functions.slope.get() : nullptr);
    functions.copy(value, slope);
  }

  std::size_t table_bytes() const { return bytes_of(tables) + bytes_of(wide_tables); }

  const int stride, columns;
  const PackedNet radial, density;
  Tables<T> tables;              // [pairs], or empty
  Tables<double> wide_tables;    // in their place where float32 will not do

 private:
  template <class Number>
  void fill(Tables<Number> &to, const MacePlan &plan, const MaceLayer &layer,
            const RadialTolerance &tolerance)
  {
    const MaceNetwork &network = plan.network;
    RadialFunctions formulas = functions(network, layer);
    to.resize(network.npairs());
    for (const int a : plan.species)
      for (const int b : plan.species) {
        auto &table = to[network.pair_of(a, b)];
        if (!table)
          table = std::make_unique<RadialTable<Number>>(formulas, a, b, network.cutoff, columns,
                                                        tolerance);
      }
  }
  template <class Number> static std::size_t bytes_of(const Tables<Number> &tables)
  {
    std::size_t bytes = 0;
    for (const auto &table : tables)
      if (table) bytes += table->bytes();
    return bytes;
  }
};

}    // namespace pwmlff::PWMLFF_ISA::mace
