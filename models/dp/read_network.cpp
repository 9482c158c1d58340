// SPDX-License-Identifier: GPL-2.0-or-later

#include "read_network.h"

#include "../record.h"
#include "dp/pair_terms.h"

#include <torch/script.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

namespace pwmlff::models {
namespace {

using torch::jit::Module;

[[noreturn]] void fail(const std::string &text)
{
  throw std::runtime_error("this DP model cannot run in the fused engine: " + text);
}

std::string shape_text(const at::Tensor &tensor)
{
  std::string text = "[";
  for (const auto size : tensor.sizes())
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::vector<double> to_vector(const at::Tensor &tensor)
{
  const at::Tensor plain = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

/// The parameters of a module by name; each is handed out once, so that leftovers can be told.
class Parameters {
 public:
  explicit Parameters(const Module &module)
  {
    for (const auto &parameter : module.named_parameters())
      values.emplace(parameter.name, parameter.value);
  }

  bool has(const std::string &name) const { return values.contains(name); }

  /// A vector of n elements, in any shape.
  std::vector<double> take(const std::string &name, std::int64_t n)
  {
    const at::Tensor tensor = take(name);
    if (tensor.numel() != n)
      fail("parameter " + name + " has shape " + shape_text(tensor) + ", expected " +
           std::to_string(n) + " elements");
    return to_vector(tensor);
  }

  at::Tensor take(const std::string &name)
  {
    const auto found = values.find(name);
    if (found == values.end()) fail("it has no parameter " + name);
    const at::Tensor tensor = found->second;
    values.erase(found);
    return tensor;
  }

  /// Hand out what nothing uses: all that begins so.
  void drop(const std::string &prefix)
  {
    std::erase_if(values, [&](const auto &entry) { return entry.first.starts_with(prefix); });
  }

  void expect_none_left() const
  {
    if (!values.empty())
      fail("it has a parameter " + values.begin()->first +
           " that is not of the form embedding_net.*.layers.*.{weight,bias} or "
           "fitting_net.*.layers.*.{weight,bias,resnet_dt} for its number of types");
  }

 private:
  std::map<std::string, at::Tensor> values;
};

/// The layers of a net, without residuals.
/// @param in  how many numbers it takes; 0 where its file says so
DPNet take_net(Parameters &parameters, const std::string &net, int in)
{
  DPNet result;
  for (int k = 0;; ++k) {
    const std::string prefix = net + ".layers." + std::to_string(k) + ".";
    if (k > 0 && !parameters.has(prefix + "weight")) return result;
    const at::Tensor weight = parameters.take(prefix + "weight");
    if (in == 0 && weight.dim() == 2) in = static_cast<int>(weight.size(0));
    if (weight.dim() != 2 || weight.size(0) != in || weight.size(1) < 1)
      fail("parameter " + prefix + "weight has shape " + shape_text(weight) + ", expected [" +
           std::to_string(in) + ", width]");
    const int out = static_cast<int>(weight.size(1));
    const auto vector = [&](const std::string &name) {
      return parameters.has(prefix + name) ? parameters.take(prefix + name, out)
                                           : std::vector<double>();
    };
    result.layers.push_back(
        {in, out, to_vector(weight), vector("bias"), vector("resnet_dt"), false});
    in = out;
  }
}

/// Set the residuals of a net, and fill in what the file leaves out.
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

/// The vector of each species that an embedding net for all pairs takes beside R~_0, or nothing.
/// The scripts make a tensor of a list of it, which rounds it to float32.
std::vector<std::vector<double>> type_vectors(const Module &module,
                                              const std::vector<int> &atom_type)
{
  std::vector<std::vector<double>> result;
  if (!module.hasattr("type_vector")) return result;
  const c10::IValue value = module.attr("type_vector");
  if (!value.isGenericDict()) return result;    // something else of another program
  const auto vectors = value.toGenericDict();
  if (vectors.empty()) return result;
  for (const int number : atom_type) {
    const auto found = vectors.find(number);
    if (found == vectors.end() || !found->value().isDoubleList())
      fail("attribute type_vector has no list of numbers for atomic number " +
           std::to_string(number));
    std::vector<double> vector = found->value().toDoubleVector();
    for (double &component : vector) component = static_cast<float>(component);
    if (vector.empty() || (!result.empty() && vector.size() != result[0].size()))
      fail("attribute type_vector has lists of different lengths, or empty ones");
    result.push_back(std::move(vector));
  }
  return result;
}

/// The net of a neighbor species from the one for all of them: the vector's part of the first
/// layer is a bias.
DPNet with_vector(DPNet net, const std::vector<double> &vector)
{
  DPLayer &first = net.layers.front();
  first.in = 1;
  for (std::size_t k = 0; k < vector.size(); ++k)
    for (int o = 0; o < first.out; ++o)
      first.bias[o] += vector[k] * first.weight[(k + 1) * first.out + o];
  first.weight.resize(first.out);
  return net;
}

std::vector<DPNet> take_embedding(Parameters &parameters, const Module &module,
                                  const std::vector<int> &atom_type)
{
  const std::vector<std::vector<double>> vectors = type_vectors(module, atom_type);
  const auto adds = [](const DPLayer &layer, std::size_t) {
    return embedding_residual(layer.in, layer.out);
  };
  const std::size_t nspecies = atom_type.size();
  std::vector<DPNet> result;
  if (vectors.empty()) {
    for (std::size_t pair = 0; pair < nspecies * nspecies; ++pair) {
      result.push_back(take_net(parameters, "embedding_net." + std::to_string(pair), 1));
      complete(result.back(), adds);
    }
    return result;
  }
  // The last one is in use; a file may have another net before it.
  int last = 0;
  while (parameters.has("embedding_net." + std::to_string(last + 1) + ".layers.0.weight")) ++last;
  for (int net = 0; net < last; ++net)
    parameters.drop("embedding_net." + std::to_string(net) + ".");
  DPNet shared = take_net(parameters, "embedding_net." + std::to_string(last),
                          1 + static_cast<int>(vectors[0].size()));
  complete(shared, adds);
  if (shared.layers.front().residual)
    fail("the first layer of its embedding net adds the vector of the type to its result");
  for (std::size_t pair = 0; pair < nspecies * nspecies; ++pair)
    result.push_back(with_vector(shared, vectors[pair % nspecies]));
  return result;
}

// [ntypes, ntypes*max_neighbor*4] -> [ntypes, ntypes, 4]
std::vector<double> per_pair(const Module &module, const std::string &name, int ntypes,
                             int max_neighbor)
{
  const c10::IValue value = module.attr(name);
  if (!value.isTensor())
    fail("attribute " + name + " is " + value.tagKind() + ", expected a tensor");
  const std::vector<double> slots = to_vector(value.toTensor());
  const std::size_t block = static_cast<std::size_t>(max_neighbor) * 4;
  if (slots.size() != static_cast<std::size_t>(ntypes) * ntypes * block)
    fail("attribute " + name + " has shape " + shape_text(value.toTensor()) +
         ", expected [ntypes, ntypes*maxNeighborNum*4]");
  std::vector<double> result;
  for (std::size_t first = 0; first < slots.size(); first += block) {
    for (std::size_t k = 4; k < block; ++k)
      if (slots[first + k] != slots[first + k % 4])
        fail("attribute " + name +
             " differs between the slots of one pair of types, so the order of neighbors matters");
    result.insert(result.end(), &slots[first], &slots[first] + 4);
  }
  return result;
}

/// The grades of the elements, or nothing: the attributes grade_mean [ntypes, n] and grade_factor
/// [ntypes, n, n].
std::vector<DPGrade> grades(const Module &module, std::size_t ntypes)
{
  std::vector<DPGrade> result;
  if (!module.hasattr("grade_mean") || !module.hasattr("grade_factor")) return result;
  const c10::IValue mean = module.attr("grade_mean"), factor = module.attr("grade_factor");
  if (!mean.isTensor() || !factor.isTensor()) return result;    // something else of another program
  const std::vector<double> means = to_vector(mean.toTensor()),
                            factors = to_vector(factor.toTensor());
  if (means.empty() && factors.empty()) return result;
  const std::size_t n = means.size() / ntypes;
  if (n * ntypes != means.size() || n * means.size() != factors.size())
    fail("attributes grade_mean and grade_factor have shapes " + shape_text(mean.toTensor()) +
         " and " + shape_text(factor.toTensor()) + ", expected [ntypes, n] and [ntypes, n, n]");
  for (std::size_t a = 0; a < ntypes; ++a)
    result.push_back({{means.begin() + a * n, means.begin() + (a + 1) * n},
                      {factors.begin() + a * n * n, factors.begin() + (a + 1) * n * n}});
  return result;
}

/// ZBL of pairs of types, or nothing: the attribute zbl_radii has the inner and outer radius of
/// each, 0 and 0 for those without.
std::vector<ZblPair> zbl_pairs(const Module &module, const std::vector<int> &atom_type)
{
  std::vector<ZblPair> result;
  if (!module.hasattr("zbl_radii")) return result;
  const c10::IValue value = module.attr("zbl_radii");
  if (!value.isList()) return result;    // something else of another program
  const std::size_t n = atom_type.size();
  const auto pairs = value.toListRef();
  for (std::size_t pair = 0; pair < pairs.size() && pairs.size() == n * n; ++pair) {
    if (!pairs[pair].isDoubleList() || pairs[pair].toDoubleVector().size() != 2)
      fail("attribute zbl_radii has no two numbers for the pair of types " + std::to_string(pair));
    const std::vector<double> radii = pairs[pair].toDoubleVector();
    result.push_back(
        zbl_pair(atom_type[pair / n], atom_type[pair % n], radii[0], radii[1], radii[1]));
  }
  if (result.size() != pairs.size())
    fail("attribute zbl_radii has " + std::to_string(pairs.size()) + " pairs of types, expected " +
         std::to_string(n * n) + " or none");
  return result;
}

}    // namespace

void describe_dp(const ModelFile &file, ModelInfo &info)
{
  info.kind = "DP";
  file.describe_limits(info, {"Rmax", "", "maxNeighborNum", "ntypes"});
  const std::vector<std::int64_t> sel = file.integers("sel", std::vector<std::int64_t>());
  const bool fits = std::ranges::all_of(
      sel, [&](std::int64_t slots) { return slots >= 1 && slots <= info.max_neighbor; });
  if (fits && sel.size() == info.atom_type.size()) info.sel.assign(sel.begin(), sel.end());
  else if (trained_here(file.archive())) info.sel.assign(info.atom_type.size(), info.max_neighbor);
}

DPNetwork read_network(const ModelFile &file, const ModelInfo &info, PlainLayers plain_layers)
{
  file.require({"Rmin", "M2", "davg", "dstd"}, "the fused engine");
  const Module &module = file.module();
  DPNetwork network;
  network.rmin = file.number("Rmin");
  network.rmax = info.cutoff;
  network.m2 = static_cast<int>(file.number("M2"));
  network.atom_type = info.atom_type;
  const int n = network.nspecies();
  network.sel = info.sel;
  network.all_species = !network.sel.empty();
  if (network.sel.empty()) network.sel.assign(n, info.max_neighbor);
  network.davg = per_pair(module, "davg", n, info.max_neighbor);
  network.dstd = per_pair(module, "dstd", n, info.max_neighbor);

  network.zbl = zbl_pairs(module, network.atom_type);
  network.grades = grades(module, network.atom_type.size());

  Parameters parameters(module);
  network.embedding = take_embedding(parameters, module, network.atom_type);
  network.width = network.embedding.front().layers.back().out;
  network.ambiguous = false;
  for (int a = 0; a < n; ++a) {
    const std::string name = "fitting_net." + std::to_string(a);
    DPNet net = take_net(parameters, name, 0);
    const std::size_t last = net.layers.size() - 1;
    complete(net, [&](const DPLayer &layer, std::size_t k) {
      const bool may_add = layer.in == layer.out && k > 0 && k < last;
      if (!layer.step.empty() && !may_add)
        fail(name + " has resnet_dt in a layer from width " + std::to_string(layer.in) + " to " +
             std::to_string(layer.out) +
             ", expected it in hidden layers after the first that keep the width");
      if (may_add && layer.step.empty()) network.ambiguous = true;
      return may_add && (!layer.step.empty() || plain_layers == PlainLayers::residual);
    });
    network.fitting.push_back(std::move(net));
  }
  parameters.expect_none_left();
  try {
    check_network(network);
  } catch (const std::exception &error) {
    fail(error.what());
  }
  return network;
}

}    // namespace pwmlff::models
