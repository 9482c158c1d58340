// SPDX-License-Identifier: GPL-2.0-or-later

#include "dp_arrays.h"

#include "../record.h"
#include "../scripted.h"

#include <torch/script.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pwmlff::models {
namespace {

using torch::jit::Module;

[[noreturn]] void fail(const std::string &text)
{
  throw std::runtime_error("this DP model cannot run in the fused engine: " + text);
}

std::vector<std::size_t> shape_of(const at::Tensor &tensor)
{
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

std::vector<double> to_vector(const at::Tensor &tensor)
{
  const at::Tensor plain = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

/// The vector of each species that an embedding net for all pairs takes beside R~_0, where there
/// are any. The scripts make a tensor of a list of it, which rounds it to float32.
void add_type_vectors(pwmlff::Arrays &arrays, const Module &module,
                      const std::vector<int> &atom_type)
{
  if (!module.hasattr("type_vector")) return;
  const c10::IValue value = module.attr("type_vector");
  if (!value.isGenericDict()) return;    // something else of another program
  const auto vectors = value.toGenericDict();
  if (vectors.empty()) return;
  std::vector<double> all;
  std::size_t n = 0;
  for (const int number : atom_type) {
    const auto found = vectors.find(number);
    if (found == vectors.end() || !found->value().isDoubleList())
      fail("attribute type_vector has no list of numbers for atomic number " +
           std::to_string(number));
    const std::vector<double> vector = found->value().toDoubleVector();
    if (vector.empty() || (n > 0 && vector.size() != n))
      fail("attribute type_vector has lists of different lengths, or empty ones");
    n = vector.size();
    for (const double component : vector) all.push_back(static_cast<float>(component));
  }
  arrays.set("type_vector", {atom_type.size(), n}, std::move(all));
}

/// [ntypes, ntypes*max_neighbor*4] -> [ntypes, ntypes, 4]
std::vector<double> per_pair(const Module &module, const std::string &name, std::size_t ntypes,
                             int max_neighbor)
{
  const c10::IValue value = module.attr(name);
  if (!value.isTensor())
    fail("attribute " + name + " is " + value.tagKind() + ", expected a tensor");
  const std::vector<double> slots = to_vector(value.toTensor());
  const std::size_t block = static_cast<std::size_t>(max_neighbor) * 4;
  if (slots.size() != ntypes * ntypes * block)
    fail("attribute " + name + " has shape " + described(value) +
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

/// The grades of the elements, where there are any: grade_mean [ntypes, n] and grade_factor
/// [ntypes, n, n].
void add_grades(pwmlff::Arrays &arrays, const Module &module)
{
  if (!module.hasattr("grade_mean") || !module.hasattr("grade_factor")) return;
  const c10::IValue mean = module.attr("grade_mean"), factor = module.attr("grade_factor");
  if (!mean.isTensor() || !factor.isTensor()) return;    // something else of another program
  if (mean.toTensor().numel() == 0 && factor.toTensor().numel() == 0) return;
  for (const auto &[name, value] : {std::pair{"grade_mean", mean}, {"grade_factor", factor}})
    arrays.set(name, shape_of(value.toTensor()), to_vector(value.toTensor()));
}

/// ZBL of pairs of types, where there is any: the attribute zbl_radii has the inner and outer
/// radius of each, 0 and 0 for those without.
void add_zbl(pwmlff::Arrays &arrays, const Module &module, std::size_t ntypes)
{
  if (!module.hasattr("zbl_radii")) return;
  const c10::IValue value = module.attr("zbl_radii");
  if (!value.isList()) return;    // something else of another program
  const auto pairs = value.toListRef();
  if (pairs.empty()) return;
  if (pairs.size() != ntypes * ntypes)
    fail("attribute zbl_radii has " + std::to_string(pairs.size()) + " pairs of types, expected " +
         std::to_string(ntypes * ntypes) + " or none");
  std::vector<double> all;
  for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
    if (!pairs[pair].isDoubleList() || pairs[pair].toDoubleVector().size() != 2)
      fail("attribute zbl_radii has no two numbers for the pair of types " + std::to_string(pair));
    for (const double radius : pairs[pair].toDoubleVector()) all.push_back(radius);
  }
  arrays.set("zbl_radii", {pairs.size(), 2}, std::move(all));
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

pwmlff::Arrays dp_arrays(const ModelFile &file, const ModelInfo &info)
{
  file.require({"Rmin", "M2", "davg", "dstd"}, "the fused engine");
  const Module &module = file.module();
  const std::size_t n = info.atom_type.size();
  pwmlff::Arrays arrays("dp");
  arrays.set("rmin", file.number("Rmin"));
  arrays.set("rmax", info.cutoff);
  arrays.set("m2", file.number("M2"));
  arrays.set("atom_type", info.atom_type);
  arrays.set("all_species", !info.sel.empty());
  arrays.set("sel", info.sel.empty() ? std::vector<int>(n, info.max_neighbor) : info.sel);
  for (const char *const name : {"davg", "dstd"})
    arrays.set(name, {n, n, 4}, per_pair(module, name, n, info.max_neighbor));
  add_zbl(arrays, module, n);
  add_grades(arrays, module);
  add_type_vectors(arrays, module, info.atom_type);
  for (const auto &parameter : module.named_parameters()) {
    if (arrays.has(parameter.name)) fail("it has a parameter " + parameter.name);
    arrays.set(parameter.name, shape_of(parameter.value), to_vector(parameter.value));
  }
  return arrays;
}

}    // namespace pwmlff::models
