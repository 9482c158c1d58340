// SPDX-License-Identifier: GPL-2.0-or-later

#include "driver.h"

#include "../threads.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pwmlff {

Worker::~Worker() = default;
Program::~Program() = default;
double Program::cutoff() const { return 0.0; }
int Program::nphases() const { return 1; }
void Program::begin(const BlockPlan &) {}
Exchange Program::before(int) { return {}; }
int Program::exchange_width() const { return 0; }

bool Program::exchanges_single() const { return false; }
bool Program::has_charges() const { return false; }

namespace {

/// Add n numbers of all arrays up in the first, in the order of the arrays, so that the sums come
/// out the same every time.
template <class T> void add_up(T *const *arrays, int narrays, std::ptrdiff_t n)
{
  if (narrays == 1) return;
  in_shares(narrays, [&](int share) {
    const std::ptrdiff_t end = end_of_share(share, narrays, n);
    for (int a = 1; a < narrays; ++a)
      for (std::ptrdiff_t k = end_of_share(share - 1, narrays, n); k < end; ++k)
        arrays[0][k] += arrays[a][k];
  });
}

template <class T>
void exchange_rows(const Exchange &rows, T *const *arrays, const Input &input, int nworkers)
{
  const auto width = static_cast<std::size_t>(rows.width);
  if (rows.kind == Exchange::Kind::reverse) {
    add_up(arrays, nworkers, static_cast<std::ptrdiff_t>(input.nrows) * rows.width);
    if (input.exchange) input.exchange->reverse({arrays[0], width});
  } else if (input.exchange) {
    input.exchange->forward({arrays[0], width});
  }
}

}    // namespace

Driver::Driver(std::unique_ptr<Program> program, std::vector<bool> present,
               std::vector<int> slots) :
    program_(std::move(program)),
    present(std::move(present)),
    slots(std::move(slots)),
    near(program_->cutoff(), static_cast<int>(this->present.size()))
{
}

Driver::~Driver() = default;

void Driver::make_blocks(const Input &input)
{
  list = 0;
  const int size = program_->block_size(), nspecies = static_cast<int>(present.size());
  Centers centers(input.species, input.ncenters, present);
  blocks.clear();
  for (int s = 0; s < nspecies; ++s)
    for (int first = centers.first[s]; first < centers.first[s + 1]; first += size)
      blocks.push_back({s, first, std::min(size, centers.first[s + 1] - first)});
  order = std::move(centers.order);
  plan = {};
  plan.order = order.data();
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
  list = input.list;
}

void Driver::make_sums(const Input &input, int nworkers)
{
  while (static_cast<int>(workers.size()) < nworkers) workers.emplace_back(program_->make_worker());
  row_sums.resize(nworkers);
  partial_sums.clear();
  for (std::vector<double> &memory : row_sums) {
    memory.resize(RowSums::size(input));
    partial_sums.push_back({RowSums(input, memory.data()), {}, {}});
  }
  atom_energy.assign(input.ncenters, 0.0);
  if (input.want_grade) grade.assign(input.ncenters, 0.0);
  plan.input = &input;
  plan.atom_energy = atom_energy.data();
  plan.grade = input.want_grade ? grade.data() : nullptr;
  if (!program_->has_charges()) return;
  charge.assign(input.ncenters, 0.0);
  potential.assign(input.ncenters, 0.0);
  plan.charge = charge.data();
  plan.potential = potential.data();
  plan.mean_charge = &result.mean_charge;
  plan.sums_differ = &sums_differ;
}

void Driver::exchange(const Exchange &rows, const Input &input, int nworkers)
{
  if (rows.kind == Exchange::Kind::none) return;
  if (rows.kind == Exchange::Kind::sum) {
    auto *const *const arrays = reinterpret_cast<double *const *>(rows.rows);
    add_up(arrays, nworkers, rows.width);
    if (input.exchange) input.exchange->sum(arrays[0], rows.width);
    return;
  }
  if (rows.kind == Exchange::Kind::solve) {
    auto *const *const found = reinterpret_cast<double *const *>(rows.rows);
    input.reciprocal->solve(input, plan.charge, found[0], found[1], found[2], found[3]);
    return;
  }
  if (rows.single)
    exchange_rows(rows, reinterpret_cast<float *const *>(rows.rows), input, nworkers);
  else exchange_rows(rows, reinterpret_cast<double *const *>(rows.rows), input, nworkers);
}

void Driver::add_sums()
{
  double virial[9] = {};
  std::vector<double *> arrays;
  for (PartialSums &sums : partial_sums) {
    for (int c = 0; c < 9; ++c) virial[c] += sums.virial[c];
    arrays.push_back(sums.force);    // where its block of memory begins
  }
  add_up(arrays.data(), static_cast<int>(arrays.size()),
         static_cast<std::ptrdiff_t>(row_sums.front().size()));
  result.virial = in_order_of_lammps(virial);
  result.energy = 0.0;
  for (const double energy : atom_energy) result.energy += energy;
  static_cast<RowSums &>(result) = partial_sums.front();
  result.atom_energy = atom_energy.data();
  result.grade = plan.grade;
  result.charge = plan.charge;
  result.potential = plan.potential;
}

const Evaluation &Driver::evaluate(const Input &all)
{
  if (program_->has_charges()) require_box(all);
  if (all.list == 0 || all.list != list) make_blocks(all);
  const Input &input = near.of(all);
  const auto nblocks = static_cast<std::ptrdiff_t>(blocks.size());
  const int nworkers = std::max(1, std::min(input.nthreads, static_cast<int>(nblocks)));
  make_sums(input, nworkers);
  program_->begin(plan);
  for (int phase = 0; phase < program_->nphases(); ++phase) {
    exchange(program_->before(phase), input, nworkers);
    in_shares(nworkers, [&](int share) {
      if (phase == 0) std::fill(row_sums[share].begin(), row_sums[share].end(), 0.0);
      const std::ptrdiff_t begin = end_of_share(share - 1, nworkers, nblocks);
      workers[share]->run(phase, plan, blocks.data() + begin,
                          static_cast<int>(end_of_share(share, nworkers, nblocks) - begin),
                          partial_sums[share]);
    });
  }
  for (const PartialSums &sums : partial_sums)
    if (sums.excess.count > 0) throw TooManyNeighbors(sums.excess);
  if (std::exchange(sums_differ, false)) throw SumsDiffer();
  add_sums();
  return result;
}

CpuEngine::CpuEngine(std::unique_ptr<Program> program, std::vector<bool> present,
                     std::vector<int> slots) :
    FusedEngine(nullptr), driver(std::move(program), std::move(present), std::move(slots))
{
  table_bytes_ = driver.program().table_bytes();
  exchange_width_ = driver.program().exchange_width();
  exchanges_single_ = driver.program().exchanges_single();
  has_charges_ = driver.program().has_charges();
}

}    // namespace pwmlff
