// SPDX-License-Identifier: GPL-2.0-or-later

#include "cpu_engine.h"

#include "../../common/threads.h"
#include "backend.h"
#include "instruction_set.h"

#include <algorithm>
#include <exception>

namespace pwmlff {

DPWorker::~DPWorker() = default;
DPBackend::~DPBackend() = default;

namespace {

class CpuEngine : public DPEngine {
 public:
  CpuEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present,
            const DPInstructionSet &set) :
      DPEngine(std::move(network), precision, present, nullptr, set.name),
      backend(set.make_backend(
          {&network_, &splines.tables, &this->present, precision == DPPrecision::mixed}))
  {
    table_bytes_ = backend->table_bytes();
    splines.tables.clear();
  }

  const Evaluation &evaluate(const Input &input) override;

 private:
  void make_blocks(const Input &input);
  DPPlan make_plan(const Input &input);
  void make_partial_sums(const Input &input);
  void add_partial_sums(const Input &input);

  std::unique_ptr<DPBackend> backend;
  std::vector<std::unique_ptr<DPWorker>> workers;    // one per thread
  std::vector<int> order;                            // centers that take part, by species
  std::vector<DPBlock> blocks;
  std::vector<DPPartialSums> partial_sums;      // one per thread
  std::vector<std::vector<double>> row_sums;    // of each thread; the first one's are the result
  std::vector<double> atom_energy;
};

void CpuEngine::make_blocks(const Input &input)
{
  const int size = backend->block_size();
  DPCenters centers(input.species, input.ncenters, present);
  blocks.clear();
  for (int s = 0; s < network_.nspecies(); ++s)
    for (int first = centers.first[s]; first < centers.first[s + 1]; first += size)
      blocks.push_back({s, first, std::min(size, centers.first[s + 1] - first)});
  order = std::move(centers.order);
}

DPPlan CpuEngine::make_plan(const Input &input)
{
  DPPlan plan{&input, order.data(), 0, 0, atom_energy.data()};
  const int nspecies = network_.nspecies();
  for (int i = 0; i < input.ncenters; ++i) {
    const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies;
    int edges = 0;
    for (int s = 0; s < nspecies; ++s) {
      const int candidates = first[s + 1] - first[s];
      plan.largest_slice = std::max(plan.largest_slice, candidates);
      edges += std::min(candidates, network_.sel[s]);
    }
    plan.most_edges = std::max(plan.most_edges, edges);
  }
  return plan;
}

void CpuEngine::make_partial_sums(const Input &input)
{
  const int nthreads = std::max(1, std::min(input.nthreads, static_cast<int>(blocks.size())));
  while (static_cast<int>(workers.size()) < nthreads) workers.emplace_back(backend->make_worker());
  row_sums.resize(nthreads);
  partial_sums.clear();
  for (std::vector<double> &memory : row_sums) {
    memory.resize(RowSums::size(input));
    partial_sums.push_back({RowSums(input, memory.data()), {}, {}});
  }
}

// In the order of the threads, so that the sums come out the same every time.
void CpuEngine::add_partial_sums(const Input &input)
{
  double virial[9] = {};
  for (const DPPartialSums &sums : partial_sums)
    for (int c = 0; c < 9; ++c) virial[c] += sums.virial[c];
  result.virial = in_order_of_lammps(virial);
  result.energy = 0.0;
  for (int i = 0; i < input.ncenters; ++i) result.energy += atom_energy[i];
  static_cast<RowSums &>(result) = partial_sums.front();
  result.atom_energy = atom_energy.data();
  if (partial_sums.size() == 1) return;

  const auto n = static_cast<std::ptrdiff_t>(row_sums.front().size());
  double *const sum = row_sums.front().data();
#pragma omp parallel for num_threads(usable_threads(static_cast<int>(partial_sums.size()))) \
    schedule(static)
  for (std::ptrdiff_t k = 0; k < n; ++k)
    for (std::size_t t = 1; t < row_sums.size(); ++t) sum[k] += row_sums[t][k];
}

const Evaluation &CpuEngine::evaluate(const Input &input)
{
  make_blocks(input);
  atom_energy.assign(input.ncenters, 0.0);
  const DPPlan plan = make_plan(input);
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
#pragma omp critical(pwmlff_dp_error)
        error = std::current_exception();
      }
    if (error) std::rethrow_exception(error);
  }
  for (const DPPartialSums &sums : partial_sums)
    if (sums.excess.count > 0) throw TooManyNeighbors(sums.excess);
  add_partial_sums(input);
  return result;
}

}    // namespace

std::unique_ptr<DPEngine> make_cpu_engine(DPNetwork network, DPPrecision precision,
                                          const std::vector<bool> &present)
{
  return std::make_unique<CpuEngine>(std::move(network), precision, present,
                                     choose_instruction_set());
}

}    // namespace pwmlff
