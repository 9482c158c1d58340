// SPDX-License-Identifier: GPL-2.0-or-later

#include "mace_engine.h"

#include "../common/threads.h"
#include "../cpu/instruction_set.h"
#include "../dp/tables.h"
#include "cpu/mace_backend.h"
#include "plan.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

namespace pwmlff {

MaceBackend::~MaceBackend() = default;

namespace {

MacePrecision mace_precision(const std::string &name)
{
  switch (dp_precision(name)) {
    case DPPrecision::exact:
      return MacePrecision::exact;
    case DPPrecision::double_table:
      return MacePrecision::tables;
    default:
      return MacePrecision::single;
  }
}

class MaceCpuEngine : public FusedEngine {
 public:
  MaceCpuEngine(const MaceNetwork &network_, MacePrecision precision,
                const std::vector<bool> &present) :
      FusedEngine(nullptr),
      network(network_),
      present(present),
      backend(PWMLFF_IN_USE(make_mace_backend(MacePlan(network, present), precision)))
  {
    processor_ = instruction_set_name();
    table_bytes_ = backend->table_bytes();
    exchange_width_ = backend->most_sent();
  }

  const Evaluation &evaluate(const Input &input) override
  {
    make_blocks(input);
    const auto nparts = static_cast<int>(first.size()) - 1;
    atom_energy.resize(static_cast<std::size_t>(input.ncenters));
    for (int i = 0; i < input.ncenters; ++i) {
      const int s = input.species[i];
      atom_energy[i] = s < 0 ? 0.0 : network.energy[s] + network.shift;
    }
    backend->begin(input, blocks.data(), first.data(), nparts, atom_energy.data());
    const auto nlayers = static_cast<int>(network.layers.size());
    for (int t = 0; t < nlayers; ++t) {
      if (t > 0) {
        by_parts(nparts, [&](int part) { backend->features(t, part); });
        backend->share(t);
      }
      by_parts(nparts, [&](int part) { backend->forward(t, part); });
    }
    for (int t = nlayers - 2; t >= 0; --t) {
      backend->gather(t + 1);
      by_parts(nparts, [&](int part) { backend->receive(t + 1, part); });
      by_parts(nparts, [&](int part) { backend->backward(t, part); });
    }
    add_up(input, nparts);
    return result;
  }

 private:
  /// Blocks of centers of one species that are near to each other in the order of rows, and shares
  /// of them for threads.
  void make_blocks(const Input &input)
  {
    const Centers centers(input.species, input.ncenters, present);
    blocks.clear();
    for (int s = 0; s < network.nspecies(); ++s)
      for (int k = centers.first[s]; k < centers.first[s + 1]; k += MACE_BLOCK) {
        MaceBlock block{s, std::min(MACE_BLOCK, centers.first[s + 1] - k), {}};
        std::copy_n(centers.order.begin() + k, block.count, block.center);
        blocks.push_back(block);
      }
    const auto nblocks = static_cast<int>(blocks.size());
    const int nparts = std::max(1, std::min(input.nthreads, nblocks));
    first.resize(nparts + 1);
    for (int part = 0; part <= nparts; ++part)
      first[part] = static_cast<int>(static_cast<std::int64_t>(nblocks) * part / nparts);
  }

  // Shares, not threads, decide who adds to what: fewer threads than asked for change nothing.
  template <class Work> void by_parts(int nparts, const Work &work)
  {
    if (nparts == 1) {
      work(0);
      return;
    }
    std::exception_ptr error;    // none may leave the parallel region
#pragma omp parallel for num_threads(usable_threads(nparts)) schedule(static, 1)
    for (int part = 0; part < nparts; ++part) try {
        work(part);
      } catch (...) {
#pragma omp critical(pwmlff_mace_error)
        error = std::current_exception();
      }
    if (error) std::rethrow_exception(error);
  }

  void add_up(const Input &input, int nparts)
  {
    const std::size_t size = RowSums::size(input);
    row_sums.resize(nparts);
    std::vector<MaceSums> sums(nparts);
    for (int part = 0; part < nparts; ++part) {
      row_sums[part].assign(size, 0.0);
      const RowSums rows(input, row_sums[part].data());
      sums[part] = {rows.force, rows.atom_virial, rows.centroid_virial, {}};
    }
    by_parts(nparts, [&](int part) { backend->spread(part, sums[part]); });
    for (int part = 1; part < nparts; ++part) {
      for (std::size_t k = 0; k < size; ++k) row_sums[0][k] += row_sums[part][k];
      for (int k = 0; k < 9; ++k) sums[0].virial[k] += sums[part].virial[k];
    }
    static_cast<RowSums &>(result) = RowSums(input, row_sums[0].data());
    result.virial = in_order_of_lammps(sums[0].virial);
    result.atom_energy = atom_energy.data();
    result.energy = 0.0;
    for (const double energy : atom_energy) result.energy += energy;
  }

  const MaceNetwork network;
  const std::vector<bool> present;
  std::unique_ptr<MaceBackend> backend;    // refers to the network
  std::vector<MaceBlock> blocks;
  std::vector<int> first;                       // [parts + 1]
  std::vector<double> atom_energy;              // [ncenters]
  std::vector<std::vector<double>> row_sums;    // of each part; the first one's are the result
  Evaluation result;
};

}    // namespace

std::unique_ptr<FusedEngine> make_mace_engine(const MaceNetwork &network,
                                              const std::string &precision,
                                              const std::vector<bool> &present)
{
  return std::make_unique<MaceCpuEngine>(network, mace_precision(precision), present);
}

}    // namespace pwmlff
