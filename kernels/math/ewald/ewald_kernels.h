// SPDX-License-Identifier: GPL-2.0-or-later

// Ewald's sum in reciprocal space as team kernels (core/team.h), by the formulas of
// reciprocal_lattice.h, in float64:
//
//   EwaldPowers        positions -> exp(i n b.x) of each axis
//   EwaldPairs         groups of pairs of vectors -> a list of pairs
//   EwaldStructure     charges -> sums of pairs over slabs of atoms
//   AddSlabs           -> over all atoms
//   EwaldCoefficients  these -> factors of potentials, virial
//   EwaldPotentials    -> potentials and their derivatives by phases, of slabs of groups
//   EwaldFields        -> potentials, forces
//   EwaldAtomVirials   -> virials of atoms, where they are wanted
//
// Slabs are summed in their order, so that results are the same bit by bit every time. Atoms are
// all centers; those that take no part have the charge 0.

#pragma once

#include "../../core/evaluation.h"
#include "../../core/team.h"
#include "../../core/virial_terms.h"
#include "../half_cosine.h"
#include "reciprocal_lattice.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

namespace pwmlff {

/// exp(i n b.x) for n = 0 .. range of each axis: complex numbers, in two orders for lanes that are
/// pairs or atoms.
struct EwaldTable {
  enum class Order { by_atom, by_power };
  std::int64_t natoms;
  int start[3], length;    // where an axis begins, and numbers of an atom
  double *by_atom;         // [natoms, length, 2]
  double *by_power;        // [length, natoms, 2]

  template <Order order> PWMLFF_FORMULA const double *at(std::int64_t atom, int axis, int n) const
  {
    if constexpr (order == Order::by_atom) return by_atom + 2 * (atom * length + start[axis] + n);
    else return by_power + 2 * ((start[axis] + n) * natoms + atom);
  }
  /// exp(i (n1 b1 + n2 b2).x)
  template <Order order>
  PWMLFF_FORMULA void plane(std::int64_t atom, int n1, int n2, double &re, double &im) const
  {
    double a[2], b[2];
    load_together<2>(at<order>(atom, 0, n1), a);
    load_together<2>(at<order>(atom, 1, n2 < 0 ? -n2 : n2), b);
    if (n2 < 0) b[1] = -b[1];
    re = a[0] * b[0] - a[1] * b[1];
    im = a[0] * b[1] + a[1] * b[0];
  }
};

/// A pair of vectors, (n1, n2, n3) and (n1, n2, -n3).
struct EwaldPair {
  int n1, n2, n3;
};

/// Item k of nslabs is the slab [begin, end) of n.
struct Slabs {
  std::int64_t n;
  int nslabs;

  PWMLFF_HOST_DEVICE std::int64_t begin(std::int64_t k) const { return k * n / nslabs; }
  PWMLFF_HOST_DEVICE std::int64_t end(std::int64_t k) const { return begin(k + 1); }
};

struct EwaldPowers {
  static constexpr int lanes = 1;
  static constexpr const char *name = "EwaldPowers";
  ReciprocalBox box;
  EwaldTable table;
  int range[3];
  const double *x;    // [natoms, 3]

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t atom) const
  {
    for (int d = 0; d < 3; ++d) {
      double turns = 0.0, sine, cosine;
      for (int c = 0; c < 3; ++c) turns += box.axis[3 * d + c] * x[3 * atom + c];
      turns *= 0.5 * std::numbers::inv_pi;
      whole_cosine<double>(turns - std::rint(turns), sine, cosine);
      double power[2] = {1.0, 0.0};
      for (int n = 0; n <= range[d]; ++n) {
        store_together<2>(power, table.by_atom + 2 * (atom * table.length + table.start[d] + n));
        store_together<2>(power, table.by_power + 2 * ((table.start[d] + n) * table.natoms + atom));
        const double next = power[0] * cosine - power[1] * sine;
        power[1] = power[0] * sine + power[1] * cosine;
        power[0] = next;
      }
    }
  }
};

struct EwaldPairs {
  static constexpr int lanes = 32;
  static constexpr const char *name = "EwaldPairs";
  const ReciprocalLattice::Group *groups;
  EwaldPair *pairs;

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t g) const
  {
    const ReciprocalLattice::Group group = groups[g];
    for (int n3 = team.lane(); n3 <= group.most; n3 += team.lanes())
      pairs[group.first + n3] = {group.n1, group.n2, n3};
  }
};

/// A lane has a pair, an item a tile of pairs and a slab of atoms.
struct EwaldStructure {
  static constexpr int lanes = 32;
  static constexpr int tile = 32;
  static constexpr const char *name = "EwaldStructure";
  EwaldTable table;
  int npairs;
  const EwaldPair *pairs;
  const double *charge;    // [natoms]
  Slabs atoms;
  double *partial;    // [nslabs, npairs, 4]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t slab = item % atoms.nslabs, first = item / atoms.nslabs * tile;
    const std::int64_t begin = atoms.begin(slab), end = atoms.end(slab);
    for (std::int64_t p = first + team.lane(); p < first + tile && p < npairs; p += team.lanes()) {
      const EwaldPair pair = pairs[p];
      double sum[4] = {};
      for (std::int64_t atom = begin; atom < end; ++atom) {
        double re, im, along[2];
        table.plane<EwaldTable::Order::by_atom>(atom, pair.n1, pair.n2, re, im);
        load_together<2>(table.at<EwaldTable::Order::by_atom>(atom, 2, pair.n3), along);
        const double q = charge[atom];
        re *= q;
        im *= q;
        sum[0] += re * along[0];
        sum[1] += im * along[1];
        sum[2] += re * along[1];
        sum[3] += im * along[0];
      }
      store_together<4>(sum, partial + 4 * (slab * npairs + p));
    }
  }
};

/// Numbers of slabs, [nslabs, n], to their sums [n].
struct AddSlabs {
  static constexpr int lanes = 1;
  static constexpr const char *name = "AddSlabs";
  std::int64_t n;
  int nslabs;
  const double *partial;
  double *sums;

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t k) const
  {
    double sum = 0.0;
    for (int slab = 0; slab < nslabs; ++slab) sum += partial[slab * n + k];
    sums[k] = sum;
  }
};

/// A lane has a pair, an item a tile of pairs.
struct EwaldCoefficients {
  static constexpr int lanes = 32;
  static constexpr int tile = EwaldStructure::tile;
  static constexpr const char *name = "EwaldCoefficients";
  ReciprocalBox box;
  int npairs;
  const EwaldPair *pairs;
  const double *structure;    // [npairs, 4]
  double share;               // of the virial
  double *coefficients;       // [npairs, 8]
  double *virial;             // [items, 9]

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    double v[9] = {};
    const std::int64_t first = item * tile;
    for (std::int64_t p = first + team.lane(); p < first + tile && p < npairs; p += team.lanes()) {
      const EwaldPair pair = pairs[p];
      const StructureFactors s(structure + 4 * p);
      double weights[2], factors[8];
      box.weigh(pair.n1, pair.n2, pair.n3, weights);
      s.coefficients(weights, pair.n3, factors);
      store_together<8>(factors, coefficients + 8 * p);
      for (int side = 0; side < 2; ++side)
        if (weights[side] != 0.0)
          box.add_virial(
              pair.n1, pair.n2, side ? -pair.n3 : pair.n3,
              share * weights[side] * (s.re[side] * s.re[side] + s.im[side] * s.im[side]), v);
    }
    for (int c = 0; c < 9; ++c) v[c] = team.sum(v[c]);
    if (team.lane() == 0)
      for (int c = 0; c < 9; ++c) virial[9 * item + c] = v[c];
  }
};

/// A lane has an atom, an item a tile of atoms and a slab of groups.
struct EwaldPotentials {
  static constexpr int lanes = 32;
  static constexpr int tile = 32;
  static constexpr const char *name = "EwaldPotentials";
  EwaldTable table;
  Slabs slabs;    // of groups
  const ReciprocalLattice::Group *groups;
  const double *coefficients;
  double *partial;    // [nslabs, 4, natoms] potential, less its derivatives by phases

  template <class Team>
  PWMLFF_HOST_DEVICE void operator()(const Team &team, std::int64_t item) const
  {
    const std::int64_t slab = item % slabs.nslabs, first = item / slabs.nslabs * tile;
    for (std::int64_t atom = first + team.lane(); atom < first + tile && atom < table.natoms;
         atom += team.lanes()) {
      double sum[4] = {};
      for (std::int64_t g = slabs.begin(slab); g < slabs.end(slab); ++g)
        add_group(groups[g], atom, sum);
      for (int k = 0; k < 4; ++k) partial[(4 * slab + k) * table.natoms + atom] = sum[k];
    }
  }

 private:
  PWMLFF_HOST_DEVICE void add_group(const ReciprocalLattice::Group &group, std::int64_t atom,
                                    double *sum) const
  {
    double u[2] = {}, w[2] = {};
    for (int n3 = 0; n3 <= group.most; ++n3) {
      double a[8], along[2];
      load_together<8>(coefficients + 8 * static_cast<std::int64_t>(group.first + n3), a);
      load_together<2>(table.at<EwaldTable::Order::by_power>(atom, 2, n3), along);
      u[0] += a[0] * along[0] - a[1] * along[1];
      u[1] += a[2] * along[0] + a[3] * along[1];
      w[0] += a[7] * along[0] - a[6] * along[1];
      w[1] += a[5] * along[0] + a[4] * along[1];
    }
    double re, im;
    table.plane<EwaldTable::Order::by_power>(atom, group.n1, group.n2, re, im);
    const double turned = u[0] * im + u[1] * re;
    sum[0] += u[0] * re - u[1] * im;
    sum[1] += group.n1 * turned;
    sum[2] += group.n2 * turned;
    sum[3] += w[0] * im + w[1] * re;
  }
};

struct EwaldFields {
  static constexpr int lanes = 1;
  static constexpr const char *name = "EwaldFields";
  double axis[9];    // row by row; the unit matrix where fields stand in the place of phases
  std::int64_t natoms;
  int nslabs;
  const double *partial;    // [nslabs, 4, natoms]
  const double *charge;
  double *potential;    // [natoms] out
  double *force;        // [natoms, 3] added to

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t atom) const
  {
    double sum[4] = {};
    for (int slab = 0; slab < nslabs; ++slab)
      for (int k = 0; k < 4; ++k) sum[k] += partial[(4 * slab + k) * natoms + atom];
    potential[atom] = sum[0];
    for (int c = 0; c < 3; ++c)
      force[3 * atom + c] +=
          charge[atom] * (axis[c] * sum[1] + axis[3 + c] * sum[2] + axis[6 + c] * sum[3]);
  }
};

struct EwaldAtomVirials {
  static constexpr int lanes = 1;
  static constexpr const char *name = "EwaldAtomVirials";
  ReciprocalBox box;
  EwaldTable table;
  int npairs;
  const EwaldPair *pairs;
  const double *structure, *charge;
  double *atom_virial, *centroid_virial;    // [natoms, 6 or 9] or null, added to

  template <class Team> PWMLFF_HOST_DEVICE void operator()(const Team &, std::int64_t atom) const
  {
    double v[9] = {};
    for (std::int64_t p = 0; p < npairs; ++p) {
      const EwaldPair pair = pairs[p];
      const StructureFactors s(structure + 4 * p);
      double weights[2], re, im, along[2];
      box.weigh(pair.n1, pair.n2, pair.n3, weights);
      table.plane<EwaldTable::Order::by_power>(atom, pair.n1, pair.n2, re, im);
      load_together<2>(table.at<EwaldTable::Order::by_power>(atom, 2, pair.n3), along);
      for (int side = 0; side < 2; ++side) {
        if (weights[side] == 0.0) continue;
        const double cosine = along[0], sine = side ? -along[1] : along[1];
        const double energy =
            weights[side] * charge[atom] *
            (s.re[side] * (re * cosine - im * sine) + s.im[side] * (re * sine + im * cosine));
        box.add_virial(pair.n1, pair.n2, side ? -pair.n3 : pair.n3, energy, v);
      }
    }
    add_own_virial(atom, v, atom_virial, centroid_virial);
  }
};

}    // namespace pwmlff
