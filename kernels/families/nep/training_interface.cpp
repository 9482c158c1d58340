// SPDX-License-Identifier: GPL-2.0-or-later

#include "training_interface.h"

#include "nep_arrays.h"
#include "nep_training.h"

#include <memory>
#include <vector>

using pwmlff::succeeds;

struct pwmlff_nep_training {
  pwmlff::NepTraining training;
};

pwmlff_nep_training *pwmlff_make_nep_training(const char *arrays, uint64_t size, int single,
                                              const int32_t *present)
{
  std::unique_ptr<pwmlff_nep_training> made;
  succeeds([&] {
    const pwmlff::NepNetwork network = pwmlff::nep_of(pwmlff::Arrays::read({arrays, size}));
    made.reset(new pwmlff_nep_training{pwmlff::NepTraining(
        network, single != 0, std::vector<bool>(present, present + network.nspecies()))});
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
