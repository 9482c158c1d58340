// SPDX-License-Identifier: GPL-2.0-or-later

#include "neighbor_source.h"

#include "atom.h"
#include "comm.h"
#include "force.h"
#include "group.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair.h"
#include "update.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

bool on_all_ranks(MPI_Comm comm, bool condition)
{
  int mine = condition, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
  return all != 0;
}

/* ----------------------------------------------------------------------
   message passing needs the edges of ghosts of other ranks too, and ghosts as far as the energy of
   an atom reaches
------------------------------------------------------------------------- */

void NeighborSource::request(Pair *pair, const Ensemble &models)
{
  valid = false;
  ghost_cutoff.reset();
  on_device = on_all_ranks(world, can_do_without(pair, models));
  pair->ghostneigh = hops(models) > 0 && comm->nprocs > 1;
  int flags = NeighConst::REQ_FULL;
  if (pair->ghostneigh) flags |= NeighConst::REQ_GHOST;
  if (on_device) flags |= NeighConst::REQ_OCCASIONAL;    // not built unless needed
  neighbor->add_request(pair, flags);
  if (!pair->ghostneigh) return;
  ghost_cutoff.emplace(lmp);
  ghost_cutoff->need(interaction_range(models) + neighbor->skin);
}

/* ----------------------------------------------------------------------
   a list is needed where not all pairs within the cutoff count, or not all atoms
------------------------------------------------------------------------- */

bool NeighborSource::can_do_without(const Pair *pair, const Ensemble &models) const
{
  return !lammps_list && force->pair == pair && !leaves_out() && atom->molecular == Atom::ATOMIC &&
         std::all_of(models.begin(), models.end(),
                     [](const auto &model) { return model->finds_neighbors(); });
}

// Fixes that do so say it after init_style(): what is asked there has to be asked again.
bool NeighborSource::leaves_out() const
{
  return neighbor->nex_type + neighbor->nex_group + neighbor->nex_mol > 0 ||
         neighbor->includegroup != 0;
}

/* ----------------------------------------------------------------------
   bits of the groups whose atoms are excluded from all others: they are not there, as for fix gcmc
   when it tries what the energy would be without them
------------------------------------------------------------------------- */

int NeighborSource::absent_groups() const
{
  constexpr int ALL = 0;    // index of the group of all atoms
  int bits = 0;
  for (int k = 0; k < neighbor->nex_group; ++k) {
    const int one = neighbor->ex1_group[k], two = neighbor->ex2_group[k];
    if (two == ALL) bits |= group->bitmask[one];
    if (one == ALL) bits |= group->bitmask[two];
  }
  return bits;
}

/* ----------------------------------------------------------------------
   [nall] the local atom of which each atom is a copy; itself where that is on another rank
------------------------------------------------------------------------- */

std::vector<int> NeighborSource::owners() const
{
  std::vector<int> owner(atom->nlocal + atom->nghost);
  std::iota(owner.begin(), owner.end(), 0);
  std::unordered_map<tagint, int> local;
  for (int i = 0; i < atom->nlocal; ++i) local[atom->tag[i]] = i;
  for (std::size_t i = atom->nlocal; i < owner.size(); ++i)
    if (const auto found = local.find(atom->tag[i]); found != local.end()) owner[i] = found->second;
  return owner;
}

/* ----------------------------------------------------------------------
   have LAMMPS make the list that it makes on demand
------------------------------------------------------------------------- */

void NeighborSource::build_occasional(NeighList *list)
{
  // Made once a step by itself; fix gcmc moves on from one structure to the next within a step.
  struct Restore {
    bigint &value;
    const bigint before = value;
    ~Restore() { value = before; }
  } const restore{neighbor->lastcall};
  neighbor->lastcall = update->ntimestep + 1;
  neighbor->build_one(list);
}

/* ---------------------------------------------------------------------- */

void NeighborSource::bring_up_to_date(NeighList *list, const Ensemble &models,
                                      const std::vector<int> &species_of_type)
{
  const int nall = atom->nlocal + atom->nghost;
  if (neighbor->ago == 0 || !valid) {
    const ModelInfo &info = models.front()->info();
    const int nspecies = static_cast<int>(info.atom_type.size());
    if (on_device && !leaves_out()) {
      neighbors.rebuild(atom->nlocal, nall, atom->type, species_of_type, nspecies,
                        info.cutoff + neighbor->skin);
    } else {
      if (on_device) build_occasional(list);
      const std::vector<int> owner = hops(models) < 0 ? std::vector<int>() : owners();
      const LocalAtoms atoms{nall,
                             atom->type,
                             list->inum,
                             list->gnum,
                             list->ilist,
                             list->numneigh,
                             list->firstneigh,
                             NEIGHMASK,
                             atom->mask,
                             absent_groups(),
                             owner.empty() ? nullptr : owner.data()};
      neighbors.rebuild(atoms, species_of_type, nspecies, hops(models));
    }
    valid = true;
  }
  neighbors.update(atom->x);
}

void NeighborSource::discard()
{
  neighbors = Neighbors();
  valid = false;
}

}    // namespace pair_pwmlff
