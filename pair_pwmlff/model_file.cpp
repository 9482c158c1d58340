/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "model_file.h"

#include "elements.h"

#include <set>
#include <sstream>
#include <stdexcept>

namespace pair_pwmlff {

std::string in_quotes(const std::string &name) { return "'" + name + "'"; }

std::string first_line(const std::exception &error)
{
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::string last_line(const std::exception &error)
{
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  std::istringstream text(torch_error ? torch_error->what_without_backtrace() : error.what());
  std::string last;
  for (std::string line; std::getline(text, line);)
    if (line.find_first_not_of(" \t\r~<") != std::string::npos) last = line;
  return last;
}

ModelFile::ModelFile(const std::string &file, const std::string &contents) : file(file)
{
  if (contents.compare(0, 4, "PK\x03\x04") != 0)
    throw std::runtime_error(
        "model file " + in_quotes(file) +
        " is not a TorchScript archive (a zip file as written by torch.jit.save)");
  try {
    std::istringstream stream(contents);
    module_ = torch::jit::load(stream, at::kCPU);
  } catch (const std::exception &error) {
    throw std::runtime_error(
        "model file " + in_quotes(file) +
        " cannot be loaded: it is truncated, or it is not a TorchScript module "
        "(save it with torch.jit.script(model).save(file)). torch says: " +
        first_line(error));
  }
  module_.eval();
  for (auto parameter : module_.parameters()) {
    dtype = c10::getDtypeNames(parameter.scalar_type()).first;
    parameter.set_requires_grad(false);    // forces are derivatives with respect to positions only
  }
  // Networks run in float64 whatever the file holds, as in the software that wrote it.
  // Integers and booleans are indices and masks.
  const auto widen = [](at::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(at::kDouble));
  };
  for (const at::Tensor &parameter : module_.parameters()) widen(parameter);
  for (const at::Tensor &buffer : module_.buffers()) widen(buffer);
}

void ModelFile::require(const std::vector<std::string> &names, const std::string &kind) const
{
  std::string missing;
  for (const auto &name : names)
    if (!has(name)) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty())
    throw std::runtime_error("model file " + in_quotes(file) + " has no attribute " + missing +
                             ", which " + kind +
                             " needs; see the model contract in the documentation");
}

double ModelFile::number(const std::string &name) const
{
  const c10::IValue value = module_.attr(name);
  if (!value.isDouble() && !value.isInt()) wrong_type(name, value, "a number");
  return value.toScalar().toDouble();
}

std::string ModelFile::text(const std::string &name, const std::string &fallback) const
{
  if (!has(name)) return fallback;
  const c10::IValue value = module_.attr(name);
  if (!value.isString()) wrong_type(name, value, "a string");
  return value.toStringRef();
}

std::vector<int> ModelFile::integers(const std::string &name) const
{
  const c10::IValue value = module_.attr(name);
  std::vector<int> result;
  if (value.isIntList()) {
    for (const auto element : value.toIntVector()) result.push_back(static_cast<int>(element));
  } else if (value.isTensor()) {
    const at::Tensor tensor = value.toTensor().to(at::kCPU, at::kLong).contiguous().flatten();
    result.assign(tensor.data_ptr<std::int64_t>(),
                  tensor.data_ptr<std::int64_t>() + tensor.numel());
  } else {
    wrong_type(name, value, "a list of integers");
  }
  return result;
}

void ModelFile::wrong_type(const std::string &name, const c10::IValue &value,
                           const std::string &expected) const
{
  throw std::runtime_error("attribute " + name + " of model file " + in_quotes(file) + " is " +
                           value.tagKind() + ", expected " + expected);
}

ModelInfo ModelFile::describe() const
{
  require({"atom_type"}, "every model");
  ModelInfo info{};
  info.file = file;
  info.units = text("units", "metal");
  if (info.units != "metal" && info.units != "lj")
    throw std::runtime_error("attribute units of model file " + in_quotes(file) + " is " +
                             in_quotes(info.units) + ", expected 'metal' or 'lj'");
  info.atom_type = integers("atom_type");
  if (info.atom_type.empty() ||
      std::set<int>(info.atom_type.begin(), info.atom_type.end()).size() != info.atom_type.size())
    throw std::runtime_error("attribute atom_type of model file " + in_quotes(file) + " is [" +
                             symbols(info.atom_type) + "], expected distinct atomic numbers");
  for (const auto &parameter : module_.parameters()) info.nparameters += parameter.numel();
  info.dtype = dtype;
  return info;
}

}    // namespace pair_pwmlff
