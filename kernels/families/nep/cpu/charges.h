// SPDX-License-Identifier: GPL-2.0-or-later

// Charges of NEP for one instruction set: what workers share, and the phases behind the first one,
// in which charges and their derivatives were found (nep_program.cpp).

#pragma once

#include "../../../core/virial_terms.h"
#include "../../../math/ewald/ewald_sums.h"
#include "../../../math/ewald/screened.h"
#include "../nep_ewald.h"
#include "shell.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA::nep {

/// What is done after neighbors were seen, in this order. Real space is of mode 1 alone.
enum class ChargeStep { describe, structure, potential, real_space, forces };

template <class T> class ChargeWorker;

template <class T> class Charges {
 public:
  explicit Charges(const NepNetwork &network) :
      nspecies(network.nspecies()),
      root_epsilon(network.root_epsilon),
      ewald(network),
      screened(ewald.alpha, ewald.cutoff),
      cut_radial(network.cut_radial.size())
  {
    for (std::size_t k = 0; k < cut_radial.size(); ++k) cut_radial[k] = network.cut_radial[k];
  }

  int nphases() const { return ewald.real_space ? 5 : 4; }
  ChargeStep step(int phase) const
  {
    return static_cast<ChargeStep>(phase + (phase == 3 && !ewald.real_space));
  }

  void begin(const BlockPlan &plan)
  {
    const Input &input = *plan.input;
    row_charge.reserve(input.nrows);
    row_charge.fill(0.0);
    by_others = input.reciprocal != nullptr;
    if (!by_others) {
      if (ewald.lattice.set(input.cell)) ewald.lattice.weigh();
      return;
    }
    potential.reserve(input.ncenters);
    field.reserve(3 * static_cast<std::size_t>(input.ncenters));
    has_atom_virial = input.want_atom_virial || input.want_centroid_virial;
    if (has_atom_virial) atom_virial.reserve(6 * static_cast<std::size_t>(input.ncenters));
  }
  Exchange before(int phase)
  {
    rows.reserve(workers.size() + 4);
    const auto all = [&](auto &&place) {
      for (std::size_t k = 0; k < workers.size(); ++k) rows[k] = place(*workers[k]);
    };
    switch (step(phase)) {
      case ChargeStep::structure:
        all([](ChargeWorker<T> &worker) { return worker.counts; });
        return {Exchange::Kind::sum, false, 3, rows.get()};
      case ChargeStep::potential:
        if (by_others) {
          rows[0] = potential.get();
          rows[1] = field.get();
          rows[2] = virial;
          rows[3] = has_atom_virial ? atom_virial.get() : nullptr;
          return {Exchange::Kind::solve, false, 0, rows.get()};
        }
        all([](ChargeWorker<T> &worker) { return worker.structure.get(); });
        return {Exchange::Kind::sum, false, static_cast<int>(ewald.lattice.size()), rows.get()};
      case ChargeStep::real_space:
        rows[0] = row_charge.get();
        return {Exchange::Kind::forward, false, 1, rows.get()};
      case ChargeStep::forces:
        all([](ChargeWorker<T> &worker) { return worker.potentials; });
        return {Exchange::Kind::sum, false, 2, rows.get()};
      default:
        return {};
    }
  }
  /// What was added up before a phase.
  const double *total() const { return static_cast<const double *>(rows[0]); }

  const int nspecies;
  const double root_epsilon;
  NepEwald ewald;
  const Screened screened;
  Buffer<double> cut_radial;    // [nspecies, nspecies]
  Buffer<double> row_charge;    // [nrows]
  // What ReciprocalSolver::solve() has found.
  bool by_others = false, has_atom_virial = false;
  Buffer<double> potential, field, atom_virial;    // [ncenters], [ncenters, 3], [ncenters, 6]
  double virial[6] = {};
  std::vector<ChargeWorker<T> *> workers;

 private:
  Buffer<void *> rows;
};

/// The part of a worker. Its centers are known by their place in the order of its blocks.
template <class T> class ChargeWorker {
 public:
  static constexpr int width = lanes<T>;

  explicit ChargeWorker(Charges<T> &shared) : shared(shared) { shared.workers.push_back(this); }

  /// Make room before the first phase.
  void begin(const BlockPlan &plan, const CenterBlock *blocks, int nblocks, int nruns)
  {
    const int nspecies = shared.nspecies;
    const Input &input = *plan.input;
    ncenters = 0;
    std::size_t edges = 0;
    for (int b = 0; b < nblocks; ++b)
      for (int c = 0; c < blocks[b].count; ++c, ++ncenters) {
        const std::ptrdiff_t i = plan.order[blocks[b].first + c];
        edges += input.first[(i + 1) * nspecies] - input.first[i * nspecies];
      }
    const std::size_t most =
        edges + static_cast<std::size_t>(ncenters) * 2 * nruns * (width - 1) + width;
    row.reserve(most);
    kept.reserve(3 * most);
    centers.reserve(ncenters);
    nkept = 0;
    ncenters = 0;
  }

  /// A center whose charge is known, without the mean; its vectors follow.
  void open(int i, double charge)
  {
    centers[ncenters] = {i, nkept, nkept, charge, {}, {}};
    for (Vec<T> &total : totals) total = Vec<T>{};
  }
  /// Room for dc/dr_ij of the vectors of a run: x, y, z by lane of each.
  T *reserve(const VectorRun &run)
  {
    T *const place = &kept[3 * static_cast<std::size_t>(nkept) * width];
    nkept += run.vectors;
    return place;
  }
  /// What is there now, of a shell.
  void close(const Shell<T> &shell, const VectorRun &run, int i, PartialSums &sums)
  {
    const int first = nkept - run.vectors;
    const T *const gradients = &kept[3 * static_cast<std::size_t>(first) * width];
    shell.add_totals(run, gradients, 3 * width, totals);
    int *const rows = &row[static_cast<std::size_t>(first) * width];
    for (int e = 0; e < run.count; ++e) rows[e] = shell.row[run.begin * width + e];
    for (int e = run.count; e < run.vectors * width; ++e) rows[e] = i;
    if (!sums.born) return;
    for (int e = 0; e < run.count; ++e) {
      const int place = run.begin * width + e;
      const double d[3] = {shell.rx[place], shell.ry[place], shell.rz[place]};
      const T *const g = gradients + 3 * static_cast<std::ptrdiff_t>(e / width) * width + e % width;
      for (int a = 0; a < 3; ++a)
        for (int b = 0; b < 3; ++b) {
          const double term = 0.5 * shared.root_epsilon * d[a] * static_cast<double>(g[b * width]);
          sums.born[9 * static_cast<std::ptrdiff_t>(i) + 3 * a + b] += term;
          sums.born[9 * static_cast<std::ptrdiff_t>(shell.row[place]) + 3 * a + b] -= term;
        }
    }
  }
  void close_center()
  {
    alignas(64) T total[12];
    for (int k = 0; k < 12; k += 4)
      sum4<T>(totals[k], totals[k + 1], totals[k + 2], totals[k + 3], total + k);
    Center &center = centers[ncenters++];
    center.last = nkept;
    for (int c = 0; c < 3; ++c) center.own[c] = static_cast<double>(total[c]);
    for (int c = 0; c < 9; ++c) center.virial[c] = static_cast<double>(total[3 + c]);
  }
  /// The first phase is done.
  void count()
  {
    counts[0] = 0.0;
    for (int k = 0; k < ncenters; ++k) counts[0] += centers[k].charge;
    counts[1] = ncenters;
    counts[2] = shared.workers[0] == this;    // of each rank
  }

  void run(int phase, const BlockPlan &plan, PartialSums &sums)
  {
    switch (shared.step(phase)) {
      case ChargeStep::structure:
        return find_structure(plan, sums);
      case ChargeStep::potential:
        return find_potentials(plan, sums);
      case ChargeStep::real_space:
        return add_real_space(plan, sums);
      default:
        return add_forces(plan, sums);
    }
  }

  double counts[3];            // sum of charges, centers, ranks
  Buffer<double> structure;    // [lattice.size()]
  double potentials[2];        // their sum, and of one worker the sizes of total structures

 private:
  struct Center {
    int index, first, last;    // first and last of its vectors
    double charge;
    double own[3], virial[9];    // sums of dc/dr_ij, and of -r_ij (x) dc/dr_ij
  };

  void find_structure(const BlockPlan &plan, PartialSums &sums)
  {
    natoms = shared.total()[1];
    nranks = shared.total()[2];
    const double mean = shared.total()[0] / natoms;
    if (shared.workers[0] == this) *plan.mean_charge = mean;
    index.reserve(ncenters);
    for (int k = 0; k < ncenters; ++k) index[k] = centers[k].index;
    if (!shared.by_others)
      reciprocal.set(shared.ewald.lattice, plan.input->x, index.get(), ncenters);
    for (int k = 0; k < ncenters; ++k) {
      const int i = index[k];
      const double q = centers[k].charge - mean;
      centers[k].charge = plan.charge[i] = shared.row_charge[i] = q;
      if (!shared.by_others) reciprocal.charges()[k] = q;
      if (sums.born)
        for (int c = 0; c < 9; c += 4)
          sums.born[9 * static_cast<std::ptrdiff_t>(i) + c] += shared.root_epsilon * q;
    }
    if (shared.by_others) return;
    structure.reserve(shared.ewald.lattice.size());
    structure.fill(0.0);
    reciprocal.sum_structure(structure.get());
  }

  void find_potentials(const BlockPlan &plan, PartialSums &sums)
  {
    if (shared.by_others) return take_potentials(plan, sums);
    const double *const total = shared.total();
    reciprocal.find_potentials(total);
    potentials[0] = potentials[1] = 0.0;
    if (shared.workers[0] == this)
      for (std::size_t k = 0; k < shared.ewald.lattice.size(); ++k)
        potentials[1] += total[k] < 0.0 ? -total[k] : total[k];
    size = potentials[1];
    for (int k = 0; k < ncenters; ++k) {
      const std::ptrdiff_t i = centers[k].index;
      double field[3];
      reciprocal.field(k, field);
      for (int c = 0; c < 3; ++c) sums.force[3 * i + c] += centers[k].charge * field[c];
      take_potential(plan, centers[k], reciprocal.potential(k));
      if (!sums.atom_virial && !sums.centroid_virial) continue;
      double virial[9];
      reciprocal.find_virial(total, k, virial);
      add_own_virial(i, virial, sums.atom_virial, sums.centroid_virial);
    }
    if (shared.workers[0] == this)
      EwaldSums::add_virial(shared.ewald.lattice, total, 1.0 / nranks, sums.virial);
  }

  /// What a ReciprocalSolver has found.
  void take_potentials(const BlockPlan &plan, PartialSums &sums)
  {
    potentials[0] = potentials[1] = size = 0.0;
    double virial[9];
    for (int k = 0; k < ncenters; ++k) {
      const std::ptrdiff_t i = centers[k].index;
      for (int c = 0; c < 3; ++c)
        sums.force[3 * i + c] += centers[k].charge * shared.field[3 * i + c];
      take_potential(plan, centers[k], shared.potential[i]);
      if (!shared.has_atom_virial) continue;
      matrix_of(&shared.atom_virial[6 * i], virial);
      add_own_virial(i, virial, sums.atom_virial, sums.centroid_virial);
    }
    if (shared.workers[0] != this) return;
    matrix_of(shared.virial, virial);
    for (int c = 0; c < 9; ++c) sums.virial[c] += virial[c];
  }

  void take_potential(const BlockPlan &plan, const Center &center, double phi)
  {
    plan.potential[center.index] += phi;
    plan.atom_energy[center.index] += 0.5 * center.charge * phi;
    potentials[0] += phi;
  }

  /// Each pair is seen from both ends: forces are whole, energies and virials half of it.
  void add_real_space(const BlockPlan &plan, PartialSums &sums)
  {
    constexpr int wide = lanes<double>;
    const Input &input = *plan.input;
    const int nspecies = shared.nspecies;
    for (int k = 0; k < ncenters; ++k) {
      const Center &center = centers[k];
      const std::ptrdiff_t i = center.index;
      const double *const xi = input.x + 3 * i;
      const double *const cut =
          &shared.cut_radial[static_cast<std::size_t>(input.species[i] * nspecies)];
      Vec<double> potential{}, force[3] = {}, virial[9] = {};
      for (int e = center.first * width; e < center.last * width; e += wide) {
        alignas(64) double d[3][wide], charge[wide], reach[wide];
        for (int l = 0; l < wide; ++l) {
          const std::ptrdiff_t j = row[e + l];
          const double *const xj = input.x + 3 * j;
          for (int c = 0; c < 3; ++c) d[c][l] = xj[c] - xi[c];
          charge[l] = shared.row_charge[j];
          reach[l] = cut[input.species[j]];
        }
        const Vec<double> r[3] = {load(d[0]), load(d[1]), load(d[2])};
        const Vec<double> square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2], limit = load(reach);
        const auto counts_here = (square > 0.0) & (square < limit * limit);
        Vec<double> f, g;
        shared.screened.evaluate(counts_here ? square : broadcast<double>(1.0), f, g);
        const Vec<double> q = counts_here ? COULOMB * load(charge) : broadcast<double>(0.0);
        potential += q * f;
        for (int a = 0; a < 3; ++a) {
          const Vec<double> along = center.charge * q * g * r[a];    // dE/dr of the pair
          force[a] += along;
          for (int b = 0; b < 3; ++b) virial[3 * a + b] -= 0.5 * along * r[b];
        }
      }
      double own[9];
      for (int c = 0; c < 3; ++c) sums.force[3 * i + c] += sum<double>(force[c]);
      for (int c = 0; c < 9; ++c) sums.virial[c] += own[c] = sum<double>(virial[c]);
      add_own_virial(i, own, sums.atom_virial, sums.centroid_virial);
      take_potential(plan, center, sum<double>(potential) - shared.ewald.self * center.charge);
    }
  }

  /// By the derivatives of the charges, whose mean does not count.
  void add_forces(const BlockPlan &plan, PartialSums &sums)
  {
    const double mean = shared.total()[0] / natoms;
    if (shared.workers[0] == this && !are_same_sums(size, shared.total()[1], nranks))
      *plan.sums_differ = true;
    for (int k = 0; k < ncenters; ++k) {
      const Center &center = centers[k];
      const std::ptrdiff_t i = center.index;
      const double phi = plan.potential[i] -= mean;
      for (int c = 0; c < 3; ++c) sums.force[3 * i + c] += phi * center.own[c];
      for (int c = 0; c < 9; ++c) sums.virial[c] += phi * center.virial[c];
      for (int v = center.first; v < center.last; ++v) {
        const T *const g = &kept[3 * static_cast<std::size_t>(v) * width];
        const int *const rows = &row[static_cast<std::size_t>(v) * width];
        for (int l = 0; l < width; ++l) {
          double *const f = sums.force + 3 * static_cast<std::ptrdiff_t>(rows[l]);
          for (int c = 0; c < 3; ++c) f[c] -= phi * static_cast<double>(g[c * width + l]);
        }
        if (sums.atom_virial || sums.centroid_virial) spread_virials(*plan.input, v, i, phi, sums);
      }
    }
  }
  void spread_virials(const Input &input, int v, std::ptrdiff_t i, double phi, PartialSums &sums)
  {
    const T *const g = &kept[3 * static_cast<std::size_t>(v) * width];
    for (int l = 0; l < width; ++l) {
      const std::ptrdiff_t j = row[static_cast<std::size_t>(v) * width + l];
      double d[3], force[3];
      for (int c = 0; c < 3; ++c) {
        d[c] = input.x[3 * j + c] - input.x[3 * i + c];
        force[c] = -phi * static_cast<double>(g[c * width + l]);
      }
      spread_virial(Alone{}, d, force, i, j, sums.atom_virial, sums.centroid_virial);
    }
  }

  Charges<T> &shared;
  int ncenters = 0, nkept = 0;          // vectors
  double natoms = 0.0, nranks = 1.0;    // of all
  double size = 0.0;                    // potentials[1] of this rank
  Buffer<Center> centers;
  Vec<T> totals[12];    // of the center that is open
  Buffer<int> row;      // [nkept, width] of the neighbor; the center itself where there is none
  Buffer<T> kept;       // [nkept, 3, width] dc/dr_ij
  Buffer<int> index;
  EwaldSums reciprocal;
};

}    // namespace pwmlff::PWMLFF_ISA::nep
