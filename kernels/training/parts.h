// SPDX-License-Identifier: GPL-2.0-or-later

// The parts of a training step that are loops over edges or atoms, compiled once per instruction
// set (core/cpu/simd.h). Products of matrices lie between them (training.cpp).
//
// Arrays of a species hold features in rows and atoms in columns, so that atoms are the lanes. N is
// the number of atoms of that species in a frame, rounded up to COLUMNS; the columns beyond the
// atoms are zero in C, and so in all that is linear in it.

#pragma once

#include <cstddef>
#include <cstdint>

namespace pwmlff {

/// How the distances of center species a and neighbor species b enter.
struct TrainingPair {
  double rmin, rmax;
  double low, spacing;               // first node of the splines and distance of the nodes
  int intervals;                     // between nodes; the last one ends at rmax
  double mean[4], inverse_dev[4];    // davg and 1/dstd
};

/// Structure in a set of frames, with its edges: in the order of centers, then species of
/// neighbors.
struct TrainingFrame {
  int natoms, nspecies;
  const int *species;           // [natoms]
  const int *column;            // [natoms] place of an atom among those of its species
  const double *rij;            // [nedges, 3]
  const std::int32_t *j;        // [nedges] atom at the other end
  const std::int32_t *count;    // [natoms, nspecies] edges
  const int *width;             // [nspecies] N
};

/// Scratch for the edges of one center and species of neighbors, at least as many as there are.
template <class T> struct TrainingScratch {
  T *inverse_r, *s, *slope, *place, *r0, *r1, *r2, *r3;    // slope = ds/dr; R~ in r0 .. r3
  T *t0, *t1, *t2, *t3, *radial;
  double *g0, *g1, *g2;
  std::int32_t *interval;
};

template <class T> class TrainingParts {
 public:
  static constexpr int COLUMNS = 16;

  virtual ~TrainingParts();

  /// C[c*N + column][b*ncoef + k] += sum over edges and empty slots of R~_c B_k(r); zero before.
  /// @param pairs [nspecies, nspecies]
  /// @param c     [nspecies] arrays [4*N, nspecies*ncoef]
  virtual void moments(const TrainingFrame &frame, const TrainingPair *pairs, int ncoef,
                       int max_neighbor, TrainingScratch<T> &scratch, T *const *c) const = 0;

  /// Forces and virial from dE/dC; both are added to.
  /// @param g      [nspecies] arrays as in moments()
  /// @param force  [natoms, 3]
  /// @param virial [9]
  virtual void forces(const TrainingFrame &frame, const TrainingPair *pairs, int ncoef,
                      TrainingScratch<T> &scratch, const T *const *g, double *force,
                      double *virial) const = 0;

  /// The derivative C' of C where r_ij changes at the rate u_ij = v_i - v_j - w^T r_ij.
  /// @param v [natoms, 3]
  /// @param w [9] row by row
  virtual void tangents(const TrainingFrame &frame, const TrainingPair *pairs, int ncoef,
                        TrainingScratch<T> &scratch, const double *v, const double *w,
                        T *const *c) const = 0;

  /// h = tanh(z), then z = h, or x + step h with a residual; step may be null: ones.
  /// @param z, x [rows, stride]
  /// @param h    [rows, n]
  virtual void activate(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *x,
                        const T *step, bool residual, T *z, T *h) const = 0;

  /// dE/dz from dE/dy of such a layer: step dy (1 - h^2).
  /// @param h, dy [rows, n]
  /// @param dz    [rows, stride]
  virtual void back(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *step, const T *h,
                    const T *dy, T *dz) const = 0;

  /// The derivative y' = step (1 - h^2) z', plus x' with a residual.
  /// @param x, z, y [rows, stride] the derivatives
  virtual void change(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *x, const T *step,
                      bool residual, const T *h, const T *z, T *y) const = 0;

  /// Both ways back at once: from dS/dy and dS/dy' to dS/dz, and sums over atoms of what belongs to
  /// the bias and, where not null, the step.
  /// @param h, dy, dy_change [rows, n]
  /// @param z [rows, stride] z' before, dS/dz after
  virtual void back_twice(int rows, std::ptrdiff_t n, std::ptrdiff_t stride, const T *step,
                          const T *h, const T *dy, const T *dy_change, T *z, T *bias,
                          T *steps) const = 0;

  /// D[p] = sum over c of T_cm T_ck for the pairs p = (m, k), k <= m, by k, then m.
  /// @param t [width, stride] with the components c in columns c*n .. c*n + n-1
  /// @param d [ndescriptor, dstride]
  virtual void describe(int width, int m2, std::ptrdiff_t n, std::ptrdiff_t stride, const T *t,
                        std::ptrdiff_t dstride, T *d) const = 0;

  /// The same for the derivative: D'[p] = sum over c of T'_cm T_ck + T_cm T'_ck.
  virtual void describe_tangent(int width, int m2, std::ptrdiff_t n, std::ptrdiff_t stride,
                                const T *t, const T *tangent, std::ptrdiff_t dstride,
                                T *d) const = 0;

  /// out_cm += D_p T_ck, out_ck += D_p T_cm for all pairs.
  virtual void describe_backward(int width, int m2, std::ptrdiff_t n, std::ptrdiff_t stride,
                                 const T *t, std::ptrdiff_t dstride, const T *d, T *out) const = 0;
};

#define PWMLFF_DECLARE_PARTS(isa)                                \
  namespace isa {                                                \
  template <class T> const TrainingParts<T> &training_parts();   \
  extern template const TrainingParts<float> &training_parts();  \
  extern template const TrainingParts<double> &training_parts(); \
  }
PWMLFF_DECLARE_PARTS(baseline)
#ifdef __x86_64__
PWMLFF_DECLARE_PARTS(avx2)
PWMLFF_DECLARE_PARTS(avx512)
#endif
#undef PWMLFF_DECLARE_PARTS

/// Those of the instruction set in use, instruction_set_name().
template <class T> const TrainingParts<T> &training_parts();

}    // namespace pwmlff
