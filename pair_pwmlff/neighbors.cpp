/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "neighbors.h"

#include <algorithm>
#include <cmath>

namespace PWMLFF {

void Neighbors::rebuild(const LocalAtoms &atoms, const std::vector<int> &species_of_type)
{
  const int nall = atoms.nall;
  std::vector<int> row(nall, -1);
  atom_.clear();
  for (int k = 0; k < atoms.inum; ++k) {
    const int i = atoms.ilist[k];
    if (species_of_type[atoms.type[i]] < 0) continue;
    row[i] = static_cast<int>(atom_.size());
    atom_.push_back(i);
  }
  const int ncentres = static_cast<int>(atom_.size());
  for (int i = 0; i < nall; ++i) {
    if (row[i] >= 0) continue;
    row[i] = static_cast<int>(atom_.size());
    atom_.push_back(i);
  }

  species_.resize(nall);
  for (int r = 0; r < nall; ++r) species_[r] = species_of_type[atoms.type[atom_[r]]];

  candidate_first_.assign(1, 0);
  candidate_.clear();
  for (int r = 0; r < ncentres; ++r) {
    const int i = atom_[r];
    for (int k = 0; k < atoms.numneigh[i]; ++k) {
      const int j = row[atoms.firstneigh[i][k] & atoms.neighmask];
      if (species_[j] >= 0) candidate_.push_back(j);
    }
    candidate_first_.push_back(static_cast<int>(candidate_.size()));
  }

  x_.resize(3 * static_cast<std::size_t>(nall));
  neighbor_.resize(candidate_.size());
  rij_.resize(4 * candidate_.size());
  first_.resize(ncentres + 1);
}

void Neighbors::update(const double *const *x, double cutoff)
{
  for (int r = 0; r < nrows(); ++r)
    std::copy_n(x[atom_[r]], 3, &x_[3 * static_cast<std::size_t>(r)]);

  const double cutsq = cutoff * cutoff;
  int edge = 0;
  first_[0] = 0;
  for (int r = 0; r < ncentres(); ++r) {
    const double *const xi = &x_[3 * static_cast<std::size_t>(r)];
    for (int k = candidate_first_[r]; k < candidate_first_[r + 1]; ++k) {
      const double *const xj = &x_[3 * static_cast<std::size_t>(candidate_[k])];
      const double dx = xj[0] - xi[0], dy = xj[1] - xi[1], dz = xj[2] - xi[2];
      const double rsq = dx * dx + dy * dy + dz * dz;
      if (rsq >= cutsq) continue;
      neighbor_[edge] = candidate_[k];
      double *const out = &rij_[4 * static_cast<std::size_t>(edge)];
      out[0] = std::sqrt(rsq);
      out[1] = dx;
      out[2] = dy;
      out[3] = dz;
      ++edge;
    }
    first_[r + 1] = edge;
  }
  for (auto &[sizes, padding] : paddings_) padding.current = false;
}

PaddedNeighbors &Neighbors::padded(int nspecies, int max_neighbor)
{
  Padding &padding = paddings_[{nspecies, max_neighbor}];
  if (!padding.slots) padding.slots = std::make_unique<PaddedNeighbors>(nspecies, max_neighbor);
  if (!padding.current) padding.slots->fill(*this);
  padding.current = true;
  return *padding.slots;
}

void PaddedNeighbors::fill(const Neighbors &neighbors)
{
  const std::size_t slots = nslots();
  const std::size_t ncentres = neighbors.ncentres();
  if (list_.size() < ncentres * slots) {
    list_.resize(ncentres * slots, 0);
    rij_.resize(ncentres * slots * 4, 0.0);
    used.resize(ncentres * nspecies, 0);
  }
  count.resize(nspecies);

  for (std::size_t i = 0; i < ncentres; ++i) {
    std::fill(count.begin(), count.end(), 0);
    for (int edge = neighbors.first()[i]; edge < neighbors.first()[i + 1]; ++edge) {
      const int j = neighbors.neighbor()[edge];
      const int species = neighbors.species()[j];
      const int place = count[species]++;
      if (place >= max_neighbor) continue;    // counted to the end for the message below
      const std::size_t slot = i * slots + static_cast<std::size_t>(species) * max_neighbor + place;
      list_[slot] = j + 1;
      std::copy_n(&neighbors.rij()[4 * static_cast<std::size_t>(edge)], 4, &rij_[4 * slot]);
    }
    for (int species = 0; species < nspecies; ++species) {
      if (count[species] > max_neighbor)
        throw TooManyNeighbors(static_cast<int>(i), species, count[species], max_neighbor);
      int &in_use = used[i * nspecies + species];
      if (in_use > count[species]) {
        const std::size_t begin =
            i * slots + static_cast<std::size_t>(species) * max_neighbor + count[species];
        const std::size_t stale = in_use - count[species];
        std::fill_n(&list_[begin], stale, 0);
        std::fill_n(&rij_[4 * begin], 4 * stale, 0.0);
      }
      in_use = count[species];
    }
  }
}

}    // namespace PWMLFF
