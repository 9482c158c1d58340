// SPDX-License-Identifier: GPL-2.0-or-later

#include "c_interface.h"

#include "nep_training.h"
#include "plain_nep.h"
#include "read_nep.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

using pwmlff::Evaluation;
using pwmlff::Input;

struct pwmlff_nep {
  explicit pwmlff_nep(pwmlff::NepNetwork network) : plain(std::move(network))
  {
    for (const std::string &warning : plain.network().warnings) warnings += warning + "\n";
  }

  pwmlff::PlainNep plain;
  std::string warnings;
};

struct pwmlff_nep_training {
  pwmlff::NepTraining training;
};

namespace {

/// The text of an error is left in message.
/// @return whether there was none
template <class Work> bool succeeds(Work work, char *message, int size)
try {
  work();
  return true;
} catch (const std::exception &error) {
  std::snprintf(message, static_cast<std::size_t>(size), "%s", error.what());
  return false;
}

}    // namespace

pwmlff_nep *pwmlff_read_nep(const char *text, uint64_t size, char *message, int message_size)
{
  std::unique_ptr<pwmlff_nep> model;
  succeeds([&] { model = std::make_unique<pwmlff_nep>(pwmlff::read_nep({text, size})); }, message,
           message_size);
  return model.release();
}

void pwmlff_free_nep(pwmlff_nep *model) { delete model; }

int pwmlff_looks_like_nep(const char *contents, uint64_t size)
{
  return pwmlff::looks_like_nep({contents, size});
}

int pwmlff_nep_species(const pwmlff_nep *model) { return model->plain.network().nspecies(); }
int pwmlff_nep_descriptors(const pwmlff_nep *model)
{
  return model->plain.network().ndescriptors();
}
double pwmlff_nep_cutoff(const pwmlff_nep *model) { return model->plain.network().cutoff(); }
const char *pwmlff_nep_warnings(const pwmlff_nep *model) { return model->warnings.c_str(); }

void pwmlff_nep_elements(const pwmlff_nep *model, int *atom_type)
{
  const auto &elements = model->plain.network().atom_type;
  std::copy(elements.begin(), elements.end(), atom_type);
}

int pwmlff_evaluate_nep(pwmlff_nep *model, int ncenters, int nrows, const double *x,
                        const int *species, const int *first, const int *candidate,
                        double temperature, double *energy, double *atom_energy,
                        double *descriptors, double *force, double *virial, double *atom_virial,
                        double *centroid_virial, char *message, int message_size)
{
  const auto work = [&] {
    Input input;
    input.ncenters = ncenters;
    input.nrows = nrows;
    input.x = x;
    input.species = species;
    input.first = first;
    input.candidate = candidate;
    input.temperature = temperature;
    input.want_atom_virial = input.want_centroid_virial = true;
    const Evaluation &found = model->plain.evaluate(input);
    const std::size_t rows = nrows;
    *energy = found.energy;
    std::copy_n(found.atom_energy, ncenters, atom_energy);
    std::copy_n(model->plain.descriptors().data(), model->plain.descriptors().size(), descriptors);
    std::copy_n(found.force, 3 * rows, force);
    std::copy_n(found.virial.data(), 9, virial);
    std::copy_n(found.atom_virial, 6 * rows, atom_virial);
    std::copy_n(found.centroid_virial, 9 * rows, centroid_virial);
  };
  return succeeds(work, message, message_size) ? 0 : -1;
}

pwmlff_nep_training *pwmlff_make_nep_training(const pwmlff_nep *model, int single,
                                              const int *present, char *message, int message_size)
{
  std::unique_ptr<pwmlff_nep_training> made;
  const auto work = [&] {
    const pwmlff::NepNetwork &network = model->plain.network();
    made.reset(new pwmlff_nep_training{pwmlff::NepTraining(
        network, single, std::vector<bool>(present, present + network.nspecies()))});
  };
  succeeds(work, message, message_size);
  return made.release();
}

void pwmlff_free_nep_training(pwmlff_nep_training *training) { delete training; }

uint64_t pwmlff_nep_training_size(const pwmlff_nep_training *training)
{
  return training->training.size();
}

int pwmlff_nep_training_set(pwmlff_nep_training *training, const double *parameters, char *message,
                            int message_size)
{
  const auto work = [&] { training->training.set_parameters(parameters); };
  return succeeds(work, message, message_size) ? 0 : -1;
}

int pwmlff_nep_training_describe(pwmlff_nep_training *training, int natoms, const int32_t *species,
                                 const double *rij, const int32_t *j, const int32_t *count,
                                 double *descriptors, char *message, int message_size)
{
  const auto work = [&] {
    training->training.describe({natoms, species, rij, j, count}, descriptors);
  };
  return succeeds(work, message, message_size) ? 0 : -1;
}

int pwmlff_nep_training_evaluate(pwmlff_nep_training *training, int natoms, const int32_t *species,
                                 const double *rij, const int32_t *j, const int32_t *count,
                                 double *energy, double *force, double *virial, char *message,
                                 int message_size)
{
  const auto work = [&] {
    *energy = training->training.evaluate({natoms, species, rij, j, count}, force, virial);
  };
  return succeeds(work, message, message_size) ? 0 : -1;
}

int pwmlff_nep_training_add_gradient(pwmlff_nep_training *training, int natoms,
                                     const int32_t *species, const double *rij, const int32_t *j,
                                     const int32_t *count, double a, const double *v,
                                     const double *w, double *gradient, char *message,
                                     int message_size)
{
  const auto work = [&] {
    training->training.add_gradient({natoms, species, rij, j, count}, a, v, w, gradient);
  };
  return succeeds(work, message, message_size) ? 0 : -1;
}
