// SPDX-License-Identifier: GPL-2.0-or-later

// Gradients of a Deep Potential by its parameters, for training.
//
// Formulas and signs of the model are in families/dp/network.h. Positions of a frame never change
// while a model is trained, so an embedding net is a function of one number per edge, its distance,
// that is wanted at the same places again and again. Here it is a cubic spline of the distance,
//
//   G_ab(r) = sum over k of c_ab[k] B_k(r),    c_ab linear in the values of the net at the nodes,
//
// B_k the uniform cubic B-splines between the shortest distance of the pair and rmax. The moments
// of atom i of species a are then linear in c, T = C_i c with C_i = sum over slots of R~ (x) B(r),
// and nothing but C_i is a loop over edges. Empty slots are slots at rmax. For numbers a, v and w
// of a frame with energy E, forces F and virial W,
//
//   S = a E + sum over atoms of v_i . F_i + sum over components of w W
//
// is a E plus the derivative of E in the direction u_ij = v_i - v_j - w^T r_ij of the edges. It
// needs C and its derivative C' in that direction, and its gradient by all weights is what reverse
// accumulation through the pair of them gives: as much work as two evaluations of the nets, for any
// loss whose derivatives by E, F and W are a, v and w.
//
// Each frame has a state with all that it needs, and a row of the gradient of its own: results do
// not depend on the number of threads, nor on which frames are evaluated together.

#pragma once

#include "../core/export.h"
#include "../families/dp/pair_terms.h"
#include "matrices.h"
#include "parts.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pwmlff {

/// Hidden layer of a fitting net: y = tanh(x W + b), or x + dt y with a residual.
struct TrainingLayer {
  int in, out;
  bool residual, scaled;              // whether x is added; whether there is a dt
  std::int64_t weight, bias, step;    // where they begin in the parameters; step -1 for none
};

/// What does not change while a model is trained.
struct TrainingModel {
  int nspecies, width, m2, max_neighbor;
  int nodes;    // of the splines
  double rmin, rmax;
  std::vector<TrainingPair> pairs;    // [nspecies, nspecies] center first

  int ncoef() const { return nodes + 2; }
  int ndescriptor() const { return descriptor_size(width, m2); }
};

/// Evaluates frames and their gradients in numbers of type T; sums over atoms are in float64.
///
/// Parameters are one array of T: for each species the hidden layers of its fitting net (weight
/// [in, out], bias [out], dt [out]), its last layer (weight [in], bias [1]), and the coefficients
/// [nspecies*ncoef, width] of its embedding nets, those of all neighbor species under each other,
/// divided by max_neighbor*nspecies. The descriptor's elements are the pairs (m, k), k <= m, k <
/// m2, ordered by k, then m: `in` of the first layer is their number. Each array begins at a
/// multiple of ALIGNMENT numbers; offsets() tells where, in this order.
template <class T> class PWMLFF_KERNELS_API Training {
 public:
  static constexpr std::int64_t ALIGNMENT = 16;

  /// @param widths   of the hidden layers of the fitting nets
  /// @param residual, scaled [hidden layers]
  Training(const TrainingModel &model, const std::vector<std::int64_t> &widths,
           const std::vector<std::int64_t> &residual, const std::vector<std::int64_t> &scaled,
           Product<T> multiply);
  ~Training();

  const std::vector<TrainingLayer> &hidden() const { return layers; }
  const std::vector<std::int64_t> &offsets() const { return begin; }
  std::int64_t nparameters() const { return size; }    // with what lies between the arrays

  /// Evaluate frames; each has a state of its place, for gradients().
  /// @param energy [n], force [atoms of all, 3], virial [n, 9]: overwritten
  void evaluate(const std::vector<TrainingFrame> &frames, const T *parameters, int nthreads,
                double *energy, double *force, double *virial);

  /// Take nothing for evaluated, before the frames go away.
  void forget() { used = 0; }

  /// Rows [n, nparameters()] of dS/d(parameters) for the frames evaluated last, from their states.
  /// @param a [n], v [atoms of all, 3], w [n, 9]
  void gradients(const T *parameters, int nthreads, const double *a, const double *v,
                 const double *w, T *rows);

 private:
  struct Species;
  struct FrameState;
  void evaluate(FrameState &state, const T *parameters, double *energy, double *force,
                double *virial);
  void gradient(FrameState &state, const T *parameters, double a, const double *v, const double *w,
                T *row);

  TrainingModel model;
  std::vector<TrainingLayer> layers;    // hidden ones; offsets relative to those of the species
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> ends;                       // of the arrays of a species
  std::int64_t last_weight, last_bias, coefficients;    // of a species, as in `layers`
  std::int64_t per_species, size;
  const TrainingParts<T> *parts;
  Product<T> multiply;
  std::vector<std::unique_ptr<FrameState>> states;
  std::size_t used = 0;    // states of the last evaluation
};

}    // namespace pwmlff
