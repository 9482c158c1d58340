/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "../common/op.h"
#include "descriptor.h"
#include "descriptor_kernels.h"

namespace pwmlff {
namespace {

// The three ops are the derivatives of one form that is linear in moments, env and g; the
// derivatives of each are the other two.

void check(const at::Tensor &center, std::int64_t ncenters)
{
  TORCH_CHECK(center.dim() == 1 && center.scalar_type() == at::kLong, "center has shape ",
              center.sizes(), " and type ", center.scalar_type(),
              "; expected int64 [number of edges]");
  if (!center.is_cpu() || center.numel() == 0) return;
  const auto [lowest, highest] = at::aminmax(center);
  const auto least = lowest.item<std::int64_t>(), most = highest.item<std::int64_t>();
  TORCH_CHECK(least >= 0 && most < ncenters, "center holds ", least, " to ", most,
              "; expected indices of ", ncenters, " centers, from 0");
}

void check_env(const at::Tensor &env, const at::Tensor &center)
{
  check_shape("env", env, {center.size(0), 4}, "[number of edges, 4]");
}

void check_g(const at::Tensor &g, const at::Tensor &center)
{
  check_shape("g", g, {center.size(0), -1}, "[number of edges, channels]");
}

void check_device(const at::Tensor &center, const char *name, const at::Tensor &tensor)
{
  TORCH_CHECK(center.device() == tensor.device(), "center is on ", center.device(), " and ", name,
              " on ", tensor.device(), "; move them to one device");
}

at::Tensor moments_of(const at::Tensor &env, const at::Tensor &g, const at::Tensor &center,
                      std::int64_t ncenters)
{
  check(center, ncenters);
  check_env(env, center);
  check_g(g, center);
  check_like("env", env, "g", g);
  check_device(center, "g", g);
  const at::Tensor e = env.contiguous(), channel = g.contiguous(), index = center.contiguous();
  at::Tensor out = at::zeros({ncenters, 4, g.size(1)}, g.options());
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "dp_moments", [&] {
    launch(g, g.numel(),
           Moments<scalar_t>{e.const_data_ptr<scalar_t>(), channel.const_data_ptr<scalar_t>(),
                             index.const_data_ptr<std::int64_t>(), g.size(1),
                             out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor to_env(const at::Tensor &moments, const at::Tensor &g, const at::Tensor &center)
{
  check_g(g, center);
  check_shape("moments", moments, {-1, 4, g.size(1)}, "[number of centers, 4, channels of g]");
  check(center, moments.size(0));
  check_like("moments", moments, "g", g);
  check_device(center, "g", g);
  const at::Tensor t = moments.contiguous(), channel = g.contiguous(), index = center.contiguous();
  at::Tensor out = at::empty({g.size(0), 4}, g.options());
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "dp_moments_to_env", [&] {
    launch(g, out.numel(),
           MomentsToEnv<scalar_t>{t.const_data_ptr<scalar_t>(), channel.const_data_ptr<scalar_t>(),
                                  index.const_data_ptr<std::int64_t>(), g.size(1),
                                  out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor to_g(const at::Tensor &moments, const at::Tensor &env, const at::Tensor &center)
{
  check_shape("moments", moments, {-1, 4, -1}, "[number of centers, 4, channels]");
  check(center, moments.size(0));
  check_env(env, center);
  check_like("moments", moments, "env", env);
  check_device(center, "env", env);
  const at::Tensor t = moments.contiguous(), e = env.contiguous(), index = center.contiguous();
  at::Tensor out = at::empty({env.size(0), t.size(2)}, env.options());
  AT_DISPATCH_FLOATING_TYPES(env.scalar_type(), "dp_moments_to_g", [&] {
    launch(env, out.numel(),
           MomentsToG<scalar_t>{t.const_data_ptr<scalar_t>(), e.const_data_ptr<scalar_t>(),
                                index.const_data_ptr<std::int64_t>(), t.size(2),
                                out.mutable_data_ptr<scalar_t>()});
  });
  return out;
}

at::Tensor moments_meta(const at::Tensor &, const at::Tensor &g, const at::Tensor &,
                        c10::SymInt ncenters)
{
  return at::empty_symint({std::move(ncenters), 4, g.sym_size(1)}, g.options());
}

at::Tensor to_env_meta(const at::Tensor &, const at::Tensor &g, const at::Tensor &)
{
  return at::empty_symint({g.sym_size(0), 4}, g.options());
}

at::Tensor to_g_meta(const at::Tensor &moments, const at::Tensor &env, const at::Tensor &)
{
  return at::empty_symint({env.sym_size(0), moments.sym_size(2)}, env.options());
}

at::Tensor call_moments(const at::Tensor &env, const at::Tensor &g, const at::Tensor &center,
                        std::int64_t ncenters)
{
  static const auto op = find_op<decltype(moments_of)>("pwmlff::dp_moments");
  return op.call(env, g, center, ncenters);
}

at::Tensor call_to_env(const at::Tensor &moments, const at::Tensor &g, const at::Tensor &center)
{
  static const auto op = find_op<decltype(to_env)>("pwmlff::dp_moments_to_env");
  return op.call(moments, g, center);
}

at::Tensor call_to_g(const at::Tensor &moments, const at::Tensor &env, const at::Tensor &center)
{
  static const auto op = find_op<decltype(to_g)>("pwmlff::dp_moments_to_g");
  return op.call(moments, env, center);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct MomentsOf : torch::autograd::Function<MomentsOf> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &env, const at::Tensor &g,
                            const at::Tensor &center, std::int64_t ncenters)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({env, g, center});
    return call_moments(env, g, center, ncenters);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    const auto saved = context->get_saved_variables();
    const at::Tensor &env = saved[0], &g = saved[1], &center = saved[2];
    at::Tensor by_env, by_g;
    if (context->needs_input_grad(0)) by_env = call_to_env(gradients[0], g, center);
    if (context->needs_input_grad(1)) by_g = call_to_g(gradients[0], env, center);
    return {by_env, by_g, {}, {}};
  }
};

struct ToEnv : torch::autograd::Function<ToEnv> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &moments,
                            const at::Tensor &g, const at::Tensor &center)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({moments, g, center});
    return call_to_env(moments, g, center);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    const auto saved = context->get_saved_variables();
    const at::Tensor &moments = saved[0], &g = saved[1], &center = saved[2];
    at::Tensor by_moments, by_g;
    if (context->needs_input_grad(0))
      by_moments = call_moments(gradients[0], g, center, moments.size(0));
    if (context->needs_input_grad(1)) by_g = call_to_g(moments, gradients[0], center);
    return {by_moments, by_g, {}};
  }
};

struct ToG : torch::autograd::Function<ToG> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &moments,
                            const at::Tensor &env, const at::Tensor &center)
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({moments, env, center});
    return call_to_g(moments, env, center);
  }

  static variable_list backward(AutogradContext *context, const variable_list &gradients)
  {
    const auto saved = context->get_saved_variables();
    const at::Tensor &moments = saved[0], &env = saved[1], &center = saved[2];
    at::Tensor by_moments, by_env;
    if (context->needs_input_grad(0))
      by_moments = call_moments(env, gradients[0], center, moments.size(0));
    if (context->needs_input_grad(1)) by_env = call_to_env(moments, gradients[0], center);
    return {by_moments, by_env, {}};
  }
};

at::Tensor moments_autograd(const at::Tensor &env, const at::Tensor &g, const at::Tensor &center,
                            std::int64_t ncenters)
{
  return MomentsOf::apply(env, g, center, ncenters);
}

at::Tensor to_env_autograd(const at::Tensor &moments, const at::Tensor &g, const at::Tensor &center)
{
  return ToEnv::apply(moments, g, center);
}

at::Tensor to_g_autograd(const at::Tensor &moments, const at::Tensor &env, const at::Tensor &center)
{
  return ToG::apply(moments, env, center);
}

}    // namespace

void register_moments_ops(torch::Library &library)
{
  // env [E, 4], g [E, M], center int64 [E] -> [ncenters, 4, M]
  library.def("dp_moments(Tensor env, Tensor g, Tensor center, SymInt ncenters) -> Tensor");
  register_kernels(library, "dp_moments", TORCH_FN(moments_of), TORCH_FN(moments_meta),
                   TORCH_FN(moments_autograd));
  // moments [n, 4, M], g [E, M], center -> [E, 4]: sum over m of moments[center, :, m] g[:, m]
  library.def("dp_moments_to_env(Tensor moments, Tensor g, Tensor center) -> Tensor");
  register_kernels(library, "dp_moments_to_env", TORCH_FN(to_env), TORCH_FN(to_env_meta),
                   TORCH_FN(to_env_autograd));
  // moments [n, 4, M], env [E, 4], center -> [E, M]: sum over c of moments[center, c, :] env[:, c]
  library.def("dp_moments_to_g(Tensor moments, Tensor env, Tensor center) -> Tensor");
  register_kernels(library, "dp_moments_to_g", TORCH_FN(to_g), TORCH_FN(to_g_meta),
                   TORCH_FN(to_g_autograd));
}

}    // namespace pwmlff
