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

static pwmlff::NepFrame frame_of(const pwmlff_nep_frame &frame)
{
  return {frame.natoms, frame.species, frame.rij, frame.j, frame.count, frame.x, frame.cell};
}

int pwmlff_nep_training_describe(pwmlff_nep_training *training, const pwmlff_nep_frame *frame,
                                 double *descriptors)
{
  const auto work = [&] { training->training.describe(frame_of(*frame), descriptors); };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_nep_training_charges(pwmlff_nep_training *training, const pwmlff_nep_frame *frame,
                                double *charge)
{
  const auto work = [&] { training->training.find_charges(frame_of(*frame), charge); };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_nep_training_evaluate(pwmlff_nep_training *training, const pwmlff_nep_frame *frame,
                                 double *energy, double *force, double *virial, double *born)
{
  const auto work = [&] {
    *energy = training->training.evaluate(frame_of(*frame), force, virial, born);
  };
  return succeeds(work) ? 0 : -1;
}

int pwmlff_nep_training_add_gradient(pwmlff_nep_training *training, const pwmlff_nep_frame *frame,
                                     double a, const double *v, const double *w, double neutral,
                                     const double *born, double *gradient)
{
  const auto work = [&] {
    training->training.add_gradient(frame_of(*frame), a, v, w, neutral, born, gradient);
  };
  return succeeds(work) ? 0 : -1;
}
