/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "../common/op.h"
#include "descriptor.h"
#include "descriptor_kernels.h"

namespace pwmlff {
namespace {

// The value is linear in the table, and its derivative by x is the same op one derivative further.
// So two ops, one the transpose of the other with respect to the table, are closed under
// differentiation.

void check(const at::Tensor &x, double low, double width, std::int64_t derivative,
           std::int64_t intervals)
{
  check_shape("x", x, {-1}, "[number of edges]");
  TORCH_CHECK(width > 0.0, "width is ", width, "; expected a positive width of the intervals");
  TORCH_CHECK(derivative >= 0, "derivative is ", derivative, "; expected 0 or more");
  if (!x.is_cpu() || x.numel() == 0) return;
  const auto [lowest, highest] = at::aminmax(x);
  const double least = lowest.item<double>(), most = highest.item<double>(),
               high = low + static_cast<double>(intervals) * width;
  TORCH_CHECK(least >= low && most <= high, "x goes from ", least, " to ", most,
              "; the table holds for ", low, " to ", high);
}

at::Tensor embed(const at::Tensor &x, const at::Tensor &table, double low, double width,
                 std::int64_t derivative)
{
  TORCH_CHECK(table.dim() == 3 && table.size(0) > 0 && table.size(1) > 0, "table has shape ",
              table.sizes(), "; expected [intervals, order+1, channels]");
  check(x, low, width, derivative, table.size(0));
  check_like("x", x, "table", table);
  const at::Tensor at_x = x.contiguous(), coef = table.contiguous();
  at::Tensor out = at::empty({at_x.size(0), coef.size(2)}, at_x.options());
  AT_DISPATCH_FLOATING_TYPES(at_x.scalar_type(), "table_embedding", [&] {
    launch(at_x, out.numel(),
           TableEmbedding<scalar_t>{at_x.const_data_ptr<scalar_t>(),
                                    coef.const_data_ptr<scalar_t>(), low, width, derivative,
                                    coef.size(0), coef.size(1), coef.size(2),
                                    out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor transposed(const at::Tensor &grad, const at::Tensor &x, double low, double width,
                      std::int64_t derivative, std::int64_t intervals, std::int64_t terms)
{
  TORCH_CHECK(intervals > 0 && terms > 0, "intervals is ", intervals, " and terms ", terms,
              "; expected 1 or more");
  check(x, low, width, derivative, intervals);
  check_shape("grad", grad, {x.size(0), -1}, "[number of edges, channels]");
  check_like("grad", grad, "x", x);
  const at::Tensor by = grad.contiguous(), at_x = x.contiguous();
  at::Tensor out = at::zeros({intervals, terms, by.size(1)}, by.options());
  AT_DISPATCH_FLOATING_TYPES(by.scalar_type(), "table_embedding_backward", [&] {
    launch(by, by.numel(),
           TableEmbeddingBackward<scalar_t>{
               by.const_data_ptr<scalar_t>(), at_x.const_data_ptr<scalar_t>(), low, width,
               derivative, intervals, terms, by.size(1), out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor embed_meta(const at::Tensor &x, const at::Tensor &table, double, double, std::int64_t)
{
  return at::empty_symint({x.sym_size(0), table.sym_size(2)}, x.options());
}

at::Tensor transposed_meta(const at::Tensor &grad, const at::Tensor &, double, double, std::int64_t,
                           c10::SymInt intervals, c10::SymInt terms)
{
  return at::empty_symint({std::move(intervals), std::move(terms), grad.sym_size(1)},
                          grad.options());
}

at::Tensor call_embed(const at::Tensor &x, const at::Tensor &table, double low, double width,
                      std::int64_t derivative)
{
  static const auto op = find_op<decltype(embed)>("pwmlff::table_embedding");
  return op.call(x, table, low, width, derivative);
}

at::Tensor call_transposed(const at::Tensor &grad, const at::Tensor &x, double low, double width,
                           std::int64_t derivative, std::int64_t intervals, std::int64_t terms)
{
  static const auto op = find_op<decltype(transposed)>("pwmlff::table_embedding_backward");
  return op.call(grad, x, low, width, derivative, intervals, terms);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Grid {
  double low, width;
  std::int64_t derivative, intervals, terms;

  void save(AutogradContext &context) const
  {
    context.saved_data["low"] = low;
    context.saved_data["width"] = width;
    context.saved_data["derivative"] = derivative;
    context.saved_data["intervals"] = intervals;
    context.saved_data["terms"] = terms;
  }

  static Grid load(AutogradContext &context)
  {
    return {context.saved_data["low"].toDouble(), context.saved_data["width"].toDouble(),
            context.saved_data["derivative"].toInt(), context.saved_data["intervals"].toInt(),
            context.saved_data["terms"].toInt()};
  }
};

struct Embed : torch::autograd::Function<Embed> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &x, const at::Tensor &table,
                            double low, double width, std::int64_t derivative)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor out = call_embed(x, table, low, width, derivative);
    context->save_for_backward({x, table});
    Grid{low, width, derivative, table.size(0), table.size(1)}.save(*context);
    return out;
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &table = saved[1], &grad = gradients[0];
    const Grid grid = Grid::load(*context);
    at::Tensor by_x, by_table;
    if (context->needs_input_grad(0))
      by_x = (grad * call_embed(x, table, grid.low, grid.width, grid.derivative + 1)).sum(1);
    if (context->needs_input_grad(1))
      by_table = call_transposed(grad, x, grid.low, grid.width, grid.derivative, grid.intervals,
                                 grid.terms);
    return {by_x, by_table, {}, {}, {}};
  }
};

struct Transposed : torch::autograd::Function<Transposed> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &grad, const at::Tensor &x,
                            double low, double width, std::int64_t derivative,
                            std::int64_t intervals, std::int64_t terms)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({grad, x});
    Grid{low, width, derivative, intervals, terms}.save(*context);
    return call_transposed(grad, x, low, width, derivative, intervals, terms);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    const auto saved = context->get_saved_variables();
    const at::Tensor &grad = saved[0], &x = saved[1], &table = gradients[0];
    const Grid grid = Grid::load(*context);
    at::Tensor by_grad, by_x;
    if (context->needs_input_grad(0))
      by_grad = call_embed(x, table, grid.low, grid.width, grid.derivative);
    if (context->needs_input_grad(1))
      by_x = (grad * call_embed(x, table, grid.low, grid.width, grid.derivative + 1)).sum(1);
    return {by_grad, by_x, {}, {}, {}, {}, {}};
  }
};

at::Tensor embed_autograd(const at::Tensor &x, const at::Tensor &table, double low, double width,
                          std::int64_t derivative)
{
  return Embed::apply(x, table, low, width, derivative);
}

at::Tensor transposed_autograd(const at::Tensor &grad, const at::Tensor &x, double low,
                               double width, std::int64_t derivative, std::int64_t intervals,
                               std::int64_t terms)
{
  return Transposed::apply(grad, x, low, width, derivative, intervals, terms);
}

}    // namespace

void register_table_ops(torch::Library &library)
{
  // x [E], table [intervals, order+1, M], lowest power first -> [E, M], differentiated
  // `derivative` times by x
  library.def("table_embedding(Tensor x, Tensor table, float low, float width, int derivative)"
              " -> Tensor");
  register_kernels(library, "table_embedding", TORCH_FN(embed), TORCH_FN(embed_meta),
                   TORCH_FN(embed_autograd));
  // grad [E, M], x [E] -> [intervals, terms, M]: sum over e of grad_e dG_e/dtable; terms is order+1
  library.def("table_embedding_backward(Tensor grad, Tensor x, float low, float width, "
              "int derivative, SymInt intervals, SymInt terms) -> Tensor");
  register_kernels(library, "table_embedding_backward", TORCH_FN(transposed),
                   TORCH_FN(transposed_meta), TORCH_FN(transposed_autograd));
}

}    // namespace pwmlff
