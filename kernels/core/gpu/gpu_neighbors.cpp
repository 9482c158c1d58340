// SPDX-License-Identifier: GPL-2.0-or-later

#include "gpu_neighbors.h"

#include "../threads.h"
#include "cell_list_kernels.h"
#include "pair_partners.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace pwmlff {

void require_short_list(std::int64_t nentries)
{
  if (nentries > std::numeric_limits<int>::max())
    throw std::runtime_error("the neighbor list of this rank has " + std::to_string(nentries) +
                             " entries, more than 32-bit indices can hold; use more ranks");
}

struct GpuNeighbors::Implementation {
  explicit Implementation(const std::shared_ptr<Device> &device) : device(device) {}

  void begin(int ncenters, int nrows, int nspecies, const int *species);
  void scan(std::int64_t n, int *values, int *first);
  CellGrid grid(double reach);

  std::shared_ptr<Device> device;
  int ncenters = 0, nrows = 0, nspecies = 1, most_candidates = 0;
  std::int64_t ncandidates = 0, generation = 0;
  std::int64_t of_partners = 0;    // the list that partners are of
  std::vector<int> species_of_rows;
  const double *x = nullptr;    // [nrows, 3] on the device
  HostArray<double> pinned{device};
  DeviceArray<double> sent{device};
  DeviceArray<CellGrid::Bounds> bounds{device};
  HostArray<CellGrid::Bounds> bounds_on_host{device};
  DeviceArray<int> species{device}, first{device}, candidate{device}, partner{device};
  DeviceArray<int> start{device}, taken{device}, sorted{device}, sorted_species{device};
  DeviceArray<int> most{device};
  DeviceArray<double> sorted_x{device};
  DeviceArray<std::int64_t> sums{device};
  // Of candidates: of all centers, and (an int) of one at most.
  HostArray<std::int64_t> counts{device};
};

GpuNeighbors::GpuNeighbors(const std::shared_ptr<Device> &device) :
    implementation(std::make_unique<Implementation>(device))
{
}

GpuNeighbors::~GpuNeighbors() = default;

void GpuNeighbors::Implementation::begin(int ncenters_, int nrows_, int nspecies_,
                                         const int *species_)
{
  ncenters = ncenters_;
  nrows = nrows_;
  nspecies = nspecies_;
  static std::atomic<std::int64_t> lists{0};
  generation = ++lists;
  species_of_rows.assign(species_, species_ + nrows);
  species.assign(species_of_rows);
}

void GpuNeighbors::assign(int ncenters, int nrows, int nspecies, const int *species,
                          const int *first, const int *candidate)
{
  Implementation &self = *implementation;
  self.begin(ncenters, nrows, nspecies, species);
  const std::int64_t nsublists = static_cast<std::int64_t>(ncenters) * nspecies;
  self.ncandidates = first[nsublists];
  self.first.assign(first, nsublists + 1);
  self.candidate.assign(candidate, self.ncandidates);
  self.most_candidates = 0;
  for (std::int64_t g = 0; g < nsublists; g += nspecies)
    self.most_candidates = std::max(self.most_candidates, first[g + nspecies] - first[g]);
  self.device->synchronize();    // the host's arrays are its own again
}

void GpuNeighbors::Implementation::scan(std::int64_t n, int *values, int *first)
{
  const std::int64_t nchunks = (n + SumChunks::size - 1) / SumChunks::size;
  std::int64_t *const before = sums.reserve(nchunks + 1);
  device->run(nchunks, SumChunks{n, values, before});
  device->run(1, ScanChunks{nchunks, before});
  device->run(nchunks, AddChunks{n, before, values, first});
}

CellGrid GpuNeighbors::Implementation::grid(double reach)
{
  const std::int64_t nitems = (nrows + BoundRows::size - 1) / BoundRows::size;
  CellGrid::Bounds *const of_items = bounds_on_host.reserve(nitems);
  device->run(nitems, BoundRows{nrows, reach, x, bounds.reserve(nitems)},
              BoundRows::scratch_bytes());
  bounds.download(of_items, nitems);
  device->synchronize();
  CellGrid::Bounds all;
  for (std::int64_t k = 0; k < nitems; ++k) all.add(of_items[k]);
  return {nrows, all, reach};
}

void GpuNeighbors::build(int ncenters, int nrows, int nspecies, const int *species, double reach)
{
  Implementation &self = *implementation;
  Device &device = *self.device;
  self.begin(ncenters, nrows, nspecies, species);
  const std::int64_t nsublists = static_cast<std::int64_t>(ncenters) * nspecies;
  self.ncandidates = self.most_candidates = 0;
  self.first.clear(nsublists + 1);
  if (nsublists == 0) return device.synchronize();

  SearchCells search{};
  const CellGrid grid = self.grid(reach);
  search.grid = grid;
  const std::int64_t ncells = grid.nplaces();
  self.start.clear(ncells + 1);
  self.taken.clear(ncells);
  self.sorted.reserve(nrows);
  self.sorted_species.reserve(nrows);
  self.sorted_x.reserve(3 * static_cast<std::size_t>(nrows));
  self.most.clear(1);
  device.run(nrows, CountInCells{grid, self.x, self.start.get()});
  self.scan(ncells, self.start.get(), self.start.get());
  device.run(nrows,
             PlaceInCells{grid, self.x, self.start.get(), self.taken.get(), self.sorted.get()});
  device.run(ncells, SortCells{self.start.get(), self.sorted.get()});
  device.run(nrows, GatherCells{self.sorted.get(), self.x, self.species.get(), self.sorted_x.get(),
                                self.sorted_species.get()});

  search.reach_squared = reach * reach;
  search.nspecies = nspecies;
  search.x = self.x;
  search.species = self.species.get();
  search.start = self.start.get();
  search.sorted = self.sorted.get();
  search.sorted_x = self.sorted_x.get();
  search.sorted_species = self.sorted_species.get();
  search.count = self.first.get();
  search.most = self.most.get();
  device.run(ncenters, search);
  self.scan(nsublists, self.first.get(), self.first.get());
  const std::int64_t nchunks = (nsublists + SumChunks::size - 1) / SumChunks::size;
  std::int64_t *const counts = self.counts.reserve(2);
  device.download(counts, self.sums.get() + nchunks, sizeof *counts);
  self.most.download(reinterpret_cast<int *>(counts + 1), 1);
  device.synchronize();
  self.ncandidates = counts[0];
  std::memcpy(&self.most_candidates, counts + 1, sizeof self.most_candidates);
  require_short_list(self.ncandidates);
  search.candidate = self.candidate.reserve(self.ncandidates);
  device.run(ncenters, search);
}

void GpuNeighbors::update(int nrows, const double *x, int nthreads)
{
  Implementation &self = *implementation;
  const std::size_t n = 3 * static_cast<std::size_t>(nrows);
  // Positions that an interrupted step has sent may still be on their way.
  self.device->synchronize();
  double *const staged = self.pinned.reserve(n);
  in_parts(static_cast<std::ptrdiff_t>(n), nthreads, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    std::copy(x + begin, x + end, staged + begin);
  });
  self.sent.assign(staged, n);
  self.x = self.sent.get();
}

void GpuNeighbors::follow(const double *x) { implementation->x = x; }

const std::shared_ptr<Device> &GpuNeighbors::device() const { return implementation->device; }
int GpuNeighbors::ncenters() const { return implementation->ncenters; }
int GpuNeighbors::most_candidates() const { return implementation->most_candidates; }
std::int64_t GpuNeighbors::ncandidates() const { return implementation->ncandidates; }
std::int64_t GpuNeighbors::generation() const { return implementation->generation; }
const std::vector<int> &GpuNeighbors::species_of_rows() const
{
  return implementation->species_of_rows;
}
const double *GpuNeighbors::x() const { return implementation->x; }
const int *GpuNeighbors::species() const { return implementation->species.get(); }
const int *GpuNeighbors::first() const { return implementation->first.get(); }
const int *GpuNeighbors::candidate() const { return implementation->candidate.get(); }
const int *GpuNeighbors::partner() const
{
  Implementation &self = *implementation;
  if (self.of_partners != self.generation) {
    self.partner.clear(self.ncandidates);
    self.device->run(self.ncenters, FindPartners{{self.x, self.species.get(), self.first.get(),
                                                  self.candidate.get()},
                                                 self.ncenters,
                                                 self.nspecies,
                                                 self.partner.get()});
    self.of_partners = self.generation;
  }
  return self.partner.get();
}

void GpuNeighbors::download(std::vector<int> &first, std::vector<int> &candidate) const
{
  const Implementation &self = *implementation;
  first.resize(static_cast<std::size_t>(self.ncenters) * self.nspecies + 1);
  candidate.resize(self.ncandidates);
  self.first.download(first.data(), first.size());
  self.candidate.download(candidate.data(), candidate.size());
  self.device->synchronize();
}

}    // namespace pwmlff
