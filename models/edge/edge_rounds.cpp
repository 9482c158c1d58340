// SPDX-License-Identifier: GPL-2.0-or-later

#include "edge_rounds.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pwmlff::models {

EdgeRounds::EdgeRounds(const EdgeTorchScript &whole) : EdgeTorchScript(whole)
{
  const auto fail = [this](const std::string &found) {
    throw std::runtime_error("model file " + in_quotes(info_.file) +
                             " has start, round and finish, but " + found);
  };
  if (!code.module().hasattr("widths") || !code.module().attr("widths").isIntList())
    fail("no attribute widths, a list with the number of features that each round takes");
  widths = code.module().attr("widths").toIntVector();
  if (widths.empty() || *std::ranges::min_element(widths) < 1)
    fail("its attribute widths is not a list of positive numbers, one for each round");
  if (takes_further_inputs()) fail("its forward takes reverse or pairs, which parts do not");
}

std::unique_ptr<FileCode> EdgeRounds::copy_to(c10::Device device) const
{
  auto copy = std::make_unique<EdgeRounds>(*this);
  copy->code = code.copy_to(device);
  return copy;
}

Needs EdgeRounds::needs() const
{
  return {info_.cutoff,        0, 0, nullptr, static_cast<int>(*std::ranges::max_element(widths)),
          type() == at::kFloat};
}

const Evaluation &EdgeRounds::evaluate(const Input &of_all)
{
  input = &of_all;
  row_of_node = rows_of_nodes(of_all);
  return EdgeTorchScript::evaluate(of_all);
}

// One of the parts, and features that are as wide as they have to be.
at::Tensor EdgeRounds::part(const char *name, std::vector<c10::IValue> inputs, std::int64_t width)
{
  const c10::IValue found = code.call(name, std::move(inputs));
  if (!found.isTensor() || found.toTensor().dim() != 2 ||
      found.toTensor().size(0) < input->ncenters ||
      (width > 0 &&
       (found.toTensor().size(1) != width || found.toTensor().scalar_type() != type())))
    throw std::runtime_error("the " + std::string(name) + " of model file " +
                             in_quotes(info_.file) + " returned " + described(found) +
                             ", expected features [" + std::to_string(input->ncenters) + ", " +
                             (width > 0 ? std::to_string(width) : "any") + "] in its type");
  return found.toTensor().narrow(0, 0, input->ncenters);
}

void EdgeRounds::exchange_rows(const at::Tensor &rows, bool forward)
{
  if (!input->exchange) return;
  const auto exchange = [&](auto *values) {
    const pwmlff::ExchangedRows exchanged(values, rows.size(1));
    if (forward) input->exchange->forward(exchanged);
    else input->exchange->reverse(exchanged);
  };
  if (rows.scalar_type() == at::kFloat) exchange(rows.mutable_data_ptr<float>());
  else exchange(rows.mutable_data_ptr<double>());
}

// [N, width] of all nodes, from that of the centers and what others have for the rest.
at::Tensor EdgeRounds::from_others(const at::Tensor &local)
{
  const std::int64_t nlocal = input->ncenters;
  const at::Tensor rows = at::zeros({input->nrows, local.size(1)}, local.scalar_type());
  rows.narrow(0, 0, nlocal).copy_(local);
  exchange_rows(rows, true);
  return rows.index_select(0, row_of_node).to(local.device());
}

// [nlocal, width] of the centers: their own, and what other ranks have for them.
at::Tensor EdgeRounds::to_others(const at::Tensor &of_nodes)
{
  const std::int64_t nlocal = input->ncenters;
  const at::Tensor rows = at::zeros({input->nrows, of_nodes.size(1)}, of_nodes.scalar_type());
  rows.index_copy_(0, row_of_node, of_nodes.to(at::kCPU));
  exchange_rows(rows, false);
  return rows.narrow(0, 0, nlocal).to(of_nodes.device());
}

EdgeTorchScript::Energies EdgeRounds::energies(const at::Tensor &edge_vec,
                                               const at::Tensor &edge_index,
                                               const at::Tensor &types, std::int64_t nlocal,
                                               const Named & /*named*/)
{
  if (nlocal == 0) {    // takes part in what all ranks do together
    for (const std::int64_t width : widths)
      exchange_rows(at::zeros({input->nrows, width}, edge_vec.scalar_type()), true);
    for (std::size_t k = widths.size(); k-- > 0;)
      exchange_rows(at::zeros({input->nrows, widths[k]}, edge_vec.scalar_type()), false);
    return {at::zeros({0}, at::kDouble), at::zeros_like(edge_vec)};
  }
  const c10::AutoGradMode derivatives(true);
  const at::Tensor vectors = edge_vec.detach().requires_grad_();
  std::vector<at::Tensor> sent, taken;
  at::Tensor features = part("start", {vectors, edge_index, types, nlocal}, widths.front());
  for (std::size_t k = 0; k < widths.size(); ++k) {
    sent.push_back(features);
    taken.push_back(from_others(features.detach()).requires_grad_());
    features =
        part("round", {static_cast<std::int64_t>(k), taken[k], vectors, edge_index, types, nlocal},
             k + 1 < widths.size() ? widths[k + 1] : 0);
  }
  const c10::IValue output = code.call("finish", {features, vectors, edge_index, types, nlocal});
  Energies found{code.download(output, "energies of atoms", {nlocal}), at::zeros_like(vectors)};

  // Back through one part after the other.
  const auto back = [&](const at::Tensor &result, const at::Tensor &weight,
                        const at::Tensor &features_before) {
    const auto of = gradients(result, {vectors, features_before}, weight);
    if (of[0].defined()) found.derivative += of[0];
    return of[1].defined() ? of[1] : at::zeros_like(features_before);
  };
  const at::Tensor &energies = output.toTensor();
  at::Tensor gradient = back(energies, at::ones_like(energies), taken.back());
  for (std::size_t k = widths.size(); --k > 0;)
    gradient = back(sent[k], to_others(gradient), taken[k - 1]);
  const at::Tensor of_start = gradients(sent[0], {vectors}, to_others(gradient))[0];
  if (of_start.defined()) found.derivative += of_start;
  return found;
}

}    // namespace pwmlff::models
