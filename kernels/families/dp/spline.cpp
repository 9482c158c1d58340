// SPDX-License-Identifier: GPL-2.0-or-later

#include "spline.h"

#include "../../math/spline_terms.h"
#include "pair_terms.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pwmlff {
namespace {

/// R~_0(r), continued analytically beyond rmin or rmax on the side that is asked for.
class ScaledDistance {
 public:
  ScaledDistance(const DPNetwork &network, int pair, bool switched) :
      rmin(network.rmin),
      inv_width(1.0 / (network.rmax - network.rmin)),
      average(network.davg[4 * pair]),
      deviation(network.dstd[4 * pair]),
      switched(switched)
  {
  }

  Jet operator()(double r) const
  {
    const double inv_r = 1.0 / r, u = switched ? (r - rmin) * inv_width : 0.0;
    const SwitchedInverse inverse(u, inv_r, inv_width);
    return {(inverse.s - average) / deviation, inverse.s1 / deviation,
            inverse.s2(u, inv_r, inv_width) / deviation};
  }

 private:
  double rmin, inv_width, average, deviation;
  bool switched;
};

struct Segment {
  double start, spacing;
  int intervals;
  std::vector<double> coef;    // [intervals + 5, M]
  double value_error, slope_error;
};

class SegmentBuilder {
 public:
  SegmentBuilder(const DPNetwork &network, int pair, bool switched) :
      distance(network, pair, switched), jets(network.embedding[pair]), width(network.width)
  {
  }

  /// The longest part of [low, high] that reaches high and holds the tolerance, at least
  /// [needed, high].
  Segment build(double low, double needed, double high, const SplineTolerance &tolerance)
  {
    static constexpr int limit = 1 << 16;
    // Four nodes beyond the first have to be at positive distances.
    int intervals = std::max(32, static_cast<int>(std::ceil(8.0 * (high - low) / low)));
    while (intervals <= limit) {
      Segment segment = fit(low, high, intervals);
      const int first_needed =
          std::min(intervals - 1, static_cast<int>((needed - low) / segment.spacing));
      double excess = 0.0;    // over the tolerance, the larger of both
      segment.value_error = segment.slope_error = 0.0;
      for (int i = intervals - 1; i >= 0; --i) {
        double value = 0.0, slope = 0.0;
        check(segment, i, value, slope);
        const double ratio = std::max(value / tolerance.value, slope / tolerance.slope);
        if (i < first_needed && ratio > 1.0) {
          cut(segment, i + 1);
          break;
        }
        excess = std::max(excess, ratio);
        segment.value_error = std::max(segment.value_error, value);
        segment.slope_error = std::max(segment.slope_error, slope);
      }
      if (excess <= 1.0) return segment;
      intervals = static_cast<int>(intervals * std::clamp(1.05 * std::pow(excess, 0.2), 1.1, 3.0));
    }
    throw std::runtime_error("an embedding net of this DP model cannot be tabulated with " +
                             std::to_string(limit) +
                             " intervals to the precision asked for; use precision exact");
  }

 private:
  Segment fit(double low, double high, int intervals)
  {
    Segment segment{low, (high - low) / intervals, intervals, {}, 0.0, 0.0};
    // Nodes -4 .. intervals+4 give the coefficients of nodes -2 .. intervals+2.
    const int nodes = intervals + 9;
    std::vector<double> value(static_cast<std::size_t>(nodes) * width), second(value.size());
    const double h2 = segment.spacing * segment.spacing;
    for (int i = 0; i < nodes; ++i) {
      jets.evaluate(distance(low + (i - 4) * segment.spacing));
      for (int m = 0; m < width; ++m) {
        value[static_cast<std::size_t>(i) * width + m] = jets.f[m];
        second[static_cast<std::size_t>(i) * width + m] = h2 * jets.d2[m];
      }
    }
    // f - h^2 (1/4 - d^2/30 + 17 d^4/2880) f'' with central differences d: the inverse, up to
    // order 8, of the average (1, 26, 66, 26, 1)/120 that a quintic spline takes at its nodes.
    static constexpr double c2 = -17.0 / 2880.0;
    static constexpr double c1 = 1.0 / 30.0 - 4.0 * c2;
    static constexpr double c0 = -1.0 / 4.0 - 2.0 / 30.0 + 6.0 * c2;
    segment.coef.resize(static_cast<std::size_t>(intervals + 5) * width);
    for (int i = 0; i < intervals + 5; ++i) {
      const std::size_t node = static_cast<std::size_t>(i + 2) * width;
      for (int m = 0; m < width; ++m) {
        const double *const f2 = &second[node + m];
        segment.coef[static_cast<std::size_t>(i) * width + m] =
            value[node + m] + c0 * f2[0] + c1 * (f2[-width] + f2[width]) +
            c2 * (f2[-2 * width] + f2[2 * width]);
      }
    }
    return segment;
  }

  // Errors at three points of interval i; with the next interval these are the extremes.
  void check(const Segment &segment, int i, double &value_error, double &slope_error)
  {
    for (const double t : {0.0, 0.25, 0.5}) {
      double value[5], slope[5];
      spline_weights<double>(t, 1.0 / segment.spacing, value, slope);
      jets.evaluate(distance(segment.start + (i + t) * segment.spacing));
      for (int m = 0; m < width; ++m) {
        const double *const coef = &segment.coef[static_cast<std::size_t>(i) * width + m];
        double f = coef[0] - jets.f[m], d1 = -jets.d1[m];
        add_spline<1>([&](int k, int) { return coef[k * width]; }, value, slope, 1, &f, &d1);
        value_error = std::max(value_error, std::abs(f) / std::max(1.0, std::abs(jets.f[m])));
        slope_error = std::max(slope_error, std::abs(d1) / std::max(1.0, std::abs(jets.d1[m])));
      }
    }
  }

  void cut(Segment &segment, int intervals) const
  {
    segment.start += intervals * segment.spacing;
    segment.intervals -= intervals;
    segment.coef.erase(segment.coef.begin(),
                       segment.coef.begin() + static_cast<std::ptrdiff_t>(intervals) * width);
  }

  ScaledDistance distance;
  EmbeddingJets jets;
  int width;
};

}    // namespace

SplineTable make_spline(const DPNetwork &network, int a, int b, const SplineTolerance &tolerance)
{
  const int pair = a * network.nspecies() + b;
  const double rmin = network.rmin, rmax = network.rmax;
  const double wanted = rmax / 16.0, needed = rmax / 8.0;
  SplineTable table;
  table.value_error = table.slope_error = 0.0;
  const auto append = [&](const Segment &part, SplineSegment &segment) {
    segment = {part.start, part.spacing, part.intervals,
               static_cast<int>(table.coef.size() / network.width)};
    table.coef.insert(table.coef.end(), part.coef.begin(), part.coef.end());
    table.value_error = std::max(table.value_error, part.value_error);
    table.slope_error = std::max(table.slope_error, part.slope_error);
  };

  if (rmin > needed)
    append(SegmentBuilder(network, pair, false).build(wanted, needed, rmin, tolerance),
           table.segment[0]);
  append(SegmentBuilder(network, pair, true)
             .build(std::max(wanted, rmin), std::max(needed, rmin), rmax, tolerance),
         table.segment[1]);
  table.split = table.segment[1].start;
  table.lowest = rmin > needed ? table.segment[0].start : table.split;

  double value[5], slope[5];
  spline_weights<double>(1.0, 1.0, value, slope);
  const int width = network.width, last = table.segment[1].first + table.segment[1].intervals - 1;
  for (int m = 0; m < width; ++m) {
    const double *const coef = &table.coef[static_cast<std::size_t>(last) * width + m];
    double none = 0.0;
    add_spline<1>([&](int k, int) { return coef[k * width]; }, value, slope, 1,
                  &table.g_rmax.emplace_back(coef[0]), &none);
  }
  return table;
}

}    // namespace pwmlff
