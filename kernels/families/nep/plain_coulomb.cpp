// SPDX-License-Identifier: GPL-2.0-or-later

#include "plain_coulomb.h"

#include "../../core/virial_terms.h"
#include "../../math/coulomb.h"

#include <array>
#include <cmath>
#include <complex>
#include <numbers>
#include <utility>

namespace pwmlff {
namespace {

using std::numbers::pi;
using Vector = std::array<double, 3>;

Vector cross(const double *a, const double *b)
{
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

double dot(const Vector &a, const double *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/// Reciprocal lattice vectors shorter than a length, but for 0.
std::vector<Vector> lattice_within(const double *cell, double length)
{
  const double volume = dot(cross(cell, cell + 3), cell + 6);
  std::array<Vector, 3> b = {cross(cell + 3, cell + 6), cross(cell + 6, cell),
                             cross(cell, cell + 3)};
  std::array<int, 3> most;
  for (int d = 0; d < 3; ++d) {
    for (double &component : b[d]) component *= 2.0 * pi / volume;
    most[d] = static_cast<int>(length / (2.0 * pi) *
                               std::hypot(cell[3 * d], cell[3 * d + 1], cell[3 * d + 2]));
  }
  std::vector<Vector> found;
  for (int i = -most[0]; i <= most[0]; ++i)
    for (int j = -most[1]; j <= most[1]; ++j)
      for (int l = -most[2]; l <= most[2]; ++l) {
        Vector k;
        for (int c = 0; c < 3; ++c) k[c] = i * b[0][c] + j * b[1][c] + l * b[2][c];
        if ((i || j || l) && dot(k, k.data()) < length * length) found.push_back(k);
      }
  return found;
}

}    // namespace

PlainCoulomb::PlainCoulomb(const NepNetwork &network, const Input &input,
                           std::vector<double> charge_) :
    charge(std::move(charge_)),
    potential(charge.size(), 0.0),
    energy(charge.size()),
    force(3 * charge.size(), 0.0),
    virial(9 * charge.size(), 0.0)
{
  const auto mean_of = [&](const std::vector<double> &values) {
    std::array<double, 2> sums{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (input.species[i] < 0) continue;
      sums[0] += values[i];
      sums[1] += 1.0;
    }
    if (input.exchange) input.exchange->sum(sums.data(), 2);
    return sums[0] / sums[1];
  };
  mean_charge = mean_of(charge);
  for (std::size_t i = 0; i < charge.size(); ++i)
    charge[i] = input.species[i] < 0 ? 0.0 : charge[i] - mean_charge;
  add_reciprocal(network, input);
  if (network.charge_mode == 1) add_real_space(network, input);
  for (std::size_t i = 0; i < charge.size(); ++i) energy[i] = 0.5 * charge[i] * potential[i];
  const double mean_potential = mean_of(potential);
  for (std::size_t i = 0; i < charge.size(); ++i)
    potential[i] = input.species[i] < 0 ? 0.0 : potential[i] - mean_potential;
}

void PlainCoulomb::add_reciprocal(const NepNetwork &network, const Input &input)
{
  if (input.reciprocal) {
    double all[6];
    std::vector<double> six(6 * charge.size());
    input.reciprocal->solve(input, charge.data(), potential.data(), force.data(), all, six.data());
    for (std::size_t i = 0; i < charge.size(); ++i) {
      for (int c = 0; c < 3; ++c) force[3 * i + c] *= charge[i];
      matrix_of(&six[6 * i], &virial[9 * i]);
    }
    return;
  }
  const double alpha = network.screening();
  const double volume = std::abs(dot(cross(input.cell, input.cell + 3), input.cell + 6));
  const std::vector<Vector> lattice = lattice_within(input.cell, 2.0 * pi * alpha);
  std::vector<double> sums(2 * lattice.size(), 0.0);    // S, its real and imaginary parts
  for (std::size_t n = 0; n < lattice.size(); ++n)
    for (std::size_t i = 0; i < charge.size(); ++i) {
      const double phase = dot(lattice[n], input.x + 3 * i);
      sums[2 * n] += charge[i] * std::cos(phase);
      sums[2 * n + 1] += charge[i] * std::sin(phase);
    }
  if (input.exchange) input.exchange->sum(sums.data(), static_cast<int>(sums.size()));
  for (std::size_t n = 0; n < lattice.size(); ++n) {
    const Vector &k = lattice[n];
    const double k2 = dot(k, k.data());
    const double g = COULOMB * 2.0 * pi / volume * std::exp(-k2 / (4.0 * alpha * alpha)) / k2;
    const std::complex<double> conjugate(sums[2 * n], -sums[2 * n + 1]);
    for (std::size_t i = 0; i < charge.size(); ++i) {
      const std::complex<double> term =
          2.0 * g * conjugate * std::polar(1.0, dot(k, input.x + 3 * i));
      potential[i] += term.real();
      const double own = 0.5 * charge[i] * term.real();
      for (int a = 0; a < 3; ++a) {
        force[3 * i + a] += charge[i] * k[a] * term.imag();
        for (int b = 0; b < 3; ++b)
          virial[9 * i + 3 * a + b] +=
              own * ((a == b) - 2.0 * (1.0 / k2 + 0.25 / (alpha * alpha)) * k[a] * k[b]);
      }
    }
  }
}

void PlainCoulomb::add_real_space(const NepNetwork &network, const Input &input)
{
  const double alpha = network.screening();
  const std::size_t nspecies = network.nspecies();
  std::vector<double> row_charge(input.nrows, 0.0);
  std::copy(charge.begin(), charge.end(), row_charge.begin());
  if (input.exchange) input.exchange->forward({row_charge.data(), 1});
  for (std::size_t i = 0; i < charge.size(); ++i) {
    if (input.species[i] < 0) continue;
    potential[i] -= 2.0 * COULOMB * alpha / std::sqrt(pi) * charge[i];
    for (int e = input.first[i * nspecies]; e < input.first[(i + 1) * nspecies]; ++e) {
      const int j = input.candidate[e];
      Vector d;
      for (int c = 0; c < 3; ++c) d[c] = input.x[3 * j + c] - input.x[3 * i + c];
      const double r = std::hypot(d[0], d[1], d[2]);
      if (!(r < network.cut_radial[input.species[i] * nspecies + input.species[j]])) continue;
      const double screened = std::erfc(alpha * r) / r;
      const double slope =
          -screened / r - 2.0 * alpha / std::sqrt(pi) * std::exp(-alpha * alpha * r * r) / r;
      potential[i] += COULOMB * row_charge[j] * screened;
      const double pull = COULOMB * charge[i] * row_charge[j] * slope / r;
      for (int a = 0; a < 3; ++a) {
        force[3 * i + a] += pull * d[a];
        for (int b = 0; b < 3; ++b) virial[9 * i + 3 * a + b] -= 0.5 * pull * d[a] * d[b];
      }
    }
  }
}

}    // namespace pwmlff
