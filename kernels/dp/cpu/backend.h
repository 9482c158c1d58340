// SPDX-License-Identifier: GPL-2.0-or-later

// Between the engine and the code that is compiled once per instruction set.

#pragma once

#include "../evaluation.h"
#include "../network.h"
#include "../spline.h"

#include <cstddef>
#include <vector>

namespace pwmlff {

/// Centers of one species that are evaluated together: entries first .. first+count-1 of an order.
struct DPBlock {
  int species, first, count;
};

/// Work that the threads share.
struct DPPlan {
  const Input *input;
  const int *order;       // centers by species
  int largest_slice;      // most candidates of one center and species
  int most_edges;         // bound on the neighbors of one center within the cutoff
  double *atom_energy;    // [ncenters] each written once
};

/// What one thread adds to.
struct DPPartialSums : RowSums {
  double virial[9];    // xx xy xz yx yy yz zx zy zz
  Excess excess;       // of the first center that has too many neighbors, where the sums stop
};

/// Scratch of one thread.
class DPWorker {
 public:
  virtual ~DPWorker();
  virtual void run(const DPPlan &plan, const DPBlock *blocks, int nblocks, DPPartialSums &sums) = 0;
};

/// A model packed for one instruction set and precision; constant once made.
class DPBackend {
 public:
  virtual ~DPBackend();
  virtual DPWorker *make_worker() const = 0;
  virtual int block_size() const = 0;    // atoms
  virtual std::size_t table_bytes() const = 0;
};

struct DPModel {
  const DPNetwork *network;
  const std::vector<SplineTable> *tables;    // [nspecies*nspecies]; empty: evaluate the nets
  const std::vector<bool> *present;          // [nspecies]
  bool single;                               // tables, moments and large layers in float32
};

#define PWMLFF_DECLARE_BACKEND(isa)              \
  namespace isa {                                \
  DPBackend *make_backend(const DPModel &model); \
  }
PWMLFF_DECLARE_BACKEND(baseline)
PWMLFF_DECLARE_BACKEND(avx2)
PWMLFF_DECLARE_BACKEND(avx512)
#undef PWMLFF_DECLARE_BACKEND

}    // namespace pwmlff
