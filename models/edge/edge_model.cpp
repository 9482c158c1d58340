// SPDX-License-Identifier: GPL-2.0-or-later

#include "edge_model.h"

#include "../neighbors.h"
#include "../on_gpu.h"
#include "../verification.h"
#include "dp/pair_terms.h"
#include "edge/edge.h"
#include "placement/placement.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

namespace pwmlff::models {

/* ---- EdgeTorchScript ---- */

EdgeTorchScript::EdgeTorchScript(const ModelFile &file, ModelInfo info) :
    Model(std::move(info)), code(file.name(), file.module()), type(file.type())
{
  info_.kind = "EDGE";
  info_.takes_edges = true;
  file.describe_limits(info_, {"cutoff", "interaction_range", ""});
  code.check_forward(
      3, 0, "forward(Tensor edge_vec, Tensor edge_index, Tensor types, int nlocal) -> Tensor");
}

EdgeTorchScript EdgeTorchScript::copy_to(c10::Device device) const
{
  EdgeTorchScript copy(*this);
  copy.code = code.copy_to(device);
  return copy;
}

const Evaluation &EdgeTorchScript::evaluate(Neighbors &neighbors, const Request &request)
{
  const std::int64_t nlocal = neighbors.ncenters();
  Edges &edges = neighbors.edges(hops(info_), info_.cutoff);
  const std::int64_t nedges = edges.count();
  const std::vector<int> &nodes = neighbors.nodes();
  const auto nnodes = static_cast<std::int64_t>(nodes.size());
  std::vector<std::int64_t> species;
  for (const int row : nodes) species.push_back(neighbors.species()[row]);

  const c10::DeviceGuard guard(code.device());
  const at::Tensor edge_vec =
      code.upload(0, torch::from_blob(edges.vec(), {nedges, 3}, torch::kFloat64));
  const at::Tensor input = edge_vec.to(type).detach().requires_grad_();
  const at::Tensor edge_index =
      code.upload(1, torch::from_blob(edges.index(), {2, nedges}, torch::kInt64));
  const at::Tensor types =
      code.upload(2, torch::from_blob(species.data(), {nnodes}, torch::kInt64));
  const c10::IValue output = code.forward({input, edge_index, types, nlocal});
  atom_energy = code.download(output, "energies of atoms", {nlocal});
  result.energy = atom_energy.sum().item<double>();
  result.atom_energy = atom_energy.const_data_ptr<double>();

  const at::Tensor edge_grad = derivative(output.toTensor(), input).to(at::kDouble);
  const std::vector<std::int64_t> rows(nodes.begin(), nodes.end());
  const auto by_row = [&](const at::Tensor &values) {
    const at::Tensor all = at::zeros({neighbors.nrows(), values.size(1)}, at::kDouble);
    return all.index_copy_(0, torch::tensor(rows, torch::kInt64), values.to(at::kCPU));
  };
  force = by_row(pwmlff::edge_force(edge_grad, edge_index, nnodes));
  result.force = force.const_data_ptr<double>();
  const at::Tensor virial = pwmlff::edge_virial(edge_vec, edge_grad).to(at::kCPU).contiguous();
  result.virial = in_order_of_lammps(virial.const_data_ptr<double>());

  const auto components = [&](bool centroid, int n) {
    std::vector<std::int64_t> order;
    for (int k = 0; k < n; ++k) order.push_back(pwmlff::virial_component(k));
    const at::Tensor virials =
        pwmlff::edge_atom_virial(edge_vec, edge_grad, edge_index, nnodes, centroid);
    return by_row(virials.reshape({nnodes, 9})).index_select(1, torch::tensor(order));
  };
  if (request.atom_virial) atom_virial = components(false, 6);
  if (request.centroid_virial) centroid_virial = components(true, 9);
  result.atom_virial = request.atom_virial ? atom_virial.const_data_ptr<double>() : nullptr;
  result.centroid_virial =
      request.centroid_virial ? centroid_virial.const_data_ptr<double>() : nullptr;
  return result;
}

at::Tensor EdgeTorchScript::derivative(const at::Tensor &energies, const at::Tensor &edge_vec) const
{
  const c10::AutoGradMode derivatives(true);    // also where the caller wants none
  at::Tensor gradient;
  try {
    if (energies.requires_grad())
      gradient = torch::autograd::grad({energies.sum()}, {edge_vec}, {}, {}, false, true)[0];
  } catch (const std::exception &error) {
    throw std::runtime_error("the derivative of model file " + in_quotes(info_.file) +
                             " failed: " + last_line(error));
  }
  if (gradient.defined()) return gradient.detach();
  if (edge_vec.size(0) > 0)
    throw std::runtime_error("the energies of model file " + in_quotes(info_.file) +
                             " do not depend on edge_vec, so there are no forces; look for "
                             "detach(), torch.no_grad() or item() in its forward");
  return at::zeros_like(edge_vec);
}

/* ---- EdgeModel ---- */

EdgeModel::EdgeModel(const ModelFile &file, ModelInfo info, const EngineOptions &options) :
    Model(info), original(file, std::move(info)), options(options)
{
  info_ = original.info();
  if (options.engine == Engine::fused)
    throw std::runtime_error("model file " + in_quotes(info_.file) +
                             " is of kind EDGE, which runs through its own TorchScript only; use "
                             "engine auto or torchscript");
}

void EdgeModel::select_species(const std::vector<bool> &present)
{
  scripted_on_gpu.reset();
  why_cpu.clear();
  const std::string wrong = beyond_range(original, present, original.gate().atom_energy);
  if (!wrong.empty())
    throw std::runtime_error("model file " + in_quotes(info_.file) + ": " + wrong);
  if (options.gpu == pwmlff::CPU) {
    if (options.gpu_demanded) throw NotOnGpu(info_, "what stands in for one runs no TorchScript");
    return;
  }
  const auto copy = [&] {
    return std::make_unique<EdgeTorchScript>(original.copy_to(torch_gpu(options.gpu)));
  };
  scripted_on_gpu = verified(original, present, original.gate(), copy, why_cpu);
  if (!scripted_on_gpu && options.gpu_demanded) throw NotOnGpu(info_, why_cpu);
}

std::string EdgeModel::engine() const
{
  if (on_gpu()) return scripted_on_gpu->engine() + ", on the GPU";
  return original.engine() + (why_cpu.empty() ? "" : ", on the CPU (" + why_cpu + ")");
}

const Evaluation &EdgeModel::evaluate(Neighbors &neighbors, const Request &request)
{
  return scripted_on_gpu ? scripted_on_gpu->evaluate(neighbors, request)
                         : original.evaluate(neighbors, request);
}

}    // namespace pwmlff::models
