// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_mace.h"

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
      layer.up.push_back(matrix(get("up." + std::to_string(l), {k, k})));
    read_paths();
    read_radial();
    read_messages();
    read_contractions();
    for (int l = 0; l <= layer.out(); ++l)
      layer.product.push_back(matrix(get("product." + std::to_string(l), {k, k})));
    if (has("skip.0"))
      for (int l = 0; l <= std::min(into, layer.out()); ++l)
        for (MaceMatrix &one :
             matrices(get("skip." + std::to_string(l), {network.nspecies(), k, k})))
          layer.skip.push_back(std::move(one));
    if (has("readout")) layer.readout = get("readout", {k}).values;
    if (has("readout.first")) {
      layer.readout_first = matrix(get("readout.first", {k, -1}));
      layer.readout_last = get("readout.last", {layer.readout_first.columns}).values;
    }
    return std::move(layer);
  }

 private:
  bool has(const std::string &name) const { return arrays.has(prefix + name); }
  const Array &get(const std::string &name, const std::vector<std::ptrdiff_t> &shape) const
  {
    return arrays.get(prefix + name, shape);
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
    std::ptrdiff_t in = static_cast<std::ptrdiff_t>(network.frequency.size());
    for (int n = 0; has("radial." + std::to_string(n)); ++n) {
      layer.radial.push_back(matrix(get("radial." + std::to_string(n), {in, -1})));
      in = layer.radial.back().columns;
    }
    const auto wanted = static_cast<std::ptrdiff_t>(layer.paths.size()) * network.channels;
    if (layer.radial.empty() || in != wanted)
      fail(prefix + "radial ends with " + std::to_string(in) + " numbers, expected " +
           std::to_string(wanted));
    if (has("density"))
      layer.density =
          get("density", {static_cast<std::ptrdiff_t>(network.frequency.size())}).values;
  }

  void read_messages()
  {
    for (int l = 0; l <= network.largest; ++l) {
      std::ptrdiff_t npaths = 0;
      for (const MacePath &path : layer.paths) npaths += path.degree == l;
      const Array &array =
          get("message." + std::to_string(l), {-1, npaths * network.channels, network.channels});
      const auto n = static_cast<int>(array.shape[0]);
      if ((l > 0 && n != layer.messages) || (n != 1 && n != network.nspecies()))
        fail(prefix + "message has another number of species");
      layer.messages = n;
      for (MaceMatrix &one : matrices(array)) layer.message.push_back(std::move(one));
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
  }
  if (network.layers.empty()) fail("there are no layers");
  return network;
}

}    // namespace pwmlff
