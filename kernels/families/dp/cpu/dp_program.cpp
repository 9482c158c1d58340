// SPDX-License-Identifier: GPL-2.0-or-later

// The DP engine for one instruction set; compiled once for each (simd.h, CMakeLists.txt).

#include "dp_program.h"

#include "../../../core/virial_terms.h"
#include "edges.h"
#include "embedding.h"
#include "fitting.h"
#include "moments.h"

namespace pwmlff::PWMLFF_ISA {
namespace {

/// Everything of a pair of species.
template <class T> struct DPPair {
  PairGeometry geometry;
  Embedding net;
  int sel;                  // slots
  Channels<T> *channels;    // null without a table
  Buffer<double> g_rmax;    // [width] G at and beyond the cutoff, that of an empty slot

  DPPair(const DPNetwork &network, int index, const SplineTable *table) :
      geometry(pair_geometry(network, index, table)),
      net(network.embedding[index]),
      sel(network.sel[index % network.nspecies()]),
      channels(table ? new Channels<T>(*table, network.width) : nullptr),
      g_rmax(network.width)
  {
    const int width = network.width;
    Buffer<double> scratch(net.scratch_size()),
        value(2 * static_cast<std::size_t>(width) * lanes<double>);
    net.evaluate(broadcast(geometry.shift[0]), scratch.get(), value.get(),
                 value.get() + width * lanes<double>);
    // evaluate() has filled it. NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign)
    for (int m = 0; m < width; ++m) g_rmax[m] = value[m * lanes<double>];
  }
  DPPair(DPPair &&) = delete;
  ~DPPair() { delete channels; }
};

/// T: tables and moments, F: fitting nets, C: vectors of atoms in a block.
template <class T, class F, int C> class DPProgram : public Program {
 public:
  using Fit = Fitting<F, C>;

  explicit DPProgram(const DPPacking &model) :
      nspecies(model.network->nspecies()),
      width(model.network->width),
      rmax(model.network->rmax),
      has_tables(!model.tables->empty()),
      pairs(new DPPair<T> *[nspecies * nspecies]()),
      fittings(new Fit *[nspecies]())
  {
    const DPNetwork &network = *model.network;
    for (int a = 0; a < nspecies; ++a) {
      if (!(*model.present)[a]) continue;
      const DPGrade *const grade = network.grades.empty() ? nullptr : &network.grades[a];
      fittings[a] = new Fit(network.fitting[a], grade, width, network.m2);
      for (int b = 0; b < nspecies; ++b) {
        const int index = a * nspecies + b;
        if ((*model.present)[b])
          pairs[index] =
              new DPPair<T>(network, index, has_tables ? &(*model.tables)[index] : nullptr);
      }
    }
    scale = network.scale(*model.present);
  }
  ~DPProgram() override
  {
    for (int i = 0; i < nspecies * nspecies; ++i) delete pairs[i];
    for (int a = 0; a < nspecies; ++a) delete fittings[a];
    delete[] pairs;
    delete[] fittings;
  }

  Worker *make_worker() override;
  int block_size() const override { return Fit::atoms; }
  double cutoff() const override { return rmax; }
  std::size_t table_bytes() const override
  {
    std::size_t bytes = 0;
    for (int i = 0; i < nspecies * nspecies; ++i)
      if (pairs[i] && pairs[i]->channels) bytes += pairs[i]->channels->bytes();
    return bytes;
  }

  const int nspecies, width;
  const double rmax;
  const bool has_tables;    // else all atoms take the nets themselves
  double scale;             // of the moments
  DPPair<T> **pairs;        // [nspecies*nspecies] null for species that take no part
  Fit **fittings;           // [nspecies]
};

template <class T, class F, int C> class DPWorker : public Worker {
 public:
  using Fit = Fitting<F, C>;
  static constexpr int atoms = Fit::atoms;

  explicit DPWorker(const DPProgram<T, F, C> &model) :
      model(model),
      nspecies(model.nspecies),
      width(model.width),
      nvectors(Channels<T>::vectors(width)),
      padded(nvectors * lanes<T>),
      runs(atoms * nspecies),
      sums(static_cast<std::size_t>(atoms) * 4 * padded),
      gradient(4 * padded),
      exact_gradient(4 * width),
      exact_sums(static_cast<std::size_t>(atoms) * 4 * width),
      environment(static_cast<std::size_t>(nspecies) * 4 * atoms),
      moments(static_cast<std::size_t>(4) * width * atoms),
      moment_gradient(moments.size())
  {
    std::size_t fit = 0, net = 0;
    for (int i = 0; i < nspecies; ++i)
      if (model.fittings[i] && model.fittings[i]->scratch_size() > fit)
        fit = model.fittings[i]->scratch_size();
    for (int i = 0; i < nspecies * nspecies; ++i)
      if (model.pairs[i] && model.pairs[i]->net.scratch_size() > net)
        net = model.pairs[i]->net.scratch_size();
    fitting_scratch.reserve(fit);
    net_scratch.reserve(net);
    gradient.fill(0);
  }

  void run(int, const BlockPlan &plan, const CenterBlock *blocks, int nblocks,
           PartialSums &sums) override
  {
    const std::size_t most =
        static_cast<std::size_t>(plan.most_edges) + nspecies * Edges<T>::padding;
    edges.reserve(most * atoms + plan.largest_slice);
    const auto nrows = static_cast<std::size_t>(plan.input->nrows);
    rows.reserve(4 * nrows);
    for (std::size_t k = 0; k < 4 * nrows; ++k) rows[k] = 0.0;
    const double per_square = 1.0 / (model.rmax * model.rmax);
    for (int k = 0; k < nblocks; ++k) {
      block = &blocks[k];
      pairs = model.pairs + block->species * nspecies;
      if (!find_edges(plan, sums)) return;
      compute_moments();
      alignas(64) double energy[atoms], grade[atoms];
      model.fittings[block->species]->evaluate(moments.get(), fitting_scratch.get(), energy,
                                               moment_gradient.get(), plan.grade ? grade : nullptr);
      share_gradient();
      for (int l = 0; l < block->count; ++l) {
        const int i = center(plan, l);
        NearSums near{per_square, plan.grade ? grade[l] * grade[l] : 0.0};
        plan.atom_energy[i] =
            energy[l] + compute_forces(plan, l, sums, plan.grade ? &near : nullptr);
        if (!plan.grade) continue;
        plan.grade[i] = grade[l];
        rows[4 * static_cast<std::size_t>(i) + 3] += near.square;
        sums.near_weight[i] = near.weight;
      }
    }
    add_rows(nrows, sums);
  }

 private:
  /// Add the rows to the sums, which are laid out alike for all engines.
  void add_rows(std::size_t nrows, PartialSums &sums) const
  {
    for (std::size_t r = 0; r < nrows; ++r) {
      const double *const row = &rows[4 * r];
      for (int c = 0; c < 3; ++c) sums.force[3 * r + c] += row[c];
      if (sums.near_square) sums.near_square[r] += row[3];
    }
  }

  int center(const BlockPlan &plan, int l) const { return plan.order[block->first + l]; }
  Run &run_of(int l, int b) { return runs[l * nspecies + b]; }

  bool find_edges(const BlockPlan &plan, PartialSums &sums)
  {
    const Input &input = *plan.input;
    int begin = 0;
    for (int l = 0; l < block->count; ++l) {
      const int i = center(plan, l);
      tabulated[l] = model.has_tables;
      for (int b = 0; b < nspecies; ++b) {
        Run &run = run_of(l, b);
        run = {begin, 0, {}, false};
        if (!pairs[b]) continue;
        const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies + b;
        run.count =
            edges.filter(input.x, input.x + 3 * static_cast<std::ptrdiff_t>(i),
                         input.candidate + first[0], first[1] - first[0], model.rmax, begin);
        if (run.count > pairs[b]->sel) {
          sums.excess = {i, b, run.count, pairs[b]->sel};
          return false;
        }
        if (!edges.locate(run, pairs[b]->geometry)) tabulated[l] = false;
        begin += round_up(run.count, Edges<T>::padding);
      }
    }
    edges_in_block = begin;
    return true;
  }

  void compute_moments()
  {
    stride = edges_in_block | 1;    // odd: no two vectors of an edge in one set of the cache
    stored.reserve(static_cast<std::size_t>(stride) * 2 * padded);
    std::size_t exact_edges = 0;
    for (int l = 0; l < block->count; ++l) {
      exact_first[l] = exact_edges * 2 * width;
      if (!tabulated[l])
        for (int b = 0; b < nspecies; ++b)
          exact_edges += round_up(run_of(l, b).count, lanes<double>);
    }
    exact_stored.reserve(exact_edges * 2 * width);

    for (std::size_t i = 0; i < static_cast<std::size_t>(atoms) * 4 * padded; ++i) sums[i] = 0;
    for (int b = 0; b < nspecies; ++b) {
      if (!pairs[b] || !model.has_tables) continue;
      for (int l = 0; l < block->count; ++l)
        if (tabulated[l]) edges.weigh(run_of(l, b));
      // Tile by tile over all atoms: one tile of a table is small enough for the first cache.
      for (int v = 0; v < nvectors; v += Channels<T>::tile_size(nvectors - v))
        for (int l = 0; l < block->count; ++l)
          if (tabulated[l])
            pairs[b]->channels->add(v, edges, run_of(l, b),
                                    &sums[static_cast<std::size_t>(l) * 4 * padded], stored.get(),
                                    stride);
    }
    if (exact_edges > 0) compute_exact_moments();
    collect_moments(exact_edges > 0);
  }

  void compute_exact_moments()
  {
    for (int l = 0; l < block->count; ++l) {
      double *const moment = &exact_sums[static_cast<std::size_t>(l) * 4 * width];
      for (int k = 0; k < 4 * width; ++k) moment[k] = 0.0;
      if (tabulated[l]) continue;
      double *values = exact_stored.get() + exact_first[l];
      for (int b = 0; b < nspecies; ++b) {
        if (!pairs[b]) continue;
        const Run &run = run_of(l, b);
        exact_moments(pairs[b]->net, width, pairs[b]->g_rmax.get(), edges, run, net_scratch.get(),
                      moment, values);
        values += static_cast<std::size_t>(round_up(run.count, lanes<double>)) * 2 * width;
      }
    }
  }

  // Moments with one atom per lane. With G = g_rmax + g, where g is zero in empty slots,
  //   sum over slots of R~ (x) G = sum over edges of R~ (x) g + (sum over slots of R~) (x) g_rmax
  void collect_moments(bool any_exact)
  {
    for (int b = 0; b < nspecies; ++b)
      for (int c = 0; c < 4; ++c)
        for (int l = 0; l < atoms; ++l)
          environment[(b * 4 + c) * atoms + l] =
              pairs[b] && l < block->count
                  ? pairs[b]->sel * pairs[b]->geometry.shift[c] + run_of(l, b).environment[c]
                  : 0.0;
    for (int c = 0; c < 4; ++c)
      for (int m = 0; m < width; ++m) {
        double total[atoms];
        for (int l = 0; l < atoms; ++l) total[l] = sums[(l * 4 + c) * padded + m];
        if (any_exact)
          for (int l = 0; l < block->count; ++l) total[l] += exact_sums[(l * 4 + c) * width + m];
        for (int b = 0; b < nspecies; ++b) {
          if (!pairs[b]) continue;
          const double g_rmax = pairs[b]->g_rmax[m];
          const double *const slots = &environment[(b * 4 + c) * atoms];
          for (int l = 0; l < atoms; ++l) total[l] += slots[l] * g_rmax;
        }
        F *const out = &moments[static_cast<std::size_t>(c * width + m) * atoms];
        for (int l = 0; l < atoms; ++l) out[l] = static_cast<F>(total[l] * model.scale);
      }
  }

  // The derivatives by the environment that all edges share: sum over m of dE/dT_cm g_rmax[m].
  void share_gradient()
  {
    for (int b = 0; b < nspecies; ++b) {
      if (!pairs[b]) continue;
      for (int c = 0; c < 4; ++c) {
        double total[atoms] = {};
        for (int m = 0; m < width; ++m) {
          const double g_rmax = pairs[b]->g_rmax[m] * model.scale;
          const F *const g = &moment_gradient[static_cast<std::size_t>(c * width + m) * atoms];
          for (int l = 0; l < atoms; ++l) total[l] += g_rmax * g[l];
        }
        for (int l = 0; l < atoms; ++l) environment[(b * 4 + c) * atoms + l] = total[l];
      }
    }
  }

  /// @return the energy of ZBL
  double compute_forces(const BlockPlan &plan, int l, PartialSums &sums, NearSums *near)
  {
    for (int c = 0; c < 4; ++c)
      for (int m = 0; m < width; ++m) {
        const double g =
            model.scale * moment_gradient[static_cast<std::size_t>(c * width + m) * atoms + l];
        if (tabulated[l]) gradient[c * padded + m] = static_cast<T>(g);
        else exact_gradient[c * width + m] = g;
      }
    const double *values = exact_stored.get() + exact_first[l];
    const int i = center(plan, l);
    double own[3] = {0.0, 0.0, 0.0}, repulsion = 0.0;
    for (int b = 0; b < nspecies; ++b) {
      const Run &run = run_of(l, b);
      if (run.count == 0) continue;
      if (tabulated[l]) {
        back_from_moments(nvectors, stored.get(), stride, gradient.get(), run, edges);
      } else {
        back_from_exact_moments(width, values, exact_gradient.get(), run, edges);
        values += static_cast<std::size_t>(round_up(run.count, lanes<double>)) * 2 * width;
      }
      double common[4];
      for (int c = 0; c < 4; ++c) common[c] = environment[(b * 4 + c) * atoms + l];
      edges.finish(run, pairs[b]->geometry, common, own, rows.get(), sums.virial, near);
      if (run.repelled) repulsion += edges.repel(run, pairs[b]->geometry.zbl, own, sums);
      if (sums.atom_virial || sums.centroid_virial) edges.spread_virial(run, i, sums);
    }
    double *const row = &rows[4 * static_cast<std::size_t>(i)];
    for (int c = 0; c < 3; ++c) row[c] += own[c];
    return repulsion;
  }

  const DPProgram<T, F, C> &model;
  const int nspecies, width, nvectors, padded;
  const CenterBlock *block = nullptr;
  DPPair<T> *const *pairs = nullptr;    // [nspecies] of the block's species

  Edges<T> edges;
  Buffer<Run> runs;    // [atoms, nspecies]
  int edges_in_block = 0, stride = 0;
  bool tabulated[atoms];             // all distances lie in the tables
  std::size_t exact_first[atoms];    // where an atom's values in exact_stored begin
  Buffer<double> rows;               // [nrows, 4] forces and near_square, before sums
  Buffer<T> stored;                  // [vectors, stride, 2, lanes] G and dG/dr of the edges
  Buffer<double> exact_stored;       // the same of atoms that are not tabulated
  Buffer<T> sums;                    // [atoms, 4, padded] moments over neighbors
  Buffer<T> gradient;                // [4, padded] dE/dT of one atom
  Buffer<double> exact_gradient;     // [4, width] the same of one that is not tabulated
  Buffer<double> exact_sums;         // [atoms, 4, width] moments of atoms that are not tabulated
  Buffer<double> environment;        // [nspecies, 4, atoms] sum over slots of R~, then dE by it
  Buffer<F> moments, moment_gradient;    // [4, width, atoms]
  Buffer<F> fitting_scratch;
  Buffer<double> net_scratch;
};

template <class T, class F, int C> Worker *DPProgram<T, F, C>::make_worker()
{
  return new DPWorker<T, F, C>(*this);
}

}    // namespace

Program *make_dp_program(const DPPacking &model)
{
  if (model.single) return new DPProgram<float, float, 1>(model);
  return new DPProgram<double, double, 2>(model);
}

}    // namespace pwmlff::PWMLFF_ISA
