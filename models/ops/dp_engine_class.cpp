// SPDX-License-Identifier: GPL-2.0-or-later

// torch.classes.pwmlff.DPEngine: a fused engine for Deep Potentials (dp/cpu/cpu_engine.h,
// dp/gpu/gpu_engine.h) by itself, for training, tests and benchmarks.
//
//   DPEngine(bytes contents, str precision, int[] present, str device = "",
//            int chunk_bytes = 2**29)
//       contents     of a TorchScript DP
//       precision    exact, double or mixed
//       present      [nspecies] 1 for the species that take part, 0 for the others
//       device       empty for the engine for CPUs; else of the one for GPUs: cuda:N, or cpu and
//                    cpu:lanes, where the code for GPUs runs on the CPU (device.h)
//       chunk_bytes  of the device for arrays over edges
//   set_neighbors(Tensor species, Tensor first, Tensor candidate)
//       species      int32 [nrows] index into the model's elements, or -1
//       first        int32 [ncenters*nspecies + 1] where the candidates of a center and a
//                    species of neighbors begin in `candidate`
//       candidate    int32 [n] rows, all neighbors within the cutoff and any beyond
//   find_neighbors(Tensor x, Tensor species, int ncenters, float reach) -> (Tensor, Tensor)
//       make the list on the device: rows closer than reach; returns first and candidate
//   evaluate(Tensor x, int nthreads = 1, bool want_atom_virial = True,
//            bool want_centroid_virial = True)
//       -> (Tensor atom_energy, Tensor force, Tensor virial,
//           Tensor atom_virial, Tensor centroid_virial, Tensor grade)
//       with the list that was set or found last
//       x                float64 [nrows, 3]
//       nthreads         of the CPU; a device has its own
//       atom_energy      float64 [ncenters]
//       force            float64 [nrows, 3] -dE/dx
//       virial           float64 [9] xx xy xz yx yy yz zx zy zz
//       atom_virial      float64 [nrows, 6] xx yy zz xy xz yz; without rows where not wanted
//       centroid_virial  float64 [nrows, 9] xx yy zz xy xz yz yx zx zy; likewise
//       grade            float64 [ncenters] of each atom alone; empty where the file has none
//   cutoff() -> float
//   table_bytes() -> int, table_error() -> (float, float)
//       of the tables; the largest error of G and of dG/dr between the nodes
//   processor() -> str    the instruction set in use, or the name of the device
//   measure(bool enabled), seconds() -> Dict(str, float)    time of each kernel of a device so far
//
// One thread may call them at a time.

#include "../dp/read_network.h"
#include "checks.h"
#include "common/threads.h"
#include "dp/cpu/cpu_engine.h"
#include "dp/gpu/gpu_engine.h"
#include "dp/pair_terms.h"

#include <torch/custom_class.h>

#include <mutex>

namespace pwmlff::models {
namespace {

using torch::Tensor;
using Values = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

DPNetwork network_of(const std::string &contents)
{
  const ModelFile file("in training", contents);
  ModelInfo info;
  describe_dp(file, info);
  return read_network(file, info);
}

class DPEngineClass : public torch::CustomClassHolder {
 public:
  DPEngineClass(const std::string &contents, const std::string &precision,
                const std::vector<std::int64_t> &flags, const std::string &device,
                std::int64_t chunk_bytes) :
      engine(make(contents, dp_precision(precision), {flags.begin(), flags.end()}, device,
                  static_cast<std::size_t>(chunk_bytes)))
  {
    if (engine->device()) on_device = std::make_unique<GpuNeighbors>(engine->device());
  }

  void set_neighbors(const Tensor &species, const Tensor &first, const Tensor &candidate)
  {
    const OneCaller caller(in_use, "DPEngine");
    const std::int64_t rows = species.numel();
    check_array("species", species, at::kInt, {rows});
    const int nspecies = engine->network().nspecies();
    const std::int64_t centers = check_list(first, candidate, rows, nspecies);
    has_list = false;
    if (on_device)
      on_device->assign(static_cast<int>(centers), static_cast<int>(rows), nspecies,
                        species.const_data_ptr<int>(), first.const_data_ptr<int>(),
                        candidate.const_data_ptr<int>());
    else list = {species.clone(), first.clone(), candidate.clone()};
    take_list(rows, centers);
  }

  std::tuple<Tensor, Tensor> find_neighbors(const Tensor &x, const Tensor &species,
                                            std::int64_t centers, double reach)
  {
    const OneCaller caller(in_use, "DPEngine");
    TORCH_CHECK_VALUE(on_device, "the engine for CPUs finds no neighbors, expected a call of "
                                 "set_neighbors");
    const std::int64_t rows = species.numel();
    check_array("x", x, at::kDouble, {rows, 3});
    check_array("species", species, at::kInt, {rows});
    TORCH_CHECK_VALUE(centers >= 0 && centers <= rows && reach > 0.0, "ncenters is ", centers,
                      " and reach ", reach, ", expected 0 to ", rows, " and a distance");
    has_list = false;
    on_device->build(static_cast<int>(centers), static_cast<int>(rows),
                     engine->network().nspecies(), x.const_data_ptr<double>(),
                     species.const_data_ptr<int>(), reach);
    take_list(rows, centers);
    std::vector<int> first, candidate;
    on_device->download(first, candidate);
    return {torch::tensor(first, torch::kInt), torch::tensor(candidate, torch::kInt)};
  }

  Values evaluate(const Tensor &x, std::int64_t nthreads, bool want_atom_virial,
                  bool want_centroid_virial)
  {
    const OneCaller caller(in_use, "DPEngine");
    TORCH_CHECK_VALUE(has_list, "there is no list of neighbors, expected a call of set_neighbors");
    check_array("x", x, at::kDouble, {nrows, 3});
    TORCH_CHECK_VALUE(nthreads >= 1, "nthreads is ", nthreads, ", expected at least 1");
    const auto integers = [&](std::size_t k) {
      return on_device ? nullptr : list[k].const_data_ptr<int>();
    };
    Input input;
    input.ncenters = static_cast<int>(ncenters);
    input.nrows = static_cast<int>(nrows);
    input.x = x.const_data_ptr<double>();
    input.species = integers(0);
    input.first = integers(1);
    input.candidate = integers(2);
    input.nthreads = static_cast<int>(nthreads);
    input.want_atom_virial = want_atom_virial;
    input.want_centroid_virial = want_centroid_virial;
    input.want_grade = engine->has_grade();
    if (on_device) on_device->update(input.x);
    input.on_device = on_device.get();
    const Evaluation *found = nullptr;
    try {
      found = &engine->evaluate(input);
    } catch (const std::invalid_argument &error) {
      TORCH_CHECK_VALUE(false, error.what());
    }
    double virial[9];
    for (int k = 0; k < 9; ++k) virial[virial_component(k)] = found->virial[k];
    return {tensor(found->atom_energy, {ncenters}),
            tensor(found->force, {nrows, 3}),
            tensor(virial, {9}),
            tensor(found->atom_virial, {want_atom_virial ? nrows : 0, 6}),
            tensor(found->centroid_virial, {want_centroid_virial ? nrows : 0, 9}),
            tensor(found->grade, {input.want_grade ? ncenters : 0})};
  }

  double cutoff() const { return engine->network().rmax; }
  std::int64_t table_bytes() const { return static_cast<std::int64_t>(engine->table_bytes()); }
  std::tuple<double, double> table_error() const
  {
    return {engine->value_error(), engine->slope_error()};
  }
  std::string processor() const { return engine->processor(); }
  void measure(bool enabled)
  {
    if (on_device) engine->device()->measure(enabled);
  }
  c10::Dict<std::string, double> seconds() const
  {
    c10::Dict<std::string, double> result;
    if (!on_device) return result;
    for (const auto &[kernel, seconds] : engine->device()->seconds())
      result.insert(kernel, seconds);
    return result;
  }

 private:
  static std::unique_ptr<DPEngine> make(const std::string &contents, DPPrecision precision,
                                        const std::vector<bool> &present, const std::string &device,
                                        std::size_t chunk_bytes)
  {
    const DPNetwork network = network_of(contents);
    if (device.empty()) return make_cpu_engine(network, precision, present);
    return make_gpu_engine(Device::make(device), network, precision, present, chunk_bytes);
  }

  void take_list(std::int64_t rows, std::int64_t centers)
  {
    nrows = rows;
    ncenters = centers;
    has_list = true;
  }

  std::mutex in_use;
  std::unique_ptr<DPEngine> engine;
  std::vector<Tensor> list;                   // species, first, candidate; of an engine for CPUs
  std::unique_ptr<GpuNeighbors> on_device;    // the same of one for GPUs
  bool has_list = false;
  std::int64_t nrows = 0, ncenters = 0;
};

}    // namespace

TORCH_LIBRARY_FRAGMENT(pwmlff, library)
{
  library.class_<DPEngineClass>("DPEngine")
      .def(torch::init<std::string, std::string, std::vector<std::int64_t>, std::string,
                       std::int64_t>(),
           "",
           {torch::arg("contents"), torch::arg("precision"), torch::arg("present"),
            torch::arg("device") = "",
            torch::arg("chunk_bytes") = static_cast<std::int64_t>(CHUNK_BYTES)})
      .def("set_neighbors", &DPEngineClass::set_neighbors)
      .def("find_neighbors", &DPEngineClass::find_neighbors)
      .def("evaluate", &DPEngineClass::evaluate, "",
           {torch::arg("x"), torch::arg("nthreads") = 1, torch::arg("want_atom_virial") = true,
            torch::arg("want_centroid_virial") = true})
      .def("cutoff", &DPEngineClass::cutoff)
      .def("table_bytes", &DPEngineClass::table_bytes)
      .def("table_error", &DPEngineClass::table_error)
      .def("processor", &DPEngineClass::processor)
      .def("measure", &DPEngineClass::measure)
      .def("seconds", &DPEngineClass::seconds);
}

}    // namespace pwmlff::models
