// SPDX-License-Identifier: GPL-2.0-or-later

#include "fused_dp.h"

#include "dp/cpu/cpu_engine.h"
#include "dp/gpu/gpu_engine.h"

#include <map>
#include <mutex>

namespace pwmlff::models {

FusedDP::FusedDP(ModelInfo info, const pwmlff::DPNetwork &network, const std::string &precision,
                 const std::vector<bool> &present, std::shared_ptr<pwmlff::Device> device) :
    Model(std::move(info)),
    precision(precision),
    fused(device ? pwmlff::make_gpu_engine(std::move(device), network,
                                           pwmlff::dp_precision(precision), present)
                 : pwmlff::make_cpu_engine(network, pwmlff::dp_precision(precision), present))
{
}

std::string FusedDP::engine() const
{
  const std::size_t bytes = fused->table_bytes();
  return "fused, precision " + precision + ", " + fused->processor() +
         (bytes > 0 ? ", tables of " + std::to_string(bytes / 1024) + " KiB" : "");
}

bool FusedDP::on_gpu() const
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
