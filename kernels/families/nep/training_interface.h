// SPDX-License-Identifier: GPL-2.0-or-later

// Training of NEPs for other languages: Python opens it by ctypes, without torch. What fails leaves
// its text to pwmlff_error() (core/c_error.h).

#pragma once

#include "../../core/c_error.h"

#include <cstdint>

extern "C" {

/// A model in training: nep_training.h has shapes, units and signs.
struct pwmlff_nep_training;

/// @param arrays   of nep_arrays.h, as they are written, of so many bytes; they are copied
/// @param single   whether in float32
/// @param present  [nspecies] not 0 for those that occur in structures
/// @return for pwmlff_free_nep_training; or null for an error
PWMLFF_KERNELS_API pwmlff_nep_training *pwmlff_make_nep_training(const char *arrays, uint64_t size,
                                                                 int single,
                                                                 const int32_t *present);
PWMLFF_KERNELS_API void pwmlff_free_nep_training(pwmlff_nep_training *training);

/// Number of parameters.
PWMLFF_KERNELS_API uint64_t pwmlff_nep_training_size(const pwmlff_nep_training *training);
PWMLFF_KERNELS_API int pwmlff_nep_training_set(pwmlff_nep_training *training,
                                               const double *parameters);

/// NepFrame; x and cell may be null for models without charges.
struct pwmlff_nep_frame {
  int32_t natoms;
  const int32_t *species;
  const double *rij;
  const int32_t *j, *count;
  const double *x, *cell;
};

/// @param descriptors  [natoms, descriptors] out, before scaling
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_nep_training_describe(pwmlff_nep_training *training,
                                                    const pwmlff_nep_frame *frame,
                                                    double *descriptors);
/// @param charge  [natoms] out, of a model with charges
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_nep_training_charges(pwmlff_nep_training *training,
                                                   const pwmlff_nep_frame *frame, double *charge);
/// @param energy, force, virial  [1], [natoms, 3], [3, 3] out
/// @param born                   [natoms, 3, 3] out, of a model with charges; or null
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_nep_training_evaluate(pwmlff_nep_training *training,
                                                    const pwmlff_nep_frame *frame, double *energy,
                                                    double *force, double *virial, double *born);
/// @param born      [natoms, 3, 3] or null
/// @param gradient  [size] added to
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_nep_training_add_gradient(pwmlff_nep_training *training,
                                                        const pwmlff_nep_frame *frame, double a,
                                                        const double *v, const double *w,
                                                        double neutral, const double *born,
                                                        double *gradient);
}
