/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "../common/op.h"
#include "../dp/pair_terms.h"
#include "descriptor.h"
#include "descriptor_kernels.h"

namespace pwmlff {
namespace {

void check(const at::Tensor &edge_vec, double rmin, double rmax)
{
  check_shape("edge_vec", edge_vec, {-1, 3}, "[number of edges, 3]");
  TORCH_CHECK(rmin >= 0.0 && rmin < rmax, "rmin is ", rmin, " and rmax ", rmax,
              "; expected 0 <= rmin < rmax");
  if (!edge_vec.is_cpu()) return;
  const at::Tensor zero = at::eq(edge_vec, 0.0).all(1);
  TORCH_CHECK(!zero.any().item<bool>(), "edge ", zero.nonzero()[0].item<std::int64_t>(),
              " has length zero; remove such edges");
}

at::Tensor forward(const at::Tensor &edge_vec, double rmin, double rmax)
{
  check(edge_vec, rmin, rmax);
  const at::Tensor x = edge_vec.contiguous();
  at::Tensor out = at::empty({x.size(0), 4}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dp_environment", [&] {
    launch(x, x.size(0),
           Environment<scalar_t>{x.const_data_ptr<scalar_t>(), static_cast<scalar_t>(rmin),
                                 static_cast<scalar_t>(rmax), out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor backward(const at::Tensor &grad, const at::Tensor &edge_vec, double rmin, double rmax)
{
  check(edge_vec, rmin, rmax);
  check_shape("grad", grad, {edge_vec.size(0), 4}, "[number of edges, 4]");
  check_like("grad", grad, "edge_vec", edge_vec);
  const at::Tensor by = grad.contiguous(), x = edge_vec.contiguous();
  at::Tensor out = at::empty({x.size(0), 3}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dp_environment_backward", [&] {
    launch(x, x.size(0),
           EnvironmentBackward<scalar_t>{by.const_data_ptr<scalar_t>(),
                                         x.const_data_ptr<scalar_t>(), static_cast<scalar_t>(rmin),
                                         static_cast<scalar_t>(rmax),
                                         out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor forward_meta(const at::Tensor &edge_vec, double, double)
{
  return at::empty_symint({edge_vec.sym_size(0), 4}, edge_vec.options());
}

at::Tensor backward_meta(const at::Tensor &, const at::Tensor &edge_vec, double, double)
{
  return at::empty_symint({edge_vec.sym_size(0), 3}, edge_vec.options());
}

at::Tensor call_forward(const at::Tensor &edge_vec, double rmin, double rmax)
{
  static const auto op = find_op<decltype(forward)>("pwmlff::dp_environment");
  return op.call(edge_vec, rmin, rmax);
}

at::Tensor call_backward(const at::Tensor &grad, const at::Tensor &edge_vec, double rmin,
                         double rmax)
{
  static const auto op = find_op<decltype(backward)>("pwmlff::dp_environment_backward");
  return op.call(grad, edge_vec, rmin, rmax);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Forward : torch::autograd::Function<Forward> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &edge_vec, double rmin,
                            double rmax)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({edge_vec});
    context->saved_data["rmin"] = rmin;
    context->saved_data["rmax"] = rmax;
    return call_forward(edge_vec, rmin, rmax);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    return {call_backward(gradients[0], context->get_saved_variables()[0],
                          context->saved_data["rmin"].toDouble(),
                          context->saved_data["rmax"].toDouble()),
            {},
            {}};
  }
};

struct Backward : torch::autograd::Function<Backward> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &grad,
                            const at::Tensor &edge_vec, double rmin, double rmax)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({grad, edge_vec});
    context->saved_data["rmin"] = rmin;
    context->saved_data["rmax"] = rmax;
    return call_backward(grad, edge_vec, rmin, rmax);
  }

  // Of torch's ops, which know their own derivatives. With h the gradient that comes in, a the last
  // three components of grad and D f = f'/r, this differentiates
  //   grad_0 Ds (h.x) + q (h.a) + Dq (a.x) (h.x),   q = s/r
  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    const auto saved = context->get_saved_variables();
    const double rmin = context->saved_data["rmin"].toDouble(),
                 rmax = context->saved_data["rmax"].toDouble(), inv_width = 1.0 / (rmax - rmin);
    const at::Tensor &x = saved[1], &h = gradients[0];
    const at::Tensor first = saved[0].narrow(1, 0, 1), a = saved[0].narrow(1, 1, 3);

    const at::Tensor r = (x * x).sum(1, true).sqrt(), inv = r.reciprocal(), inv2 = inv * inv;
    const at::Tensor u = ((r - rmin) * inv_width).clamp(0.0, 1.0);
    const SwitchedInverse switched(u, inv, inv_width);
    const at::Tensor s1 = switched.s1, s2 = switched.s2(u, inv, inv_width);
    const at::Tensor q = switched.s * inv, Ds = s1 * inv, Dq = (s1 - q) * inv2;
    const at::Tensor DDs = (s2 - Ds) * inv2, DDq = (s2 * inv - 3.0 * Dq) * inv2;

    const at::Tensor hx = (h * x).sum(1, true), ax = (a * x).sum(1, true),
                     ha = (h * a).sum(1, true);
    at::Tensor by_grad, by_x;
    if (context->needs_input_grad(0)) by_grad = at::cat({Ds * hx, q * h + Dq * hx * x}, 1);
    if (context->needs_input_grad(1))
      by_x = (first * Ds + Dq * ax) * h + (Dq * hx) * a +
             (first * DDs * hx + Dq * ha + DDq * ax * hx) * x;
    return {by_grad, by_x, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor &edge_vec, double rmin, double rmax)
{
  return Forward::apply(edge_vec, rmin, rmax);
}

at::Tensor backward_autograd(const at::Tensor &grad, const at::Tensor &edge_vec, double rmin,
                             double rmax)
{
  return Backward::apply(grad, edge_vec, rmin, rmax);
}

}    // namespace

void register_environment_ops(torch::Library &library)
{
  // edge_vec [E, 3] -> [E, 4]
  library.def("dp_environment(Tensor edge_vec, float rmin, float rmax) -> Tensor");
  register_kernels(library, "dp_environment", TORCH_FN(forward), TORCH_FN(forward_meta),
                   TORCH_FN(forward_autograd));
  // grad [E, 4], edge_vec [E, 3] -> [E, 3]: sum over c of grad_c dR_c/dr_ij
  library.def("dp_environment_backward(Tensor grad, Tensor edge_vec, float rmin, float rmax)"
              " -> Tensor");
  register_kernels(library, "dp_environment_backward", TORCH_FN(backward), TORCH_FN(backward_meta),
                   TORCH_FN(backward_autograd));
}

}    // namespace pwmlff
