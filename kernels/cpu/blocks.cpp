// SPDX-License-Identifier: GPL-2.0-or-later

#include "blocks.h"

#include "../common/threads.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace pwmlff {

BlockWorker::~BlockWorker() = default;
BlockBackend::~BlockBackend() = default;

Blocks::Blocks(std::unique_ptr<BlockBackend> backend, std::vector<bool> present,
               std::vector<int> slots) :
    backend_(std::move(backend)), present(std::move(present)), slots(std::move(slots))
{
}

Blocks::~Blocks() = default;

void Blocks::make_blocks(const Input &input)
{
  const int size = backend_->block_size();
  Centers centers(input.species, input.ncenters, present);
  blocks.clear();
  for (int s = 0; s < static_cast<int>(present.size()); ++s)
    for (int first = centers.first[s]; first < centers.first[s + 1]; first += size)
      blocks.push_back({s, first, std::min(size, centers.first[s + 1] - first)});
  order = std::move(centers.order);
}

BlockPlan Blocks::make_plan(const Input &input)
{
  BlockPlan plan{&input, order.data(),       0,
                 0,      atom_energy.data(), input.want_grade ? grade.data() : nullptr};
  const int nspecies = static_cast<int>(present.size());
  for (int i = 0; i < input.ncenters; ++i) {
    const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies;
    int edges = 0;
    for (int s = 0; s < nspecies; ++s) {
      const int candidates = first[s + 1] - first[s];
      plan.largest_slice = std::max(plan.largest_slice, candidates);
      edges += slots.empty() ? candidates : std::min(candidates, slots[s]);
    }
    plan.most_edges = std::max(plan.most_edges, edges);
  }
  return plan;
}

void Blocks::make_partial_sums(const Input &input)
{
  const int nthreads = std::max(1, std::min(input.nthreads, static_cast<int>(blocks.size())));
  while (static_cast<int>(workers.size()) < nthreads) workers.emplace_back(backend_->make_worker());
  row_sums.resize(nthreads);
  partial_sums.clear();
  for (std::vector<double> &memory : row_sums) {
    memory.resize(RowSums::size(input));
    partial_sums.push_back({RowSums(input, memory.data()), {}, {}});
  }
}

// In the order of the threads, so that the sums come out the same every time.
void Blocks::add_partial_sums(const Input &input)
{
  double virial[9] = {};
  for (const PartialSums &sums : partial_sums)
    for (int c = 0; c < 9; ++c) virial[c] += sums.virial[c];
  result.virial = in_order_of_lammps(virial);
  result.energy = 0.0;
  for (int i = 0; i < input.ncenters; ++i) result.energy += atom_energy[i];
  static_cast<RowSums &>(result) = partial_sums.front();
  result.atom_energy = atom_energy.data();
  result.grade = input.want_grade ? grade.data() : nullptr;
  if (partial_sums.size() == 1) return;

  const auto n = static_cast<std::ptrdiff_t>(row_sums.front().size());
  double *const sum = row_sums.front().data();
#pragma omp parallel for num_threads(usable_threads(static_cast<int>(partial_sums.size()))) \
    schedule(static)
  for (std::ptrdiff_t k = 0; k < n; ++k)
    for (std::size_t t = 1; t < row_sums.size(); ++t) sum[k] += row_sums[t][k];
}

const Evaluation &Blocks::evaluate(const Input &input)
{
  make_blocks(input);
  atom_energy.assign(input.ncenters, 0.0);
  if (input.want_grade) grade.assign(input.ncenters, 0.0);
  const BlockPlan plan = make_plan(input);
  make_partial_sums(input);

  const auto nparts = static_cast<std::ptrdiff_t>(partial_sums.size());
  const auto nblocks = static_cast<std::ptrdiff_t>(blocks.size());
  const auto run = [&](std::ptrdiff_t t) {
    std::fill(row_sums[t].begin(), row_sums[t].end(), 0.0);
    const std::ptrdiff_t begin = t * nblocks / nparts, end = (t + 1) * nblocks / nparts;
    workers[t]->run(plan, blocks.data() + begin, static_cast<int>(end - begin), partial_sums[t]);
  };
  if (nparts == 1) {
    run(0);
  } else {
    std::exception_ptr error;    // none may leave the parallel region
    // Shares, not threads, decide who adds to what: fewer threads than asked for change nothing.
#pragma omp parallel for num_threads(usable_threads(static_cast<int>(nparts))) schedule(static, 1)
    for (std::ptrdiff_t t = 0; t < nparts; ++t) try {
        run(t);
      } catch (...) {
#pragma omp critical(pwmlff_block_error)
        error = std::current_exception();
      }
    if (error) std::rethrow_exception(error);
  }
  for (const PartialSums &sums : partial_sums)
    if (sums.excess.count > 0) throw TooManyNeighbors(sums.excess);
  add_partial_sums(input);
  return result;
}

}    // namespace pwmlff
