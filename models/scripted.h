// SPDX-License-Identifier: GPL-2.0-or-later

// TorchScript on a device: the CPU, or one GPU.
//
// Everything here uses torch through its device-generic interfaces, so the same binary runs
// with a torch that has CUDA and with one that has not.

#pragma once

#include "model.h"

#include <torch/script.h>

#include <exception>
#include <string>
#include <unordered_map>
#include <vector>

namespace pwmlff::models {

/// A GPU for torch, by its index among the visible ones, after a trial on it. It becomes the
/// current one of this thread.
/// @throws std::runtime_error that says what is missing
c10::Device torch_gpu(int gpu);

/// Open the CUDA part of torch (TorchPart::open_cuda).
std::string open_torch_cuda();

/// Open one of torch's libraries that this process may not have yet, from the folder of the others.
/// @return empty, or in one line why it does not open
std::string open_torch_library(const char *name);

/// Move a module with all tensors that it holds: parameters, buffers, and what module.to() leaves
/// behind, namely tensors that are plain attributes, alone or in lists, tuples and dictionaries.
/// They are replaced, not changed.
void move_module(torch::jit::Module &module, c10::Device device);

/// The last line of a message that says something: TorchScript puts the call stack before it.
std::string last_line(const std::exception &error);

/// What a value is, in words: the type and the shape of a tensor.
std::string described(const c10::IValue &value);

/// A module on its device, and the way there and back.
class Scripted {
 public:
  /// @param file  its name, for messages
  Scripted(std::string file, torch::jit::Module module);

  /// A copy on another device; the original stays where it is.
  Scripted copy_to(c10::Device device) const;

  const torch::jit::Module &module() const { return module_; }
  c10::Device device() const { return device_; }

  /// Compare the signature of forward: so many tensors, an int, then only arguments with defaults;
  /// it returns a tensor, or a tuple of so many elements where returned is above 0.
  /// @param expected  the same in words
  /// @throws std::runtime_error where it is another one
  void check_forward(std::size_t tensors, std::size_t returned, const std::string &expected) const;

  /// Whether forward has an argument of this name.
  bool takes(const std::string &argument) const;

  /// Whether it has a method of this name.
  bool has(const std::string &method) const { return module_.find_method(method).has_value(); }

  /// A tensor of host memory on the device: itself on the CPU, else a copy that passes through
  /// pinned memory and does not wait. Each argument of forward has memory of its own; its pinned
  /// memory is used again, so the results of one evaluation must be down before the next starts.
  at::Tensor upload(std::size_t argument, const at::Tensor &host);

  /// Call a method, with plain execution, with arguments by place and then by name. Whether this
  /// thread records derivatives is afterwards as it was before.
  /// @throws std::runtime_error with the last line of the message, or where it changes its inputs
  ///         in place: the models of an ensemble share them
  c10::IValue call(const std::string &method, std::vector<c10::IValue> inputs,
                   const std::unordered_map<std::string, c10::IValue> &named = {});

  /// An output as float64 on the CPU.
  /// @throws std::runtime_error where it is no tensor of this shape
  at::Tensor download(const c10::IValue &value, const std::string &name,
                      at::IntArrayRef shape) const;

 private:
  std::string file;
  torch::jit::Module module_;
  c10::Device device_ = at::kCPU;
  std::vector<at::Tensor> pinned;    // bytes, by argument
};

}    // namespace pwmlff::models
