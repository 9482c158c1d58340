// SPDX-License-Identifier: GPL-2.0-or-later

#include "edge_model.h"

#include "../fused_model.h"
#include "../record.h"
#include "compiled_edge.h"
#include "edge_graph.h"
#include "edge_rounds.h"
#include "edge_sums.h"
#include "peak_memory.h"

#include "core/virial_terms.h"
#include "placement/device_mapping.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

namespace pwmlff::models {

/* ---- EdgeTorchScript ---- */

EdgeTorchScript::EdgeTorchScript(const ModelFile &file, ModelInfo info) :
    FileCode(file, std::move(info)), type_(file.type())
{
  info_.kind = "EDGE";
  info_.takes_edges = true;
  file.describe_limits(info_, {"cutoff", "interaction_range", "", ""});
  code.check_forward(
      3, 0, "forward(Tensor edge_vec, Tensor edge_index, Tensor types, int nlocal) -> Tensor");
  takes_reverse = code.takes("reverse");
  takes_pairs = code.takes("pairs");
  if (!takes_pairs) return;
  pair_cutoff = file.number("pair_cutoff");
  if (!(pair_cutoff > 0.0 && pair_cutoff <= info_.cutoff))
    throw std::runtime_error("model file " + in_quotes(info_.file) + " has a pair_cutoff of " +
                             std::to_string(pair_cutoff) +
                             ", expected one above 0 and no more than its cutoff");
}

std::unique_ptr<FileCode> EdgeTorchScript::copy_to(c10::Device device) const
{
  auto copy = std::make_unique<EdgeTorchScript>(*this);
  copy->code = code.copy_to(device);
  return copy;
}

// What edge_force() gives, by rows. With torch's scatter_add and index_copy a step of a small model
// of 6144 atoms takes 1.19 times as long (benchmarks/compare_builds.py --engine torchscript).
static at::Tensor force_on_host(const at::Tensor &edge_grad, const Input &input)
{
  at::Tensor force = at::zeros({input.nrows, 3}, at::kDouble);
  double *const sums = force.mutable_data_ptr<double>();
  const double *gradient = edge_grad.const_data_ptr<double>();
  const std::int64_t *center = input.edge_index, *neighbor = center + input.nedges;
  for (std::int64_t e = 0; e < input.nedges; ++e) {
    double *const i = sums + 3 * static_cast<std::int64_t>(input.node_row[center[e]]);
    double *const j = sums + 3 * static_cast<std::int64_t>(input.node_row[neighbor[e]]);
    for (int c = 0; c < 3; ++c, ++gradient) {
      i[c] += *gradient;
      j[c] -= *gradient;
    }
  }
  return force;
}

const Evaluation &EdgeTorchScript::evaluate(const Input &input)
{
  const std::int64_t nlocal = input.ncenters, nedges = input.nedges, nnodes = input.nnodes;
  std::vector<std::int64_t> species;
  species.reserve(nnodes);
  for (std::int64_t n = 0; n < nnodes; ++n) species.push_back(input.species[input.node_row[n]]);

  const c10::DeviceGuard guard(code.device());
  const at::Tensor edge_vec =
      code.upload(0, torch::from_blob(input.edge_vec, {nedges, 3}, torch::kFloat64));
  const at::Tensor edge_index =
      code.upload(1, torch::from_blob(input.edge_index, {2, nedges}, torch::kInt64));
  const at::Tensor types =
      code.upload(2, torch::from_blob(species.data(), {nnodes}, torch::kInt64));
  const Energies found =
      energies(edge_vec.to(type_), edge_index, types, nlocal, further_inputs(input));
  atom_energy = found.of_atoms;
  result.energy = atom_energy.sum().item<double>();
  result.atom_energy = atom_energy.const_data_ptr<double>();

  const at::Tensor edge_grad = found.derivative.to(at::kDouble);
  const auto by_row = [&](const at::Tensor &values) {
    const at::Tensor all = at::zeros({input.nrows, values.size(1)}, at::kDouble);
    return all.index_copy_(0, rows_of_nodes(input), values.to(at::kCPU));
  };
  force = edge_grad.is_cpu() ? force_on_host(edge_grad.contiguous(), input)
                             : by_row(edge_force(edge_grad, edge_index, nnodes));
  result.force = force.data_ptr<double>();
  const at::Tensor virial = edge_virial(edge_vec, edge_grad).to(at::kCPU).contiguous();
  result.virial = in_order_of_lammps(virial.const_data_ptr<double>());

  const auto components = [&](bool centroid, int n) {
    std::vector<std::int64_t> order;
    for (int k = 0; k < n; ++k) order.push_back(pwmlff::virial_component(k));
    const at::Tensor virials = edge_atom_virial(edge_vec, edge_grad, edge_index, nnodes, centroid);
    return by_row(virials.reshape({nnodes, 9})).index_select(1, torch::tensor(order));
  };
  if (input.want_atom_virial) atom_virial = components(false, 6);
  if (input.want_centroid_virial) centroid_virial = components(true, 9);
  result.atom_virial = input.want_atom_virial ? atom_virial.data_ptr<double>() : nullptr;
  result.centroid_virial =
      input.want_centroid_virial ? centroid_virial.data_ptr<double>() : nullptr;
  return result;
}

at::Tensor EdgeTorchScript::rows_of_nodes(const Input &input)
{
  const std::vector<std::int64_t> rows(input.node_row, input.node_row + input.nnodes);
  return torch::tensor(rows, torch::kInt64);
}

double EdgeTorchScript::expected_peak(const Input &input)
{
  if (!code.device().is_cpu()) return 0.0;
  const auto let_go = [this] {
    atom_energy = force = atom_virial = centroid_virial = at::Tensor();
  };
  let_go();    // torch says on the terminal what was there before and goes while it is watched
  return models::expected_peak(input, [&](const Input &part) {
    evaluate(part);
    let_go();
  });
}

EdgeTorchScript::Named EdgeTorchScript::further_inputs(const Input &input)
{
  Named named;
  const auto add = [&](const char *name, std::size_t argument,
                       const std::vector<std::int64_t> &values, bool of_pairs) {
    const auto n = static_cast<std::int64_t>(values.size());
    const at::Tensor host = torch::tensor(values, torch::kInt64);
    named.emplace(name, code.upload(argument, of_pairs ? host.view({2, n / 2}) : host));
  };
  if (takes_reverse) add("reverse", 3, reverse_edges(input, info_.cutoff), false);
  if (takes_pairs) add("pairs", 4, edge_pairs(input, pair_cutoff), true);
  return named;
}

EdgeTorchScript::Energies EdgeTorchScript::energies(const at::Tensor &edge_vec,
                                                    const at::Tensor &edge_index,
                                                    const at::Tensor &types, std::int64_t nlocal,
                                                    const Named &named)
{
  const at::Tensor input = edge_vec.detach().requires_grad_();
  const c10::IValue output = code.call("forward", {input, edge_index, types, nlocal}, named);
  const at::Tensor of_atoms = code.download(output, "energies of atoms", {nlocal});
  return {of_atoms, derivative(output.toTensor(), input)};
}

std::vector<at::Tensor> EdgeTorchScript::gradients(const at::Tensor &result,
                                                   const std::vector<at::Tensor> &inputs,
                                                   const at::Tensor &weight) const
{
  if (!result.requires_grad()) return std::vector<at::Tensor>(inputs.size());
  const c10::AutoGradMode derivatives(true);    // also where the caller wants none
  try {
    return torch::autograd::grad({result}, inputs, {weight}, {}, false, true);
  } catch (const std::exception &error) {
    throw std::runtime_error("the derivative of model file " + in_quotes(info_.file) +
                             " failed: " + last_line(error));
  }
}

at::Tensor EdgeTorchScript::derivative(const at::Tensor &energies, const at::Tensor &edge_vec) const
{
  const at::Tensor gradient = gradients(energies, {edge_vec}, at::ones_like(energies))[0];
  if (gradient.defined()) return gradient.detach();
  if (edge_vec.size(0) > 0)
    throw std::runtime_error("the energies of model file " + in_quotes(info_.file) +
                             " do not depend on edge_vec, so there are no forces; look for "
                             "detach(), torch.no_grad() or item() in its forward");
  return at::zeros_like(edge_vec);
}

/* ---- EdgeModel ---- */

EdgeModel::EdgeModel(const ModelFile &file, ModelInfo info, const EngineOptions &options) :
    EngineChoice(std::make_unique<EdgeTorchScript>(file, std::move(info)), options)
{
  if (options.engine == Engine::torchscript) return;
  try {
    if (const auto arrays = arrays_in(file.archive())) {
      network = pwmlff::read_network(*arrays);
      const pwmlff::NetworkInfo found = network->info();
      if (found.atom_type != info_.atom_type || found.cutoff != info_.cutoff)
        throw std::runtime_error("its arrays for the fused engine are of another model");
    }
  } catch (const std::exception &error) {
    network.reset();
    why_no_network = error.what();
  }
  if (options.engine == Engine::fused && !network && why_no_network.empty())
    throw std::runtime_error(
        "model file " + in_quotes(info_.file) +
        " is of kind EDGE, which the fused engine does not run without arrays of "
        "a MACE model; use engine auto or torchscript");
  if (options.engine != Engine::automatic) return;
  try {
    package = compiled_code(file);
  } catch (const std::exception &error) {
    why_no_package = error.what();
  }
}

void EdgeModel::select_species(const std::vector<bool> &present)
{
  const std::string wrong = out_of_contract(*original, present, original->gate().atom_energy);
  if (!wrong.empty())
    throw std::runtime_error("model file " + in_quotes(info_.file) + ": " + wrong);
  EngineChoice::select_species(present);
}

std::vector<EngineChoice::Candidate> EdgeModel::candidates(const std::vector<bool> &present) const
{
  std::vector<Candidate> result;
  if (network || !why_no_network.empty())
    result = fused_candidates(network.get(), why_no_network, present);
  auto &whole = static_cast<EdgeTorchScript &>(*original);
  if (!package.empty() || !why_no_package.empty())
    result.push_back({"compiled", false, false, original->gate(), [this, &whole] {
                        if (package.empty()) throw std::runtime_error(why_no_package);
                        return std::make_unique<CompiledEdge>(whole, package);
                      }});
  if (whole.has_parts() && options.engine == Engine::automatic && !options.alone) {
    if (options.gpu != pwmlff::CPU)
      result.push_back({"rounds on the GPU", true, false, original->gate(), [this, &whole] {
                          return EdgeRounds(whole).copy_to(torch_gpu(options.gpu));
                        }});
    result.push_back({"rounds", false, false, original->gate(),
                      [&whole] { return std::make_unique<EdgeRounds>(whole); }});
  }
  return result;
}

}    // namespace pwmlff::models
