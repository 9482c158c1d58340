// SPDX-License-Identifier: GPL-2.0-or-later

// The code that a TorchScript file brings along, on one device.

#pragma once

#include "engine_choice.h"
#include "model_file.h"
#include "scripted.h"

#include "placement/device_mapping.h"

#include <memory>

namespace pwmlff::models {

class FileCode : public Original {
 public:
  std::string name() const override { return "torchscript"; }
  bool on_gpu() const override { return !code.device().is_cpu(); }
  bool has_gpu_code() const override { return true; }
  std::unique_ptr<Model> copy_to_gpu(int gpu) const override
  {
    return copy_to(gpu == pwmlff::CPU ? c10::Device(at::kCPU) : torch_gpu(gpu));
  }

  /// A copy that evaluates on another device.
  virtual std::unique_ptr<FileCode> copy_to(c10::Device device) const = 0;

 protected:
  FileCode(const ModelFile &file, ModelInfo info) :
      Original(std::move(info)), code(file.name(), file.module())
  {
  }

  Scripted code;
  Evaluation result{};
};

}    // namespace pwmlff::models
