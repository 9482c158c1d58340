// SPDX-License-Identifier: GPL-2.0-or-later

// A MACE model in the memory of a device.

#pragma once

#include "../../../core/gpu/engine_parts.h"
#include "../plan.h"
#include "kernels.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace pwmlff {

/// A term of a polynomial.
struct MaceTermOnHost {
  int a, b, c;    // components
  double factor;
  const double *coefficients;    // [K] of the first species that is present
  std::size_t stride;            // from one species to the next
};

/// Matrices [in, out] of one degree, one or one for each species.
template <class T> struct MaceMatrices {
  int in = 0, out = 0;
  std::int64_t by_species = 0;
  const T *weight = nullptr;
};

/// Those of each degree, and their transposes.
template <class T> struct MaceMixing {
  std::vector<MaceMatrices<T>> there, back;
};

template <class T> struct MaceLayerOnDevice {
  MaceGpuLayer<T> layer{};
  MaceMixing<T> up, message, product, skip;    // the last one empty where there is none
  std::vector<int> first_sum, nparts;    // [degree] of A: the first row, and paths to the degree
  const T *bias = nullptr;               // [species, row] of the first layer with a skip, else null

  int into() const { return layer.into; }
  int out() const { return layer.out; }
};

template <class T> class MaceOnDevice {
 public:
  /// @param plan     is not needed after this
  /// @param tabulate  make tables of radial functions
  MaceOnDevice(std::shared_ptr<Device> device, const MacePlan &plan, bool tabulate);

  MaceGpuModel<T> model{};
  std::vector<MaceLayerOnDevice<T>> layers;
  const T *embedded = nullptr;    // [species, row] what is sent along edges in the first layer
  std::size_t table_bytes = 0;

 private:
  template <class V> const T *keep(const V &values)
  {
    return constants.keep(std::vector<T>(values.begin(), values.end()));
  }
  const double *keep_doubles(const std::vector<double> &values)
  {
    return values.empty() ? nullptr : constants.keep(values);
  }

  void keep_model(const MacePlan &plan);
  void keep_layer(const MacePlan &plan, std::size_t t);
  void keep_paths(const MaceLayer &source, const MaceLayerPlan &planned,
                  MaceLayerOnDevice<T> &result);
  void keep_radial(const MaceLayer &source, MaceGpuLayer<T> &layer);
  void keep_contraction(const MacePlan &plan, const MaceLayerPlan &planned, MaceGpuLayer<T> &layer);
  MaceGpuPolynomials<T> keep_polynomials(const MacePlan &plan,
                                         std::vector<std::vector<MaceTermOnHost>> outputs);
  void keep_mixing(const MacePlan &plan, std::size_t t);
  void keep_tables(const MacePlan &plan);

  /// Add matrices [nblocks*K, K] of a degree to a mixing.
  void add(MaceMixing<T> &mixing, const MaceMatrix *matrices, int n, int nblocks);
  /// Their numbers with each block filled up to whole rows.
  std::vector<double> padded(const MaceMatrix &matrix, int nblocks, bool transposed) const;
  /// Of each species, times a matrix [K, K] of the first layer.
  const T *keep_embedding(const MaceNetwork &network, const std::vector<MaceMatrix> &matrices);

  DeviceConstants constants;
};

}    // namespace pwmlff
