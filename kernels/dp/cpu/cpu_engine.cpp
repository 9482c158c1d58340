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

struct DPEngine::Implementation {
  DPNetwork network;
  std::vector<bool> present;
  double value_error = 0.0, slope_error = 0.0;
  const DPInstructionSet *instruction_set;
  std::unique_ptr<DPBackend> backend;
  std::vector<std::unique_ptr<DPWorker>> workers;    // one per thread

  std::vector<int> order;    // centers that take part, by species
  std::vector<DPBlock> blocks;
  std::vector<DPPartialSums> partial_sums;     // one per thread
  std::vector<std::vector<double>> buffers;    // what all threads but the first add to

  void make_blocks(const DPInput &input);
  DPPlan make_plan(const DPInput &input, double *atom_energy) const;
  void make_partial_sums(const DPInput &input, DPOutput &output);
  void add_partial_sums(const DPInput &input, DPOutput &output) const;
};

DPEngine::DPEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present) :
    implementation(std::make_unique<Implementation>())
{
  Implementation &self = *implementation;
  self.network = std::move(network);
  self.present = self.network.with_slots(present);
  const DPTables splines(self.network, precision, self.present);
  self.value_error = splines.value_error;
  self.slope_error = splines.slope_error;
  self.instruction_set = &choose_instruction_set();
  self.backend.reset(self.instruction_set->make_backend(
      {&self.network, &splines.tables, &self.present, precision == DPPrecision::mixed}));
}

DPEngine::~DPEngine() = default;

std::size_t DPEngine::table_bytes() const { return implementation->backend->table_bytes(); }
double DPEngine::value_error() const { return implementation->value_error; }
double DPEngine::slope_error() const { return implementation->slope_error; }
const char *DPEngine::isa() const { return implementation->instruction_set->name; }

void DPEngine::Implementation::make_blocks(const DPInput &input)
{
  const int size = backend->block_size();
  DPCenters centers(input.species, input.ncenters, present);
  blocks.clear();
  for (int s = 0; s < network.nspecies(); ++s)
    for (int first = centers.first[s]; first < centers.first[s + 1]; first += size)
      blocks.push_back({s, first, std::min(size, centers.first[s + 1] - first)});
  order = std::move(centers.order);
}

DPPlan DPEngine::Implementation::make_plan(const DPInput &input, double *atom_energy) const
{
  DPPlan plan{&input, order.data(), 0, 0, atom_energy};
  const int nspecies = network.nspecies();
  for (int i = 0; i < input.ncenters; ++i) {
    const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies;
    int edges = 0;
    for (int s = 0; s < nspecies; ++s) {
      const int candidates = first[s + 1] - first[s];
      plan.largest_slice = std::max(plan.largest_slice, candidates);
      edges += std::min(candidates, network.sel[s]);
    }
    plan.most_edges = std::max(plan.most_edges, edges);
  }
  return plan;
}

// The first thread adds to the output itself, the others to buffers.
void DPEngine::Implementation::make_partial_sums(const DPInput &input, DPOutput &output)
{
  const std::size_t nrows = input.nrows;
  output.force.assign(3 * nrows, 0.0);
  output.atom_virial.assign(input.want_atom_virial ? 6 * nrows : 0, 0.0);
  output.centroid_virial.assign(input.want_centroid_virial ? 9 * nrows : 0, 0.0);
  const int nthreads = std::max(1, std::min(input.nthreads, static_cast<int>(blocks.size())));
  while (static_cast<int>(workers.size()) < nthreads) workers.emplace_back(backend->make_worker());
  buffers.resize(nthreads - 1);
  partial_sums.assign(nthreads, DPPartialSums{});
  for (int t = 0; t < nthreads; ++t) {
    double *p = output.force.data();
    if (t > 0) {
      buffers[t - 1].resize(output.force.size() + output.atom_virial.size() +
                            output.centroid_virial.size());
      p = buffers[t - 1].data();
    }
    DPPartialSums &sums = partial_sums[t];
    sums.force = p;
    p += output.force.size();
    if (input.want_atom_virial) sums.atom_virial = t > 0 ? p : output.atom_virial.data();
    p += output.atom_virial.size();
    if (input.want_centroid_virial)
      sums.centroid_virial = t > 0 ? p : output.centroid_virial.data();
  }
}

// In the order of the threads, so that the sums come out the same every time.
void DPEngine::Implementation::add_partial_sums(const DPInput &input, DPOutput &output) const
{
  std::fill_n(output.virial, 9, 0.0);
  for (const DPPartialSums &sums : partial_sums)
    for (int c = 0; c < 9; ++c) output.virial[c] += sums.virial[c];
  output.energy = 0.0;
  for (int i = 0; i < input.ncenters; ++i) output.energy += output.atom_energy[i];
  if (partial_sums.size() == 1) return;

  std::size_t offset = 0;
  for (std::vector<double> *const target :
       {&output.force, &output.atom_virial, &output.centroid_virial}) {
    const auto n = static_cast<std::ptrdiff_t>(target->size());
    double *const sum = target->data();
#pragma omp parallel for num_threads(usable_threads(static_cast<int>(partial_sums.size()))) \
    schedule(static)
    for (std::ptrdiff_t k = 0; k < n; ++k)
      for (const std::vector<double> &buffer : buffers) sum[k] += buffer[offset + k];
    offset += target->size();
  }
}

void DPEngine::evaluate(const DPInput &input, DPOutput &output)
{
  Implementation &self = *implementation;
  self.make_blocks(input);
  output.atom_energy.assign(input.ncenters, 0.0);
  const DPPlan plan = self.make_plan(input, output.atom_energy.data());
  self.make_partial_sums(input, output);

  const auto nparts = static_cast<std::ptrdiff_t>(self.partial_sums.size());
  const auto nblocks = static_cast<std::ptrdiff_t>(self.blocks.size());
  const auto run = [&](std::ptrdiff_t t) {
    if (t > 0) std::fill(self.buffers[t - 1].begin(), self.buffers[t - 1].end(), 0.0);
    const std::ptrdiff_t begin = t * nblocks / nparts, end = (t + 1) * nblocks / nparts;
    self.workers[t]->run(plan, self.blocks.data() + begin, static_cast<int>(end - begin),
                         self.partial_sums[t]);
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
  for (const DPPartialSums &sums : self.partial_sums)
    if (sums.overflow)
      throw DPOverflow(sums.row, sums.species, sums.count, self.network.sel[sums.species]);
  self.add_partial_sums(input, output);
}

}    // namespace pwmlff
