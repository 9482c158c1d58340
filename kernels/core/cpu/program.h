// SPDX-License-Identifier: GPL-2.0-or-later

// What a family of models implements to be evaluated on the CPU: a Program and its Worker. The
// driver (driver.h) has all else: blocks of centers, threads, exchange between ranks, sums.
//
// A program is compiled once per instruction set (simd.h), so nothing of the standard library
// stands in its interface. tests/kernels/lennard_jones/family.cpp is a whole small one.

#pragma once

#include "../evaluation.h"
#include "../export.h"

#include <cstddef>

namespace pwmlff {

/// Centers of one species that are evaluated together: entries first .. first+count-1 of an order.
struct CenterBlock {
  int species, first, count;
};

/// Work that the threads share.
struct BlockPlan {
  const Input *input;
  const int *order;       // centers by species
  int largest_slice;      // most candidates of one center and species
  int most_edges;         // bound on the neighbors of one center within the cutoff
  double *atom_energy;    // [ncenters] zero at first; each is written by the worker of its block
  double *grade;          // [ncenters] likewise, or null where not wanted
  double *charge, *potential;    // [ncenters] likewise, of a program with charges
  // Of such a program, written by one worker: as Evaluation has it, and that are_same_sums() is not
  // the case.
  double *mean_charge;
  bool *sums_differ;
};

/// What one worker adds to; all is zero at first.
struct PartialSums : RowSums {
  double virial[9];    // xx xy xz yx yy yz zx zy zz
  Excess excess;       // of the first center that has too many neighbors, where the sums stop
};

/// What happens to rows before a phase; rows are [nrows, width].
struct Exchange {
  enum class Kind {
    none,
    forward,    // rows[0]: set those that are no centers to those of their centers
    reverse,    // add rows[k] of all workers up in rows[0], and those that are no centers there to
                // those of their centers
    sum,        // rows are [width]: add those of all workers and ranks up in rows[0]; not single
    solve       // Input::reciprocal finds, from BlockPlan::charge, potential, field, virial and
                // virials of atoms, which the rows are in this order
  };
  Kind kind = Kind::none;
  bool single = false;    // float instead of double
  int width = 0;
  void *const *rows = nullptr;    // of the program
};

/// What one thread works with, its scratch and its state from one phase to the next.
class PWMLFF_KERNELS_API Worker {
 public:
  virtual ~Worker();
  /// @param blocks  the same in all phases of an evaluation, in the order of the plan
  virtual void run(int phase, const BlockPlan &plan, const CenterBlock *blocks, int nblocks,
                   PartialSums &sums) = 0;
};

/// A model packed for one instruction set and precision, and what its workers share.
class PWMLFF_KERNELS_API Program {
 public:
  virtual ~Program();

  /// The program outlives it, and does not own it.
  virtual Worker *make_worker() = 0;

  /// The most centers of a block.
  virtual int block_size() const = 0;
  virtual std::size_t table_bytes() const = 0;

  /// Beyond which no neighbor counts; 0 where that is not known.
  virtual double cutoff() const;

  /// All workers end a phase before the next one begins. One phase unless said otherwise.
  virtual int nphases() const;
  /// Called by one thread before an evaluation, to make room.
  virtual void begin(const BlockPlan &plan);
  /// Called by one thread. Rows are valid until the phase begins.
  virtual Exchange before(int phase);
  /// The largest width of an exchange of rows, at least 1 where there is one of another kind; 0
  /// where there is none.
  virtual int exchange_width() const;
  /// Whether its rows are of float32.
  virtual bool exchanges_single() const;
  /// FusedEngine::has_charges().
  virtual bool has_charges() const;
};

}    // namespace pwmlff
