// SPDX-License-Identifier: GPL-2.0-or-later

#include "nep_arrays.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace pwmlff {
namespace {

constexpr int MOST_SPECIES = 118, MOST_NUMBERS = 1 << 24;

/// Calls work(name, number, least) for each number of a network.
template <class Network, class Work> void for_numbers(Network &network, const Work &work)
{
  work("nradial", network.nradial, 1);
  work("nangular", network.nangular, 1);
  work("kradial", network.kradial, 1);
  work("kangular", network.kangular, 1);
  work("l_max", network.l_max, 0);
  work("nhidden0", network.nhidden0, 1);
  work("nhidden1", network.nhidden1, 0);
  work("temperature", network.temperature, 0);
}

/// Calls work(name, vector, shape) for each array that these numbers say a network has.
template <class Network, class Work> void for_arrays(Network &network, const Work &work)
{
  using Shape = std::vector<std::size_t>;
  const auto n = network.atom_type.size();
  const std::size_t d = network.ndescriptors(), h0 = network.nhidden0, h1 = network.nhidden1;
  const Shape angular = {n, n, static_cast<std::size_t>(network.nangular),
                         static_cast<std::size_t>(network.kangular)};
  work("cut_radial", network.cut_radial, Shape{n, n});
  work("cut_angular", network.cut_angular, Shape{n, n});
  work("c_radial", network.c_radial,
       Shape{n, n, static_cast<std::size_t>(network.nradial),
             static_cast<std::size_t>(network.kradial)});
  if (network.angular()) work("c_angular", network.c_angular, angular);
  work("q_scaler", network.q_scaler, Shape{d});
  work("weight0", network.weight0, Shape{n, h0, d});
  work("bias0", network.bias0, Shape{n, h0});
  if (h1 > 0) {
    work("weight1", network.weight1, Shape{n, h1, h0});
    work("bias1", network.bias1, Shape{n, h1});
  }
  work("last", network.last, Shape{n, static_cast<std::size_t>(network.nlast())});
  work("shift", network.shift, Shape{n});
}

}    // namespace

Arrays nep_arrays(const NepNetwork &network)
{
  Arrays arrays("nep");
  const std::size_t n = network.atom_type.size();
  arrays.set("atom_type", network.atom_type);
  for_numbers(network, [&](const char *name, double value, int) { arrays.set(name, value); });
  arrays.set("invariant", {network.invariant.begin(), network.invariant.end()});
  for_arrays(network,
             [&](const char *name, const std::vector<double> &values,
                 std::vector<std::size_t> shape) { arrays.set(name, std::move(shape), values); });
  if (!network.zbl_table.empty()) arrays.set("zbl_table", {n, n, 10}, network.zbl_table);
  if (!network.zbl_line.empty())
    arrays.set("zbl_line", {network.zbl_line.size()}, network.zbl_line);
  if (!network.unused.empty()) arrays.set("unused", {network.unused.size()}, network.unused);
  if (network.charge_mode > 0) {
    arrays.set("charge_mode", network.charge_mode);
    arrays.set("last_charge", {n, static_cast<std::size_t>(network.nhidden0)}, network.last_charge);
    arrays.set("root_epsilon", network.root_epsilon);
  }
  arrays.set("neighbors", {2}, {network.neighbors.begin(), network.neighbors.end()});
  for (std::size_t k = 0; k < network.warnings.size(); ++k)
    arrays.set_text("warning." + std::to_string(k), network.warnings[k]);
  return arrays;
}

NepNetwork nep_of(const Arrays &arrays)
{
  NepNetwork network;
  network.atom_type = arrays.integers("atom_type", 1, MOST_SPECIES);
  for_numbers(network, [&](const std::string &name, auto &value, int least) {
    const int most = name == "l_max"         ? NEP_LARGEST_DEGREE
                     : name == "temperature" ? 1
                                             : MOST_NUMBERS;
    value = arrays.integer(name, least, most);
  });
  const std::vector<int> flags = arrays.integers("invariant", 0, 1);
  std::copy_n(flags.begin(), std::min(flags.size(), network.invariant.size()),
              network.invariant.begin());
  for_arrays(network, [&](const char *name, std::vector<double> &values,
                          const std::vector<std::size_t> &shape) {
    values = arrays.get(name, {shape.begin(), shape.end()}).values;
  });
  if (arrays.has("zbl_table")) {
    const std::ptrdiff_t n = network.nspecies();
    network.zbl_table = arrays.get("zbl_table", {n, n, 10}).values;
  }
  if (arrays.has("charge_mode")) {
    network.charge_mode = arrays.integer("charge_mode", 1, 2);
    network.last_charge = arrays.get("last_charge", {network.nspecies(), network.nhidden0}).values;
    network.root_epsilon = arrays.number("root_epsilon");
    if (network.nhidden1 > 0)
      throw std::runtime_error("has charges and two hidden layers, expected one");
  }
  for (std::string name;
       arrays.has_text(name = "warning." + std::to_string(network.warnings.size()));)
    network.warnings.push_back(arrays.text(name));
  network.make_zbl();
  return network;
}

}    // namespace pwmlff
