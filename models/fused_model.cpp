// SPDX-License-Identifier: GPL-2.0-or-later

#include "fused_model.h"

#include "core/device.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace pwmlff::models {

FusedModel::FusedModel(ModelInfo info, const std::string &precision,
                       std::unique_ptr<pwmlff::FusedEngine> engine) :
    Model(std::move(info)), precision(precision), fused(std::move(engine))
{
}

std::string FusedModel::engine() const
{
  const std::size_t bytes = fused->table_bytes();
  return "fused, precision " + precision + ", " + fused->processor() +
         (bytes > 0 ? ", tables of " + std::to_string(bytes / 1024) + " KiB" : "");
}

bool FusedModel::on_gpu() const
{
  return fused->device() && fused->device()->mode() == pwmlff::Device::Mode::cuda;
}

std::shared_ptr<pwmlff::Device> shared_device(int gpu)
{
  std::string name = gpu_stand_in();
  if (name.empty()) name = "cuda:" + std::to_string(gpu);
  static std::mutex mutex;    // LAMMPS instances may have a thread each
  static std::map<std::string, std::weak_ptr<pwmlff::Device>> devices;
  const std::lock_guard lock(mutex);
  std::shared_ptr<pwmlff::Device> device = devices[name].lock();
  if (!device) devices[name] = device = pwmlff::Device::make(name);
  return device;
}

}    // namespace pwmlff::models
