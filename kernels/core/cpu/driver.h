// SPDX-License-Identifier: GPL-2.0-or-later

// Evaluation of a program (program.h) on the CPU: blocks of centers, which threads take in shares,
// what rows exchange between phases, and the sums of all threads.

#pragma once

#include "near_candidates.h"
#include "program.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pwmlff {

/// The same input and number of threads give the same bits.
class PWMLFF_KERNELS_API Driver {
 public:
  /// @param present [nspecies] the species that take part
  /// @param slots [nspecies] the most neighbors of a species; empty without a limit
  Driver(std::unique_ptr<Program> program, std::vector<bool> present, std::vector<int> slots);
  ~Driver();

  const Program &program() const { return *program_; }

  /// Keeps its scratch between calls: not to be called from two threads at once.
  /// @throws TooManyNeighbors, SumsDiffer, std::invalid_argument for a center that takes no part
  const Evaluation &evaluate(const Input &all);

 private:
  void make_blocks(const Input &input);
  void make_sums(const Input &input, int nworkers);
  void exchange(const Exchange &rows, const Input &input, int nworkers);
  void add_sums();

  const std::unique_ptr<Program> program_;
  const std::vector<bool> present;
  const std::vector<int> slots;
  std::vector<std::unique_ptr<Worker>> workers;

  // Of a list of neighbors.
  std::uint64_t list = 0;
  std::vector<int> order;    // centers that take part, by species
  std::vector<CenterBlock> blocks;
  BlockPlan plan{};
  NearCandidates near;

  std::vector<PartialSums> partial_sums;        // one per worker
  std::vector<std::vector<double>> row_sums;    // of each worker; the first one's are the result
  std::vector<double> atom_energy, grade, charge, potential;
  bool sums_differ = false;
  Evaluation result;
};

/// An engine that is a driver and nothing else.
class PWMLFF_KERNELS_API CpuEngine : public FusedEngine {
 public:
  /// As for Driver.
  CpuEngine(std::unique_ptr<Program> program, std::vector<bool> present,
            std::vector<int> slots = {});
  const Evaluation &evaluate(const Input &input) override { return driver.evaluate(input); }

 private:
  Driver driver;
};

}    // namespace pwmlff
