// SPDX-License-Identifier: GPL-2.0-or-later

// Networks and their engines (family.h) for other languages: Python opens this by ctypes, without
// torch. What fails leaves its text to pwmlff_error() (c_error.h). One thread may use an engine at
// a time.

#pragma once

#include "c_error.h"

#include <cstdint>

extern "C" {

/// A network, and the arrays it was made of.
struct pwmlff_network;

/// The name of the family of which contents are a file, or null.
PWMLFF_KERNELS_API const char *pwmlff_family_of_file(const char *contents, uint64_t size);

/// @param family    the name of that of which contents are a file; null for arrays (arrays.h)
/// @return for pwmlff_free_network; or null for an error, whose text goes on after the name of the
///         file
PWMLFF_KERNELS_API pwmlff_network *pwmlff_read_network(const char *family, const char *contents,
                                                       uint64_t size);
PWMLFF_KERNELS_API void pwmlff_free_network(pwmlff_network *network);

/// An object of JSON, valid as long as the network: kind, atom_type, cutoff, nparameters,
/// has_charges, has_grade, takes_temperature, without_data, warnings, as in NetworkInfo.
PWMLFF_KERNELS_API const char *pwmlff_describe_network(const pwmlff_network *network);

/// The arrays as they are written, valid as long as the network.
/// @param size  out, in bytes
PWMLFF_KERNELS_API const char *pwmlff_network_arrays(const pwmlff_network *network, uint64_t *size);

/// An engine, and its neighbors.
struct pwmlff_engine;

struct pwmlff_engine_settings {
  const char *precision;     // exact, double or mixed; plain for the plain evaluation
  const int32_t *present;    // [nspecies] not 0 for the species that take part
  const char *device;        // "" for the CPU, else as Device::make()
  uint64_t chunk_bytes;      // of the device for arrays over edges; 0 for the usual
};

/// @return for pwmlff_free_engine; or null for an error
PWMLFF_KERNELS_API pwmlff_engine *pwmlff_make_engine(const pwmlff_network *network,
                                                     const pwmlff_engine_settings *settings);
PWMLFF_KERNELS_API void pwmlff_free_engine(pwmlff_engine *engine);

/// An object of JSON, valid until the next call in this thread: processor; table_bytes;
/// table_error, a list of two; has_grade; seconds, of each kernel of a device that were measured so
/// far.
PWMLFF_KERNELS_API const char *pwmlff_describe_engine(const pwmlff_engine *engine);

/// Measure how long each kernel of a device takes from now on, or no longer.
PWMLFF_KERNELS_API void pwmlff_measure_engine(pwmlff_engine *engine, int enabled);

/// Rows and candidates as in Input (evaluation.h); all arrays are copied.
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_set_engine_neighbors(pwmlff_engine *engine, int ncenters, int nrows,
                                                   const int32_t *species, const int32_t *first,
                                                   const int32_t *candidate);

/// Have the device find them, all rows closer than a distance.
/// @param x           [nrows, 3]
/// @param first       out, [ncenters*nspecies + 1] of the engine, valid until the next call
/// @param candidate   out, likewise
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_find_engine_neighbors(pwmlff_engine *engine, int ncenters, int nrows,
                                                    const double *x, const int32_t *species,
                                                    double distance, const int32_t **first,
                                                    const int32_t **candidate);

/// Shapes, units and signs as in evaluation.h. Those that are null are not wanted.
struct pwmlff_engine_results {
  double *energy;             // [1]
  double *atom_energy;        // [ncenters]
  double *force;              // [nrows, 3]
  double *virial;             // [9]
  double *atom_virial;        // [nrows, 6] or null
  double *centroid_virial;    // [nrows, 9] or null
  double *grade;              // [ncenters] of an engine that has it, or null
};

/// @param x            [nrows, 3] positions of the rows that were set or found last
/// @param temperature  K, for networks that take it
/// @return 0, or -1 for an error
PWMLFF_KERNELS_API int pwmlff_evaluate_engine(pwmlff_engine *engine, const double *x, int nthreads,
                                              double temperature,
                                              const pwmlff_engine_results *results);
}
