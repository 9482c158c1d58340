/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "model.h"

#include "elements.h"
#include "neighbors.h"

#include <ATen/Parallel.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>

namespace PWMLFF {
namespace {

using torch::jit::Module;

std::string in_quotes(const std::string &name) { return "'" + name + "'"; }

// First line of a message of torch, without the backtrace.
std::string first_line(const std::exception &error)
{
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

// The last line that says something: TorchScript puts the call stack before the message.
std::string last_line(const std::exception &error)
{
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  std::istringstream text(torch_error ? torch_error->what_without_backtrace() : error.what());
  std::string last;
  for (std::string line; std::getline(text, line);)
    if (line.find_first_not_of(" \t\r~<") != std::string::npos) last = line;
  return last;
}

/// The attributes of a module, with messages that name the file.
class Attributes {
 public:
  Attributes(Module module, std::string file) : module(std::move(module)), file(std::move(file)) {}

  bool has(const std::string &name) const { return module.hasattr(name); }

  void require(const std::vector<std::string> &names, const std::string &kind) const
  {
    std::string missing;
    for (const auto &name : names)
      if (!has(name)) missing += (missing.empty() ? "" : ", ") + name;
    if (!missing.empty())
      throw std::runtime_error("model file " + in_quotes(file) + " has no attribute " + missing +
                               ", which " + kind +
                               " needs; see the model contract in the documentation");
  }

  double number(const std::string &name) const
  {
    const c10::IValue value = module.attr(name);
    if (!value.isDouble() && !value.isInt()) wrong_type(name, value, "a number");
    return value.toScalar().toDouble();
  }

  std::string text(const std::string &name, const std::string &fallback) const
  {
    if (!has(name)) return fallback;
    const c10::IValue value = module.attr(name);
    if (!value.isString()) wrong_type(name, value, "a string");
    return value.toStringRef();
  }

  std::vector<int> integers(const std::string &name) const
  {
    const c10::IValue value = module.attr(name);
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

 private:
  [[noreturn]] void wrong_type(const std::string &name, const c10::IValue &value,
                               const std::string &expected) const
  {
    throw std::runtime_error("attribute " + name + " of model file " + in_quotes(file) + " is " +
                             value.tagKind() + ", expected " + expected);
  }

  Module module;
  std::string file;
};

ModelInfo describe(const Module &module, const Attributes &attributes, const std::string &file)
{
  ModelInfo info{};
  info.file = file;
  info.units = attributes.text("units", "metal");
  if (info.units != "metal" && info.units != "lj")
    throw std::runtime_error("attribute units of model file " + in_quotes(file) + " is " +
                             in_quotes(info.units) + ", expected 'metal' or 'lj'");
  info.atom_type = attributes.integers("atom_type");
  if (info.atom_type.empty() ||
      std::set<int>(info.atom_type.begin(), info.atom_type.end()).size() != info.atom_type.size())
    throw std::runtime_error("attribute atom_type of model file " + in_quotes(file) + " is [" +
                             symbols(info.atom_type) + "], expected distinct atomic numbers");
  for (const auto &parameter : module.parameters()) {
    info.nparameters += parameter.numel();
    info.dtype = c10::getDtypeNames(parameter.scalar_type()).first;
  }
  return info;
}

/// A Deep Potential in the form that PWMLFF and MatPL export: padded neighbours in, energy, forces
/// and virial out, all by the file's own code.
class DPModel : public Model {
 public:
  DPModel(Module module, const Attributes &attributes, ModelInfo info) :
      Model(std::move(info)), module(std::move(module))
  {
    info_.kind = "DP";
    attributes.require({"Rmax", "maxNeighborNum", "atom_type"}, "a DP model");
    info_.cutoff = attributes.number("Rmax");
    info_.max_neighbor = static_cast<int>(attributes.number("maxNeighborNum"));
    if (!(info_.cutoff > 0.0) || info_.max_neighbor < 1)
      throw std::runtime_error("model file " + in_quotes(info_.file) + " has Rmax " +
                               std::to_string(info_.cutoff) + " and maxNeighborNum " +
                               std::to_string(info_.max_neighbor) + ", expected both above zero");
    check_forward();
    select_species(std::vector<bool>(info_.atom_type.size(), true));
  }

  void select_species(const std::vector<bool> &present) override
  {
    // Each element once, in the order of the model: the descriptor is divided by the number of
    // entries, and atomic energies come back grouped in this order.
    species.clear();
    std::vector<int> numbers;
    for (std::size_t s = 0; s < info_.atom_type.size(); ++s) {
      if (!present[s]) continue;
      species.push_back(static_cast<int>(s));
      numbers.push_back(info_.atom_type[s]);
    }
    atom_type = torch::tensor(numbers, torch::kInt32);
  }

  const Evaluation &evaluate(Neighbors &neighbors) override
  {
    const std::int64_t ncentres = neighbors.ncentres();
    const std::int64_t nrows = neighbors.nrows();
    PaddedNeighbors &padded =
        neighbors.padded(static_cast<int>(info_.atom_type.size()), info_.max_neighbor);
    const std::int64_t nslots = padded.nslots();
    auto *species_of_row = const_cast<int *>(neighbors.species().data());

    // The optimising executor specialises for tensor sizes, which change with every neighbour list:
    // without it the same code takes between two thirds and half the time.
    const torch::jit::GraphOptimizerEnabledGuard plain_executor(false);
    c10::IValue output;
    try {
      output = module.forward({
          torch::from_blob(padded.list(), {1, ncentres, nslots}, torch::kInt32),
          torch::from_blob(species_of_row, {ncentres}, torch::kInt32),
          atom_type,
          torch::from_blob(padded.rij(), {1, ncentres, nslots, 4}, torch::kFloat64),
          nrows - ncentres,
      });
    } catch (const std::exception &error) {
      throw std::runtime_error("the forward of model file " + in_quotes(info_.file) +
                               " failed: " + last_line(error));
    }
    unpack(output, neighbors);
    return result;
  }

 private:
  // forward(Tensor, Tensor, Tensor, Tensor, int, ... with defaults) -> tuple of five
  void check_forward() const
  {
    const auto method = module.find_method("forward");
    bool fits = method.has_value();
    std::string found = "no method forward";
    if (method) {
      const c10::FunctionSchema &schema = method->function().getSchema();
      std::ostringstream text;
      text << schema;
      found = text.str();
      const auto &arguments = schema.arguments();    // [0] is the module itself
      fits = arguments.size() >= 6 && schema.returns().size() == 1;
      for (std::size_t i = 1; fits && i < arguments.size(); ++i) {
        if (i <= 4) fits = arguments[i].type()->kind() == c10::TypeKind::TensorType;
        else if (i == 5) fits = arguments[i].type()->kind() == c10::TypeKind::IntType;
        else fits = arguments[i].default_value().has_value();
      }
      if (fits) {
        const auto *tuple = schema.returns()[0].type()->castRaw<c10::TupleType>();
        fits = tuple && tuple->elements().size() == 5;
      }
    }
    if (!fits)
      throw std::runtime_error(
          "model file " + in_quotes(info_.file) +
          " has the wrong signature: expected forward(Tensor list_neigh, Tensor Imagetype_map, "
          "Tensor atom_type, Tensor ImageDR, int nghost) -> (Etot, Ei, Force, Egroup, Virial), "
          "found " +
          found);
  }

  at::Tensor output_tensor(const c10::IValue &value, const char *name,
                           const std::vector<std::int64_t> &shape) const
  {
    if (!value.isTensor() || value.toTensor().sizes() != at::IntArrayRef(shape)) {
      std::ostringstream found;
      if (value.isTensor()) found << value.toTensor().sizes();
      else found << value.tagKind();
      std::ostringstream expected;
      expected << at::IntArrayRef(shape);
      throw std::runtime_error("the forward of model file " + in_quotes(info_.file) + " returned " +
                               name + " as " + found.str() + ", expected a tensor " +
                               expected.str());
    }
    return value.toTensor().detach().to(at::kCPU, at::kDouble).contiguous();
  }

  void unpack(const c10::IValue &output, const Neighbors &neighbors)
  {
    const std::int64_t ncentres = neighbors.ncentres();
    const std::vector<c10::IValue> elements = output.toTupleRef().elements().vec();
    const at::Tensor etot = output_tensor(elements[0], "Etot", {1, 1});
    const at::Tensor ei = output_tensor(elements[1], "Ei", {1, ncentres});
    force = output_tensor(elements[2], "Force", {1, neighbors.nrows(), 3});
    const at::Tensor virial = output_tensor(elements[4], "Virial", {1, 9});

    result.energy = *etot.data_ptr<double>();
    result.force = force.data_ptr<double>();
    const double *v = virial.data_ptr<double>();
    result.virial = {v[0], v[4], v[8], v[1], v[2], v[5]};

    // Energies come grouped by species; put them back in the order of the rows.
    result.atom_energy.resize(ncentres);
    const double *energy = ei.data_ptr<double>();
    for (const int s : species)
      for (std::int64_t row = 0; row < ncentres; ++row)
        if (neighbors.species()[row] == s) result.atom_energy[row] = *energy++;
  }

  Module module;
  at::Tensor atom_type;        // [species that take part] atomic numbers, int32
  std::vector<int> species;    // their indices in info().atom_type
  at::Tensor force;            // [1, nrows, 3] keeps result.force alive
  Evaluation result{};
};

Module open_module(const std::string &file, const std::string &contents)
{
  if (contents.compare(0, 4, "PK\x03\x04") != 0)
    throw std::runtime_error(
        "model file " + in_quotes(file) +
        " is not a TorchScript archive (a zip file as written by torch.jit.save)");
  try {
    std::istringstream stream(contents);
    Module module = torch::jit::load(stream, at::kCPU);
    module.eval();
    return module;
  } catch (const std::exception &error) {
    throw std::runtime_error(
        "model file " + in_quotes(file) +
        " cannot be loaded: it is truncated, or it is not a TorchScript module "
        "(save it with torch.jit.script(model).save(file)). torch says: " +
        first_line(error));
  }
}

}    // namespace

std::unique_ptr<Model> load_model(const std::string &file, const std::string &contents)
try {
  Module module = open_module(file, contents);
  const Attributes attributes(module, file);
  attributes.require({"atom_type"}, "every model");
  ModelInfo info = describe(module, attributes, file);

  // Forces are derivatives with respect to positions only. Networks run in float64 whatever the
  // file holds, as in the software that wrote it.
  for (auto parameter : module.parameters()) parameter.set_requires_grad(false);
  module.to(at::kDouble);

  const std::string kind = attributes.text("model_type", "DP");    // older DP files do not say
  if (kind == "DP")
    return std::make_unique<DPModel>(std::move(module), attributes, std::move(info));
  throw std::runtime_error("model file " + in_quotes(file) + " is of model_type " +
                           in_quotes(kind) + ", but pair_style pwmlff runs DP");
} catch (const c10::Error &error) {
  throw std::runtime_error("model file " + in_quotes(file) +
                           " cannot be used: " + first_line(error));
}

void set_num_threads(int nthreads) { at::set_num_threads(nthreads); }

}    // namespace PWMLFF
