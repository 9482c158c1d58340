// SPDX-License-Identifier: GPL-2.0-or-later

#include "fused_dp.h"

#include "../neighbors.h"

#include <cstdlib>
#include <map>
#include <mutex>

namespace pwmlff::models {
namespace {

// The device in the place of a GPU; empty where there is none.
std::string stand_in()
{
  const char *const name = std::getenv("PWMLFF_GPU_STAND_IN");
  return name ? name : "";
}

std::string tables(std::size_t bytes)
{
  return bytes > 0 ? ", tables of " + std::to_string(bytes / 1024) + " KiB" : "";
}

}    // namespace

FusedDP::FusedDP(ModelInfo info, const pwmlff::DPNetwork &network, const std::string &precision,
                 const std::vector<bool> &present) :
    Model(std::move(info)),
    precision(precision),
    fused(network, pwmlff::dp_precision(precision), present)
{
}

std::string FusedDP::engine() const
{
  return "fused, precision " + precision + ", " + fused.isa() + tables(fused.table_bytes());
}

const Evaluation &FusedDP::evaluate(Neighbors &neighbors, const Request &request)
{
  pwmlff::DPInput input{};
  input.ncenters = neighbors.ncenters();
  input.nrows = neighbors.nrows();
  input.x = neighbors.x();
  input.species = neighbors.species().data();
  input.first = neighbors.first().data();
  input.candidate = neighbors.candidate().data();
  input.nthreads = request.nthreads;
  input.want_atom_virial = request.atom_virial;
  input.want_centroid_virial = request.centroid_virial;
  try {
    fused.evaluate(input, output);
  } catch (const pwmlff::DPOverflow &excess) {
    throw TooManyNeighbors(excess.row, excess.species, excess.count, excess.limit);
  }
  result.energy = output.energy;
  result.atom_energy = output.atom_energy.data();
  result.force = output.force.data();
  result.virial = in_order_of_lammps(output.virial);
  result.atom_virial = output.atom_virial.data();
  result.centroid_virial = output.centroid_virial.data();
  return result;
}

FusedDPGpu::FusedDPGpu(ModelInfo info, const pwmlff::DPNetwork &network,
                       const std::string &precision, const std::vector<bool> &present,
                       std::shared_ptr<pwmlff::Device> device) :
    Model(std::move(info)),
    precision(precision),
    fused(std::move(device), network, pwmlff::dp_precision(precision), present)
{
}

std::string FusedDPGpu::engine() const
{
  return "fused, precision " + precision + ", " + fused.device()->name() +
         tables(fused.table_bytes());
}

const Evaluation &FusedDPGpu::evaluate(Neighbors &neighbors, const Request &request)
{
  try {
    const pwmlff::DPGpuOutput &output = fused.evaluate(
        neighbors.gpu_list(fused.device()), request.atom_virial, request.centroid_virial);
    result.energy = output.energy;
    result.atom_energy = output.atom_energy;
    result.force = output.force;
    result.virial = in_order_of_lammps(output.virial);
    result.atom_virial = output.atom_virial;
    result.centroid_virial = output.centroid_virial;
  } catch (const pwmlff::DPOverflow &excess) {
    throw TooManyNeighbors(excess.row, excess.species, excess.count, excess.limit);
  }
  return result;
}

bool gpu_has_stand_in() { return !stand_in().empty(); }

std::shared_ptr<pwmlff::Device> shared_device(int gpu)
{
  std::string name = stand_in();
  if (name.empty()) name = "cuda:" + std::to_string(gpu);
  static std::mutex mutex;    // LAMMPS instances may have a thread each
  static std::map<std::string, std::weak_ptr<pwmlff::Device>> devices;
  const std::lock_guard lock(mutex);
  std::shared_ptr<pwmlff::Device> device = devices[name].lock();
  if (!device) devices[name] = device = pwmlff::Device::make(name);
  return device;
}

}    // namespace pwmlff::models
