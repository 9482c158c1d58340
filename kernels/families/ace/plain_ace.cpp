// SPDX-License-Identifier: GPL-2.0-or-later

#include "plain_ace.h"

#include "../../core/virial_terms.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

namespace pwmlff {
namespace {

double parity(int m) { return m % 2 == 0 ? 1.0 : -1.0; }

}    // namespace

PlainAce::PlainAce(AceNetwork network) :
    FusedEngine(nullptr),
    network_(std::move(network)),
    harmonics(std::max(1, network_.l_max)),
    nharmonics((network_.l_max + 1) * (network_.l_max + 2) / 2),
    y(nharmonics),
    y_gradient(nharmonics)
{
  processor_ = "plain";
  const int slots = network_.grace() ? 1 : network_.nspecies();
  moments.resize(static_cast<std::size_t>(slots) * network_.nradial * nharmonics);
  slopes.resize(moments.size());
  base_sums.resize(static_cast<std::size_t>(network_.nspecies()) * network_.nbase);
  base_slopes.resize(base_sums.size());
}

void PlainAce::find_edges(const Input &input, int center)
{
  const AceNetwork &net = network_;
  const int nspecies = net.nspecies(), own = input.species[center], nl = net.l_max + 1;
  edges.clear();
  around = {};
  nearest = -1;
  for (int s = 0; s < nspecies; ++s) {
    const AceBond &bond = net.bond(own, s);
    const int *first = input.first + static_cast<std::ptrdiff_t>(center) * nspecies + s;
    for (int k = first[0]; k < first[1]; ++k) {
      Edge edge{input.candidate[k], s, 0.0, {}, {}, {}, {}, {}};
      for (int c = 0; c < 3; ++c) edge.d[c] = input.x[3 * edge.row + c] - input.x[3 * center + c];
      edge.r = std::hypot(edge.d[0], edge.d[1], edge.d[2]);
      if (!(edge.r < bond.rcut)) continue;
      for (int c = 0; c < 3; ++c) edge.u[c] = edge.d[c] / edge.r;
      ace_between_nodes(net, bond, own, s, edge.r, edge.base);
      edge.value.assign(static_cast<std::size_t>(net.nradial) * nl, 0.0);
      edge.slope = edge.value;
      for (int n = 0; n < net.nradial; ++n)
        for (int l = 0; l < nl; ++l)
          for (int b = 0; b < bond.nbase; ++b) {
            const double c =
                chemical(s, n) * bond.crad[(static_cast<std::size_t>(n) * nl + l) * net.nbase + b];
            edge.value[n * nl + l] += c * edge.base.value[b];
            edge.slope[n * nl + l] += c * edge.base.slope[b];
          }
      around.core += edge.base.value.back();
      const double t = edge.r - (bond.rcut_in - bond.dcut_in);
      if (net.inner == AceInner::zbl && t < around.nearest) {
        around.nearest = t;
        around.nearest_width = bond.dcut_in;
        nearest = static_cast<int>(edges.size());
      }
      edges.push_back(std::move(edge));
    }
  }
}

void PlainAce::harmonics_of(const Edge &edge)
{
  const double norm = std::sqrt(4.0 * std::numbers::pi);
  harmonics.evaluate(edge.u.data());
  y[0] = 1.0;
  y_gradient[0] = {};
  for (int k = 1; k < nharmonics; ++k) {
    y[k] = norm * harmonics.y[k - 1];
    for (int c = 0; c < 3; ++c) y_gradient[k][c] = norm * harmonics.gradient[k - 1][c];
  }
}

void PlainAce::add_up_moments()
{
  const int nl = network_.l_max + 1;
  std::fill(moments.begin(), moments.end(), 0.0);
  std::fill(base_sums.begin(), base_sums.end(), 0.0);
  for (const Edge &edge : edges) {
    harmonics_of(edge);
    for (std::size_t b = 0; b + 1 < edge.base.value.size(); ++b)
      base_sums[edge.species * network_.nbase + b] += edge.base.value[b];
    for (int n = 1; n <= network_.nradial; ++n)
      for (int l = 0, k = 0; l < nl; ++l)
        for (int m = 0; m <= l; ++m, ++k)
          moments[place(edge.species, n, l, m)] += edge.value[(n - 1) * nl + l] * y[k];
  }
}

/// A of a factor, or the real harmonics' of GRACE/FS.
PlainAce::Complex PlainAce::value_of(const AceFactor &factor) const
{
  const auto &[mu, n, l, m] = factor;
  const Complex a = moments[place(mu, n, l, std::abs(m))];
  if (!network_.grace()) return m < 0 ? parity(m) * std::conj(a) : a;
  if (m == 0) return a.real();
  return std::numbers::sqrt2 * parity(m) * (m > 0 ? a.real() : a.imag());
}

/// dE = Re(slope dA) of a factor, from which follows that of A with m >= 0.
void PlainAce::add_slope(const AceFactor &factor, Complex slope)
{
  const auto &[mu, n, l, m] = factor;
  Complex &to = slopes[place(mu, n, l, std::abs(m))];
  if (!network_.grace()) to += m < 0 ? parity(m) * std::conj(slope) : slope;
  else if (m == 0) to += slope.real();
  else
    to += std::numbers::sqrt2 * parity(m) * slope.real() *
          (m > 0 ? Complex(1.0) : Complex(0.0, -1.0));
}

/// Leaves dE/dA in slopes.
double PlainAce::find_energy(int species)
{
  const AceSpecies &own = network_.species[species];
  const int ndensity = own.ndensity();
  const auto of_base = [&](const std::vector<AceFactor> &row) {
    return row.size() == 1 && !network_.grace();
  };
  const auto place_of_base = [&](const AceFactor &factor) {
    return factor.mu * network_.nbase + factor.n - 1;
  };
  rho.assign(ndensity, 0.0);
  by_rho.assign(ndensity, 0.0);
  std::vector<double> sizes(ndensity, 0.0);
  for_ace_rows(own, [&](const std::vector<AceFactor> &row, const double *c) {
    Complex product = 1.0;
    if (of_base(row)) product = base_sums[place_of_base(row[0])];
    else
      for (const AceFactor &factor : row) product *= value_of(factor);
    for (int p = 0; p < ndensity; ++p) {
      rho[p] += c[p] * product.real();
      sizes[p] += std::abs(c[p] * product.real());
    }
  });
  found = ace_energy(network_, species, rho.data(), around, by_rho.data());
  size = 0.0;
  for (int p = 0; p < ndensity; ++p) size += std::abs(by_rho[p]) * sizes[p];
  std::fill(slopes.begin(), slopes.end(), 0.0);
  std::fill(base_slopes.begin(), base_slopes.end(), 0.0);
  for_ace_rows(own, [&](const std::vector<AceFactor> &row, const double *c) {
    double weight = 0.0;
    for (int p = 0; p < ndensity; ++p) weight += c[p] * by_rho[p];
    if (of_base(row)) base_slopes[place_of_base(row[0])] += weight;
    else
      for (std::size_t t = 0; t < row.size(); ++t) {
        Complex others = weight;
        for (std::size_t k = 0; k < row.size(); ++k)
          if (k != t) others *= value_of(row[k]);
        add_slope(row[t], others);
      }
  });
  return found.energy;
}

/// dE_i/dr_ij
std::array<double, 3> PlainAce::gradient(const Edge &edge, const AceEnergy &energy)
{
  const int nl = network_.l_max + 1;
  double length_slope = energy.by_core * edge.base.slope.back();    // dE/dr
  std::array<double, 3> sphere_slope{};                             // dE/du, along the sphere
  for (std::size_t b = 0; b + 1 < edge.base.slope.size(); ++b)
    length_slope += base_slopes[edge.species * network_.nbase + b] * edge.base.slope[b];
  harmonics_of(edge);
  for (int n = 1; n <= network_.nradial; ++n)
    for (int l = 0, k = 0; l < nl; ++l)
      for (int m = 0; m <= l; ++m, ++k) {
        const Complex slope = slopes[place(edge.species, n, l, m)];
        const int f = (n - 1) * nl + l;
        length_slope += edge.slope[f] * (slope * y[k]).real();
        for (int c = 0; c < 3; ++c)
          sphere_slope[c] += edge.value[f] * (slope * y_gradient[k][c]).real();
      }
  if (&edge - edges.data() == nearest) length_slope += energy.by_nearest;
  std::array<double, 3> result;
  for (int c = 0; c < 3; ++c) result[c] = length_slope * edge.u[c] + sphere_slope[c] / edge.r;
  return result;
}

const Evaluation &PlainAce::evaluate(const Input &input)
{
  sums.assign(RowSums::size(input), 0.0);
  static_cast<RowSums &>(result) = RowSums(input, sums.data());
  atom_energy.assign(input.ncenters, 0.0);
  double virial[9] = {};
  result.energy = 0.0;
  const Centers centers(input.species, input.ncenters,
                        std::vector<bool>(network_.species.size(), true));
  for (const int i : centers.order) {
    find_edges(input, i);
    add_up_moments();
    atom_energy[i] = find_energy(input.species[i]);
    for (const Edge &edge : edges) {
      std::array<double, 3> force = gradient(edge, found);
      for (int c = 0; c < 3; ++c) {
        result.force[3 * i + c] += force[c];
        force[c] = -force[c];
        result.force[3 * edge.row + c] += force[c];
      }
      for (int k = 0; k < 9; ++k) virial[k] += edge.d[k / 3] * force[k % 3];
      spread_virial(Alone{}, edge.d.data(), force.data(), i, edge.row, result.atom_virial,
                    result.centroid_virial);
    }
  }
  for (const double energy : atom_energy) result.energy += energy;
  result.virial = in_order_of_lammps(virial);
  result.atom_energy = atom_energy.data();
  return result;
}

double ace_size_of_terms(const AceNetwork &network, const std::vector<bool> &present)
{
  const int nspecies = network.nspecies();
  std::vector<int> known;
  for (int s = 0; s < nspecies; ++s)
    if (present[s]) known.push_back(s);
  PlainAce plain(network);
  double largest = 0.0;
  for (const int center : known)
    for (const double share :
         {0.35, 0.45}) {    // nearest neighbors of a face-centered cubic crystal
      const double unit = share * network.cutoff() / std::numbers::sqrt2;
      std::vector<double> x(3, 0.0);
      std::vector<int> species = {center}, first = {0}, candidate;
      for (int k = 0; k < 9 * 9 * 9; ++k) {
        const int at[3] = {k % 9 - 4, k / 9 % 9 - 4, k / 81 - 4};
        if ((at[0] + at[1] + at[2]) % 2 != 0 || (at[0] == 0 && at[1] == 0 && at[2] == 0)) continue;
        for (const int component : at) x.push_back(unit * component);
        species.push_back(known[species.size() % known.size()]);
      }
      for (int s = 0; s < nspecies; ++s) {
        for (int j = 1; j < static_cast<int>(species.size()); ++j)
          if (species[j] == s) candidate.push_back(j);
        first.push_back(static_cast<int>(candidate.size()));
      }
      Input input;
      input.ncenters = 1;
      input.nrows = static_cast<int>(species.size());
      input.x = x.data();
      input.species = species.data();
      input.first = first.data();
      input.candidate = candidate.data();
      plain.evaluate(input);
      largest = std::max(largest, plain.size_of_terms());
    }
  return largest;
}

}    // namespace pwmlff
