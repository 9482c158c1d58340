// SPDX-License-Identifier: GPL-2.0-or-later

#include "model_file.h"

#include "record.h"

#include "archive/model_archive.h"
#include "archive/time_limit.h"

#include <set>
#include <sstream>
#include <stdexcept>

namespace pwmlff::models {
namespace {

constexpr const char *CLOSEST = "closest_distances";    // as pwmlff.models.saving names it

// A float or an int; nothing where the value is of another type.
std::optional<double> number_of(const c10::IValue &value)
{
  if (!value.isDouble() && !value.isInt()) return {};
  return value.toScalar().toDouble();
}

// A list, a tuple (what a list becomes that is declared Final) or a tensor of integers, likewise.
std::optional<std::vector<std::int64_t>> integers_of(const c10::IValue &value)
{
  if (value.isIntList()) return value.toIntVector();
  std::vector<std::int64_t> result;
  if (value.isTuple()) {
    for (const c10::IValue &element : value.toTupleRef().elements()) {
      if (!element.isInt()) return {};
      result.push_back(element.toInt());
    }
    return result;
  }
  if (!value.isTensor() || !at::isIntegralType(value.toTensor().scalar_type(), true)) return {};
  const at::Tensor tensor = value.toTensor().to(at::kCPU, at::kLong).contiguous().flatten();
  const std::int64_t *const first = tensor.const_data_ptr<std::int64_t>();
  result.assign(first, first + tensor.numel());
  return result;
}

}    // namespace

ModelFile::ModelFile(const std::string &file, const std::string &contents) :
    file(file), contents(contents)
{
  try {
    pwmlff::check_model_archive(contents);
  } catch (const std::exception &error) {
    throw std::runtime_error("model file " + in_quotes(file) + " " + error.what());
  }
  try {
    const pwmlff::TimeLimit limit("model file " + in_quotes(file) + ": loading it");
    std::istringstream stream(contents);
    module_ = torch::jit::load(stream, at::kCPU);
  } catch (const std::exception &error) {
    const std::string reason = first_line(error);
    const bool foreign = reason.rfind("Unknown builtin op", 0) == 0;
    throw std::runtime_error("model file " + in_quotes(file) +
                             " is sound, but torch cannot load it, of class " +
                             pwmlff::model_class(contents) + ": " + reason +
                             (foreign ? " 'pwmlff convert' is for files of other programs" : ""));
  }
  module_.eval();
  std::set<std::string> dtypes;
  for (auto parameter : module_.parameters()) {
    dtypes.emplace(c10::getDtypeNames(parameter.scalar_type()).first);
    parameter.set_requires_grad(false);    // forces are derivatives with respect to positions only
  }
  for (const auto &name : dtypes) dtype += (dtype.empty() ? "" : ", ") + name;
}

std::string ModelFile::model_type() const
{
  const c10::IValue value = has("model_type") ? module_.attr("model_type") : c10::IValue();
  return value.isString() ? value.toStringRef() : "DP";    // older DP files do not say
}

void ModelFile::prepare(const Kind &kind)
{
  of_other_programs = kind.of_other_programs;
  if (!of_other_programs) type_ = declared_type();
  if (type_ == at::kFloat) return;
  // Other networks run in float64 whatever the file holds, as in the software that wrote it.
  // Integers and booleans are indices and masks.
  const auto widen = [](const at::Tensor &tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(at::kDouble));
  };
  for (const at::Tensor &parameter : module_.parameters()) widen(parameter);
  for (const at::Tensor &buffer : module_.buffers()) widen(buffer);
}

at::ScalarType ModelFile::declared_type() const
{
  const c10::IValue value = has("dtype") ? module_.attr("dtype") : c10::IValue();
  if (value.isNone()) return at::kDouble;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const std::string name(c10::getDtypeNames(type).first);
    if (value.isString() ? value.toStringRef() == name
                         : value.isInt() && value.toInt() == static_cast<std::int64_t>(type))
      return type;
  }
  std::ostringstream found;
  found << value;
  throw std::runtime_error("attribute dtype of model file " + in_quotes(file) + " is " +
                           found.str().substr(0, 40) + ", expected 'float64' or 'float32'");
}

void ModelFile::require(const std::vector<std::string> &names, const std::string &kind) const
{
  std::string missing;
  for (const auto &name : names)
    if (!has(name)) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty())
    throw std::runtime_error("model file " + in_quotes(file) + ", of class " +
                             pwmlff::model_class(contents) + ", has no attribute " + missing +
                             ", which " + kind +
                             " needs; see the model contract in the documentation, or 'pwmlff "
                             "wrap' for files of other programs");
}

std::map<std::string, std::string> ModelFile::extra_files(const std::string &prefix) const
{
  return pwmlff::extra_files(contents, prefix);
}

double ModelFile::number(const std::string &name, std::optional<double> fallback) const
{
  if (fallback && !has(name)) return *fallback;
  const c10::IValue value = module_.attr(name);
  if (const auto found = number_of(value)) return *found;
  if (fallback && (of_other_programs || value.isNone())) return *fallback;
  wrong_type(name, value, "a number");
}

std::string ModelFile::text(const std::string &name, const std::string &fallback) const
{
  if (!has(name)) return fallback;
  const c10::IValue value = module_.attr(name);
  if (value.isString()) return value.toStringRef();
  if (of_other_programs || value.isNone()) return fallback;
  wrong_type(name, value, "a string");
}

std::vector<std::int64_t> ModelFile::integers(
    const std::string &name, const std::optional<std::vector<std::int64_t>> &fallback) const
{
  if (fallback && !has(name)) return *fallback;
  const c10::IValue value = module_.attr(name);
  if (const auto found = integers_of(value)) return *found;
  if (fallback) return *fallback;
  wrong_type(name, value, "a list of integers");
}

void ModelFile::wrong_type(const std::string &name, const c10::IValue &value,
                           const std::string &expected) const
{
  throw std::runtime_error("attribute " + name + " of model file " + in_quotes(file) + " is " +
                           value.tagKind() + ", expected " + expected);
}

ModelInfo ModelFile::describe() const
{
  ModelInfo info{};
  info.file = file;
  info.units = text("units", "metal");
  if (info.units != "metal" && info.units != "lj")
    throw std::runtime_error("attribute units of model file " + in_quotes(file) + " is " +
                             in_quotes(info.units) + ", expected 'metal' or 'lj'");
  for (const auto &parameter : module_.parameters()) info.nparameters += parameter.numel();
  info.dtype = dtype;
  return info;
}

void ModelFile::describe_limits(ModelInfo &info, const LimitNames &names) const
{
  std::vector<std::string> needed = {"atom_type", names.cutoff};
  if (!names.max_neighbor.empty()) needed.push_back(names.max_neighbor);
  require(needed, "a model of kind " + info.kind);
  pwmlff::ModelLimits limits;
  limits.atom_type = integers("atom_type");
  limits.cutoff = limits.interaction_range = number(names.cutoff);
  if (!names.interaction_range.empty())
    limits.interaction_range = number(names.interaction_range, limits.cutoff);
  if (!names.max_neighbor.empty()) limits.max_neighbor = number(names.max_neighbor);
  if (!names.ntypes.empty())
    limits.ntypes = number(names.ntypes, static_cast<double>(limits.atom_type.size()));
  try {
    pwmlff::check_limits(limits);
  } catch (const std::exception &error) {
    throw std::runtime_error("model file " + in_quotes(file) + " " + error.what());
  }
  info.cutoff = limits.cutoff;
  info.interaction_range = limits.interaction_range;
  info.max_neighbor = static_cast<int>(limits.max_neighbor.value_or(0.0));
  info.atom_type.assign(limits.atom_type.begin(), limits.atom_type.end());
  info.closest = closest_distances(info.atom_type);
  info.without_data = elements_without_data(contents);
}

// Lines of two atomic numbers and a distance; an element pair that is missing has none.
std::vector<double> ModelFile::closest_distances(const std::vector<int> &elements) const
{
  const auto files = extra_files(CLOSEST);
  const auto found = files.find(CLOSEST);
  if (found == files.end()) return {};
  const std::size_t n = elements.size();
  std::vector<double> result(n * n, 0.0);
  std::istringstream lines(found->second);
  int first = 0, second = 0;
  double distance = 0.0;
  while (lines >> first >> second >> distance)
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        if (elements[a] == first && elements[b] == second)
          result[n * a + b] = result[n * b + a] = distance;
  if (!lines.eof())
    throw std::runtime_error("model file " + in_quotes(file) + " has a part '" + CLOSEST +
                             "' that is no list of two atomic numbers and a distance");
  return result;
}

}    // namespace pwmlff::models
