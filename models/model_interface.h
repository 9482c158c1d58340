// SPDX-License-Identifier: GPL-2.0-or-later

// Model files for other languages, with what pair_style pwmlff would evaluate them by: Python opens
// this by ctypes. What fails leaves its text to pwmlff_error() (kernels/core/c_error.h). One
// thread may use a model at a time.

#pragma once

#include <cstdint>

extern "C" {

/// An open model, and its neighbors.
struct pwmlff_model;

/// EngineOptions (model.h).
struct pwmlff_options {
  const char *engine, *precision;
  int32_t gpu, gpu_demanded;
  const int32_t *present;    // [nspecies] not 0 for the species that take part
  int32_t nspecies;          // of the model
};

/// @param file      its name, for messages
/// @param contents  of the file, of so many bytes
/// @param model     out, for pwmlff_free_model
/// @return 0; 1 where TorchScript has to run and libpwmlff_torch is not open in this process, for a
///         second call when it is; -1 for an error
int pwmlff_open_model(const char *file, const char *contents, uint64_t size,
                      const pwmlff_options *options, pwmlff_model **model);
void pwmlff_free_model(pwmlff_model *model);

/// An object of JSON, valid as long as the model. Texts: name (of what evaluates it), description
/// (one line for a log), passed_over (what does not evaluate it, and why; or empty). Truth values:
/// has_atom_virial, has_grade, has_charges.
const char *pwmlff_describe_model(const pwmlff_model *model);

/// A list of rows, of which the centers are the first; its arrays are copied.
/// @param species    [nrows] index into the model's elements; -1 takes no part
/// @param first      [ncenters*nspecies + 1] where the candidates of a center and a species of
///                   neighbors begin in `candidate`
/// @param candidate  rows, all neighbors within the cutoff and any beyond
/// @param home       [nrows] the center of which a row is a periodic image; of a center itself
/// @return 0, or -1 for an error
int pwmlff_set_neighbors(pwmlff_model *model, int ncenters, int nrows, const int32_t *species,
                         const int32_t *first, const int32_t *candidate, const int32_t *home);

/// Shapes, units and signs as in kernels/core/evaluation.h. Those that are null are not wanted.
struct pwmlff_results {
  double *energy;         // [1] of all centers
  double *atom_energy;    // [ncenters]
  double *force;          // [nrows, 3]; of a model with edges all on centers
  double *virial;         // [9]
  double *atom_virial;    // [nrows, 6] or null
  double *gamma;          // [ncenters] 1 at the end of the training data; or null
  double *charge;         // [ncenters] of a model that has them, or null
  double *born;           // [nrows, 9] likewise
};

/// @param x  [nrows, 3] positions of the rows that were set last, at least one of them a center
/// @param cell  [3, 3] edges of the box row by row; null where it is not periodic along all of them
/// @return 0, or -1 for an error
int pwmlff_evaluate_model(pwmlff_model *model, const double *x, const double *cell, int nthreads,
                          const pwmlff_results *results);
}
