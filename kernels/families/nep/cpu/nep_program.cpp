// SPDX-License-Identifier: GPL-2.0-or-later

// The NEP engine for one instruction set; compiled once for each (simd.h, CMakeLists.txt). In a
// namespace of its own: names of the DP engine are in that of the instruction set.

#include "nep_program.h"

#include "../../../math/sphere.h"
#include "../../../math/zbl.h"
#include "charges.h"
#include "invariants.h"
#include "neurons.h"
#include "shell.h"

#include <memory>

namespace pwmlff::PWMLFF_ISA {
namespace nep {
namespace {

/// Keep a compiler from reading all coefficients behind a pointer before a loop and spilling them.
template <class P> inline P *unknown(P *p)
{
  asm("" : "+r"(p));
  return p;
}

/// Everything of a pair of species.
template <class T> struct NepPair {
  double cutoff;             // beyond which nothing depends on the neighbor
  double radial, angular;    // cutoffs
  ZblPair zbl;
  Buffer<T> value;                 // [kradial, nradial padded] series of the radial part
  Buffer<T> by_value, by_slope;    // [nradial, kradial padded] likewise, and of the derivative
  Buffer<T> series;                // [kangular, 2, NA] value and slope of the angular part

  NepPair(const NepNetwork &network, int index, int padded_functions) :
      radial(network.cut_radial[index]),
      angular(network.angular() ? network.cut_angular[index] : 0.0)
  {
    if (!network.zbl.empty()) zbl = network.zbl[index];
    // Without angular part those are near that ZBL reaches.
    if (!network.angular()) angular = zbl.reach;
    cutoff = radial > angular ? radial : angular;

    const int nr = network.nradial, kr = network.kradial, na = network.nangular,
              ka = network.kangular;
    const NepSeries r(&network.c_radial[static_cast<std::size_t>(index) * nr * kr], nr, kr);
    const int nr_padded = round_up(nr, lanes<T>), kr_padded = round_up(kr, lanes<T>);
    value.reserve(static_cast<std::size_t>(kr) * nr_padded);
    value.fill(0);
    for (auto *array : {&by_value, &by_slope}) {
      array->reserve(static_cast<std::size_t>(nr) * kr_padded);
      array->fill(0);
    }
    for (int n = 0; n < nr; ++n)
      for (int k = 0; k < kr; ++k) {
        value[k * nr_padded + n] = by_value[n * kr_padded + k] =
            static_cast<T>(r.value[n * kr + k]);
        by_slope[n * kr_padded + k] = static_cast<T>(r.slope[n * kr + k]);
      }
    if (!network.angular()) return;
    const NepSeries a(&network.c_angular[static_cast<std::size_t>(index) * na * ka], na, ka);
    series.reserve(static_cast<std::size_t>(ka) * 2 * padded_functions);
    series.fill(0);
    for (int n = 0; n < na; ++n)
      for (int k = 0; k < ka; ++k) {
        series[(k * 2) * padded_functions + n] = static_cast<T>(a.value[n * ka + k]);
        series[(k * 2 + 1) * padded_functions + n] = static_cast<T>(a.slope[n * ka + k]);
      }
  }
};

template <class T> struct Species {
  Neurons<T> neurons;
  std::vector<std::unique_ptr<const NepPair<T>>> pairs;    // [npresent]
  Buffer<Reach> reach;                                     // [npresent]

  Species(const NepNetwork &network, int species, const Buffer<int> &present,
          int padded_functions) :
      neurons(network, species), pairs(present.size()), reach(present.size())
  {
    for (std::size_t b = 0; b < present.size(); ++b) {
      pairs[b] = std::make_unique<const NepPair<T>>(
          network, species * network.nspecies() + present[b], padded_functions);
      reach[b] = {pairs[b]->angular, pairs[b]->cutoff};
    }
  }
};

/// What one form of model needs, without template parameters.
template <class T> struct PackedNep {
  PackedNep(const NepPacking &model, int padded_functions) :
      nspecies(model.network->nspecies()),
      nradial(model.network->nradial),
      kradial(model.network->kradial),
      kangular(model.network->kangular),
      temperature(model.network->temperature),
      degrees(model.network->largest_degree()),
      nharmonics(harmonics_up_to(degrees)),
      ndescriptors(model.network->ndescriptors()),
      invariants(*model.network),
      present(present_of(*model.present)),
      species(nspecies)
  {
    for (std::size_t p = 0; p < present.size(); ++p)
      species[present[p]] =
          std::make_unique<const Species<T>>(*model.network, present[p], present, padded_functions);
  }

  /// The largest of all pairs.
  double cutoff() const
  {
    double largest = 0.0;
    for (std::size_t p = 0; p < present.size(); ++p)
      for (const auto &pair : species[present[p]]->pairs)
        if (pair->cutoff > largest) largest = pair->cutoff;
    return largest;
  }

  const int nspecies, nradial, kradial, kangular;
  const bool temperature;
  const int degrees, nharmonics, ndescriptors;
  const Invariants<T> invariants;
  const Buffer<int> present;                                 // [npresent] species that take part
  std::vector<std::unique_ptr<const Species<T>>> species;    // [nspecies] null where absent
};

/// NA: functions of the angular part, or more of which the last are zero.
template <class T, int NA> class NepWorker : public Worker {
 public:
  static constexpr int block = nep_block;
  static constexpr int width = lanes<T>;
  /// Harmonics whose sums stay in registers together.
  static constexpr int tile = (PWMLFF_REGISTERS - 2) / (NA + 1) < 1 ? 1
                              : (PWMLFF_REGISTERS - 2) / (NA + 1) > 8
                                  ? 8
                                  : (PWMLFF_REGISTERS - 2) / (NA + 1);

  NepWorker(const PackedNep<T> &model, Charges<T> *shared) :
      model(model),
      charges(shared ? std::make_unique<ChargeWorker<T>>(*shared) : nullptr),
      nspecies(model.nspecies),
      npresent(static_cast<int>(model.present.size())),
      nradial(model.nradial),
      kradial(model.kradial),
      kangular(model.kangular),
      nharmonics(model.nharmonics),
      harmonics_padded(round_up(nharmonics, tile)),
      padded(model.invariants.padded),
      nd_padded(round_up(model.ndescriptors, 64) + 64),
      radial_sums(static_cast<std::size_t>(round_up(kradial, 4)) * width),
      radial_totals(round_up(kradial, 4)),
      sums_of_tile(static_cast<std::size_t>(harmonics_padded) * NA + 4),
      combination(static_cast<std::size_t>(harmonics_padded) * width)
  {
    std::size_t scratch = 0;
    for (int a = 0; a < nspecies; ++a)
      if (model.species[a] && model.species[a]->neurons.scratch_size() > scratch)
        scratch = model.species[a]->neurons.scratch_size();
    neuron_scratch.reserve(scratch * block);
    for (Backward &back : backward) {
      back.series_value.reserve(round_up(kradial, width));
      back.series_slope.reserve(round_up(kradial, width));
      back.slopes.reserve(static_cast<std::size_t>(harmonics_padded) * NA + width);
    }
    radial_sums.fill(0);
    for (Center &center : centers) {
      center.set_stride(2 * NA + harmonics_padded);
      center.moments.reserve(static_cast<std::size_t>(nharmonics + 1) * padded + width);
      center.by_moment.reserve(static_cast<std::size_t>(nharmonics + 1) * padded + width);
      for (auto *array : {&center.q, &center.by_q, &center.charge_by_q}) {
        array->reserve(nd_padded);
        array->fill(0);
      }
      center.moments.fill(0);
      center.by_moment.fill(0);
    }
  }

  void run(int phase, const BlockPlan &plan, const CenterBlock *blocks, int nblocks,
           PartialSums &sums) override
  {
    if (phase > 0) return charges->run(phase, plan, sums);
    if (charges) charges->begin(plan, blocks, nblocks, npresent);
    squares.reserve(plan.most_edges);
    for (Center &center : centers) center.reserve(plan.most_edges, npresent);
    for (int k = 0; k < nblocks; ++k) {
      const CenterBlock &b = blocks[k];
      species = model.species[b.species].get();
      for (int c = 0; c < b.count; ++c) describe(*plan.input, plan.order[b.first + c], centers[c]);
      double energy[block], charge[block];
      const T *q[block];
      T *by_q[block], *charge_by_q[block];
      for (int c = 0; c < block; ++c) {
        q[c] = centers[c].q.get();
        by_q[c] = centers[c].by_q.get();
        charge_by_q[c] = centers[c].charge_by_q.get();
      }
      const Neurons<T> &neurons = species->neurons;
      if (b.count == block)
        neurons.template evaluate<block>(q, neuron_scratch.get(), energy, by_q, charge,
                                         charge_by_q);
      else
        for (int c = 0; c < b.count; ++c)
          neurons.template evaluate<1>(q + c, neuron_scratch.get(), energy + c, by_q + c,
                                       charge + c, charge_by_q + c);
      for (int c = 0; c < b.count; ++c) {
        const int i = plan.order[b.first + c];
        if (charges) charges->open(i, charge[c]);
        plan.atom_energy[i] = energy[c] + (charges ? pull_back<2>(i, centers[c], sums)
                                                   : pull_back<1>(i, centers[c], sums));
        if (charges) charges->close_center();
      }
    }
    if (charges) charges->count();
  }

 private:
  struct Center : Surroundings<T> {
    Buffer<T> moments, by_moment;      // [(l, m), padded]
    Buffer<T> q, by_q, charge_by_q;    // [ndescriptors]
  };

  void describe(const Input &input, int i, Center &center)
  {
    const double *const xi = input.x + 3 * static_cast<std::ptrdiff_t>(i);
    center.find(input, i, nspecies, model.present, species->reach.get(), squares);
    T *const q = center.q.get();
    for (int n = 0; n < nradial; ++n) q[n] = 0;
    for (int b = 0; b < npresent; ++b) {
      const NepPair<T> *const pair = species->pairs[b].get();
      const VectorRun &near = center.near_runs[b], &far = center.far_runs[b];
      if (near.count + far.count == 0) continue;
      center.near.locate(near, input.x, xi, pair->radial);
      center.far.locate(far, input.x, xi, pair->radial);
      add_radial(*pair, center.near, near);
      add_radial(*pair, center.far, far);
      contract_radial(*pair, q);
      if (nharmonics) evaluate_angular(*pair, center.near, near);
    }
    if (nharmonics) {
      add_up_moments(center);
      model.invariants.forward(center.moments.get(), q + nradial);
    }
    if (model.temperature) q[model.ndescriptors - 1] = static_cast<T>(input.temperature);
  }

  /// radial_sums[k] += sum over a run of fc T_k.
  void add_radial(const NepPair<T> &, Shell<T> &shell, const VectorRun &run)
  {
    int v = run.begin;
    const int end = run.begin + run.vectors;
    for (; v + 1 < end; v += 2) add_radial_vectors<2>(shell, v);
    if (v < end) add_radial_vectors<1>(shell, v);
  }
  template <int C> void add_radial_vectors(Shell<T> &shell, int v)
  {
    Vec<T> x[C], fc[C];
    for (int c = 0; c < C; ++c) {
      x[c] = load(shell.field(v + c, Shell<T>::x));
      fc[c] = load(shell.field(v + c, Shell<T>::fc));
    }
    Chebyshev<T, C> t(x);
    T *const sums = radial_sums.get();
    for (int k = 0; k < kradial; ++k) {
      Vec<T> sum = load(sums + k * width);
      for (int c = 0; c < C; ++c) sum += fc[c] * t.value[c];
      store(sums + k * width, sum);
      t.advance();
    }
  }

  /// q_n += sum over k of value[k, n] times the sum over lanes of radial_sums[k], which is cleared.
  void contract_radial(const NepPair<T> &pair, T *q)
  {
    T *const sums = radial_sums.get();
    for (int k = 0; k < kradial; k += 4) {
      T *const s = sums + k * width;
      sum4<T>(load(s), load(s + width), load(s + 2 * width), load(s + 3 * width),
              &radial_totals[k]);
      for (int j = 0; j < 4; ++j) store(s + j * width, Vec<T>{});
    }
    const int nr_padded = round_up(nradial, width);
    for (int n = 0; n < nradial; n += width) {
      Vec<T> sum = load(q + n);
      for (int k = 0; k < kradial; ++k)
        sum += radial_totals[k] * load(&pair.value[k * nr_padded + n]);
      store(q + n, sum);
    }
  }

  /// Functions, their derivatives and harmonics of a run, behind the fields of its vectors.
  void evaluate_angular(const NepPair<T> &pair, Shell<T> &shell, const VectorRun &run)
  {
    const T per_cutoff = static_cast<T>(1.0 / pair.angular);
    const bool same = pair.angular == pair.radial;
    for (int v = run.begin; v < run.begin + run.vectors; ++v) {
      T *const p = shell.vector(v);
      Vec<T> fc, dfc, x, dx;
      if (same) {
        fc = load(p + Shell<T>::fc * width);
        dfc = load(p + Shell<T>::dfc * width);
        x = load(p + Shell<T>::x * width);
        dx = load(p + Shell<T>::dx * width);
      } else {
        const CutoffTerms<T> terms(T(1) / load(p + Shell<T>::inverse * width), per_cutoff);
        fc = terms.fc, dfc = terms.dfc, x = terms.x, dx = terms.dx;
      }
      Vec<T> value[NA] = {}, slope[NA] = {};
      Chebyshev<T, 1> t(&x);
      const T *c = unknown(pair.series.get());
      for (int k = 0; k < kangular; ++k, c += 2 * NA) {
#pragma GCC unroll 32
        for (int n = 0; n < NA; ++n) value[n] += c[n] * t.value[0];
#pragma GCC unroll 32
        for (int n = 0; n < NA; ++n) slope[n] += c[NA + n] * t.value[0];
        t.advance();
      }
      T *const g = p + Shell<T>::nfields * width, *const dg = g + NA * width;
      const Vec<T> fdx = fc * dx;
#pragma GCC unroll 32
      for (int n = 0; n < NA; ++n) {
        store(g + n * width, fc * value[n]);
        store(dg + n * width, dfc * value[n] + fdx * slope[n]);
      }
      T *const y = dg + NA * width;
      const Vec<T> u[3] = {load(p), load(p + width), load(p + 2 * width)};
      harmonics_of_degree<T>(model.degrees, u, y);
      for (int k = nharmonics; k < harmonics_padded; ++k) store(y + k * width, Vec<T>{});
    }
  }

  /// moments[(l, m), n] = sum over near neighbors of g_n R_lm.
  void add_up_moments(Center &center)
  {
    constexpr int sums_padded = (tile * NA + 3) / 4 * 4;
    T *const out = sums_of_tile.get();
    for (int first = 0; first < harmonics_padded; first += tile) {
      Vec<T> sum[sums_padded] = {};
      for (int v = 0; v < center.near_vectors; ++v) {
        const T *const g = center.near.vector(v) + Shell<T>::nfields * width;
        const T *const y = g + (2 * NA + first) * width;
#pragma GCC unroll 32
        for (int n = 0; n < NA; ++n) {
          const Vec<T> value = load(g + n * width);
#pragma GCC unroll 8
          for (int k = 0; k < tile; ++k) sum[k * NA + n] += value * load(y + k * width);
        }
      }
      alignas(64) T four[sums_padded];
#pragma GCC unroll 32
      for (int k = 0; k < sums_padded; k += 4)
        sum4<T>(sum[k], sum[k + 1], sum[k + 2], sum[k + 3], four + k);
      for (int k = 0; k < tile * NA; ++k) out[first * NA + k] = four[k];
    }
    const int nfunctions = model.invariants.nfunctions;
    for (int k = 0; k < nharmonics; ++k)
      for (int n = 0; n < nfunctions; ++n) center.moments[k * padded + n] = out[k * NA + n];
  }

  /// Half of the ZBL energy of each pair of a run; all of it in float64, as forces are large.
  double add_zbl(const ZblPair &zbl, Shell<T> &shell, const VectorRun &run, int i, double *own,
                 PartialSums &sums)
  {
    double energy = 0.0;
    for (int e = run.begin * width; e < run.begin * width + run.count; ++e) {
      const double r = shell.distance(e);
      if (!(r < zbl.reach)) continue;
      const ZblTerms terms(zbl, r);
      energy += 0.5 * terms.value;
      shell.spread_one(e, -0.5 * terms.slope / r, i, own, sums);
    }
    return energy;
  }

  /// What the way back from an energy or a charge needs of a center.
  struct Backward {
    Buffer<T> series_value, series_slope;    // [kradial]
    Buffer<T> slopes;                        // [(l, m), NA] by the moments
  };

  /// From the slopes by descriptors to those by moments.
  void pull_back_to_moments(Center &center, const T *by_q, Backward &back)
  {
    if (!nharmonics) return;
    model.invariants.backward(center.moments.get(), by_q + nradial, center.by_moment.get());
    for (int k = 0; k < nharmonics; ++k)
      for (int n = 0; n < NA; ++n)
        back.slopes[k * NA + n] =
            n < model.invariants.nfunctions ? center.by_moment[k * padded + n] : T(0);
  }

  /// Forces and virials, and the derivatives of the charge for the phases to come.
  /// @tparam S  1, or 2 with a charge
  /// @return the energy of ZBL
  template <int S> double pull_back(int i, Center &center, PartialSums &sums)
  {
    const T *const by_q[2] = {center.by_q.get(), center.charge_by_q.get()};
    for (int s = 0; s < S; ++s) pull_back_to_moments(center, by_q[s], backward[s]);
    double own[3] = {}, zbl_energy = 0.0;
    Vec<T> totals[12] = {};    // force on the center, virial
    for (int b = 0; b < npresent; ++b) {
      const VectorRun &near = center.near_runs[b], &far = center.far_runs[b];
      if (near.count + far.count == 0) continue;
      for (int s = 0; s < S; ++s) combine_series(*species->pairs[b], by_q[s], backward[s]);
      back_from_run<S, true>(center.near, near, i, sums);
      back_from_run<S, false>(center.far, far, i, sums);
      center.near.spread(near, totals, sums);
      center.far.spread(far, totals, sums);
      if (sums.atom_virial || sums.centroid_virial) {
        center.near.spread_virials(near, i, sums);
        center.far.spread_virials(far, i, sums);
      }
      const ZblPair &zbl = species->pairs[b]->zbl;
      if (zbl.reach > 0.0) zbl_energy += add_zbl(zbl, center.near, near, i, own, sums);
    }
    alignas(64) T total[12];
    for (int k = 0; k < 12; k += 4)
      sum4<T>(totals[k], totals[k + 1], totals[k + 2], totals[k + 3], total + k);
    for (int c = 0; c < 3; ++c)
      sums.force[3 * static_cast<std::ptrdiff_t>(i) + c] += own[c] + static_cast<double>(total[c]);
    for (int c = 0; c < 9; ++c) sums.virial[c] += static_cast<double>(total[3 + c]);
    return zbl_energy;
  }

  /// The series of the sum over n of dE/dq_n g_n and of its derivative.
  void combine_series(const NepPair<T> &pair, const T *by_q, Backward &back)
  {
    const int kr_padded = round_up(kradial, width);
    for (int k = 0; k < kradial; k += width) {
      Vec<T> value{}, slope{};
      for (int n = 0; n < nradial; ++n) {
        value += by_q[n] * load(&pair.by_value[n * kr_padded + k]);
        slope += by_q[n] * load(&pair.by_slope[n * kr_padded + k]);
      }
      store(&back.series_value[k], value);
      store(&back.series_slope[k], slope);
    }
  }

  /// Gradients of a run stay where Shell::spread() looks for them; those of the charge are kept.
  template <int S, bool near>
  void back_from_run(Shell<T> &shell, const VectorRun &run, int i, PartialSums &sums)
  {
    T *kept = S > 1 ? charges->reserve(run) : nullptr;
    const int end = run.begin + run.vectors;
    int v = run.begin;
    for (; v + 1 < end; v += 2) kept = back_from_vectors<S, near, 2>(shell, v, kept);
    if (v < end) back_from_vectors<S, near, 1>(shell, v, kept);
    if constexpr (S > 1) charges->close(shell, run, i, sums);
  }

  /// @return where gradients of charges by the next vectors are kept
  template <int S, bool near, int C> T *back_from_vectors(Shell<T> &shell, int v, T *kept)
  {
    Vec<T> radial[S][C];
    radial_derivatives<S, C>(shell, v, radial);
    for (int c = 0; c < C; ++c) {
      // The first one's overwrite what the second one's are made of.
      if constexpr (S > 1) {
        back_from_vector<near>(shell, v + c, radial[1][c], backward[1], kept);
        kept += 3 * width;
      }
      back_from_vector<near>(shell, v + c, radial[0][c], backward[0], shell.vector(v + c));
    }
    return kept;
  }

  /// By r, of the radial part for `C` vectors.
  template <int S, int C> void radial_derivatives(Shell<T> &shell, int v, Vec<T> (*result)[C])
  {
    Vec<T> x[C], value[S][C] = {}, slope[S][C] = {};
    for (int c = 0; c < C; ++c) x[c] = load(shell.field(v + c, Shell<T>::x));
    Chebyshev<T, C> t(x);
    const T *const e[2] = {backward[0].series_value.get(), backward[1].series_value.get()};
    const T *const d[2] = {backward[0].series_slope.get(), backward[1].series_slope.get()};
    for (int k = 0; k < kradial; ++k) {
      for (int s = 0; s < S; ++s)
        for (int c = 0; c < C; ++c) {
          value[s][c] += e[s][k] * t.value[c];
          slope[s][c] += d[s][k] * t.value[c];
        }
      t.advance();
    }
    for (int c = 0; c < C; ++c) {
      const T *const p = shell.vector(v + c);
      const Vec<T> dfc = load(p + Shell<T>::dfc * width);
      const Vec<T> fdx = load(p + Shell<T>::fc * width) * load(p + Shell<T>::dx * width);
      for (int s = 0; s < S; ++s) result[s][c] = dfc * value[s][c] + fdx * slope[s][c];
    }
  }

  /// The gradient by r_ij of vector v, to `to` [3, width].
  template <bool near>
  void back_from_vector(Shell<T> &shell, int v, Vec<T> radial, const Backward &back, T *to)
  {
    if (near && nharmonics > 0) return back_from_moments(shell, v, radial, back, to);
    const Vec<T> none[3] = {};
    shell.keep_gradient(v, radial, none, to);
  }

  /// dE = sum over n, l, m of dE/dA_nlm (dg_n R_lm + g_n dR_lm).
  void back_from_moments(Shell<T> &shell, int v, Vec<T> radial, const Backward &back, T *to)
  {
    T *const p = shell.vector(v);
    const Vec<T> u[3] = {load(p), load(p + width), load(p + 2 * width)};
    const T *const g = p + Shell<T>::nfields * width, *const dg = g + NA * width,
                   *const y = dg + NA * width;
    const T *s = unknown(back.slopes.get());
    T *const h = combination.get();
    Vec<T> by_g[NA] = {}, value[NA];
#pragma GCC unroll 32
    for (int n = 0; n < NA; ++n) value[n] = load(g + n * width);
    for (int k = 0; k < nharmonics; ++k, s += NA) {
      const Vec<T> harmonic = load(y + k * width);
      Vec<T> sum{};
#pragma GCC unroll 32
      for (int n = 0; n < NA; ++n) {
        Vec<T> slope = broadcast<T>(s[n]);
        by_g[n] += slope * harmonic;
        sum += slope * value[n];
      }
      store(h + k * width, sum);
    }
#pragma GCC unroll 32
    for (int n = 0; n < NA; ++n) radial += by_g[n] * load(dg + n * width);
    Vec<T> across[3];
    harmonics_gradient_of_degree<T>(model.degrees, u, h, across);
    const Vec<T> inverse = load(p + Shell<T>::inverse * width);
    radial -= (across[0] * u[0] + across[1] * u[1] + across[2] * u[2]) * inverse;
    for (Vec<T> &component : across) component *= inverse;
    shell.keep_gradient(v, radial, across, to);
  }

  const PackedNep<T> &model;
  const std::unique_ptr<ChargeWorker<T>> charges;    // of a model that has them
  const int nspecies, npresent, nradial, kradial, kangular, nharmonics, harmonics_padded, padded,
      nd_padded;
  const Species<T> *species = nullptr;    // of the block
  Center centers[block];
  Buffer<T> radial_sums;      // [kradial, width]
  Buffer<T> radial_totals;    // [kradial]
  Buffer<T> sums_of_tile;     // [(l, m), NA]
  Buffer<T> combination;      // [(l, m), width] sum over n of g_n dE/dA
  Backward backward[2];       // from the energy, from the charge
  Buffer<T> neuron_scratch;
  Buffer<double> squares;    // of the distances of candidates
};

template <class T, int NA> class NepProgram : public Program {
 public:
  explicit NepProgram(const NepPacking &packing) : model(packing, NA)
  {
    if (packing.network->charge_mode > 0) charges = std::make_unique<Charges<T>>(*packing.network);
  }
  Worker *make_worker() override { return new NepWorker<T, NA>(model, charges.get()); }
  int block_size() const override { return nep_block; }
  double cutoff() const override { return model.cutoff(); }
  std::size_t table_bytes() const override { return 0; }
  int nphases() const override { return charges ? charges->nphases() : 1; }
  void begin(const BlockPlan &plan) override
  {
    if (charges) charges->begin(plan);
  }
  Exchange before(int phase) override { return charges ? charges->before(phase) : Exchange{}; }
  int exchange_width() const override { return has_charges(); }
  bool has_charges() const override { return charges != nullptr; }

 private:
  const PackedNep<T> model;
  std::unique_ptr<Charges<T>> charges;
};

template <class T> Program *make_program_for(const NepPacking &model)
{
  const int n = model.network->angular() ? model.network->nangular : 1;
#define PWMLFF_CASE(most) \
  if (n <= (most)) return new NepProgram<T, (most)>(model);
  PWMLFF_CASE(4)
  PWMLFF_CASE(5)
  PWMLFF_CASE(7)
  PWMLFF_CASE(9)
  PWMLFF_CASE(13)
  PWMLFF_CASE(20)
#undef PWMLFF_CASE
  return nullptr;
}

}    // namespace
}    // namespace nep

Program *make_nep_program(const NepPacking &model)
{
  return model.single ? nep::make_program_for<float>(model) : nep::make_program_for<double>(model);
}

}    // namespace pwmlff::PWMLFF_ISA
