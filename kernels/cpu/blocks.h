// SPDX-License-Identifier: GPL-2.0-or-later

// Evaluation on the CPU by blocks of centers, which threads take in shares. What evaluates a block
// is compiled once per instruction set and seen through BlockBackend and BlockWorker.

#pragma once

#include "../common/evaluation.h"

#include <cstddef>
#include <memory>
#include <vector>

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
  double *atom_energy;    // [ncenters] each written once
  double *grade;          // [ncenters] likewise, or null where not wanted
};

/// What one thread adds to.
struct PartialSums : RowSums {
  double virial[9];    // xx xy xz yx yy yz zx zy zz
  Excess excess;       // of the first center that has too many neighbors, where the sums stop
};

/// Scratch of one thread.
class BlockWorker {
 public:
  virtual ~BlockWorker();
  virtual void run(const BlockPlan &plan, const CenterBlock *blocks, int nblocks,
                   PartialSums &sums) = 0;
};

/// A model packed for one instruction set and precision; constant once made.
class BlockBackend {
 public:
  virtual ~BlockBackend();
  virtual BlockWorker *make_worker() const = 0;
  virtual int block_size() const = 0;    // atoms
  virtual std::size_t table_bytes() const = 0;
};

/// The same input and number of threads give the same bits.
class Blocks {
 public:
  /// @param present [nspecies] the species that take part
  /// @param slots [nspecies] the most neighbors of a species; empty without a limit
  Blocks(std::unique_ptr<BlockBackend> backend, std::vector<bool> present, std::vector<int> slots);
  ~Blocks();

  const BlockBackend &backend() const { return *backend_; }

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @throws TooManyNeighbors, std::invalid_argument for a center that takes no part
  const Evaluation &evaluate(const Input &input);

 private:
  void make_blocks(const Input &input);
  BlockPlan make_plan(const Input &input);
  void make_partial_sums(const Input &input);
  void add_partial_sums(const Input &input);

  std::unique_ptr<BlockBackend> backend_;
  const std::vector<bool> present;
  const std::vector<int> slots;
  std::vector<std::unique_ptr<BlockWorker>> workers;    // one per thread
  std::vector<int> order;                               // centers that take part, by species
  std::vector<CenterBlock> blocks;
  std::vector<PartialSums> partial_sums;        // one per thread
  std::vector<std::vector<double>> row_sums;    // of each thread; the first one's are the result
  std::vector<double> atom_energy, grade;
  Evaluation result;
};

}    // namespace pwmlff
