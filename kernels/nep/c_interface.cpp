// SPDX-License-Identifier: GPL-2.0-or-later

#include "c_interface.h"

#include "nep_training.h"
#include "plain_nep.h"
#include "read_nep.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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

using pwmlff::NepNetwork;
using pwmlff::succeeds;

/// The vectors of a network beside the arrays of other languages.
template <class Network, class Arrays, class Work>
void for_arrays(Network &network, Arrays &arrays, const Work &work)
{
  work(network.atom_type, arrays.atom_type);
  work(network.cut_radial, arrays.cut_radial);
  work(network.cut_angular, arrays.cut_angular);
  work(network.c_radial, arrays.c_radial);
  work(network.c_angular, arrays.c_angular);
  work(network.q_scaler, arrays.q_scaler);
  work(network.weight0, arrays.weight0);
  work(network.bias0, arrays.bias0);
  work(network.weight1, arrays.weight1);
  work(network.bias1, arrays.bias1);
  work(network.last, arrays.last);
  work(network.shift, arrays.shift);
  work(network.zbl_table, arrays.zbl_table);
  work(network.zbl_line, arrays.zbl_line);
  work(network.unused, arrays.unused);
}

/// The same of its numbers.
template <class Network, class Arrays, class Work>
void for_numbers(Network &network, Arrays &arrays, const Work &work)
{
  work(network.nradial, arrays.nradial);
  work(network.nangular, arrays.nangular);
  work(network.kradial, arrays.kradial);
  work(network.kangular, arrays.kangular);
  work(network.l_max, arrays.l_max);
  work(network.nhidden0, arrays.nhidden0);
  work(network.nhidden1, arrays.nhidden1);
  work(network.temperature, arrays.temperature);
  for (int k = 0; k < pwmlff::NEP_INVARIANTS; ++k) work(network.invariant[k], arrays.invariant[k]);
}

NepNetwork network_of(const pwmlff_nep_arrays &arrays)
{
  NepNetwork network;
  for_numbers(network, arrays, [](auto &value, int given) { value = given; });
  for_arrays(network, arrays, []<class T>(std::vector<T> &vector, const pwmlff_array &given) {
    const auto *const values = static_cast<const T *>(given.values);
    vector.assign(values, values + given.size);
  });
  network.make_zbl();
  return network;
}

}    // namespace

pwmlff_nep *pwmlff_read_nep(const char *text, uint64_t size)
{
  std::unique_ptr<pwmlff_nep> model;
  succeeds([&] { model = std::make_unique<pwmlff_nep>(pwmlff::read_nep({text, size})); });
  return model.release();
}

void pwmlff_nep_arrays_of(const pwmlff_nep *model, pwmlff_nep_arrays *arrays)
{
  const NepNetwork &network = model->plain.network();
  for_numbers(network, *arrays, [](int value, int32_t &given) { given = value; });
  std::ranges::copy(network.neighbors, arrays->neighbors);
  for_arrays(network, *arrays, [](const auto &vector, pwmlff_array &given) {
    given = {vector.data(), vector.size()};
  });
}

void pwmlff_free_nep(pwmlff_nep *model) { delete model; }

int pwmlff_looks_like_nep(const char *contents, uint64_t size)
{
  return pwmlff::looks_like_nep({contents, size});
}

const char *pwmlff_nep_warnings(const pwmlff_nep *model) { return model->warnings.c_str(); }

int pwmlff_evaluate_nep(pwmlff_nep *model, int ncenters, int nrows, const double *x,
                        const int *species, const int *first, const int *candidate,
                        double temperature, double *energy, double *atom_energy,
                        double *descriptors, double *force, double *virial, double *atom_virial,
                        double *centroid_virial)
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
  return succeeds(work) ? 0 : -1;
}

pwmlff_nep_training *pwmlff_make_nep_training(const pwmlff_nep_arrays *network, int single,
                                              const int *present)
{
  std::unique_ptr<pwmlff_nep_training> made;
  succeeds([&] {
    made.reset(new pwmlff_nep_training{
        pwmlff::NepTraining(network_of(*network), single != 0,
                            std::vector<bool>(present, present + network->atom_type.size))});
  });
  return made.release();
}

void pwmlff_free_nep_training(pwmlff_nep_training *training) { delete training; }

uint64_t pwmlff_nep_training_size(const pwmlff_nep_training *training)
{
  return training->training.size();
}

int pwmlff_nep_training_set(pwmlff_nep_training *training, const double *parameters)
{
  const auto work = [&] { training->training.set_parameters(parameters); };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_nep_training_describe(pwmlff_nep_training *training, int natoms, const int32_t *species,
                                 const double *rij, const int32_t *j, const int32_t *count,
                                 double *descriptors)
{
  const auto work = [&] {
    training->training.describe({natoms, species, rij, j, count}, descriptors);
  };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_nep_training_evaluate(pwmlff_nep_training *training, int natoms, const int32_t *species,
                                 const double *rij, const int32_t *j, const int32_t *count,
                                 double *energy, double *force, double *virial)
{
  const auto work = [&] {
    *energy = training->training.evaluate({natoms, species, rij, j, count}, force, virial);
  };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_nep_training_add_gradient(pwmlff_nep_training *training, int natoms,
                                     const int32_t *species, const double *rij, const int32_t *j,
                                     const int32_t *count, double a, const double *v,
                                     const double *w, double *gradient)
{
  const auto work = [&] {
    training->training.add_gradient({natoms, species, rij, j, count}, a, v, w, gradient);
  };
  return succeeds(work) ? 0 : -1;
}
