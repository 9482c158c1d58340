// SPDX-License-Identifier: GPL-2.0-or-later

#include "edge.h"

#include "../common/op.h"
#include "edge_kernels.h"

namespace pwmlff {
namespace {

// The two primitives are linear and each other's transpose, so the derivative of one is the other,
// to any order.

void check_edges(const at::Tensor &edge_index)
{
  TORCH_CHECK(edge_index.dim() == 2 && edge_index.size(0) == 2 &&
                  edge_index.scalar_type() == at::kLong,
              "edge_index has shape ", edge_index.sizes(), " and type ", edge_index.scalar_type(),
              "; expected int64 [2, number of edges]");
}

void check_rows(const char *name, const at::Tensor &tensor, std::int64_t rows,
                const at::Tensor &edge_index)
{
  TORCH_CHECK(tensor.dim() == 2 && tensor.size(0) == rows, name, " has shape ", tensor.sizes(),
              "; expected [", rows, ", width]");
  TORCH_CHECK(tensor.device() == edge_index.device(), name, " is on ", tensor.device(),
              " and edge_index on ", edge_index.device(), "; move them to one device");
}

void check_range(const at::Tensor &edge_index, std::int64_t nall)
{
  if (!edge_index.is_cpu() || edge_index.numel() == 0) return;    // would make a GPU wait
  const auto [least, most] = at::aminmax(edge_index);
  TORCH_CHECK(least.item<std::int64_t>() >= 0 && most.item<std::int64_t>() < nall,
              "edge_index holds ", least.item<std::int64_t>(), " to ", most.item<std::int64_t>(),
              "; expected indices of ", nall, " atoms, from 0");
}

at::Tensor scatter(const at::Tensor &values, const at::Tensor &edge_index, std::int64_t nall,
                   double center, double neighbor)
{
  check_edges(edge_index);
  check_rows("values", values, edge_index.size(1), edge_index);
  check_range(edge_index, nall);
  const at::Tensor in = values.contiguous(), index = edge_index.contiguous();
  at::Tensor out = at::zeros({nall, in.size(1)}, in.options());
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "edge_scatter", [&] {
    launch(in, in.numel(),
           EdgeScatter<scalar_t>{in.const_data_ptr<scalar_t>(),
                                 index.const_data_ptr<std::int64_t>(), in.size(0), in.size(1),
                                 static_cast<scalar_t>(center), static_cast<scalar_t>(neighbor),
                                 out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor gather(const at::Tensor &atoms, const at::Tensor &edge_index, double center,
                  double neighbor)
{
  check_edges(edge_index);
  check_rows("atoms", atoms, atoms.size(0), edge_index);
  check_range(edge_index, atoms.size(0));
  const at::Tensor in = atoms.contiguous(), index = edge_index.contiguous();
  at::Tensor out = at::empty({index.size(1), in.size(1)}, in.options());
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "edge_gather", [&] {
    launch(in, out.numel(),
           EdgeGather<scalar_t>{in.const_data_ptr<scalar_t>(), index.const_data_ptr<std::int64_t>(),
                                index.size(1), in.size(1), static_cast<scalar_t>(center),
                                static_cast<scalar_t>(neighbor), out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor scatter_meta(const at::Tensor &values, const at::Tensor &, c10::SymInt nall, double,
                        double)
{
  return at::empty_symint({std::move(nall), values.sym_size(1)}, values.options());
}

at::Tensor gather_meta(const at::Tensor &atoms, const at::Tensor &edge_index, double, double)
{
  return at::empty_symint({edge_index.sym_size(1), atoms.sym_size(1)}, atoms.options());
}

at::Tensor call_scatter(const at::Tensor &values, const at::Tensor &edge_index, std::int64_t nall,
                        double center, double neighbor)
{
  static const auto op = find_op<decltype(scatter)>("pwmlff::edge_scatter");
  return op.call(values, edge_index, nall, center, neighbor);
}

at::Tensor call_gather(const at::Tensor &atoms, const at::Tensor &edge_index, double center,
                       double neighbor)
{
  static const auto op = find_op<decltype(gather)>("pwmlff::edge_gather");
  return op.call(atoms, edge_index, center, neighbor);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Scatter : torch::autograd::Function<Scatter> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &values,
                            const at::Tensor &edge_index, std::int64_t nall, double center,
                            double neighbor)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({edge_index});
    context->saved_data["center"] = center;
    context->saved_data["neighbor"] = neighbor;
    return call_scatter(values, edge_index, nall, center, neighbor);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    return {call_gather(gradients[0], context->get_saved_variables()[0],
                        context->saved_data["center"].toDouble(),
                        context->saved_data["neighbor"].toDouble()),
            {},
            {},
            {},
            {}};
  }
};

struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &atoms,
                            const at::Tensor &edge_index, double center, double neighbor)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({edge_index});
    context->saved_data["nall"] = atoms.size(0);
    context->saved_data["center"] = center;
    context->saved_data["neighbor"] = neighbor;
    return call_gather(atoms, edge_index, center, neighbor);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    return {call_scatter(gradients[0], context->get_saved_variables()[0],
                         context->saved_data["nall"].toInt(),
                         context->saved_data["center"].toDouble(),
                         context->saved_data["neighbor"].toDouble()),
            {},
            {},
            {}};
  }
};

at::Tensor scatter_autograd(const at::Tensor &values, const at::Tensor &edge_index,
                            std::int64_t nall, double center, double neighbor)
{
  return Scatter::apply(values, edge_index, nall, center, neighbor);
}

at::Tensor gather_autograd(const at::Tensor &atoms, const at::Tensor &edge_index, double center,
                           double neighbor)
{
  return Gather::apply(atoms, edge_index, center, neighbor);
}

void check_vectors(const at::Tensor &edge_vec, const at::Tensor &edge_grad)
{
  TORCH_CHECK(edge_grad.dim() == 2 && edge_grad.size(1) == 3 &&
                  edge_vec.sizes() == edge_grad.sizes(),
              "edge_vec has shape ", edge_vec.sizes(), " and edge_grad ", edge_grad.sizes(),
              "; expected both [number of edges, 3]");
}

}    // namespace

at::Tensor edge_force(const at::Tensor &edge_grad, const at::Tensor &edge_index, std::int64_t nall)
{
  check_vectors(edge_grad, edge_grad);
  return call_scatter(edge_grad, edge_index, nall, 1.0, -1.0);
}

at::Tensor edge_virial(const at::Tensor &edge_vec, const at::Tensor &edge_grad)
{
  check_vectors(edge_vec, edge_grad);
  return -at::mm(edge_vec.t(), edge_grad);
}

at::Tensor edge_atom_virial(const at::Tensor &edge_vec, const at::Tensor &edge_grad,
                            const at::Tensor &edge_index, std::int64_t nall, bool centroid)
{
  check_vectors(edge_vec, edge_grad);
  const at::Tensor terms = -(edge_vec.unsqueeze(2) * edge_grad.unsqueeze(1)).reshape({-1, 9});
  const double center = centroid ? 0.0 : 0.5;
  return call_scatter(terms, edge_index, nall, center, 1.0 - center).view({nall, 3, 3});
}

void register_edge_ops(torch::Library &library)
{
  // values [E, width], edge_index int64 [2, E] -> [nall, width]:
  // out[i] += center values[e], out[j] += neighbor values[e]
  library.def(
      "edge_scatter(Tensor values, Tensor edge_index, SymInt nall, float center, float neighbor)"
      " -> Tensor");
  // atoms [nall, width], edge_index int64 [2, E] -> [E, width]: center atoms[i] + neighbor atoms[j]
  library.def(
      "edge_gather(Tensor atoms, Tensor edge_index, float center, float neighbor) -> Tensor");
  register_kernels(library, "edge_scatter", TORCH_FN(scatter), TORCH_FN(scatter_meta),
                   TORCH_FN(scatter_autograd));
  register_kernels(library, "edge_gather", TORCH_FN(gather), TORCH_FN(gather_meta),
                   TORCH_FN(gather_autograd));

  // edge.h
  library.def("edge_force(Tensor edge_grad, Tensor edge_index, int nall) -> Tensor",
              TORCH_FN(edge_force));
  library.def("edge_virial(Tensor edge_vec, Tensor edge_grad) -> Tensor", TORCH_FN(edge_virial));
  library.def("edge_atom_virial(Tensor edge_vec, Tensor edge_grad, Tensor edge_index, int nall, "
              "bool centroid) -> Tensor",
              TORCH_FN(edge_atom_virial));
}

}    // namespace pwmlff
