// SPDX-License-Identifier: GPL-2.0-or-later

// torch.classes.pwmlff.DPEngine: the DP engine (cpu/engine.h) for Python and TorchScript.
//
//   DPEngine(str model_file, str precision, int[] present)
//       model_file: a TorchScript DP; precision: exact, double or mixed;
//       present: [nspecies] 1 for the species that take part, 0 for the others
//   evaluate(Tensor x, Tensor species, Tensor first, Tensor candidate, int nthreads,
//            bool want_atom_virial = True, bool want_centroid_virial = True)
//       -> (Tensor atom_energy, Tensor force, Tensor virial,
//           Tensor atom_virial, Tensor centroid_virial)
//       x                float64 [nrows, 3]
//       species          int32 [nrows] index into the model's elements, or -1
//       first            int32 [ncenters*nspecies + 1] where the candidates of a center and a
//                        species of neighbors begin in `candidate`
//       candidate        int32 [n] rows, all neighbors within the cutoff and any beyond
//       atom_energy      float64 [ncenters]
//       force            float64 [nrows, 3] -dE/dx
//       virial           float64 [9] xx xy xz yx yy yz zx zy zz
//       atom_virial      float64 [nrows, 6] xx yy zz xy xz yz; without rows where not wanted
//       centroid_virial  float64 [nrows, 9] xx yy zz xy xz yz yx zx zy; likewise
//   cutoff() -> float, nspecies() -> int, table_bytes() -> int, isa() -> str
//   table_error() -> (float, float)    largest error of G and of dG/dr between the nodes

//
// torch.classes.pwmlff.DPGpuEngine: the same on a device (gpu/engine.h).
//
//   DPGpuEngine(str model_file, str precision, int[] present, str device, int chunk_bytes = 2**29)
//       device: cuda:N, or cpu and cpu:lanes, where the code for GPUs runs on the CPU (device.h)
//       chunk_bytes: of the device for arrays over edges
//   set_neighbors(Tensor species, Tensor first, Tensor candidate)
//   find_neighbors(Tensor x, Tensor species, int ncenters, float reach) -> (Tensor, Tensor)
//       make the list on the device: rows closer than reach; returns first and candidate
//   evaluate(Tensor x, bool want_atom_virial = True, bool want_centroid_virial = True)
//       -> as above, with the list that was set or found last
//   device() -> str
//   measure(bool enabled), seconds() -> Dict(str, float)    time of each kernel so far

#include "binding.h"

#include "../common/op.h"
#include "../common/threads.h"
#include "archive/model_archive.h"
#include "cpu/engine.h"
#include "cpu/instruction_set.h"
#include "gpu/engine.h"
#include "pair_terms.h"

#include <torch/custom_class.h>
#include <torch/script.h>

#include <fstream>
#include <mutex>
#include <sstream>

namespace pwmlff {
namespace {

using torch::Tensor;

/* ---- checks of what comes from users; the engines trust their callers ---- */

Tensor tensor(const double *values, at::IntArrayRef shape)
{
  Tensor result = torch::empty(shape, torch::kDouble);
  std::copy_n(values, result.numel(), result.data_ptr<double>());
  return result;
}

/// What is checked is what is loaded: the file is read once.
DPNetwork network_of(const std::string &model_file)
{
  std::ifstream file(model_file, std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  TORCH_CHECK_VALUE(file && contents, "cannot read model file '", model_file, "'");
  try {
    check_model_archive(contents.view());
  } catch (const std::exception &error) {
    TORCH_CHECK_VALUE(false, "model file '", model_file, "' ", error.what());
  }
  return read_network(torch::jit::load(contents, at::kCPU));
}

/// What both engines have in common.
class EngineBinding : public torch::CustomClassHolder {
 public:
  double cutoff() const { return engine->network().rmax; }
  std::int64_t nspecies() const { return engine->network().nspecies(); }
  std::int64_t table_bytes() const { return static_cast<std::int64_t>(engine->table_bytes()); }
  std::tuple<double, double> table_error() const
  {
    return {engine->value_error(), engine->slope_error()};
  }
  std::string processor() const { return engine->processor(); }

 protected:
  explicit EngineBinding(std::unique_ptr<DPEngine> engine) : engine(std::move(engine)) {}

  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> evaluate(const Input &input)
  {
    const Evaluation *found = nullptr;
    try {
      found = &engine->evaluate(input);
    } catch (const std::invalid_argument &error) {
      TORCH_CHECK_VALUE(false, error.what());
    }
    double virial[9];
    for (int k = 0; k < 9; ++k) virial[virial_component(k)] = found->virial[k];
    return {tensor(found->atom_energy, {input.ncenters}), tensor(found->force, {input.nrows, 3}),
            tensor(virial, {9}),
            tensor(found->atom_virial, {input.want_atom_virial ? input.nrows : 0, 6}),
            tensor(found->centroid_virial, {input.want_centroid_virial ? input.nrows : 0, 9})};
  }

  std::mutex in_use;
  const std::unique_ptr<DPEngine> engine;
};

class DPEngineBinding : public EngineBinding {
 public:
  DPEngineBinding(const std::string &model_file, const std::string &precision,
                  const std::vector<std::int64_t> &present) :
      EngineBinding(make_cpu_engine(network_of(model_file), dp_precision(precision),
                                    std::vector<bool>(present.begin(), present.end())))
  {
  }

  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> evaluate(
      const Tensor &x, const Tensor &species, const Tensor &first, const Tensor &candidate,
      std::int64_t nthreads, bool want_atom_virial, bool want_centroid_virial)
  {
    const OneCaller caller(in_use, "DPEngine");
    const std::int64_t nrows = x.dim() == 2 ? x.size(0) : -1;
    check_array("x", x, at::kDouble, {nrows, 3});
    check_array("species", species, at::kInt, {nrows});
    const std::int64_t ncenters = check_list(first, candidate, nrows, nspecies());
    TORCH_CHECK_VALUE(nthreads >= 1, "nthreads is ", nthreads, ", expected at least 1");
    return EngineBinding::evaluate({static_cast<int>(ncenters), static_cast<int>(nrows),
                                    x.const_data_ptr<double>(), species.const_data_ptr<int>(),
                                    first.const_data_ptr<int>(), candidate.const_data_ptr<int>(),
                                    static_cast<int>(nthreads), want_atom_virial,
                                    want_centroid_virial});
  }
};

class DPGpuEngineBinding : public EngineBinding {
 public:
  DPGpuEngineBinding(const std::string &model_file, const std::string &precision,
                     const std::vector<std::int64_t> &present, const std::string &device,
                     std::int64_t chunk_bytes) :
      EngineBinding(make_gpu_engine(Device::make(device), network_of(model_file),
                                    dp_precision(precision),
                                    std::vector<bool>(present.begin(), present.end()),
                                    static_cast<std::size_t>(chunk_bytes))),
      neighbors(engine->device())
  {
  }

  void set_neighbors(const Tensor &species, const Tensor &first, const Tensor &candidate)
  {
    const std::int64_t nrows = species.numel();
    check_array("species", species, at::kInt, {nrows});
    const std::int64_t ncenters = check_list(first, candidate, nrows, nspecies());
    neighbors.assign(static_cast<int>(ncenters), static_cast<int>(nrows), nspecies(),
                     species.const_data_ptr<int>(), first.const_data_ptr<int>(),
                     candidate.const_data_ptr<int>());
  }

  std::tuple<Tensor, Tensor> find_neighbors(const Tensor &x, const Tensor &species,
                                            std::int64_t ncenters, double reach)
  {
    const std::int64_t nrows = species.numel();
    check_array("x", x, at::kDouble, {nrows, 3});
    check_array("species", species, at::kInt, {nrows});
    TORCH_CHECK_VALUE(ncenters >= 0 && ncenters <= nrows && reach > 0.0, "ncenters is ", ncenters,
                      " and reach ", reach, ", expected 0 to ", nrows, " and a distance");
    neighbors.build(static_cast<int>(ncenters), static_cast<int>(nrows), nspecies(),
                    x.const_data_ptr<double>(), species.const_data_ptr<int>(), reach);
    std::vector<int> first, candidate;
    neighbors.download(first, candidate);
    return {torch::tensor(first, torch::kInt), torch::tensor(candidate, torch::kInt)};
  }

  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> evaluate(const Tensor &x,
                                                              bool want_atom_virial,
                                                              bool want_centroid_virial)
  {
    const std::int64_t nrows = neighbors.nrows(), ncenters = neighbors.ncenters();
    check_array("x", x, at::kDouble, {nrows, 3});
    neighbors.update(x.const_data_ptr<double>());
    Input input{static_cast<int>(ncenters), static_cast<int>(nrows)};
    input.want_atom_virial = want_atom_virial;
    input.want_centroid_virial = want_centroid_virial;
    input.on_device = &neighbors;
    return EngineBinding::evaluate(input);
  }

  void measure(bool enabled) { engine->device()->measure(enabled); }
  c10::Dict<std::string, double> seconds() const
  {
    c10::Dict<std::string, double> result;
    for (const auto &[kernel, seconds] : engine->device()->seconds())
      result.insert(kernel, seconds);
    return result;
  }

 private:
  GpuNeighbors neighbors;
};

/// @param processor  the name of the method that tells it
template <class Binding>
void define_common(torch::class_<Binding> library_class, const std::string &processor)
{
  using Self = const c10::intrusive_ptr<Binding> &;
  library_class.def("cutoff", [](Self self) { return self->cutoff(); })
      .def("nspecies", [](Self self) { return self->nspecies(); })
      .def("table_bytes", [](Self self) { return self->table_bytes(); })
      .def("table_error", [](Self self) { return self->table_error(); })
      .def(processor, [](Self self) { return self->processor(); });
}

}    // namespace

void register_dp_engine(torch::Library &library)
{
  auto on_cpu = library.class_<DPEngineBinding>("DPEngine");
  define_common(on_cpu, "isa");
  on_cpu.def(torch::init<std::string, std::string, std::vector<std::int64_t>>())
      .def("evaluate", &DPEngineBinding::evaluate, "",
           {torch::arg("x"), torch::arg("species"), torch::arg("first"), torch::arg("candidate"),
            torch::arg("nthreads"), torch::arg("want_atom_virial") = true,
            torch::arg("want_centroid_virial") = true});
  auto on_gpu = library.class_<DPGpuEngineBinding>("DPGpuEngine");
  define_common(on_gpu, "device");
  on_gpu
      .def(torch::init<std::string, std::string, std::vector<std::int64_t>, std::string,
                       std::int64_t>(),
           "",
           {torch::arg("model_file"), torch::arg("precision"), torch::arg("present"),
            torch::arg("device"),
            torch::arg("chunk_bytes") = static_cast<std::int64_t>(CHUNK_BYTES)})
      .def("set_neighbors", &DPGpuEngineBinding::set_neighbors)
      .def("find_neighbors", &DPGpuEngineBinding::find_neighbors)
      .def("evaluate", &DPGpuEngineBinding::evaluate, "",
           {torch::arg("x"), torch::arg("want_atom_virial") = true,
            torch::arg("want_centroid_virial") = true})
      .def("measure", &DPGpuEngineBinding::measure)
      .def("seconds", &DPGpuEngineBinding::seconds);
}

}    // namespace pwmlff
