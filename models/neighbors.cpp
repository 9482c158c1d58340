// SPDX-License-Identifier: GPL-2.0-or-later

#include "neighbors.h"

#include "core/images.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace pwmlff::models {
namespace {

/// A number that no other list of this process has.
std::uint64_t next_list()
{
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}    // namespace

void Neighbors::rebuild(const LocalAtoms &atoms, const std::vector<int> &species_of_type,
                        int nspecies, int hops, bool by_species)
{
  const int nall = atoms.nall;
  std::vector<int> row(nall, -1);
  atom_.clear();
  for (int k = 0; k < atoms.inum; ++k) {
    const int i = atoms.ilist[k];
    if (species_of_type[atoms.type[i]] < 0 || (atoms.absent && atoms.group[i] & atoms.absent))
      continue;
    row[i] = static_cast<int>(atom_.size());
    atom_.push_back(i);
  }
  ncenters_ = static_cast<int>(atom_.size());
  list = next_list();
  int nknown = 0;    // rows of atoms with a species
  for (const bool known : {true, false}) {
    for (int i = 0; i < nall; ++i) {
      if (row[i] >= 0 || (species_of_type[atoms.type[i]] >= 0) != known) continue;
      row[i] = static_cast<int>(atom_.size());
      atom_.push_back(i);
    }
    if (known) nknown = static_cast<int>(atom_.size());
  }
  rows_are_atoms = std::is_sorted(atom_.begin(), atom_.end());

  species_.resize(nall);
  for (int r = 0; r < nall; ++r) species_[r] = species_of_type[atoms.type[atom_[r]]];

  // Count, then place: a sublist of candidates for each center and species, in the order of
  // LAMMPS's list.
  nspecies_ = nspecies;
  first_.assign(static_cast<std::size_t>(ncenters_) * nspecies + 1, 0);
  const auto for_each_candidate = [&](auto &&visit) {
    for (int r = 0; by_species && r < ncenters_; ++r) {
      const int i = atom_[r];
      for (int k = 0; k < atoms.numneigh[i]; ++k) {
        const int atom = atoms.neighbor(i, k);
        if (atom < 0) continue;
        const int j = row[atom];
        if (species_[j] >= 0) visit(static_cast<std::size_t>(r) * nspecies + species_[j], j);
      }
    }
  };
  for_each_candidate([&](std::size_t sublist, int) { ++first_[sublist + 1]; });
  pwmlff::require_short_list(std::accumulate(first_.begin(), first_.end(), std::int64_t{0}));
  for (std::size_t sublist = 1; sublist < first_.size(); ++sublist)
    first_[sublist] += first_[sublist - 1];
  candidate_.resize(first_.back());
  std::vector<int> next(first_.begin(), first_.end() - 1);
  for_each_candidate([&](std::size_t sublist, int j) { candidate_[next[sublist]++] = j; });

  // EdgeList start at the centers, then at what these may reach, and so on.
  std::vector<bool> has_list(nall, false), seen(nall, false);
  for (int k = 0; hops > 0 && k < atoms.inum + atoms.gnum; ++k)
    has_list[row[atoms.ilist[k]]] = true;
  home_.resize(nall);
  for (int r = 0; r < nall; ++r) home_[r] = atoms.owner ? row[atoms.owner[atom_[r]]] : r;
  candidate_edges.clear();
  edge_first.assign(nall, 0);
  edge_last.assign(nall, 0);
  edges.clear();
  std::vector<int> front(ncenters_), next_front;
  std::iota(front.begin(), front.end(), 0);
  for (int hop = 0; hop <= hops; ++hop) {
    for (const int r : front) {
      const int i = atom_[r];
      edge_first[r] = static_cast<int>(candidate_edges.size());
      for (int k = 0; k < atoms.numneigh[i]; ++k) {
        const int atom = atoms.neighbor(i, k);
        if (atom < 0 || row[atom] >= nknown) continue;
        const int j = row[atom];
        candidate_edges.push_back(j);
        if (seen[j] || home_[j] < ncenters_) continue;
        seen[j] = true;
        if (has_list[j]) next_front.push_back(j);
      }
      edge_last[r] = static_cast<int>(candidate_edges.size());
      pwmlff::require_short_list(static_cast<std::int64_t>(candidate_edges.size()));
    }
    front.swap(next_front);
    next_front.clear();
  }
  reach = 0.0;
  gpu_has_list = false;
  others.clear();
  images.reset();
}

void Neighbors::rebuild(int nlocal, int nall, const int *type,
                        const std::vector<int> &species_of_type, int nspecies, double reach_)
{
  ncenters_ = nlocal;
  list = next_list();
  nspecies_ = nspecies;
  atom_.resize(nall);
  std::iota(atom_.begin(), atom_.end(), 0);
  rows_are_atoms = true;
  species_.resize(nall);
  for (int i = 0; i < nall; ++i) species_[i] = species_of_type[type[i]];
  reach = reach_;
  gpu_has_list = false;
  others.clear();
}

void Neighbors::assign(int ncenters, int nspecies, std::vector<int> species, std::vector<int> first,
                       std::vector<int> candidate, std::vector<int> home, int hops)
{
  ncenters_ = ncenters;
  list = next_list();
  nspecies_ = nspecies;
  atom_.resize(species.size());
  std::iota(atom_.begin(), atom_.end(), 0);
  rows_are_atoms = true;
  species_ = std::move(species);
  first_ = std::move(first);
  candidate_ = std::move(candidate);
  images = std::make_unique<pwmlff::Images>(home, ncenters);
  home_ = std::move(home);
  candidate_edges.clear();
  edge_first.assign(atom_.size(), 0);
  edge_last.assign(atom_.size(), 0);
  if (hops >= 0) {
    candidate_edges = candidate_;
    for (int i = 0; i < ncenters; ++i) {
      edge_first[i] = first_[i * nspecies];
      edge_last[i] = first_[(i + 1) * nspecies];
    }
  }
  edges.clear();
  reach = 0.0;
  gpu_has_list = false;
  others.clear();
}

void Neighbors::update(const double *const *x)
{
  if (rows_are_atoms) {
    update(nrows() > 0 ? x[0] : nullptr);    // LAMMPS keeps positions in one block
    return;
  }
  gathered.resize(3 * atom_.size());
  for (std::size_t r = 0; r < atom_.size(); ++r) std::copy_n(x[atom_[r]], 3, &gathered[3 * r]);
  update(gathered.data());
}

void Neighbors::set_cell(const double *edges_)
{
  cell.reset();
  if (edges_) std::copy_n(edges_, 9, cell.emplace().begin());
}

void Neighbors::update(const double *x) { set_positions(x, nullptr); }

void Neighbors::follow(const double *x) { set_positions(nullptr, x); }

void Neighbors::set_positions(const double *x, const double *on_device)
{
  x_ = x;
  x_on_device = on_device;
  for (auto &[max_neighbor, made] : slots) made.current = false;
  for (auto &[hops, made] : edges) made.current = false;
  for (auto &[order, other] : others) other->set_positions(x, on_device);
  gpu_has_positions = false;
}

// The same rows and edges, with the species, and by them the candidates, in another order.
void Neighbors::take_over(const Neighbors &all, const std::vector<int> &order)
{
  ncenters_ = all.ncenters_;
  list = next_list();
  nspecies_ = all.nspecies_;
  atom_ = all.atom_;
  std::vector<int> place(nspecies_);
  for (int s = 0; s < nspecies_; ++s) place[order[s]] = s;
  for (const int s : all.species_) species_.push_back(s < 0 ? s : place[s]);
  for (int i = 0; all.reach == 0.0 && i < ncenters_; ++i)
    for (const int s : order) {
      const int *const first = &all.first_[static_cast<std::size_t>(i) * nspecies_ + s];
      candidate_.insert(candidate_.end(), all.candidate_.begin() + first[0],
                        all.candidate_.begin() + first[1]);
      first_.push_back(static_cast<int>(candidate_.size()));
    }
  reach = all.reach;
  home_ = all.home_;
  edge_first = all.edge_first;
  edge_last = all.edge_last;
  candidate_edges = all.candidate_edges;
  set_positions(all.x_, all.x_on_device);
}

pwmlff::GpuNeighbors &Neighbors::gpu_list(const std::shared_ptr<pwmlff::Device> &device,
                                          int nthreads)
{
  if (!gpu_neighbors || gpu_neighbors->device() != device) {
    gpu_neighbors = std::make_unique<pwmlff::GpuNeighbors>(device);
    gpu_has_list = false;
  }
  if (!gpu_has_positions || !gpu_has_list) {
    if (x_on_device) gpu_neighbors->follow(x_on_device);
    else gpu_neighbors->update(nrows(), x_, nthreads);
    gpu_has_positions = true;
  }
  if (!gpu_has_list && reach > 0.0)
    gpu_neighbors->build(ncenters(), nrows(), nspecies_, species_.data(), reach);
  else if (!gpu_has_list)
    gpu_neighbors->assign(ncenters(), nrows(), nspecies_, species_.data(), first_.data(),
                          candidate_.data());
  gpu_has_list = true;
  return *gpu_neighbors;
}

pwmlff::Input Neighbors::input(const Needs &needs, int nthreads, const std::vector<int> &order)
{
  if (!order.empty()) {
    std::unique_ptr<Neighbors> &other = others[order];
    if (!other) {
      other = std::make_unique<Neighbors>();
      other->take_over(*this, order);
    }
    other->set_exchange(exchange());
    other->cell = cell;
    return other->input(needs, nthreads);
  }
  pwmlff::Input input;
  input.ncenters = ncenters_;
  input.nrows = nrows();
  input.x = x_;
  input.species = species_.data();
  input.list = list;
  input.nthreads = nthreads;
  if (reach == 0.0) {
    input.first = first_.data();
    input.candidate = candidate_.data();
  }
  if (needs.device) input.on_device = &gpu_list(needs.device, nthreads);
  if (needs.exchange_width > 0) input.exchange = exchange();
  if (cell) input.cell = cell->data();
  if (needs.max_neighbor > 0) {
    Slots &made = slots[needs.max_neighbor];
    if (!made.current) fill(made, needs.max_neighbor, needs.cutoff);
    made.current = true;
    input.nslots = nspecies_ * needs.max_neighbor;
    input.slot_row = made.row.data();
    input.slot_rij = made.rij.data();
  }
  if (needs.hops >= 0) {
    EdgeList &made = edges[needs.hops];
    if (!made.current) fill(made, needs.hops, needs.cutoff);
    made.current = true;
    input.nedges = static_cast<std::int64_t>(made.vec.size()) / 3;
    input.nnodes = static_cast<std::int64_t>(made.nodes.size());
    input.edge_index = made.index.data();
    input.edge_vec = made.vec.data();
    input.node_row = made.nodes.data();
  }
  return input;
}

const std::vector<double> &Neighbors::gamma(const pwmlff::Evaluation *evaluation)
{
  near_square.resize(atom_.size());
  if (evaluation) std::copy_n(evaluation->near_square, near_square.size(), near_square.begin());
  else std::fill(near_square.begin(), near_square.end(), 0.0);
  if (pwmlff::RowExchange *const others = exchange()) others->reverse({near_square.data(), 1});
  gamma_.resize(ncenters_);
  for (int i = 0; i < ncenters_; ++i) {
    const double weight = evaluation->near_weight[i];
    gamma_[i] = weight > 0.0 ? std::sqrt(near_square[i] / weight) : 0.0;
  }
  return gamma_;
}

// All copies of an atom are one node, so messages pass through the boundaries of a cell. Of an atom
// of another rank the edges are those of a copy that edges lead to at this step: around such a copy
// all atoms are there, which is not so around one that is near enough for a candidate alone.
void Neighbors::fill(EdgeList &made, int hops, double cutoff)
{
  const double cutsq = cutoff * cutoff;
  made.index.clear();
  made.second.clear();
  made.vec.clear();
  made.nodes.resize(ncenters_);
  std::iota(made.nodes.begin(), made.nodes.end(), 0);
  node.assign(home_.size(), -1);
  std::iota(node.begin(), node.begin() + ncenters_, 0);
  std::size_t begin = 0;
  for (int hop = 0; hop <= hops; ++hop) {
    // Nodes get their numbers as they are found, so that edges are in the order of their starts.
    const std::size_t end = made.nodes.size();
    for (std::size_t n = begin; n < end; ++n) {
      const int r = made.nodes[n];
      const double *const xi = x_ + 3 * static_cast<std::size_t>(r);
      for (int k = edge_first[r]; k < edge_last[r]; ++k) {
        const int j = candidate_edges[k];
        const double *const xj = x_ + 3 * static_cast<std::size_t>(j);
        const double rij[3] = {xj[0] - xi[0], xj[1] - xi[1], xj[2] - xi[2]};
        if (rij[0] * rij[0] + rij[1] * rij[1] + rij[2] * rij[2] >= cutsq) continue;
        int &other = node[home_[j]];
        if (other < 0) {
          other = static_cast<int>(made.nodes.size());
          made.nodes.push_back(j);
        }
        made.index.push_back(static_cast<std::int64_t>(n));
        made.second.push_back(other);
        made.vec.insert(made.vec.end(), rij, rij + 3);
      }
    }
    begin = end;
  }
  made.index.insert(made.index.end(), made.second.begin(), made.second.end());
}

void Neighbors::fill(Slots &made, int max_neighbor, double cutoff) const
{
  const double cutsq = cutoff * cutoff;
  const std::size_t nsublists = static_cast<std::size_t>(ncenters_) * nspecies_;
  if (made.used.size() < nsublists) {
    made.row.resize(nsublists * max_neighbor, 0);
    made.rij.resize(nsublists * max_neighbor * 4, 0.0);
    made.used.resize(nsublists, 0);
  }

  for (std::size_t sublist = 0; sublist < nsublists; ++sublist) {
    const int row = static_cast<int>(sublist / nspecies_);
    const double *const xi = x_ + 3 * static_cast<std::size_t>(row);
    int count = 0;
    for (int k = first_[sublist]; k < first_[sublist + 1]; ++k) {
      const int j = candidate_[k];
      const double *const xj = x_ + 3 * static_cast<std::size_t>(j);
      const double dx = xj[0] - xi[0], dy = xj[1] - xi[1], dz = xj[2] - xi[2];
      const double rsq = dx * dx + dy * dy + dz * dz;
      if (rsq >= cutsq) continue;
      if (count < max_neighbor) {    // counted to the end for the message below
        const std::size_t slot = sublist * max_neighbor + count;
        made.row[slot] = j + 1;
        const double rij[4] = {std::sqrt(rsq), dx, dy, dz};
        std::copy_n(rij, 4, &made.rij[4 * slot]);
      }
      ++count;
    }
    int &used = made.used[sublist];
    if (count > max_neighbor) {
      used = max_neighbor;
      throw pwmlff::TooManyNeighbors(
          {row, static_cast<int>(sublist % nspecies_), count, max_neighbor});
    }
    for (int k = count; k < used; ++k) {
      const std::size_t slot = sublist * max_neighbor + k;
      made.row[slot] = 0;
      std::fill_n(&made.rij[4 * slot], 4, 0.0);
    }
    used = count;
  }
}

}    // namespace pwmlff::models
