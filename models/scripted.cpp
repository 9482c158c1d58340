// SPDX-License-Identifier: GPL-2.0-or-later

#include "scripted.h"

#include "model_file.h"
#include "placement/inventory.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace pwmlff::models {
namespace {

constexpr const char *CUDA_LIBRARY = "libtorch_cuda.so";

// The same value on the device. Containers are replaced, not changed: others may share them.
c10::IValue moved(const c10::IValue &value, c10::Device device)
{
  if (value.isTensor()) return value.toTensor().to(device);
  if (value.isList()) {
    const auto list = value.toList();
    auto result = c10::impl::GenericList(list.elementType());
    for (const c10::IValue &element : list) result.push_back(moved(element, device));
    return result;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const auto &element : value.toTupleRef().elements())
      elements.push_back(moved(element, device));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    auto result = c10::impl::GenericDict(dict.keyType(), dict.valueType());
    for (const auto &entry : dict) result.insert(entry.key(), moved(entry.value(), device));
    return result;
  }
  return value;
}

std::filesystem::path torch_library(const char *name)
{
  Dl_info info{};
  dladdr(reinterpret_cast<const void *>(&at::set_num_threads), &info);
  return std::filesystem::path(info.dli_fname).parent_path() / name;
}

}    // namespace

std::string last_line(const std::exception &error)
{
  const auto *torch_error = dynamic_cast<const c10::Error *>(&error);
  std::istringstream text(torch_error ? torch_error->what_without_backtrace() : error.what());
  std::string last;
  for (std::string line; std::getline(text, line);)
    if (line.find_first_not_of(" \t\r~<") != std::string::npos) last = line;
  return last;
}

std::string open_torch_library(const char *name)
{
  const auto path = torch_library(name);
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return {};
  const char *reason = dlerror();
  return "cannot open " + path.string() + ": " + (reason ? reason : "");
}

std::string open_torch_cuda()
{
  const auto path = torch_library(CUDA_LIBRARY);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return "this torch has no CUDA (no " + path.string() +
           "); install the CUDA build of the same release";
  std::string failure = open_torch_library(CUDA_LIBRARY);
  if (!failure.empty()) return failure;
  if (!at::globalContext().hasCUDA())
    return "torch sees no GPU through its own CUDA, or a pair_style on the CPU came first in this "
           "process; give the one on GPUs first";
  return {};
}

c10::Device torch_gpu(int gpu)
{
  std::array<char, 512> message{};
  if (pwmlff_use_gpu(gpu, message.data(), message.size()) != 0)
    throw std::runtime_error(message.data());
  const std::string missing = open_torch_cuda();
  if (!missing.empty()) throw std::runtime_error(missing);
  const c10::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  try {
    const c10::impl::VirtualGuardImpl cuda(device.type());
    if (cuda.deviceCount() <= gpu)
      throw std::runtime_error("torch sees " + std::to_string(cuda.deviceCount()) +
                               " GPUs, so none with number " + std::to_string(gpu));
    cuda.setDevice(device);
    at::ones({1}, at::device(device).dtype(at::kDouble)).add(1.0).to(at::kCPU);
  } catch (const std::exception &error) {
    throw std::runtime_error("torch cannot compute on GPU " + std::to_string(gpu) + ": " +
                             first_line(error));
  }
  return device;
}

void move_module(torch::jit::Module &module, c10::Device device)
{
  for (const torch::jit::Module &part : module.modules()) {
    const auto object = part._ivalue();
    for (std::size_t slot = 0; slot < object->slots().size(); ++slot)
      object->setSlot(slot, moved(object->getSlot(slot), device));
  }
}

std::string described(const c10::IValue &value)
{
  std::ostringstream text;
  if (value.isTensor()) text << value.toTensor().sizes();
  else text << value.tagKind();
  return text.str();
}

/* ---- Scripted ---- */

Scripted::Scripted(std::string file, torch::jit::Module module) :
    file(std::move(file)), module_(std::move(module))
{
}

Scripted Scripted::copy_to(c10::Device device) const
{
  Scripted copy(file, module_.deepcopy());
  copy.device_ = device;
  move_module(copy.module_, device);
  return copy;
}

void Scripted::check_forward(std::size_t tensors, std::size_t returned,
                             const std::string &expected) const
{
  const auto method = module_.find_method("forward");
  bool fits = method.has_value();
  std::string found = "no method forward";
  if (method) {
    const c10::FunctionSchema &schema = method->function().getSchema();
    std::ostringstream text;
    text << schema;
    found = text.str();
    const auto &arguments = schema.arguments();    // [0] is the module itself
    fits = arguments.size() >= tensors + 2 && schema.returns().size() == 1;
    for (std::size_t i = 1; fits && i < arguments.size(); ++i) {
      const c10::TypeKind kind = arguments[i].type()->kind();
      if (i <= tensors) fits = kind == c10::TypeKind::TensorType;
      else if (i == tensors + 1) fits = kind == c10::TypeKind::IntType;
      else fits = arguments[i].default_value().has_value();
    }
    if (fits && returned == 0) {
      fits = schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
    } else if (fits) {
      const auto *tuple = schema.returns()[0].type()->castRaw<c10::TupleType>();
      fits = tuple && tuple->elements().size() == returned;
    }
  }
  if (!fits)
    throw std::runtime_error("model file " + in_quotes(file) +
                             " has the wrong signature: expected " + expected + ", found " + found);
}

bool Scripted::takes(const std::string &argument) const
{
  const auto &arguments = module_.get_method("forward").function().getSchema().arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const c10::Argument &taken) { return taken.name() == argument; });
}

at::Tensor Scripted::upload(std::size_t argument, const at::Tensor &host)
{
  if (device_.is_cpu()) return host;
  if (pinned.size() <= argument) pinned.resize(argument + 1);
  at::Tensor &bytes = pinned[argument];
  const auto size = static_cast<std::int64_t>(host.nbytes());
  if (!bytes.defined() || bytes.numel() < size)
    bytes = at::empty({size + size / 4}, at::dtype(at::kByte).pinned_memory(true));
  const at::Tensor staged = bytes.narrow(0, 0, size).view(host.scalar_type()).view(host.sizes());
  staged.copy_(host);
  return staged.to(device_, /*non_blocking=*/true);
}

c10::IValue Scripted::call(const std::string &method, std::vector<c10::IValue> inputs,
                           const std::unordered_map<std::string, c10::IValue> &named)
{
  const c10::DeviceGuard guard(device_);
  // The optimizing executor specializes for tensor sizes, which change with every neighbor list:
  // without it the same code takes between two thirds and half the time.
  const torch::jit::GraphOptimizerEnabledGuard plain_executor(false);
  const c10::AutoGradMode derivatives(true);
  std::vector<std::uint32_t> versions;
  for (const c10::IValue &input : inputs)
    versions.push_back(input.isTensor() ? input.toTensor()._version() : 0);
  c10::IValue output;
  try {
    output = module_.get_method(method)(inputs, named);
  } catch (const std::exception &error) {
    throw std::runtime_error("the " + method + " of model file " + in_quotes(file) +
                             " failed: " + last_line(error));
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].isTensor() || inputs[k].toTensor()._version() == versions[k]) continue;
    const auto &arguments = module_.get_method(method).function().getSchema().arguments();
    throw std::runtime_error(
        "the " + method + " of model file " + in_quotes(file) + " changes its argument " +
        arguments[k + 1].name() +
        " in place; let it work on a copy (.clone(), or x = x + 1 for x += 1)");
  }
  return output;
}

at::Tensor Scripted::download(const c10::IValue &value, const std::string &name,
                              at::IntArrayRef shape) const
{
  if (!value.isTensor() || value.toTensor().sizes() != shape) {
    std::ostringstream expected;
    expected << shape;
    throw std::runtime_error("the forward of model file " + in_quotes(file) + " returned " + name +
                             " as " + described(value) + ", expected a tensor " + expected.str());
  }
  return value.toTensor().detach().to(at::kCPU, at::kDouble).contiguous();
}

}    // namespace pwmlff::models
