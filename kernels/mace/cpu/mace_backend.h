// SPDX-License-Identifier: GPL-2.0-or-later

// Between the MACE engine and its code that is compiled once per instruction set.

#pragma once

#include "../../common/evaluation.h"
#include "../plan.h"

#include <cstddef>

namespace pwmlff {

/// Centers of one species that go through the matrices together.
constexpr int MACE_BLOCK = 4;

struct MaceBlock {
  int species, count;
  int center[MACE_BLOCK];
};

/// What one part of the work adds to.
struct MaceSums {
  double *force;              // [nrows, 3]
  double *atom_virial;        // [nrows, 6] or null
  double *centroid_virial;    // [nrows, 9] or null
  double virial[9];           // xx xy xz yx yy yz zx zy zz
};

/// A model packed for one instruction set and precision, and the state of an evaluation. Its steps,
/// each by all parts before the next:
///   begin
///   for layers t from the first: features and share (not of the first), forward
///   for layers t from the last but one: gather(t + 1), receive(t + 1), backward(t)
///   spread
class MaceBackend {
 public:
  virtual ~MaceBackend();

  /// @param blocks  those of part p are first[p] .. first[p+1]-1; first [nparts + 1]
  /// @param atom_energy [ncenters] added to
  virtual void begin(const Input &input, const MaceBlock *blocks, const int *first, int nparts,
                     double *atom_energy) = 0;
  /// What the centers of a part send along edges to layer t.
  virtual void features(int t, int part) = 0;
  /// Let rows that are no centers have what theirs send.
  virtual void share(int t) = 0;
  /// A layer, and from the last one the way back.
  virtual void forward(int t, int part) = 0;
  /// Add up derivatives by what was sent, of all parts and of rows that are no centers.
  virtual void gather(int t) = 0;
  /// Derivatives by what left layer t - 1 from those.
  virtual void receive(int t, int part) = 0;
  /// The way back through a layer.
  virtual void backward(int t, int part) = 0;
  /// Forces and virials of edges.
  virtual void spread(int part, MaceSums &sums) = 0;

  virtual std::size_t table_bytes() const = 0;
  /// Numbers that a row sends, the most of all layers; 0 where there is one layer.
  virtual int most_sent() const = 0;
};

/// Precision: float64 without tables, float64, or float32.
enum class MacePrecision { exact, tables, single };

#define PWMLFF_DECLARE_BACKEND(isa)                                              \
  namespace isa {                                                                \
  MaceBackend *make_mace_backend(const MacePlan &plan, MacePrecision precision); \
  }
PWMLFF_DECLARE_BACKEND(baseline)
PWMLFF_DECLARE_BACKEND(avx2)
PWMLFF_DECLARE_BACKEND(avx512)
#undef PWMLFF_DECLARE_BACKEND

}    // namespace pwmlff
