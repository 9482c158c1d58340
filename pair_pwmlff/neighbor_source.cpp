// SPDX-License-Identifier: GPL-2.0-or-later

#include "neighbor_source.h"

#include "collective.h"
#include "core/device.h"
#include "kokkos_atoms.h"

#include "atom.h"
#include "comm.h"
#include "domain.h"
#include "error.h"
#include "force.h"
#include "group.h"
#include "neigh_list.h"
#include "neighbor.h"
#include "pair.h"
#include "update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

struct GhostCutoffs {
  double user = 0.0;        // comm_modify cutoff
  double applied = -1.0;    // what LAMMPS was given last
  std::map<const NeighborSource *, double> sources;
};

static std::mutex ghost_cutoffs_mutex;    // LAMMPS instances may have a thread each
static std::map<const LAMMPS *, GhostCutoffs> ghost_cutoffs;

// LAMMPS's cutoff for ghosts is the largest of all sources' and of what the user has said, also
// when sources end in another order than they began in, and whatever comm_style makes of its Comm.
void NeighborSource::set_ghost_cutoff(double cutoff)
{
  const std::lock_guard lock(ghost_cutoffs_mutex);
  GhostCutoffs &all = ghost_cutoffs[lmp];
  all.sources.erase(this);
  if (cutoff > 0.0) all.sources[this] = cutoff;
  if (comm->cutghostuser != all.applied) all.user = comm->cutghostuser;    // changed by the user
  all.applied = all.user;
  for (const auto &[source, needed] : all.sources) all.applied = std::max(all.applied, needed);
  comm->cutghostuser = all.applied;
  if (all.sources.empty()) ghost_cutoffs.erase(lmp);
  has_ghost_cutoff = cutoff > 0.0;
}

NeighborSource::~NeighborSource()
{
  if (has_ghost_cutoff) set_ghost_cutoff(0.0);
}

bool on_all_ranks(MPI_Comm comm, bool condition)
{
  int mine = condition, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
  return all != 0;
}

// Message passing needs the edges of ghosts of other ranks too, and ghosts as far as the energy of
// an atom reaches.
void NeighborSource::request(Pair *pair, const Ensemble &models)
{
  valid = false;
  if (has_ghost_cutoff) set_ghost_cutoff(0.0);
  on_device = on_all_ranks(world, needs_no_list(pair, models));
  if (!on_device) require_room(models.front()->info());
  pair->ghostneigh = hops(models) > 0 && comm->nprocs > 1;
  int flags = NeighConst::REQ_FULL;
  if (pair->ghostneigh) flags |= NeighConst::REQ_GHOST;
  if (on_device) flags |= NeighConst::REQ_OCCASIONAL;    // not built unless needed
  neighbor->add_request(pair, flags);
  reason = kokkos ? reason_against_residence(models) : "";
  resident = kokkos && on_all_ranks(world, reason.empty());
  if (kokkos) kokkos->take_list(pair);
  if (!pair->ghostneigh) return;
  double range = 0.0;
  for (const auto &model : models) range = std::max(range, model->info().interaction_range);
  set_ghost_cutoff(range + neighbor->skin);
}

// A list is needed where not all pairs within the cutoff count, or not all atoms.
bool NeighborSource::needs_no_list(const Pair *pair, const Ensemble &models) const
{
  return !lammps_list && force->pair == pair && !has_exclusions() &&
         atom->molecular == Atom::ATOMIC &&
         std::all_of(models.begin(), models.end(),
                     [](const auto &model) { return model->finds_neighbors(); });
}

// The memory of KOKKOS's device has to be that of the device of the models.
std::string NeighborSource::reason_against_residence(const Ensemble &models) const
{
  if (!on_device) return "the models take a list of LAMMPS";
  const pwmlff::Device &device = *models.front()->needs().device;
  if (device.gpu() != kokkos->gpu()) return "the models are on " + device.name();
  return kokkos->has_rows() ? "" : "KOKKOS keeps them in another form";
}

// Fixes that do so say it after init_style(): what is asked there has to be asked again.
bool NeighborSource::has_exclusions() const
{
  return neighbor->nex_type + neighbor->nex_group + neighbor->nex_mol > 0 ||
         neighbor->includegroup != 0;
}

// Bits of the groups whose atoms are excluded from all others: they are not there, as for fix gcmc
// when it tries what the energy would be without them.
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

// [nall] the first of the copies of each atom, which is the local one where there is one.
std::vector<int> NeighborSource::owners() const
{
  std::vector<int> owner(atom->nlocal + atom->nghost);
  std::unordered_map<tagint, int> first;
  for (std::size_t i = 0; i < owner.size(); ++i)
    owner[i] = first.emplace(atom->tag[i], static_cast<int>(i)).first->second;
  return owner;
}

// How neighbors are bonded that special_bonds leaves out, a bit for each. LAMMPS does it by itself
// only where the factors of lj and coul are both 0 and there is no long-range part; else it marks
// the entries, and what becomes of them is left to the pair style. A model takes a pair or not.
// Collective.
unsigned NeighborSource::excluded_bonds(const LocalAtoms &atoms, const Ensemble &models,
                                        const std::vector<int> &species_of_type)
{
  if (atom->molecular == Atom::ATOMIC) return 0;
  unsigned left_out = 0, scaled = 0;
  for (int kind = 1; kind <= 3; ++kind) {
    const double factor = force->special_lj[kind];    // that of a hybrid style for this one, too
    if (factor == 0.0) left_out |= 1U << kind;
    else if (factor != 1.0) scaled |= 1U << kind;
  }
  if (left_out == 0 && scaled == 0) return 0;
  const auto known = [&](int i) { return species_of_type[atom->type[i]] >= 0; };
  const auto check = [&] {
    for (int n = 0; scaled && n < atoms.inum; ++n) {
      const int i = atoms.ilist[n];
      for (int k = 0; known(i) && k < atoms.numneigh[i]; ++k) {
        const int kind = static_cast<int>(atoms.bonded(i, k)), j = atoms.neighbor(i, k);
        if (scaled >> kind & 1U && known(j))
          throw std::runtime_error(fmt::format(
              "special_bonds weights pairs 1-{} like that of atoms {} and {} by {}, but a model "
              "takes a pair as a whole; give 1, or 0 to leave such pairs out",
              kind + 1, atom->tag[i], atom->tag[j], force->special_lj[kind]));
      }
    }
    // LAMMPS's lists of ghosts do not say who is bonded.
    for (int i = 0; left_out && hops(models) > 0 && comm->nprocs > 1 && i < atom->nlocal; ++i)
      for (int kind = 1; known(i) && kind <= 3; ++kind)
        if (left_out >> kind & 1U && has_bonded(i, kind))
          throw std::runtime_error(fmt::format(
              "message passing over several ranks cannot leave out pairs 1-{} as special_bonds "
              "does, of atom {} for one; use one rank, or 'special_bonds lj/coul 1 1 1'",
              kind + 1, atom->tag[i]));
  };
  all_or_stop(lmp, check);
  return left_out;
}

// Whether there are atoms one, two or three bonds away, which those of a template may have.
bool NeighborSource::has_bonded(int i, int nbonds) const
{
  if (atom->molecular == Atom::TEMPLATE) return atom->molindex[i] >= 0;
  const int *const count = atom->nspecial[i];    // so far away at most
  return count[nbonds - 1] > (nbonds > 1 ? count[nbonds - 2] : 0);
}

bool NeighborSource::leaves_out_bonded() const
{
  bool found = false;
  for (int i = 0; atom->molecular != Atom::ATOMIC && i < atom->nlocal; ++i)
    for (int kind = 1; kind <= 3; ++kind)
      found = found || (force->special_lj[kind] == 0.0 && has_bonded(i, kind));
  return !on_all_ranks(world, !found);
}

/// The edges of the box, row by row.
static std::array<std::array<double, 3>, 3> box_edges(const Domain &domain)
{
  const double *const h = domain.h;
  return {{{h[0], 0.0, 0.0}, {h[5], h[1], 0.0}, {h[4], h[3], h[2]}}};
}

// Have LAMMPS make the list that it makes on demand.
void NeighborSource::build_occasional(NeighList *list) const
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

void NeighborSource::refresh(NeighList *list, const Ensemble &models,
                             const std::vector<int> &species_of_type)
{
  const int nall = atom->nlocal + atom->nghost;
  if (neighbor->ago == 0 || !valid) {
    const ModelInfo &info = models.front()->info();
    const int nspecies = static_cast<int>(info.atom_type.size());
    if (on_device && !has_exclusions()) {
      if (resident) kokkos->names_to_host();
      neighbors.rebuild(atom->nlocal, nall, atom->type, species_of_type, nspecies,
                        info.cutoff + neighbor->skin);
    } else {
      if (on_device) build_occasional(list);
      const std::vector<int> owner = hops(models) < 0 ? std::vector<int>() : owners();
      LocalAtoms atoms{nall,
                       atom->type,
                       list->inum,
                       list->gnum,
                       list->ilist,
                       list->numneigh,
                       list->firstneigh,
                       NEIGHMASK,
                       SBBITS,
                       0,
                       atom->mask,
                       absent_groups(),
                       owner.empty() ? nullptr : owner.data()};
      if (kokkos) kokkos->show_list(list, atoms);
      atoms.left_out = excluded_bonds(atoms, models, species_of_type);
      const bool by_species =
          lammps_list || std::any_of(models.begin(), models.end(),
                                     [](const auto &model) { return model->needs().hops < 0; });
      neighbors.rebuild(atoms, species_of_type, nspecies, hops(models), by_species);
    }
    valid = true;
    ++nlists;
  }
  const auto edges = box_edges(*domain);
  neighbors.set_cell(domain->nonperiodic ? nullptr : edges[0].data());
  if (is_resident()) neighbors.follow(kokkos->positions());
  else neighbors.update(atom->x);
}

// LAMMPS writes the neighbors of an atom beyond the end of its page before it looks how many there
// are: many times more than there is room for would crash.
void NeighborSource::require_room(const ModelInfo &info) const
{
  constexpr double most = 1.5;    // of what there is room for: below, LAMMPS itself counts
  if (has_exclusions()) return;
  const double reach = info.cutoff + neighbor->skin, pi = std::acos(-1.0);
  double nearby = 1.0, volume = 1.0;    // nearby: as much of the box as lies around an atom
  for (int d = 0; d < 3; ++d) {
    const bool open = !domain->periodicity[d] || d >= domain->dimension;
    nearby *= open ? std::min(2.0 * reach, domain->prd[d]) : 2.0 * reach;
    volume *= domain->prd[d];
  }
  const double ball = 4.0 / 3.0 * pi * reach * reach * reach;
  const double count = static_cast<double>(atom->natoms) / volume * std::min(ball, nearby);
  if (count > most * neighbor->oneatom)
    error->all(FLERR,
               "Pair style pwmlff: model '{}' has a cutoff of {:g}, so an atom has about {:.0f} "
               "neighbors here, but LAMMPS's list has room for {}; check the cutoff and the units, "
               "or make room with 'neigh_modify one {:.0f} page {:.0f}'",
               info.file, info.cutoff, count, neighbor->oneatom, 2.0 * count, 20.0 * count);
}

void NeighborSource::discard()
{
  neighbors = Neighbors();
  valid = false;
}

double NeighborSource::memory_usage() const
{
  std::size_t numbers = 0;
  for (const auto *const array :
       {&neighbors.atom(), &neighbors.species(), &neighbors.first(), &neighbors.candidate()})
    numbers += array->capacity();
  return static_cast<double>(numbers * sizeof(int));
}

}    // namespace pair_pwmlff
