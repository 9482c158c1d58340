// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_mace.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace pwmlff {
namespace {

constexpr int MOST_SPECIES = 118, MOST_CHANNELS = 4096, MOST_LAYERS = 16;

[[noreturn]] void fail(const std::string &text)
{
  throw std::runtime_error("its arrays for the fused engine: " + text);
}

/// Matrices that stand one behind the other in an array of three dimensions.
std::vector<MaceMatrix> matrices(const Array &array)
{
  const std::size_t rows = array.shape[1], columns = array.shape[2], size = rows * columns;
  std::vector<MaceMatrix> result;
  for (std::size_t n = 0; n < array.shape[0]; ++n) {
    const auto begin = array.values.begin() + static_cast<std::ptrdiff_t>(n * size);
    result.push_back({static_cast<int>(rows),
                      static_cast<int>(columns),
                      {begin, begin + static_cast<std::ptrdiff_t>(size)}});
  }
  return result;
}

MaceMatrix matrix(const Array &array)
{
  return {static_cast<int>(array.shape[0]), static_cast<int>(array.shape[1]), array.values};
}

/// One layer out of the arrays.
class LayerReader {
 public:
  LayerReader(const Arrays &arrays, const MaceNetwork &network, int layer, int into) :
      arrays(arrays), network(network), prefix("layer" + std::to_string(layer) + "."), into(into)
  {
  }

  MaceLayer read()
  {
    const std::ptrdiff_t k = network.channels;
    for (int l = 0; l <= into; ++l)
      layer.up.push_back(matrix(get(numbered("up", l), {k, l > 0 ? edge_channels() : -1})));
    if (edge_channels() < 1 || edge_channels() > MOST_CHANNELS)
      fail(prefix + "up has " + std::to_string(edge_channels()) + " columns");
    read_paths();
    read_radial();
    read_messages();
    if (has("gate.mix.0")) read_gates();
    read_contractions();
    for (int l = 0; l <= layer.out(); ++l)
      layer.product.push_back(matrix(get("product." + std::to_string(l), {k, k})));
    if (has("skip.0"))
      for (int l = 0; l <= std::min(into, layer.out()); ++l)
        read_each(numbered("skip", l), l, {-1, k, k}, layer.skip, layer.skips);
    if (has("readout")) layer.readout = get("readout", {k}).values;
    if (has("readout.first")) {
      layer.readout_first = matrix(get("readout.first", {k, -1}));
      const std::ptrdiff_t hidden = layer.readout_first.columns;
      layer.readout_last = get("readout.last", {hidden}).values;
      if (has("readout.mid")) {
        layer.readout_mid = matrix(get("readout.mid", {hidden, hidden}));
        layer.readout_bias = get("readout.bias", {hidden}).values;
      }
    }
    return std::move(layer);
  }

 private:
  bool has(const std::string &name) const { return arrays.has(prefix + name); }
  const Array &get(const std::string &name, const std::vector<std::ptrdiff_t> &shape) const
  {
    return arrays.get(prefix + name, shape);
  }

  static std::string numbered(const std::string &name, int n)
  {
    return name + "." + std::to_string(n);
  }
  std::ptrdiff_t edge_channels() const { return layer.edge_channels(); }

  /// Matrices of a degree, one for all species or one for each, as of degree 0.
  void read_each(const std::string &name, int degree, const std::vector<std::ptrdiff_t> &shape,
                 std::vector<MaceMatrix> &to, int &each)
  {
    const Array &array = get(name, shape);
    const auto n = static_cast<int>(array.shape[0]);
    if ((degree > 0 && n != each) || (n != 1 && n != network.nspecies()))
      fail(prefix + name + " has another number of species");
    each = n;
    for (MaceMatrix &one : matrices(array)) to.push_back(std::move(one));
  }

  /// @param columns  of the last one
  MaceNet read_net(const std::string &name, std::ptrdiff_t columns)
  {
    MaceNet net;
    std::ptrdiff_t in = static_cast<std::ptrdiff_t>(network.frequency.size());
    for (int n = 0; has(numbered(name, n)); ++n) {
      net.weights.push_back(matrix(get(numbered(name, n), {in, -1})));
      in = net.weights.back().columns;
      const auto n_before = static_cast<std::size_t>(n);
      for (const bool is_norm : {false, true}) {
        auto &arrays_of = is_norm ? net.norm : net.bias;
        const std::string part = numbered(name + (is_norm ? ".norm" : ".bias"), n);
        if (!has(part)) continue;
        if (arrays_of.size() != n_before)
          fail(prefix + name + " has biases or norms of some of its matrices alone");
        if (is_norm) arrays_of.push_back(get(part, {2, in}).values);
        else arrays_of.push_back(get(part, {in}).values);
      }
    }
    if (net.empty() || in != columns)
      fail(prefix + name + " ends with " + std::to_string(in) + " numbers, expected " +
           std::to_string(columns));
    if ((!net.bias.empty() && net.bias.size() != net.weights.size()) ||
        (!net.norm.empty() && net.norm.size() + 1 != net.weights.size()))
      fail(prefix + name + " has biases or norms of some of its matrices alone");
    if (has(name + ".pair"))
      net.of_pair =
          get(name + ".pair", {network.nspecies(), network.nspecies(), net.weights.front().columns})
              .values;
    return net;
  }

  void read_paths()
  {
    const Array &paths = get("paths", {-1, 3});
    for (std::size_t p = 0; p < paths.shape[0]; ++p) {
      const double *const degrees = &paths.values[3 * p];
      const int l1 = integer(degrees[0], 0, into, prefix + "paths"),
                l2 = integer(degrees[1], 0, network.largest, prefix + "paths"),
                degree = integer(degrees[2], 0, network.largest, prefix + "paths");
      layer.paths.push_back(
          {l1, l2, degree,
           get("coupling." + std::to_string(p), {2 * l1 + 1, 2 * l2 + 1, 2 * degree + 1}).values});
    }
  }

  void read_radial()
  {
    layer.radial =
        read_net("radial", static_cast<std::ptrdiff_t>(layer.paths.size()) * edge_channels());
    if (has("density")) {    // one matrix, as a vector
      const auto nbasis = static_cast<int>(network.frequency.size());
      layer.density.weights.push_back({nbasis, 1, get("density", {nbasis}).values});
    } else if (has("density.0")) {
      layer.density = read_net("density", 1);
    }
    if (has("divisor")) {
      if (layer.density.empty()) fail(prefix + "divisor is there without a density");
      const Array &divisor = get("divisor", {2});
      std::copy_n(divisor.values.begin(), 2, layer.divisor);
    }
  }

  /// Rows of A of all paths to a degree.
  std::ptrdiff_t rows_to(int degree) const
  {
    return edge_channels() * std::ranges::count(layer.paths, degree, &MacePath::degree);
  }

  void read_messages()
  {
    for (int l = 0; l <= network.largest; ++l)
      read_each(numbered("message", l), l, {-1, rows_to(l), network.channels}, layer.message,
                layer.messages);
  }

  void read_gates()
  {
    const std::ptrdiff_t k = network.channels, ke = edge_channels();
    if (layer.messages != 1) fail(prefix + "message is not one for all species, as gates need it");
    MaceGates &gates = layer.gates.emplace();
    for (int l = 0; l <= network.largest; ++l) {
      gates.mix.push_back(matrix(get(numbered("gate.mix", l), {k, k})));
      if (l <= into) gates.own.push_back(matrix(get(numbered("gate.own", l), {ke, k})));
      if (l == 0) continue;
      gates.message.push_back(matrix(get(numbered("gate.z", l), {rows_to(0), k})));
      gates.own_gate.push_back(matrix(get(numbered("gate.own_z", l), {ke, k})));
    }
  }

  void read_contractions()
  {
    const int ncomponents = (network.largest + 1) * (network.largest + 1);
    for (int l = 0; has("contraction." + std::to_string(l) + ".terms.1"); ++l) {
      layer.contraction.emplace_back();
      if (l > MACE_MOST_DEGREE) fail(prefix + "contraction has degrees that are too large");
      for (int order = 1; order <= MACE_MOST_ORDER; ++order) {
        const std::string name = "contraction." + std::to_string(l) + ".",
                          number = std::to_string(order);
        if (!has(name + "terms." + number)) break;
        const Array &weights =
            get(name + "weights." + number, {network.nspecies(), -1, network.channels});
        const Array &terms = get(name + "terms." + number, {-1, 3 + order});
        MaceTerms found;
        found.order = order;
        found.nparameters = static_cast<int>(weights.shape[1]);
        found.weights = weights.values;
        for (std::size_t n = 0; n < terms.shape[0]; ++n) {
          const double *const row = &terms.values[n * terms.shape[1]];
          MaceTerms::Term term{integer(row[0], 0, 2 * l, prefix + name),
                               integer(row[1], 0, found.nparameters - 1, prefix + name),
                               row[2],
                               {}};
          for (int k = 0; k < order; ++k)
            term.factor[k] =
                integer(row[3 + k], k > 0 ? term.factor[k - 1] : 0, ncomponents - 1, prefix + name);
          found.terms.push_back(term);
        }
        layer.contraction.back().push_back(std::move(found));
      }
    }
    if (layer.contraction.empty()) fail(prefix + "contraction is missing");
  }

  const Arrays &arrays;
  const MaceNetwork &network;
  const std::string prefix;
  const int into;
  MaceLayer layer;
};

}    // namespace

MaceNetwork read_mace(const Arrays &arrays)
{
  MaceNetwork network;
  network.atom_type = arrays.integers("atom_type", 1, MOST_SPECIES);
  const std::ptrdiff_t nspecies = network.nspecies();
  network.cutoff = arrays.number("cutoff");
  if (!(network.cutoff > 0.0)) fail("cutoff is not above zero");
  network.energy = arrays.get("energies", {nspecies}).values;
  const Array &scaling = arrays.get("scaling", {2});
  network.scale = scaling.values[0];
  network.shift = scaling.values[1];
  const Array &embedding = arrays.get("embedding", {nspecies, -1});
  network.channels = integer(static_cast<double>(embedding.shape[1]), 1, MOST_CHANNELS, "channels");
  network.embedding = embedding.values;

  const Array &basis = arrays.get("radial.basis", {-1}),
              &options = arrays.get("radial.options", {3});
  if (basis.values.size() < 2) fail("radial.basis is empty");
  network.frequency.assign(basis.values.begin(), basis.values.end() - 1);
  network.factor = basis.values.back();
  network.basis = static_cast<MaceBasis>(integer(options.values[0], 0, 1, "radial.options"));
  network.power = integer(options.values[1], 1, 100, "radial.options");
  network.cutoff_first = integer(options.values[2], 0, 1, "radial.options") == 1;
  if (arrays.has("radial.agnesi")) {
    network.agnesi = arrays.get("radial.agnesi", {3}).values;
    network.radii = arrays.get("radial.radii", {nspecies}).values;
  }
  if (arrays.has("zbl.numbers")) {
    network.zbl = arrays.get("zbl.numbers", {5}).values;
    network.zbl_length = arrays.get("zbl.length", {nspecies, nspecies}).values;
    network.zbl_strength = arrays.get("zbl.strength", {nspecies, nspecies}).values;
    network.zbl_reach = arrays.get("zbl.reach", {nspecies, nspecies}).values;
  }

  network.largest = -1;
  while (arrays.has("layer0.message." + std::to_string(network.largest + 1))) ++network.largest;
  if (network.largest < 0 || network.largest > MACE_MOST_DEGREE)
    fail("layer0.message has degrees up to " + std::to_string(network.largest));
  int into = 0;
  for (int t = 0; arrays.has("layer" + std::to_string(t) + ".paths"); ++t) {
    if (t == MOST_LAYERS) fail("there are more than " + std::to_string(MOST_LAYERS) + " layers");
    network.layers.push_back(LayerReader(arrays, network, t, into).read());
    into = network.layers.back().out();
    for (const MaceNet *const net : {&network.layers.back().radial, &network.layers.back().density})
      network.nets_of_pairs |= !net->of_pair.empty();
  }
  if (network.layers.empty()) fail("there are no layers");
  return network;
}

}    // namespace pwmlff
