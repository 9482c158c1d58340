// SPDX-License-Identifier: GPL-2.0-or-later

// torch.classes.pwmlff.Model: a model file, and what evaluates it, as pair_style pwmlff has them.
//
//   Model(str model_file, str engine, str precision, int[] present, int gpu, bool gpu_demanded)
//       engine     auto, fused or torchscript
//       precision  of the fused engine: exact, double or mixed
//       present    [nspecies] 1 for the species that take part, 0 for the others
//       gpu        index among the visible GPUs; -1 for the CPU, or for what stands in for a GPU
//       gpu_demanded  an error rather than the CPU instead
//   set_neighbors(Tensor species, Tensor first, Tensor candidate, Tensor home)
//       species    int32 [nrows] index into the model's elements; -1 takes no part
//       first      int32 [ncenters*nspecies + 1] where the candidates of a center and a species of
//                  neighbors begin in `candidate`; the centers are the first rows
//       candidate  int32 [n] rows, all neighbors within the cutoff and any beyond
//       home       int32 [nrows] the center of which a row is a periodic image; of a center itself
//   evaluate(Tensor x, int nthreads, bool atom_virial = False, bool centroid_virial = False,
//            bool grade = False)
//       -> (float energy, Tensor atom_energy, Tensor force, Tensor virial, Tensor atom_virial,
//           Tensor centroid_virial, Tensor grade)
//       x                float64 [nrows, 3]
//       energy           of all centers
//       atom_energy      float64 [ncenters]
//       force            float64 [nrows, 3] -dE/dx; of a model with edges all on centers
//       virial           float64 [9] xx yy zz xy xz yz yx zx zy
//       atom_virial      float64 [nrows, 6] xx yy zz xy xz yz; without rows where not wanted
//       centroid_virial  float64 [nrows, 9] xx yy zz xy xz yz yx zx zy; likewise
//       grade            float64 [ncenters] gamma, 1 at the end of the training data; likewise
//   name() -> str          fused, compiled or torchscript
//   description() -> str   one line for a log
//   passed_over() -> str   what does not evaluate it, and why; empty where nothing better was
//                          possible
//   has_atom_virial() -> bool
//   has_grade() -> bool

#include "../messages.h"
#include "../model.h"
#include "../model_file.h"
#include "checks.h"
#include "common/threads.h"

#include <torch/custom_class.h>

#include <mutex>

namespace pwmlff::models {
namespace {

using at::Tensor;

std::vector<int> integers(const Tensor &tensor)
{
  return {tensor.const_data_ptr<int>(), tensor.const_data_ptr<int>() + tensor.numel()};
}

class ModelClass : public torch::CustomClassHolder {
 public:
  ModelClass(const std::string &model_file, const std::string &engine, const std::string &precision,
             const std::vector<std::int64_t> &present, std::int64_t gpu, bool gpu_demanded)
  {
    const std::string contents = contents_of(model_file);
    EngineOptions options;
    options.gpu = static_cast<int>(gpu);
    options.gpu_demanded = gpu_demanded;
    translated([&] {
      options.engine = parse_engine(engine);
      options.precision = checked_precision(precision);
      model = load_model(model_file, contents, options);
      TORCH_CHECK_VALUE(present.size() == model->info().atom_type.size(), "present has ",
                        present.size(), " entries, the model has ", model->info().atom_type.size(),
                        " species");
      model->select_species({present.begin(), present.end()});
    });
  }

  void set_neighbors(const Tensor &species, const Tensor &first, const Tensor &candidate,
                     const Tensor &home)
  {
    const pwmlff::OneCaller caller(in_use, "Model");
    const std::int64_t nrows = species.numel();
    const auto nspecies = static_cast<std::int64_t>(model->info().atom_type.size());
    check_array("species", species, at::kInt, {nrows});
    check_array("home", home, at::kInt, {nrows});
    const std::int64_t ncenters = check_list(first, candidate, nrows, nspecies);
    const int *const at_home = home.const_data_ptr<int>();
    for (std::int64_t k = 0; k < nrows; ++k)
      TORCH_CHECK_VALUE(at_home[k] >= 0 && at_home[k] < ncenters &&
                            (k >= ncenters || at_home[k] == k),
                        "row ", k, " is an image of row ", at_home[k], ", expected a center, 0 to ",
                        ncenters - 1, ", and of a center itself");
    neighbors.assign(static_cast<int>(ncenters), static_cast<int>(nspecies), integers(species),
                     integers(first), integers(candidate), integers(home), hops(model->info()));
  }

  std::tuple<double, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> evaluate(
      const Tensor &x, std::int64_t nthreads, bool want_atom_virial, bool want_centroid_virial,
      bool want_grade)
  {
    const pwmlff::OneCaller caller(in_use, "Model");
    const std::int64_t nrows = neighbors.nrows(), ncenters = neighbors.ncenters();
    check_array("x", x, at::kDouble, {nrows, 3});
    TORCH_CHECK_VALUE(nthreads >= 1, "nthreads is ", nthreads, ", expected at least 1");
    TORCH_CHECK_VALUE(ncenters >= 1,
                      "there are no centers, expected a call of set_neighbors before");
    TORCH_CHECK_VALUE(model->has_atom_virial() || !(want_atom_virial || want_centroid_virial),
                      "engine ", model->engine(), " gives no virials of atoms");
    TORCH_CHECK_VALUE(model->has_grade() || !want_grade, "engine ", model->engine(),
                      " gives no extrapolation grade of this file");
    neighbors.update(x.const_data_ptr<double>());
    const Evaluation *found = nullptr;
    const double *gamma = nullptr;
    translated([&] {
      Input input = neighbors.input(model->needs());
      input.nthreads = static_cast<int>(nthreads);
      input.want_atom_virial = want_atom_virial;
      input.want_centroid_virial = want_centroid_virial;
      input.want_grade = want_grade;
      found = &model->evaluate(input);
      if (want_grade) gamma = neighbors.gamma(found).data();
    });
    return {found->energy,
            tensor(found->atom_energy, {ncenters}),
            tensor(found->force, {nrows, 3}),
            tensor(found->virial.data(), {9}),
            tensor(found->atom_virial, {want_atom_virial ? nrows : 0, 6}),
            tensor(found->centroid_virial, {want_centroid_virial ? nrows : 0, 9}),
            tensor(gamma, {want_grade ? ncenters : 0})};
  }

  std::string name() const { return model->name(); }
  std::string description() const { return model->engine(); }
  std::string passed_over() const { return model->passed_over(); }
  bool has_atom_virial() const { return model->has_atom_virial(); }
  bool has_grade() const { return model->has_grade(); }

 private:
  /// Python is to see one line, and a ValueError.
  template <class Work> void translated(const Work &work) const
  {
    std::string text;
    try {
      work();
      return;
    } catch (const TooManyNeighbors &excess) {
      text = excess.text("atom " + std::to_string(excess.row),
                         "species " + std::to_string(excess.species) + " (atomic number " +
                             std::to_string(model->info().atom_type[excess.species]) + ")");
    } catch (const std::exception &error) {
      text = first_line(error);
    }
    TORCH_CHECK_VALUE(false, text);
  }

  std::mutex in_use;
  std::unique_ptr<Model> model;
  Neighbors neighbors;
};

}    // namespace

TORCH_LIBRARY_FRAGMENT(pwmlff, library)
{
  library.class_<ModelClass>("Model")
      .def(torch::init<std::string, std::string, std::string, std::vector<std::int64_t>,
                       std::int64_t, bool>())
      .def("set_neighbors", &ModelClass::set_neighbors)
      .def("evaluate", &ModelClass::evaluate, "",
           {torch::arg("x"), torch::arg("nthreads"), torch::arg("atom_virial") = false,
            torch::arg("centroid_virial") = false, torch::arg("grade") = false})
      .def("name", &ModelClass::name)
      .def("description", &ModelClass::description)
      .def("passed_over", &ModelClass::passed_over)
      .def("has_atom_virial", &ModelClass::has_atom_virial)
      .def("has_grade", &ModelClass::has_grade);
}

}    // namespace pwmlff::models
