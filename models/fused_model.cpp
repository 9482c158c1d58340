// SPDX-License-Identifier: GPL-2.0-or-later

#include "fused_model.h"

#include "common/device.h"
#include "dp/cpu/cpu_engine.h"
#include "dp/gpu/gpu_engine.h"
#include "mace/mace_engine.h"

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

std::unique_ptr<pwmlff::FusedEngine> make_engine(const pwmlff::DPNetwork &network,
                                                 const std::string &precision,
                                                 std::shared_ptr<pwmlff::Device> device,
                                                 const std::vector<bool> &present)
{
  const pwmlff::DPPrecision as = pwmlff::dp_precision(precision);
  if (device) return pwmlff::make_gpu_engine(std::move(device), network, as, present);
  return pwmlff::make_cpu_engine(network, as, present);
}

std::unique_ptr<pwmlff::FusedEngine> make_engine(const pwmlff::MaceNetwork &network,
                                                 const std::string &precision,
                                                 const std::shared_ptr<pwmlff::Device> &device,
                                                 const std::vector<bool> &present)
{
  if (device) throw std::runtime_error("there is no code of it for GPUs");
  return pwmlff::make_mace_engine(network, precision, present);
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
