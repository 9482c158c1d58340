// SPDX-License-Identifier: GPL-2.0-or-later

#include "formulas.h"

#include "../../math/zbl.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

namespace pwmlff {
namespace {

using std::numbers::pi;
using Pair = std::pair<double, double>;    // a value and its derivative by r

Pair times(const Pair &f, const Pair &g)
{
  return {f.first * g.first, f.first * g.second + f.second * g.first};
}

/// P(r; c, d)
Pair switched(double r, double c, double d)
{
  if (r <= c - d) return {1.0, 0.0};
  if (r >= c) return {0.0, 0.0};
  const double x = 1.0 - 2.0 * (1.0 + (r - c) / d), x2 = x * x;
  return {0.5 + 3.75 * x * (0.25 - x2 / 6.0 + x2 * x2 / 20.0),
          -7.5 / d * (0.25 - 0.5 * x2 + 0.25 * x2 * x2)};
}

/// c(t) and its derivative by r, with t = (r - first)/width.
Pair cosine(double r, double first, double width)
{
  const double t = (r - first) / width;
  return {0.5 * (1.0 + std::cos(pi * t)), -0.5 * pi / width * std::sin(pi * t)};
}

/// (1 - T_k(x))/2, k = first .. first+count-1.
void chebyshev(const Pair &x, int first, int count, double *value, double *slope)
{
  double t = 1.0, next = x.first, dt = 0.0, dnext = 1.0;
  for (int k = 0; k < first + count; ++k) {
    if (k >= first) {
      value[k - first] = 0.5 - 0.5 * t;
      slope[k - first] = -0.5 * dt * x.second;
    }
    const double after = 2.0 * x.first * next - t;
    const double dafter = 2.0 * next + 2.0 * x.first * dnext - dt;
    t = std::exchange(next, after);
    dt = std::exchange(dnext, dafter);
  }
}

void bessel(const AceBond &bond, double r, double *value, double *slope)
{
  double d = 1.0;
  for (int n = 0; n < bond.nbase; ++n) {
    const double k = n + 1, factor = (n % 2 ? -1.0 : 1.0) * std::numbers::sqrt2 * pi /
                                     std::pow(bond.rcut, 1.5) * k * (k + 1) / std::hypot(k, k + 1);
    double s = 0.0, ds = 0.0;
    for (const double q : {k, k + 1}) {
      const double w = q * pi / bond.rcut, sinc = r > 0.0 ? std::sin(w * r) / (w * r) : 1.0;
      s += factor * sinc;
      if (r > 0.0) ds += factor * (std::cos(w * r) - sinc) / r;
    }
    if (n > 0) {
      const double e = (k - 1) * (k - 1) * (k + 1) * (k + 1) / (4.0 * k * k * k * k + 1.0);
      const double root = std::sqrt(e / d);
      d = 1.0 - e / d;
      s = (s + root * value[n - 1]) / std::sqrt(d);
      ds = (ds + root * slope[n - 1]) / std::sqrt(d);
    }
    value[n] = s;
    slope[n] = ds;
  }
}

void radial_base(const AceBond &bond, double r, double *value, double *slope)
{
  const double rc = bond.rcut, lambda = bond.lambda, y = r / rc;
  Pair x{1.0 - y, -1.0 / rc};
  if (bond.radial == AceRadial::sbessel) return bessel(bond, r, value, slope);
  if (bond.radial == AceRadial::cheb_pow)
    x = {1.0 - 2.0 * std::pow(1.0 - y, lambda),
         2.0 * lambda / rc * std::pow(1.0 - y, lambda - 1.0)};
  if (bond.radial != AceRadial::cheb_exp_cos) return chebyshev(x, 1, bond.nbase, value, slope);

  const double end = std::exp(-lambda), here = std::exp(-lambda * y);
  x = {1.0 - 2.0 * (here - end) / (1.0 - end), 2.0 * lambda / rc * here / (1.0 - end)};
  chebyshev(x, 0, bond.nbase, value, slope);
  value[0] = 1.0;
  Pair cut = cosine(r, 0.0, rc);
  if (bond.dcut > 0.0 && r > rc - bond.dcut) cut = times(cut, cosine(r, rc - bond.dcut, bond.dcut));
  for (int k = 0; k < bond.nbase; ++k)
    std::tie(value[k], slope[k]) = times({value[k], slope[k]}, cut);
}

/// The core repulsion of ZBL; r below rcut.
Pair screened_repulsion(const AceBond &bond, int za, int zb, double r)
{
  constexpr double CONSTANT = 14.399645351950543;    // as in the files' own programs
  const double scale = (std::pow(za, 0.23) + std::pow(zb, 0.23)) / 0.46850;
  // phi(r/s)/r and its first two derivatives
  const auto bare = [&](double at, double *e) {
    double p[3] = {};
    for (int k = 0; k < 4; ++k) {
      const double decay = UNIVERSAL_B[k] * scale, term = UNIVERSAL_A[k] * std::exp(-decay * at);
      p[0] += term;
      p[1] -= decay * term;
      p[2] += decay * decay * term;
    }
    e[0] = p[0] / at;
    e[1] = (p[1] - e[0]) / at;
    e[2] = (p[2] - 2.0 * e[1]) / at;
  };
  double e[3], end[3];
  bare(r, e);
  bare(bond.rcut, end);
  const double d = bond.dcut, u = std::max(r - bond.rcut + d, 0.0);
  const double a = (-3.0 * end[1] + d * end[2]) / (d * d);
  const double b = (2.0 * end[1] - d * end[2]) / (d * d * d);
  const double constant = -end[0] + d * end[1] / 2.0 - d * d * end[2] / 12.0;
  const double factor = 0.5 * bond.prehc * CONSTANT * za * zb;
  const Pair whole = {factor * (e[0] + constant + u * u * u * (a / 3.0 + b / 4.0 * u)),
                      factor * (e[1] + u * u * (a + b * u))};
  return times(whole, switched(r, bond.rcut, d));
}

Pair core_repulsion(const AceNetwork &network, const AceBond &bond, int a, int b, double r)
{
  if (!(r < bond.rcut)) return {0.0, 0.0};
  if (network.inner == AceInner::zbl)
    return screened_repulsion(bond, network.atom_type[a], network.atom_type[b], r);
  const double q = std::abs(bond.lambdahc) * r * r;
  if (!(q < 50.0)) return {0.0, 0.0};
  const double value = std::abs(bond.prehc) * std::exp(-q) / r;
  const Pair core = times({value, -value * (2.0 * q + 1.0) / r}, cosine(r, 0.0, bond.rcut));
  return network.inner == AceInner::density ? core
                                            : times(core, switched(r, bond.rcut_in, bond.dcut_in));
}

/// f(rho, m) and its derivative.
Pair embedded(AceEmbedding kind, double rho, double m)
{
  const double size = std::abs(rho), sign = std::signbit(rho) ? -1.0 : 1.0;
  if (kind == AceEmbedding::shifted_scaled) {
    if (std::abs(m - 1.0) < 1e-10) return {rho, 1.0};
    const double q = 1.0 / m, e = std::exp(-size);
    const double x = std::pow(q, q / (1.0 - q)) * e, y = std::pow(q, 1.0 / (1.0 - q)) * e;
    return {sign * (std::pow(x + size, m) - y), y + m * (1.0 - x) * std::pow(x + size, m - 1.0)};
  }
  constexpr double W = 1e6;
  const double k = std::pow(W, 1.0 - m);
  if (size <= 1e-10) return {k * rho, k};
  const double exponent = std::pow(W * size, 3);
  const double g = exponent <= 30.0 ? std::exp(-exponent) : 0.0;
  const double dg = -3.0 * W * W * W * size * size * g, power = std::pow(size, m);
  return {sign * ((1.0 - g) * power + k * g * size),
          m * std::pow(size, m - 1.0) * (1.0 - g) - power * dg + k * (dg * size + g)};
}

}    // namespace

int ace_bins(const AceNetwork &network, const AceBond &bond)
{
  return static_cast<int>(bond.rcut / network.delta);
}

bool ace_has_core(const AceNetwork &network, int a, int b)
{
  return network.inner != AceInner::none && network.bond(a, b).prehc != 0.0;
}

void ace_exact(const AceNetwork &network, const AceBond &bond, int a, int b, double r,
               AceFunctions &result)
{
  result.value.assign(bond.nbase + 1, 0.0);
  result.slope.assign(bond.nbase + 1, 0.0);
  if (a >= 0 && ace_has_core(network, a, b))
    std::tie(result.value.back(), result.slope.back()) = core_repulsion(network, bond, a, b, r);
  if (!(r < bond.rcut)) return;
  if (network.inner != AceInner::zbl && r <= bond.rcut_in - bond.dcut_in) return;
  radial_base(bond, r, result.value.data(), result.slope.data());
  if (network.inner != AceInner::distance) return;
  const auto [inside, slope] = switched(r, bond.rcut_in, bond.dcut_in);
  for (int k = 0; k < bond.nbase; ++k)
    std::tie(result.value[k], result.slope[k]) =
        times({result.value[k], result.slope[k]}, {1.0 - inside, -slope});
}

void ace_between_nodes(const AceNetwork &network, const AceBond &bond, int a, int b, double r,
                       AceFunctions &result)
{
  const int bins = ace_bins(network, bond);
  const double scale = bins / bond.rcut, h = 1.0 / scale, x = r * scale;
  const int k = std::max(1, std::min(static_cast<int>(std::min(x, 1e9)), bins));
  AceFunctions next;
  ace_exact(network, bond, a, b, h * k, result);
  if (k < bins) ace_exact(network, bond, a, b, h * (k + 1), next);
  for (std::size_t n = 0; n < result.value.size(); ++n) {
    double c[4] = {};
    if (k < bins)
      ace_hermite(result.value[n], result.slope[n] * h, next.value[n], next.slope[n] * h, c);
    const double u = x - k;
    result.value[n] = c[0] + u * (c[1] + u * (c[2] + u * c[3]));
    result.slope[n] = (c[1] + u * (2.0 * c[2] + 3.0 * u * c[3])) * scale;
  }
}

AceEnergy ace_energy(const AceNetwork &network, int species, const double *rho,
                     const AceSurroundings &around, double *by_rho)
{
  const AceSpecies &own = network.species[species];
  double sum = 0.0;
  for (int p = 0; p < own.ndensity(); ++p) {
    const auto [value, slope] = embedded(own.embedding, rho[p], own.power[p]);
    sum += own.weight[p] * value;
    by_rho[p] = own.weight[p] * slope;
  }
  Pair cut{1.0, 0.0};
  AceEnergy result{sum + network.energy[species], 0.0, 0.0};
  if (network.inner == AceInner::none) return result;
  if (network.inner == AceInner::zbl) {
    const double d = around.nearest_width;
    if (around.nearest < network.cutoff()) cut = switched(d - around.nearest, d, d);
    result.by_core = 1.0 - cut.first;
    result.by_nearest = -cut.second * (sum - around.core);
  } else {
    cut = switched(around.core, own.core_cutoff, own.core_width);
    result.by_core = 1.0 + cut.second * sum;
  }
  const double core = network.inner == AceInner::zbl ? result.by_core * around.core : around.core;
  result.energy = cut.first * sum + core + network.energy[species];
  for (int p = 0; p < own.ndensity(); ++p) by_rho[p] *= cut.first;
  return result;
}

}    // namespace pwmlff
