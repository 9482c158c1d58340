// SPDX-License-Identifier: GPL-2.0-or-later

#include "plain_nep.h"

#include "../../core/virial_terms.h"
#include "plain_coulomb.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace pwmlff {
namespace {

using std::numbers::pi;

/// (1 + cos(pi t))/2 and its derivative by t: 1 at t <= 0, 0 at t >= 1.
std::pair<double, double> half_cosine(double t)
{
  if (t <= 0.0) return {1.0, 0.0};
  if (t >= 1.0) return {0.0, 0.0};
  return {0.5 * (1.0 + std::cos(pi * t)), -0.5 * pi * std::sin(pi * t)};
}

/// Energy of a pair and its derivative by r.
std::pair<double, double> zbl_energy(const ZblPair &zbl, double r)
{
  double sum = 0.0, slope = 0.0;
  for (int k = 0; k < 4; ++k) {
    const double term = zbl.amplitude[k] * std::exp(-zbl.decay[k] * r);
    sum += term;
    slope -= zbl.decay[k] * term;
  }
  const double width = zbl.outer - zbl.inner;
  const auto [s, ds] = half_cosine((r - zbl.inner) / width);
  const double bare = sum / r, dbare = (slope - bare) / r;
  return {s * bare, s * dbare + ds / width * bare};
}

/// out = tanh(weight in + bias)
void hidden_layer(const double *weight, const double *bias, const std::vector<double> &in,
                  std::vector<double> &out)
{
  for (std::size_t h = 0; h < out.size(); ++h) {
    double z = bias[h];
    for (std::size_t k = 0; k < in.size(); ++k) z += weight[h * in.size() + k] * in[k];
    out[h] = std::tanh(z);
  }
}

/// in = weight^T ((1 - layer^2) slope): from the slope by a hidden layer to that by its input.
void pull_back(const double *weight, const std::vector<double> &layer, const double *slope,
               std::vector<double> &in)
{
  std::fill(in.begin(), in.end(), 0.0);
  for (std::size_t h = 0; h < layer.size(); ++h) {
    const double by_z = (1.0 - layer[h] * layer[h]) * slope[h];
    for (std::size_t k = 0; k < in.size(); ++k) in[k] += by_z * weight[h * in.size() + k];
  }
}

}    // namespace

PlainNep::PlainNep(NepNetwork network) :
    FusedEngine(nullptr),
    network_(std::move(network)),
    harmonics(std::max(1, network_.largest_degree()))
{
  processor_ = "plain";
  for (int kind = 0; kind < NEP_INVARIANTS; ++kind) {
    const auto &[l1, l2, l3] = NEP_DEGREES[kind];
    if (!network_.invariant[kind] || kind == static_cast<int>(NepInvariant::q1111)) continue;
    for (int m1 = -l1; m1 <= l1; ++m1)
      for (int m2 = -l2; m2 <= l2; ++m2) {
        const double factor = wigner_3j(l1, l2, l3, m1, m2, -m1 - m2);
        if (factor != 0.0) terms[kind].push_back({{m1, m2, -m1 - m2}, factor});
      }
  }
  moments.resize(static_cast<std::size_t>(network_.nangular) * harmonics.size());
  slopes.resize(moments.size());
  q.resize(network_.ndescriptors());
  y.resize(q.size());
  slope.resize(q.size());
  charge_slope.resize(network_.charge_mode > 0 ? q.size() : 0);
  has_charges_ = network_.charge_mode > 0;
  exchange_width_ = has_charges_;
  hidden0.resize(network_.nhidden0);
  hidden1.resize(network_.nhidden1);
  back1.resize(network_.nhidden0);
}

PlainNep::Complex PlainNep::moment(int n, int l, int m) const
{
  const Complex value = moments[n * harmonics.size() + Harmonics::place(l, std::abs(m))];
  return m >= 0 ? value : (m % 2 == 0 ? 1.0 : -1.0) * std::conj(value);
}

void PlainNep::Functions::evaluate(double r, double cut, const double *c, int nfunctions,
                                   int nbasis)
{
  value.assign(nfunctions, 0.0);
  slope.assign(nfunctions, 0.0);
  const double t = r / cut, x = 2.0 * (t - 1.0) * (t - 1.0) - 1.0, dx = 4.0 * (t - 1.0) / cut;
  const auto [fc, dfc] = half_cosine(t);
  // T_k and its derivative by x, with the next one.
  double chebyshev = 1.0, next = x, dchebyshev = 0.0, dnext = 1.0;
  for (int k = 0; k < nbasis; ++k) {
    const double f = 0.5 * (chebyshev + 1.0) * fc;
    const double df = 0.5 * dchebyshev * dx * fc + 0.5 * (chebyshev + 1.0) * dfc / cut;
    for (int n = 0; n < nfunctions; ++n) {
      value[n] += c[n * nbasis + k] * f;
      slope[n] += c[n * nbasis + k] * df;
    }
    const double after = 2.0 * x * next - chebyshev;
    const double dafter = 2.0 * next + 2.0 * x * dnext - dchebyshev;
    chebyshev = std::exchange(next, after);
    dchebyshev = std::exchange(dnext, dafter);
  }
}

void PlainNep::find_edges(const Input &input, int center)
{
  const int nspecies = network_.nspecies();
  const double cutoff = network_.cutoff();
  edges.clear();
  for (int s = 0; s < nspecies; ++s) {
    const int *first = input.first + center * nspecies + s;
    for (int k = first[0]; k < first[1]; ++k) {
      Edge edge{input.candidate[k], input.species[center] * nspecies + s, 0.0, {}, {}};
      for (int c = 0; c < 3; ++c) edge.d[c] = input.x[3 * edge.row + c] - input.x[3 * center + c];
      edge.r = std::hypot(edge.d[0], edge.d[1], edge.d[2]);
      if (!(edge.r < cutoff)) continue;
      for (int c = 0; c < 3; ++c) edge.u[c] = edge.d[c] / edge.r;
      edges.push_back(edge);
    }
  }
}

/// The functions of the radial part for an edge. @return whether it is within that cutoff
bool PlainNep::find_radial(const Edge &edge)
{
  const NepNetwork &net = network_;
  const double cut = net.cut_radial[edge.pair];
  if (!(edge.r < cut)) return false;
  functions.evaluate(edge.r, cut, &net.c_radial[edge.pair * net.nradial * net.kradial], net.nradial,
                     net.kradial);
  return true;
}

/// Likewise of the angular part, and its harmonics.
bool PlainNep::find_angular(const Edge &edge)
{
  const NepNetwork &net = network_;
  const double cut = net.cut_angular[edge.pair];
  if (!net.angular() || !(edge.r < cut)) return false;
  functions.evaluate(edge.r, cut, &net.c_angular[edge.pair * net.nangular * net.kangular],
                     net.nangular, net.kangular);
  harmonics.evaluate(edge.u.data());
  return true;
}

/// Moments, descriptors q, and y = q_scaler q.
void PlainNep::find_descriptors(double temperature)
{
  const NepNetwork &net = network_;
  const int size = harmonics.size();
  std::fill(q.begin(), q.end(), 0.0);
  std::fill(moments.begin(), moments.end(), 0.0);
  for (const Edge &edge : edges) {
    if (find_radial(edge))
      for (int n = 0; n < net.nradial; ++n) q[n] += functions.value[n];
    if (find_angular(edge))
      for (int n = 0; n < net.nangular; ++n)
        for (int k = 0; k < size; ++k) moments[n * size + k] += functions.value[n] * harmonics.y[k];
  }

  const auto square = [&](int n, int l) {
    double sum = 0.0;
    for (int m = -l; m <= l; ++m) sum += std::norm(moment(n, l, m));
    return sum;
  };
  double *out = q.data() + net.nradial;
  for (int l = 1; l <= net.l_max; ++l)
    for (int n = 0; n < net.nangular; ++n) *out++ = square(n, l);
  for (int kind = 0; kind < NEP_INVARIANTS; ++kind) {
    if (!net.invariant[kind]) continue;
    const auto &[l1, l2, l3] = NEP_DEGREES[kind];
    for (int n = 0; n < net.nangular; ++n, ++out) {
      if (kind == static_cast<int>(NepInvariant::q1111))
        *out = 7.0 / 15.0 * square(n, 1) * square(n, 1);
      for (const auto &[m, factor] : terms[kind])
        *out += factor * (moment(n, l1, m[0]) * moment(n, l2, m[1]) * moment(n, l3, m[2])).real();
    }
  }
  if (net.temperature) *out = temperature;
  for (std::size_t d = 0; d < q.size(); ++d) y[d] = net.q_scaler[d] * q[d];
}

/// Leaves dE/dq in slope.
double PlainNep::energy_of_network(int species)
{
  const NepNetwork &net = network_;
  const double *weight0 = &net.weight0[species * hidden0.size() * q.size()];
  hidden_layer(weight0, &net.bias0[species * hidden0.size()], y, hidden0);
  const double *last = &net.last[species * net.nlast()];
  const std::vector<double> &top = net.nhidden1 ? hidden1 : hidden0;
  if (net.nhidden1) {
    const double *weight1 = &net.weight1[species * hidden1.size() * hidden0.size()];
    hidden_layer(weight1, &net.bias1[species * hidden1.size()], hidden0, hidden1);
    pull_back(weight1, hidden1, last, back1);
  }
  pull_back(weight0, hidden0, net.nhidden1 ? back1.data() : last, slope);
  for (std::size_t d = 0; d < q.size(); ++d) slope[d] *= net.q_scaler[d];
  double energy = net.shift[species];
  for (std::size_t h = 0; h < top.size(); ++h) energy += last[h] * top[h];
  return energy;
}

/// Behind energy_of_network(). Leaves dc/dq in charge_slope.
double PlainNep::charge_of_network(int species)
{
  const NepNetwork &net = network_;
  const double *weight = &net.last_charge[species * hidden0.size()];
  pull_back(&net.weight0[species * hidden0.size() * q.size()], hidden0, weight, charge_slope);
  for (std::size_t d = 0; d < q.size(); ++d) charge_slope[d] *= net.q_scaler[d];
  return std::inner_product(hidden0.begin(), hidden0.end(), weight, 0.0);
}

/// From slope by the descriptors to slopes by the moments.
void PlainNep::pull_back_to_moments()
{
  const NepNetwork &net = network_;
  const int size = harmonics.size();
  std::fill(slopes.begin(), slopes.end(), 0.0);
  const auto add = [&](int n, int l, int m, Complex value) {
    if (m >= 0) slopes[n * size + Harmonics::place(l, m)] += value;
  };
  // q_nl = sum of A_nlm conj(A_nlm), and conj(A_nlm) = (-1)^m A_nl-m
  const auto add_square = [&](int n, int l, double by_square) {
    for (int m = 0; m <= l; ++m) add(n, l, m, 2.0 * by_square * std::conj(moment(n, l, m)));
  };
  const double *by_q = slope.data() + net.nradial;
  for (int l = 1; l <= net.l_max; ++l)
    for (int n = 0; n < net.nangular; ++n) add_square(n, l, *by_q++);
  for (int kind = 0; kind < NEP_INVARIANTS; ++kind) {
    if (!net.invariant[kind]) continue;
    const auto &[l1, l2, l3] = NEP_DEGREES[kind];
    for (int n = 0; n < net.nangular; ++n, ++by_q) {
      if (kind == static_cast<int>(NepInvariant::q1111)) {
        double square = 0.0;
        for (int m = -1; m <= 1; ++m) square += std::norm(moment(n, 1, m));
        add_square(n, 1, 14.0 / 15.0 * square * *by_q);
      }
      for (const auto &[m, factor] : terms[kind]) {
        const Complex a1 = moment(n, l1, m[0]), a2 = moment(n, l2, m[1]), a3 = moment(n, l3, m[2]);
        add(n, l1, m[0], factor * *by_q * a2 * a3);
        add(n, l2, m[1], factor * *by_q * a1 * a3);
        add(n, l3, m[2], factor * *by_q * a1 * a2);
      }
    }
  }
}

/// -dE_i/dr_ij, without ZBL.
std::array<double, 3> PlainNep::force_on_neighbor(const Edge &edge)
{
  const NepNetwork &net = network_;
  const int size = harmonics.size();
  double length_slope = 0.0;               // dE/dr
  std::array<double, 3> sphere_slope{};    // dE/du, along the sphere
  if (find_radial(edge))
    for (int n = 0; n < net.nradial; ++n) length_slope += slope[n] * functions.slope[n];
  if (find_angular(edge))
    for (int n = 0; n < net.nangular; ++n)
      for (int l = 1, k = 0; k < size; ++l)
        for (int m = 0; m <= l; ++m, ++k) {
          // The term of -m is the conjugate of that of m.
          const Complex by_a = (m == 0 ? 1.0 : 2.0) * slopes[n * size + k];
          length_slope += functions.slope[n] * (by_a * harmonics.y[k]).real();
          for (int c = 0; c < 3; ++c)
            sphere_slope[c] += functions.value[n] * (by_a * harmonics.gradient[k][c]).real();
        }
  std::array<double, 3> force;
  for (int c = 0; c < 3; ++c) force[c] = -(length_slope * edge.u[c] + sphere_slope[c] / edge.r);
  return force;
}

/// The same of ZBL.
/// @param energy  half of its energy is added
std::array<double, 3> PlainNep::force_of_zbl(const Edge &edge, double &energy) const
{
  std::array<double, 3> force{};
  if (network_.zbl.empty() || !(edge.r < network_.zbl[edge.pair].reach)) return force;
  const auto [value, by_r] = zbl_energy(network_.zbl[edge.pair], edge.r);
  energy += 0.5 * value;
  for (int c = 0; c < 3; ++c) force[c] = -0.5 * by_r * edge.u[c];
  return force;
}

/// Forces and virials of a center from slopes by the moments.
void PlainNep::add_forces(int i, double *virial)
{
  for (const Edge &edge : edges) {
    std::array<double, 3> force = force_on_neighbor(edge);
    const std::array<double, 3> zbl = force_of_zbl(edge, atom_energy[i]);
    for (int c = 0; c < 3; ++c) force[c] += zbl[c];
    for (int c = 0; c < 3; ++c) {
      result.force[3 * edge.row + c] += force[c];
      result.force[3 * i + c] -= force[c];
      for (int k = 0; k < 3; ++k) virial[3 * c + k] += edge.d[c] * force[k];
    }
    spread_virial(Alone(), edge.d.data(), force.data(), i, edge.row, result.atom_virial,
                  result.centroid_virial);
  }
}

/// Charges, potentials and Born charges; energies, forces and virials at fixed charges.
void PlainNep::evaluate_charges(const Input &input, double *virial)
{
  charge.assign(input.ncenters, 0.0);
  for (int i = 0; i < input.ncenters; ++i) {
    if (input.species[i] < 0) continue;
    find_edges(input, i);
    find_descriptors(input.temperature);
    energy_of_network(input.species[i]);
    charge[i] = charge_of_network(input.species[i]);
    if (!result.born) continue;
    slope = charge_slope;
    pull_back_to_moments();
    for (const Edge &edge : edges) {
      const std::array<double, 3> back = force_on_neighbor(edge);
      for (int k = 0; k < 9; ++k) {
        const double term = -0.5 * network_.root_epsilon * edge.d[k / 3] * back[k % 3];
        result.born[9 * i + k] += term;
        result.born[9 * edge.row + k] -= term;
      }
    }
  }
  PlainCoulomb found(network_, input, charge);
  result.mean_charge = found.mean_charge;
  charge = std::move(found.charge);
  potential = std::move(found.potential);
  for (int i = 0; i < input.ncenters; ++i) {
    atom_energy[i] += found.energy[i];
    for (int c = 0; c < 3; ++c) result.force[3 * i + c] += found.force[3 * i + c];
    for (int c = 0; c < 9; ++c) {
      virial[c] += found.virial[9 * i + c];
      const double own = found.virial[9 * i + virial_component(c)];
      if (result.atom_virial && c < 6) result.atom_virial[6 * i + c] += own;
      if (result.centroid_virial) result.centroid_virial[9 * i + c] += own;
      if (result.born && c % 4 == 0) result.born[9 * i + c] += network_.root_epsilon * charge[i];
    }
  }
  result.charge = charge.data();
  result.potential = potential.data();
}

const Evaluation &PlainNep::evaluate(const Input &input)
{
  sums.assign(RowSums::size(input), 0.0);
  atom_energy.assign(input.ncenters, 0.0);
  result = {};
  static_cast<RowSums &>(result) = RowSums(input, sums.data());
  result.atom_energy = atom_energy.data();

  for (int i = 0; i < input.ncenters; ++i)
    if (input.species[i] >= network_.nspecies())
      throw std::invalid_argument("center " + std::to_string(i) + " is of species " +
                                  std::to_string(input.species[i]) + ", but the model has " +
                                  std::to_string(network_.nspecies()));
  std::array<double, 9> virial{};
  if (has_charges_) {
    require_box(input);
    evaluate_charges(input, virial.data());
  }
  for (int i = 0; i < input.ncenters; ++i) {
    const int species = input.species[i];
    if (species < 0) continue;
    find_edges(input, i);
    find_descriptors(input.temperature);
    atom_energy[i] += energy_of_network(species);
    if (has_charges_) {
      charge_of_network(species);
      for (std::size_t d = 0; d < q.size(); ++d) slope[d] += potential[i] * charge_slope[d];
    }
    pull_back_to_moments();
    add_forces(i, virial.data());
    result.energy += atom_energy[i];
  }
  result.virial = in_order_of_lammps(virial.data());
  return result;
}

}    // namespace pwmlff
