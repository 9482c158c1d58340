// SPDX-License-Identifier: GPL-2.0-or-later

// From LAMMPS's atoms and, where there is one, its full neighbor list, or from a list of rows, to
// what models take.
//
// Three index spaces:
//   atom  index into LAMMPS's per-atom arrays, 0 .. nall-1 (nall = nlocal + nghost)
//   row   index used in everything a model sees: first the centers, which are the local atoms with
//         a list and a species (rows 0 .. ncenters-1), then all other atoms with a species, then
//         the rest. The two differ where a hybrid style hands this one a part of the atoms only.
//   node  what edges lead from and to, one for all copies of an atom on this rank: the centers,
//         then others that an edge leads to, those first that are fewer edges away from a center
// A species is an index into the model's list of elements; -1 is an atom that takes no part.
// Distances are in the units of the model, r_ij = x_j - x_i points from center i to neighbor j.

#pragma once

#include "core/evaluation.h"
#include "core/gpu/gpu_neighbors.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace pwmlff::models {

/// LAMMPS's own arrays on this rank; nothing is copied, nothing is owned.
struct LocalAtoms {
  int nall;                        // nlocal + nghost
  const int *type;                 // [nall], 1 .. ntypes
  int inum;                        // local atoms that have a list
  int gnum;                        // ghosts that have one
  const int *ilist;                // [inum + gnum]
  const int *numneigh;             // [nall]
  const int *const *firstneigh;    // [nall][numneigh]
  int neighmask;                   // bits of an entry that are the index of the neighbor
  int bonded_shift = 0;            // of the two bits that say how an entry is bonded, 0 if not
  unsigned left_out = 0;         // bit k: entries that are bonded so are as if they were not there
  const int *group = nullptr;    // [nall] bits of the groups of an atom
  int absent = 0;                // groups whose atoms are as if they were not there
  const int *owner = nullptr;    // [nall] one of the copies of an atom, the local one if there is

  /// How entry k of the list of atom i is bonded to it: 0 to 3.
  unsigned bonded(int i, int k) const
  {
    return static_cast<unsigned>(firstneigh[i][k]) >> bonded_shift & 3U;
  }

  /// The atom of that entry; -1 where it is left out.
  int neighbor(int i, int k) const
  {
    return left_out >> bonded(i, k) & 1U ? -1 : firstneigh[i][k] & neighmask;
  }
};

/// What a model takes beside positions and the list of candidates.
struct Needs {
  double cutoff = 0.0;     // of slots and edges
  int max_neighbor = 0;    // slots for each species; 0 where it takes none
  int hops = -1;           // how far from a center edges start; -1: none
  std::shared_ptr<pwmlff::Device>
      device;                       // where it takes the list, which it finds there; or null
  int exchange_width = 0;           // numbers of a row that go between rows at a time; 0: none do
  bool exchanges_single = false;    // they are of float32
};

/// The candidates for neighbors of this rank's centers: all pairs within the cutoff plus the skin,
/// from one build of LAMMPS's list to the next. Shared by all models of an ensemble.
class Neighbors {
 public:
  /// Take over a list that LAMMPS has just built.
  /// @param species_of_type [ntypes+1] species of each LAMMPS type, -1 for none
  /// @param hops  the most that a Needs has, which needs the lists of ghosts where
  ///              above 0
  /// @param by_species  whether more than edges is asked for
  /// @throws std::runtime_error where the list is too long for 32-bit indices
  void rebuild(const LocalAtoms &atoms, const std::vector<int> &species_of_type, int nspecies,
               int hops, bool by_species);

  /// Take over atoms that LAMMPS has just distributed, without a list: all local atoms are centers,
  /// rows are atoms, and candidates are found on the device that asks for them.
  /// @param type [nall]
  /// @param reach distance up to which there are candidates, the cutoff and LAMMPS's skin
  void rebuild(int nlocal, int nall, const int *type, const std::vector<int> &species_of_type,
               int nspecies, double reach);

  /// Take over a list of rows that was made elsewhere; the centers are the first rows.
  /// @param species, home [nrows] home is the center of which a row is a periodic image
  /// @param first, candidate as first() and candidate() have them
  /// @param hops  as above
  void assign(int ncenters, int nspecies, std::vector<int> species, std::vector<int> first,
              std::vector<int> candidate, std::vector<int> home, int hops);

  /// How rows that are no centers get what their centers have. Without, those of a list that was
  /// made elsewhere know their homes, and in a list of LAMMPS all rows are taken for centers.
  /// @param exchange  outlives this object, or is replaced
  void set_exchange(pwmlff::RowExchange *exchange) { exchange_ = exchange; }

  /// Take over the current box [3, 3], its edges row by row, for models with charges; null where
  /// it is not periodic along all of them.
  void set_cell(const double *cell);

  /// Take over the current positions, LAMMPS's [nall][3] or those of the rows [nrows, 3].
  void update(const double *const *x);
  void update(const double *x);

  /// Take over positions of the rows [nrows, 3] in memory of the device that all models are on and
  /// that makes the list. There are none on the host then.
  void follow(const double *x);

  int nrows() const { return static_cast<int>(atom_.size()); }
  int ncenters() const { return ncenters_; }

  const std::vector<int> &atom() const { return atom_; }          // [nrows] atom of a row
  const std::vector<int> &species() const { return species_; }    // [nrows]
  const double *x() const { return x_; }                          // [nrows, 3] or null

  /// Where no device makes the list, the candidates of center i and species s are
  /// candidate()[first()[i*nspecies+s]] up to candidate()[first()[i*nspecies+s+1]]; they are rows.
  const std::vector<int> &first() const { return first_; }    // [ncenters*nspecies + 1]
  const std::vector<int> &candidate() const { return candidate_; }

  /// All that a model needs, which is made at the first call after an update. Memory is this
  /// object's, and models leave it as it is.
  /// @param nthreads  Input::nthreads
  /// @param order  Model::order
  /// @throws TooManyNeighbors where there are more than slots
  pwmlff::Input input(const Needs &needs, int nthreads = 1, const std::vector<int> &order = {});

  /// Gamma of the force on a center, which is a derivative of the energies of all that is near: the
  /// root mean square of their grades. Collective where there is an exchange.
  /// @param evaluation  of these neighbors, with grades; null on a rank without centers
  /// @return [ncenters] zero for centers that take no part; until the next call
  const std::vector<double> &gamma(const pwmlff::Evaluation *evaluation);

 private:
  int ncenters_ = 0, nspecies_ = 0;
  std::uint64_t list = 0;    // Input::list
  std::vector<int> atom_, species_;
  bool rows_are_atoms = true;
  std::vector<int> first_{0}, candidate_;
  double reach = 0.0;    // of a list that devices make; 0 where LAMMPS made one
  const double *x_ = nullptr, *x_on_device = nullptr;    // one of them
  std::optional<std::array<double, 9>> cell;
  std::vector<double> gathered;    // [nrows, 3] positions where rows are not atoms

  /// Slots in use are filled anew, and those that were and no longer are cleared.
  struct Slots {
    bool current = false;
    std::vector<int> row;       // [ncenters so far, nspecies, max_neighbor]
    std::vector<double> rij;    // [.., 4]
    std::vector<int> used;      // [ncenters so far, nspecies]
  };
  void fill(Slots &slots, int max_neighbor, double cutoff) const;
  std::map<int, Slots> slots;    // by max_neighbor

  pwmlff::RowExchange *exchange() const { return exchange_ ? exchange_ : images.get(); }
  pwmlff::GpuNeighbors &gpu_list(const std::shared_ptr<pwmlff::Device> &device, int nthreads);
  std::unique_ptr<pwmlff::GpuNeighbors> gpu_neighbors;
  bool gpu_has_list = false, gpu_has_positions = false;

  /// The edges of all atoms that are at most `hops` edges away from a center, which are the edges
  /// that a model with hops + 1 rounds of message passing sees.
  struct EdgeList {
    bool current = false;
    std::vector<std::int64_t> index;     // [2, n]
    std::vector<std::int64_t> second;    // [n] scratch: the second row of index
    std::vector<double> vec;             // [n, 3]
    std::vector<int> nodes;              // the row of each node
  };
  void fill(EdgeList &edges, int hops, double cutoff);
  std::vector<int> home_;    // [nrows] the row of that copy of an atom which stands for all
  // Candidates of edges from row r end at candidate_edges[edge_first[r]] up to [edge_last[r]].
  std::vector<int> edge_first, edge_last, candidate_edges;
  std::vector<int> node;            // [nrows] scratch: of the rows in home_
  std::map<int, EdgeList> edges;    // by hops

  std::vector<double> near_square, gamma_;    // [nrows], [ncenters]

  void set_positions(const double *x, const double *on_device);
  void take_over(const Neighbors &all, const std::vector<int> &order);
  /// The same for models whose species are in another order.
  std::map<std::vector<int>, std::unique_ptr<Neighbors>> others;

  pwmlff::RowExchange *exchange_ = nullptr;
  std::unique_ptr<pwmlff::RowExchange> images;    // of a list that was made elsewhere
};

}    // namespace pwmlff::models
