// SPDX-License-Identifier: GPL-2.0-or-later

#include "model_interface.h"

#include "messages.h"
#include "model.h"
#include "torch_not_open.h"

#include "core/c_error.h"
#include "core/json.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

using namespace pwmlff::models;

struct pwmlff_model {
  std::unique_ptr<Model> model;
  Neighbors neighbors;
  std::string description;    // JSON
};

namespace {

std::string described(const Model &model)
{
  return "{\"name\": " + pwmlff::json_text(model.name()) +
         ", \"description\": " + pwmlff::json_text(model.engine()) +
         ", \"passed_over\": " + pwmlff::json_text(model.passed_over()) +
         ", \"has_atom_virial\": " + pwmlff::json_truth(model.has_atom_virial()) +
         ", \"has_grade\": " + pwmlff::json_truth(model.has_grade()) +
         ", \"has_charges\": " + pwmlff::json_truth(model.has_charges()) + "}";
}

/// @return 0; 1 where TorchScript has to run and cannot; -1 for an error, of whose text the first
///         line is kept
template <class Work> int done(const Work &work)
try {
  work();
  return 0;
} catch (const TorchNotOpen &) {
  return 1;
} catch (const std::exception &error) {
  pwmlff::set_error(first_line(error).c_str());
  return -1;
}

}    // namespace

int pwmlff_open_model(const char *file, const char *contents, uint64_t size,
                      const pwmlff_options *options, pwmlff_model **model)
{
  return done([&] {
    if (times_host_alone())
      throw std::invalid_argument("the environment has PWMLFF_GPU_STAND_IN=none, with which forces "
                                  "are zero, expected it for timing lmp alone; unset it");
    EngineOptions asked;
    asked.engine = parse_engine(options->engine);
    asked.precision = checked_precision(options->precision);
    asked.gpu = options->gpu;
    asked.gpu_demanded = options->gpu_demanded != 0;
    auto made = std::make_unique<pwmlff_model>();
    made->model = load_model(file, {contents, size}, asked);
    const std::vector<bool> present(options->present, options->present + options->nspecies);
    if (present.size() != made->model->info().atom_type.size())
      throw std::invalid_argument("there are " + std::to_string(present.size()) +
                                  " species, the model has " +
                                  std::to_string(made->model->info().atom_type.size()));
    made->model->select_species(present);
    made->description = described(*made->model);
    *model = made.release();
  });
}

void pwmlff_free_model(pwmlff_model *model) { delete model; }

const char *pwmlff_describe_model(const pwmlff_model *model) { return model->description.c_str(); }

int pwmlff_set_neighbors(pwmlff_model *model, int ncenters, int nrows, const int32_t *species,
                         const int32_t *first, const int32_t *candidate, const int32_t *home)
{
  return done([&] {
    const ModelInfo &info = model->model->info();
    const auto nspecies = static_cast<int>(info.atom_type.size());
    const int32_t *const end = first + static_cast<std::size_t>(ncenters) * nspecies;
    model->neighbors.assign(ncenters, nspecies, {species, species + nrows}, {first, end + 1},
                            {candidate, candidate + *end}, {home, home + nrows}, hops(info));
  });
}

int pwmlff_evaluate_model(pwmlff_model *model, const double *x, const double *cell, int nthreads,
                          const pwmlff_results *results)
{
  const ModelInfo &info = model->model->info();
  return done([&] {
    Neighbors &neighbors = model->neighbors;
    neighbors.set_cell(cell);
    neighbors.update(x);
    Input input = neighbors.input(model->model->needs(), nthreads);
    input.want_atom_virial = results->atom_virial != nullptr;
    input.want_grade = results->gamma != nullptr;
    input.want_born = results->born != nullptr;
    const Evaluation *found = nullptr;
    try {
      found = &model->model->evaluate(input);
    } catch (const TooManyNeighbors &excess) {
      throw std::invalid_argument(
          excess.text("atom " + std::to_string(excess.row),
                      "species " + std::to_string(excess.species) + " (atomic number " +
                          std::to_string(info.atom_type[excess.species]) + ")"));
    }
    const std::size_t nrows = neighbors.nrows();
    *results->energy = found->energy;
    std::copy_n(found->atom_energy, neighbors.ncenters(), results->atom_energy);
    std::copy_n(found->force, 3 * nrows, results->force);
    std::ranges::copy(found->virial, results->virial);
    if (results->atom_virial) std::copy_n(found->atom_virial, 6 * nrows, results->atom_virial);
    if (results->gamma) std::ranges::copy(neighbors.gamma(found), results->gamma);
    if (results->charge) std::copy_n(found->charge, neighbors.ncenters(), results->charge);
    if (results->born) std::copy_n(found->born, 9 * nrows, results->born);
  });
}
