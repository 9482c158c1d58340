// SPDX-License-Identifier: GPL-2.0-or-later

// Reader, plain evaluation and training for other languages: Python opens them by ctypes, without
// torch. What fails leaves its text to pwmlff_error() (common/c_error.h).

#pragma once

#include "../common/c_error.h"

#include <cstdint>

extern "C" {

/// A model that was read.
struct pwmlff_nep;

/// @return the model, for pwmlff_free_nep; or null for an error
PWMLFF_KERNELS_API pwmlff_nep *pwmlff_read_nep(const char *text, uint64_t size);
PWMLFF_KERNELS_API void pwmlff_free_nep(pwmlff_nep *model);

PWMLFF_KERNELS_API int pwmlff_looks_like_nep(const char *contents, uint64_t size);

/// Warnings, one to a line; valid as long as the model.
PWMLFF_KERNELS_API const char *pwmlff_nep_warnings(const pwmlff_nep *model);

/// So many numbers: int for atom_type, else double.
struct pwmlff_array {
  const void *values;
  uint64_t size;
};

/// NepNetwork (network.h), whose names and shapes these are.
struct pwmlff_nep_arrays {
  int32_t nradial, nangular, kradial, kangular, l_max, nhidden0, nhidden1, temperature;
  int32_t invariant[6];
  double neighbors[2];
  pwmlff_array atom_type, cut_radial, cut_angular, c_radial, c_angular, q_scaler, weight0, bias0,
      weight1, bias1, last, shift, zbl_table, zbl_line, unused;
};

/// @param arrays  out, valid as long as the model
PWMLFF_KERNELS_API void pwmlff_nep_arrays_of(const pwmlff_nep *model, pwmlff_nep_arrays *arrays);

/// Shapes, orders, units and signs as in common/evaluation.h, rows and candidates as in its Input.
/// @param energy           [1] out
/// @param atom_energy      [ncenters] out
/// @param descriptors      [ncenters, descriptors] out
/// @param force            [nrows, 3] out
/// @param virial           [9] out
/// @param atom_virial      [nrows, 6] out
/// @param centroid_virial  [nrows, 9] out
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_evaluate_nep(pwmlff_nep *model, int ncenters, int nrows,
                                           const double *x, const int *species, const int *first,
                                           const int *candidate, double temperature, double *energy,
                                           double *atom_energy, double *descriptors, double *force,
                                           double *virial, double *atom_virial,
                                           double *centroid_virial);

/// A model in training: ../nep/nep_training.h has shapes, units and signs.
struct pwmlff_nep_training;

/// @param network  its arrays are copied
/// @param single   whether in float32
/// @param present  [nspecies] not 0 for those that occur in structures
/// @return as pwmlff_read_nep, for pwmlff_free_nep_training
PWMLFF_KERNELS_API pwmlff_nep_training *pwmlff_make_nep_training(const pwmlff_nep_arrays *network,
                                                                 int single, const int *present);
PWMLFF_KERNELS_API void pwmlff_free_nep_training(pwmlff_nep_training *training);

/// Number of parameters.
PWMLFF_KERNELS_API uint64_t pwmlff_nep_training_size(const pwmlff_nep_training *training);
PWMLFF_KERNELS_API int pwmlff_nep_training_set(pwmlff_nep_training *training,
                                               const double *parameters);

/// @param descriptors  [natoms, descriptors] out, before scaling
/// @return as pwmlff_evaluate_nep
PWMLFF_KERNELS_API int pwmlff_nep_training_describe(pwmlff_nep_training *training, int natoms,
                                                    const int32_t *species, const double *rij,
                                                    const int32_t *j, const int32_t *count,
                                                    double *descriptors);
/// @param energy, force, virial  [1], [natoms, 3], [3, 3] out
/// @return as pwmlff_evaluate_nep
PWMLFF_KERNELS_API int pwmlff_nep_training_evaluate(pwmlff_nep_training *training, int natoms,
                                                    const int32_t *species, const double *rij,
                                                    const int32_t *j, const int32_t *count,
                                                    double *energy, double *force, double *virial);
/// @param gradient  [size] added to
/// @return as pwmlff_evaluate_nep
PWMLFF_KERNELS_API int pwmlff_nep_training_add_gradient(pwmlff_nep_training *training, int natoms,
                                                        const int32_t *species, const double *rij,
                                                        const int32_t *j, const int32_t *count,
                                                        double a, const double *v, const double *w,
                                                        double *gradient);
}
