// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_dp.h"

#include "pair_terms.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pwmlff {
namespace {

constexpr int MOST_TYPES = 118, MOST_NUMBERS = 1 << 24;

/// What is no parameter of a net.
constexpr std::string_view OTHERS[] = {
    "rmin", "rmax",        "m2",           "atom_type", "sel",        "all_species", "davg",
    "dstd", "type_vector", "plain_layers", "zbl_radii", "grade_mean", "grade_factor"};

[[noreturn]] void fail(const std::string &text)
{
  throw std::runtime_error("this DP model cannot run in the fused engine: " + text);
}

/// The parameters of the nets; each is handed out once, so that leftovers can be told.
class Parameters {
 public:
  explicit Parameters(const Arrays &arrays) : arrays(arrays)
  {
    for (const auto &[name, array] : arrays.all())
      if (std::ranges::find(OTHERS, name) == std::end(OTHERS)) left.insert(name);
  }

  bool has(const std::string &name) const { return left.contains(name); }

  const Array &take(const std::string &name)
  {
    if (left.erase(name) == 0) fail("it has no parameter " + name);
    return arrays.all().at(name);
  }

  /// n numbers, in any shape.
  std::vector<double> take(const std::string &name, std::size_t n)
  {
    const Array &array = take(name);
    if (array.values.size() != n)
      fail("parameter " + name + " has shape " + shape_text(array.shape) + ", expected " +
           std::to_string(n) + " elements");
    return array.values;
  }

  /// Hand out what nothing uses: all that begins so.
  void drop(const std::string &prefix)
  {
    std::erase_if(left, [&](const std::string &name) { return name.starts_with(prefix); });
  }

  void expect_none_left() const
  {
    if (!left.empty())
      fail("it has a parameter " + *left.begin() +
           " that is not of the form embedding_net.*.layers.*.{weight,bias} or "
           "fitting_net.*.layers.*.{weight,bias,resnet_dt} for its number of types");
  }

 private:
  const Arrays &arrays;
  std::set<std::string> left;
};

/// The layers of a net, without residuals.
/// @param in  how many numbers it takes; 0 where its arrays say so
DPNet take_net(Parameters &parameters, const std::string &net, std::size_t in)
{
  DPNet result;
  for (int k = 0;; ++k) {
    const std::string prefix = net + ".layers." + std::to_string(k) + ".";
    if (k > 0 && !parameters.has(prefix + "weight")) return result;
    const Array &weight = parameters.take(prefix + "weight");
    const std::vector<std::size_t> &shape = weight.shape;
    if (in == 0 && shape.size() == 2) in = shape[0];
    if (shape.size() != 2 || shape[0] != in || shape[1] < 1)
      fail("parameter " + prefix + "weight has shape " + shape_text(shape) + ", expected [" +
           std::to_string(in) + ", width]");
    const std::size_t out = shape[1];
    const auto vector = [&](const std::string &name) {
      return parameters.has(prefix + name) ? parameters.take(prefix + name, out)
                                           : std::vector<double>();
    };
    result.layers.push_back({static_cast<int>(in), static_cast<int>(out), weight.values,
                             vector("bias"), vector("resnet_dt"), false});
    in = out;
  }
}

/// Set the residuals of a net, and fill in what is left out.
/// @param adds (layer, its index) -> whether there is a residual; without one resnet_dt has no use
template <class Adds> void complete(DPNet &net, Adds adds)
{
  for (std::size_t k = 0; k < net.layers.size(); ++k) {
    DPLayer &layer = net.layers[k];
    if (layer.bias.empty()) layer.bias.assign(layer.out, 0.0);
    layer.residual = adds(layer, k);
    if (!layer.residual || layer.step.empty()) layer.step.assign(layer.out, 1.0);
  }
}

/// The net of a neighbor species from the one for all of them: the vector's part of the first
/// layer is a bias.
DPNet with_vector(DPNet net, const double *vector, std::size_t n)
{
  DPLayer &first = net.layers.front();
  first.in = 1;
  for (std::size_t k = 0; k < n; ++k)
    for (int o = 0; o < first.out; ++o)
      first.bias[o] += vector[k] * first.weight[(k + 1) * first.out + o];
  first.weight.resize(first.out);
  return net;
}

std::vector<DPNet> take_embedding(Parameters &parameters, const Arrays &arrays,
                                  std::size_t nspecies)
{
  const auto adds = [](const DPLayer &layer, std::size_t) {
    return embedding_residual(layer.in, layer.out);
  };
  std::vector<DPNet> result;
  if (!arrays.has("type_vector")) {
    for (std::size_t pair = 0; pair < nspecies * nspecies; ++pair) {
      result.push_back(take_net(parameters, "embedding_net." + std::to_string(pair), 1));
      complete(result.back(), adds);
    }
    return result;
  }
  const Array &vectors = arrays.get("type_vector", {static_cast<std::ptrdiff_t>(nspecies), -1});
  const std::size_t n = vectors.shape[1];
  // The last one is in use; there may be another net before it.
  int last = 0;
  while (parameters.has("embedding_net." + std::to_string(last + 1) + ".layers.0.weight")) ++last;
  for (int net = 0; net < last; ++net)
    parameters.drop("embedding_net." + std::to_string(net) + ".");
  DPNet shared = take_net(parameters, "embedding_net." + std::to_string(last), 1 + n);
  complete(shared, adds);
  if (shared.layers.front().residual)
    fail("the first layer of its embedding net adds the vector of the type to its result");
  for (std::size_t pair = 0; pair < nspecies * nspecies; ++pair)
    result.push_back(with_vector(shared, &vectors.values[pair % nspecies * n], n));
  return result;
}

/// @param ambiguous  set where plain_layers decides
DPNet take_fitting(Parameters &parameters, const std::string &name, bool plain_layers,
                   bool &ambiguous)
{
  DPNet net = take_net(parameters, name, 0);
  const std::size_t last = net.layers.size() - 1;
  complete(net, [&](const DPLayer &layer, std::size_t k) {
    const bool may_add = layer.in == layer.out && k > 0 && k < last;
    if (!layer.step.empty() && !may_add)
      fail(name + " has resnet_dt in a layer from width " + std::to_string(layer.in) + " to " +
           std::to_string(layer.out) +
           ", expected it in hidden layers after the first that keep the width");
    ambiguous |= may_add && layer.step.empty();
    return may_add && (!layer.step.empty() || plain_layers);
  });
  return net;
}

std::vector<DPGrade> grades(const Arrays &arrays, std::ptrdiff_t ntypes)
{
  std::vector<DPGrade> result;
  if (!arrays.has("grade_mean")) return result;
  const Array &mean = arrays.get("grade_mean", {ntypes, -1});
  const std::ptrdiff_t n = static_cast<std::ptrdiff_t>(mean.shape[1]);
  const std::vector<double> &means = mean.values,
                            &factors = arrays.get("grade_factor", {ntypes, n, n}).values;
  for (std::ptrdiff_t a = 0; a < ntypes; ++a)
    result.push_back({{means.begin() + a * n, means.begin() + (a + 1) * n},
                      {factors.begin() + a * n * n, factors.begin() + (a + 1) * n * n}});
  return result;
}

std::vector<ZblPair> zbl_pairs(const Arrays &arrays, const std::vector<int> &atom_type)
{
  std::vector<ZblPair> result;
  if (!arrays.has("zbl_radii")) return result;
  const std::size_t n = atom_type.size();
  const std::vector<double> &radii =
      arrays.get("zbl_radii", {static_cast<std::ptrdiff_t>(n * n), 2}).values;
  for (std::size_t pair = 0; pair < n * n; ++pair)
    result.push_back(zbl_pair(atom_type[pair / n], atom_type[pair % n], radii[2 * pair],
                              radii[2 * pair + 1], radii[2 * pair + 1]));
  return result;
}

}    // namespace

DPNetwork read_dp(const Arrays &arrays)
{
  DPNetwork network{};
  network.rmin = arrays.number("rmin");
  network.rmax = arrays.number("rmax");
  network.m2 = arrays.integer("m2", 1, MOST_NUMBERS);
  network.atom_type = arrays.integers("atom_type", 1, MOST_TYPES);
  const std::ptrdiff_t n = network.nspecies();
  network.sel = arrays.integers("sel", 1, MOST_NUMBERS);
  network.all_species = arrays.has("all_species") && arrays.integer("all_species", 0, 1) == 1;
  network.davg = arrays.get("davg", {n, n, 4}).values;
  network.dstd = arrays.get("dstd", {n, n, 4}).values;
  network.zbl = zbl_pairs(arrays, network.atom_type);
  network.grades = grades(arrays, n);

  Parameters parameters(arrays);
  network.embedding = take_embedding(parameters, arrays, static_cast<std::size_t>(n));
  network.width = network.embedding.front().layers.back().out;
  const bool plain_layers =
      !arrays.has("plain_layers") || arrays.integer("plain_layers", 0, 1) == 1;
  for (int a = 0; a < n; ++a)
    network.fitting.push_back(take_fitting(parameters, "fitting_net." + std::to_string(a),
                                           plain_layers, network.ambiguous));
  parameters.expect_none_left();
  try {
    check_network(network);
  } catch (const std::exception &error) {
    fail(error.what());
  }
  return network;
}

}    // namespace pwmlff
