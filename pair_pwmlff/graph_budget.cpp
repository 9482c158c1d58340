// SPDX-License-Identifier: GPL-2.0-or-later

#include "graph_budget.h"

#include "available_memory.h"
#include "collective.h"
#include "neighbor_source.h"
#include "rank_placement.h"

#include "comm.h"
#include "error.h"
#include "utils.h"

#include <algorithm>
#include <array>
#include <string>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

constexpr double MB = 1e6, GB = 1e9;

// What a heap that gives nothing back takes at most, in units of the tensors at their peak: new
// ones often do not fit where old ones were. 1.0 to 3.0 were found.
constexpr double WITH_GAPS = 4.0;

std::string bytes_in_words(double bytes)
{
  return bytes < GB ? fmt::format("{:.3g} MB", bytes / MB) : fmt::format("{:.3g} GB", bytes / GB);
}

template <std::size_t N> void over_ranks(MPI_Comm comm, MPI_Op op, std::array<double, N> &values)
{
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(N), MPI_DOUBLE, op, comm);
}

// Of all models the one with most of each.
struct Graph {
  double nodes = 0.0, edges = 0.0, centers = 0.0, bytes = 0.0;
  double edges_of_centers = 0.0;    // which one rank alone would have
  std::string largest;              // the model that takes most memory

  Graph(const Ensemble &models, Neighbors &neighbors, int nthreads)
  {
    centers = neighbors.ncenters();
    largest = models.front()->info().file;
    if (neighbors.ncenters() == 0) return;
    for (const auto &model : models) {
      const Needs needs = model->needs();
      if (needs.hops < 0) continue;
      pwmlff::Input input = neighbors.input(needs, nthreads, model->order);
      const auto all = static_cast<double>(input.nedges);
      if (all >= edges) {
        const std::int64_t *const first = input.edge_index, *const end = first + input.nedges;
        edges = all;
        edges_of_centers =
            static_cast<double>(std::lower_bound(first, end, input.ncenters) - first);
        nodes = static_cast<double>(input.nnodes);
      }
      const double peak = model->expected_peak(input);
      if (peak <= bytes) continue;
      bytes = peak;
      largest = model->info().file;
    }
  }
};

// On a host: what its ranks take together, and what there is.
struct HostMemory {
  double bytes, more, left;    // more: beside what they hold already

  HostMemory(MPI_Comm world, double needed, double held)
  {
    MPI_Comm host;
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    std::array<double, 2> sums = {needed, std::max(0.0, needed - held)};
    std::array<double, 1> least = {available_memory()};
    over_ranks(host, MPI_SUM, sums);
    over_ranks(host, MPI_MIN, least);
    MPI_Comm_free(&host);
    bytes = sums[0];
    more = sums[1];
    left = least[0];
  }
};

}    // namespace

bool GraphBudget::look(const Ensemble &models, Neighbors &neighbors, int nthreads)
{
  if (!due) return false;
  due = false;
  if (on_all_ranks(world, hops(models) < 0)) return false;    // ranks have engines of their own

  const Graph mine(models, neighbors, nthreads);
  const HostMemory host(world, mine.bytes, held);
  all_or_stop(lmp, [&] {
    if (host.more <= host.left) return;
    throw std::runtime_error(fmt::format(
        "on host {} the ranks need about {} of memory more for the edges of model '{}' "
        "(this one has {:.0f} edges of {:.0f} nodes), but {} are left there; use more hosts "
        "with fewer ranks each, or fewer atoms",
        host_name(), bytes_in_words(host.more), mine.largest, mine.edges, mine.nodes,
        bytes_in_words(host.left)));
  });
  const bool is_tight = WITH_GAPS * host.more > host.left;
  held = is_tight ? 0.0 : std::max(held, mine.bytes);
  if (!reports) return is_tight;

  std::array<double, 3> sums = {mine.centers, mine.edges, mine.edges_of_centers};
  std::array<double, 3> most = {mine.nodes, mine.edges, host.bytes};
  over_ranks(world, MPI_SUM, sums);
  over_ranks(world, MPI_MAX, most);
  const bool tight_anywhere = !on_all_ranks(world, !is_tight);
  if (comm->me != 0) return is_tight;
  std::string line = fmt::format("  edges: {:.0f} of {:.0f} nodes", most[1], most[0]);
  if (comm->nprocs > 1 && sums[2] > 0.0)
    line += fmt::format(
        " on a rank at most, where one rank alone has {:.0f} of {:.0f}: {:.2f} times its time for "
        "a step, {:.2f} times its work in all",
        sums[2], sums[0], most[1] / sums[2], sums[1] / sums[2]);
  if (most[2] > 0.0)
    line += fmt::format("; {} of memory{}", bytes_in_words(most[2]),
                        comm->nprocs > 1 ? " on a host at most" : "");
  if (tight_anywhere)
    line +=
        fmt::format(", where {} are left: freed memory is given back at each step, which is slower",
                    bytes_in_words(host.left));
  utils::logmesg(lmp, line + "\n");
  return is_tight;
}

}    // namespace pair_pwmlff
