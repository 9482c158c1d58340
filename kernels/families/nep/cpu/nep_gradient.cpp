// SPDX-License-Identifier: GPL-2.0-or-later

// The gradient of a NEP by its parameters for one instruction set; compiled once for each (simd.h,
// CMakeLists.txt). What is called rate is the derivative as rows move (../nep_training.h); slopes
// of the energy have one, too.

#include "nep_gradient.h"

#include "../../../core/cpu/program.h"
#include "../../../math/sphere.h"
#include "charge_rates.h"
#include "invariants.h"
#include "nep_program.h"
#include "neurons.h"
#include "shell.h"

#include <memory>

namespace pwmlff::PWMLFF_ISA {
namespace nep {
namespace {

/// One layer of one species: its weights, and what the gradient by them adds up.
template <class T> struct GradientLayer {
  Weights<T> weights;
  int in, out, padded;
  Buffer<T> bias;             // [2, padded] the second zero
  Buffer<T> by_weight;        // [in, padded] dS by them
  Buffer<T> by_bias;          // [padded]
  Buffer<T> h, by_h, by_z;    // [2, padded] value and rate

  /// @param weight_ [out, in], bias_ [out]
  GradientLayer(const double *weight_, const double *bias_, int in, int out) : in(in), out(out)
  {
    weights.set(weight_, nullptr, in, out);
    padded = weights.padded;
    by_weight.reserve(static_cast<std::size_t>(in) * padded);
    by_bias.reserve(padded);
    for (auto *array : {&bias, &h, &by_h, &by_z}) array->reserve(2 * padded);
    for (auto *array : {&bias, &by_weight, &by_bias, &by_h}) array->fill(0);
    for (int o = 0; o < out; ++o) bias[o] = static_cast<T>(bias_[o]);
  }

  /// h = tanh(weight x + bias).
  /// @param x [2, x_padded]
  void forward(const T *x, int x_padded)
  {
    const T *const from[2] = {x, x + x_padded}, *const start[2] = {&bias[0], &bias[padded]};
    T *const to[2] = {&h[0], &h[padded]};
    weights.template forward<2>(from, start, to);
    for (int o = 0; o < padded; o += lanes<T>) {
      const Vec<T> t = tanh<T>(load(&h[o]));
      store(&h[o], t);
      store(&h[padded + o], (T(1) - t * t) * load(&h[padded + o]));
    }
  }

  /// From the slopes in by_h to those by x and, with dS = a dE - (dE)', by the parameters.
  /// @param by_x [2, x_padded]
  void backward(const T *x, int x_padded, T a, T *by_x)
  {
    for (int o = 0; o < padded; o += lanes<T>) {
      const Vec<T> t = load(&h[o]), dt = T(1) - t * t, s = load(&by_h[o]);
      const Vec<T> value = s * dt;
      const Vec<T> rate = load(&by_h[padded + o]) * dt - T(2) * t * load(&h[padded + o]) * s;
      store(&by_z[o], value);
      store(&by_z[padded + o], rate);
      const Vec<T> both = a * value - rate;
      store(&by_bias[o], load(&by_bias[o]) + both);
      T *to = &by_weight[o];
      for (int i = 0; i < in; ++i, to += padded)
        store(to, load(to) + both * x[i] - value * x[x_padded + i]);
    }
    const T *const from[2] = {&by_z[0], &by_z[padded]};
    T *const to[2] = {by_x, by_x + x_padded};
    weights.template backward<2>(from, to);
  }

  /// @param to_weight [out, in], to_bias [out]; what was added up is moved there.
  void flush(double *to_weight, double *to_bias)
  {
    for (int o = 0; o < out; ++o) {
      to_bias[o] += static_cast<double>(by_bias[o]);
      for (int i = 0; i < in; ++i)
        to_weight[static_cast<std::size_t>(o) * in + i] +=
            static_cast<double>(by_weight[static_cast<std::size_t>(i) * padded + o]);
    }
    by_weight.fill(0);
    by_bias.fill(0);
  }
};

/// The coefficients of a pair of species, and what the gradient by them adds up.
template <class T> struct GradientPair {
  double radial, angular;    // cutoffs
  Buffer<T> c_radial;        // [kradial, nradial padded]
  Buffer<T> by_c_radial;
  Buffer<T> c_angular;       // [kangular, functions]
  Buffer<T> by_c_angular;    // [kangular, functions, lanes]

  GradientPair(const NepNetwork &network, int index, int padded_functions) :
      radial(network.cut_radial[index]),
      angular(network.angular() ? network.cut_angular[index] : 0.0)
  {
    const int nr = network.nradial, kr = network.kradial, na = network.nangular,
              ka = network.kangular, nr_padded = round_up(nr, lanes<T>);
    for (auto *array : {&c_radial, &by_c_radial}) {
      array->reserve(static_cast<std::size_t>(kr) * nr_padded);
      array->fill(0);
    }
    const double *c = &network.c_radial[static_cast<std::size_t>(index) * nr * kr];
    for (int n = 0; n < nr; ++n)
      for (int k = 0; k < kr; ++k) c_radial[k * nr_padded + n] = static_cast<T>(c[n * kr + k]);
    if (!network.angular()) return;
    c_angular.reserve(static_cast<std::size_t>(ka) * padded_functions);
    c_angular.fill(0);
    by_c_angular.reserve(c_angular.size() * lanes<T>);
    by_c_angular.fill(0);
    c = &network.c_angular[static_cast<std::size_t>(index) * na * ka];
    for (int n = 0; n < na; ++n)
      for (int k = 0; k < ka; ++k)
        c_angular[k * padded_functions + n] = static_cast<T>(c[n * ka + k]);
  }
};

/// keep(k, f_k, rate of f_k) for k = 0 .. n-1.
template <class T, class Keep>
inline void basis(int n, Vec<T> fc, Vec<T> dfc, Vec<T> x, Vec<T> dx, Vec<T> along, const Keep &keep)
{
  const Vec<T> half = T(0.5) * fc, of_cutoff = T(0.5) * dfc * along, of_x = half * dx * along;
  Vec<T> t = broadcast<T>(1), next = x, dt{}, dnext = broadcast<T>(1);
  for (int k = 0; k < n; ++k) {
    const Vec<T> g = t + T(1);
    keep(k, half * g, of_cutoff * g + of_x * dt);
    const Vec<T> after = T(2) * x * next - t, dafter = T(2) * (next + x * dnext) - dt;
    t = next;
    next = after;
    dt = dnext;
    dnext = dafter;
  }
}

/// All but the loops over functions of the angular part, which AngularGradient adds.
template <class T> class Gradient : public NepGradient {
 public:
  static constexpr int width = lanes<T>;

  /// @param functions  of the angular part, or more of which the last are zero
  Gradient(const NepNetwork &network, const std::vector<bool> &present, int functions) :
      network(network),
      present(present_of(present)),
      functions(functions),
      nspecies(network.nspecies()),
      npresent(static_cast<int>(this->present.size())),
      nr_padded(round_up(network.nradial, width)),
      nharmonics(harmonics_up_to(network.largest_degree())),
      nd(network.ndescriptors()),
      nd_padded(round_up(nd, 64) + 64),
      padded(round_up(network.nangular, width)),
      moments_size((nharmonics + 1) * padded + width),
      nlayers(network.nhidden1 ? 2 : 1),
      moments(2 * moments_size),
      by_moment(2 * moments_size),
      slopes(static_cast<std::size_t>(nharmonics) * 2 * functions + width),
      invariants(network, moments_size, nd_padded),
      layers(static_cast<std::size_t>(nspecies) * 2),
      by_last(static_cast<std::size_t>(nspecies) * network.nlast()),
      by_charge(network.last_charge.size()),
      by_shift(nspecies),
      pairs(static_cast<std::size_t>(nspecies) * nspecies),
      reach(npresent),
      q(2 * nd_padded),
      by_q(2 * nd_padded),
      radial_sums(static_cast<std::size_t>(2) * round_up(network.kradial, 4) * width),
      radial_totals(static_cast<std::size_t>(npresent) * 2 * round_up(network.kradial, 4))
  {
    for (auto *array : {&q, &by_q, &moments, &by_moment, &by_last, &by_charge}) array->fill(0);
    by_shift.fill(0);
    around.set_stride(2 * (network.kangular + functions + nharmonics));
  }

  void describe(const Input &input, const double *velocity_, double *to) override
  {
    velocity = velocity_;
    for (int i = 0; i < input.ncenters; ++i) {
      if (input.species[i] >= 0) describe_center(input, i);
      for (int d = 0; d < nd; ++d, ++to)
        *to = input.species[i] >= 0 ? static_cast<double>(q[d]) : 0.0;
    }
  }

  void charges(const Input &input, const double *velocity_, double *charge) override
  {
    velocity = velocity_;
    for (int i = 0; i < input.ncenters; ++i) {
      describe_center(input, i);
      GradientLayer<T> &layer = forward();
      for (int part = 0; part < 2; ++part) {
        double sum = 0.0;
        for (int o = 0; o < network.nhidden0; ++o)
          sum += static_cast<double>(layer.h[part * layer.padded + o]) * of_charge(o);
        charge[2 * i + part] = sum;
      }
    }
  }

  void add(const Input &input, double a_, const double *velocity_, const double *potential,
           double energy_, double *gradient) override
  {
    a = static_cast<T>(a_);
    energy = static_cast<T>(energy_);
    velocity = velocity_;
    for (int i = 0; i < input.ncenters; ++i) {
      if (input.species[i] < 0) continue;
      for (int part = 0; part < 2; ++part)
        phi[part] = potential ? static_cast<T>(potential[2 * i + part]) : T(0);
      add_center(input, i);
    }
    flush(gradient);
  }

 protected:
  virtual void evaluate_angular(const GradientPair<T> &pair, Shell<T> &shell, int v, Vec<T> along,
                                const Vec<T> *across) = 0;
  /// moments[(l, m), n] = sum over near neighbors of g_n R_lm, and its rate.
  virtual void add_up_moments() = 0;
  virtual void back_to_angular(GradientPair<T> &pair, int v) = 0;

  const NepNetwork &network;
  const Buffer<int> present;    // [npresent] species that occur
  const int functions, nspecies, npresent, nr_padded, nharmonics, nd, nd_padded, padded,
      moments_size, nlayers;
  Surroundings<T> around;
  Buffer<T> moments, by_moment;    // [2, (l, m), padded]
  Buffer<T> slopes;                // [(l, m), 2, functions] of S by A, and by its rate

 private:
  /// Find q.
  void describe_center(const Input &input, int i)
  {
    species = input.species[i];
    prepare(species);
    const int *const first = input.first + static_cast<std::ptrdiff_t>(i) * nspecies;
    around.reserve(first[nspecies] - first[0], npresent);
    squares.reserve(first[nspecies] - first[0] + 1);
    around.find(input, i, nspecies, present, reach.get(), squares);
    for (int part = 0; part < 2; ++part)
      for (int n = 0; n < network.nradial; ++n) q[part * nd_padded + n] = 0;
    const double *const xi = input.x + 3 * static_cast<std::ptrdiff_t>(i);
    for (int b = 0; b < npresent; ++b) {
      if (around.near_runs[b].count + around.far_runs[b].count == 0) continue;
      const GradientPair<T> &pair = this->pair(b);
      radial_sums.fill(0);
      for (const bool near : {true, false}) {
        Shell<T> &shell = near ? around.near : around.far;
        const VectorRun &run = near ? around.near_runs[b] : around.far_runs[b];
        shell.locate(run, input.x, xi, pair.radial);
        for (int v = run.begin; v < run.begin + run.vectors; ++v) {
          Vec<T> along, across[3];
          find_rates(shell, run, v, i, along, across);
          add_radial(shell, v, along);
          if (near && nharmonics) evaluate_angular(pair, shell, v, along, across);
        }
      }
      contract_radial(pair, b);
    }
    if (nharmonics) {
      add_up_moments();
      invariants.forward(moments.get(), &q[network.nradial]);
    }
    if (network.temperature) {
      q[nd - 1] = static_cast<T>(input.temperature);
      q[nd_padded + nd - 1] = 0;
    }
  }

  void add_center(const Input &input, int i)
  {
    describe_center(input, i);
    run_network();
    if (nharmonics) {
      invariants.backward(moments.get(), &by_q[network.nradial], by_moment.get());
      for (int k = 0; k < nharmonics; ++k)
        for (int n = 0; n < functions; ++n) {
          const bool there = n < network.nangular;
          const T value = there ? by_moment[k * padded + n] : T(0);
          const T rate = there ? by_moment[moments_size + k * padded + n] : T(0);
          slopes[(2 * k) * functions + n] = a * value - rate;
          slopes[(2 * k + 1) * functions + n] = -value;
        }
    }
    for (int b = 0; b < npresent; ++b) {
      if (around.near_runs[b].count + around.far_runs[b].count == 0) continue;
      GradientPair<T> &pair = this->pair(b);
      back_to_radial(pair, b);
      const VectorRun &run = around.near_runs[b];
      if (nharmonics)
        for (int v = run.begin; v < run.begin + run.vectors; ++v) back_to_angular(pair, v);
    }
  }

  /// Make what a center of this species needs.
  void prepare(int a)
  {
    for (int b = 0; b < npresent; ++b) {
      const std::size_t p = static_cast<std::size_t>(a) * nspecies + present[b];
      const double near = nharmonics ? network.cut_angular[p] : 0.0, far = network.cut_radial[p];
      reach[b] = {near, near > far ? near : far};
    }
    if (layers[2 * a]) return;
    const int h0 = network.nhidden0, h1 = network.nhidden1;
    layers[2 * a] = std::make_unique<GradientLayer<T>>(
        &network.weight0[static_cast<std::size_t>(a) * h0 * nd],
        &network.bias0[static_cast<std::size_t>(a) * h0], nd, h0);
    if (h1)
      layers[2 * a + 1] = std::make_unique<GradientLayer<T>>(
          &network.weight1[static_cast<std::size_t>(a) * h1 * h0],
          &network.bias1[static_cast<std::size_t>(a) * h1], h0, h1);
  }

  GradientPair<T> &pair(int b)
  {
    const int index = species * nspecies + present[b];
    if (!pairs[index]) pairs[index] = std::make_unique<GradientPair<T>>(network, index, functions);
    return *pairs[index];
  }

  /// The rate of r, and that of the direction u, of a vector of neighbors.
  void find_rates(Shell<T> &shell, const VectorRun &run, int v, int i, Vec<T> &along,
                  Vec<T> *across) const
  {
    alignas(64) T t[3][width];
    const double *const vi = velocity + 3 * static_cast<std::ptrdiff_t>(i);
    const int left = run.count - (v - run.begin) * width;
    for (int l = 0; l < width; ++l) {
      const double *const vj =
          l < left ? velocity + 3 * static_cast<std::ptrdiff_t>(shell.row[v * width + l]) : vi;
      for (int c = 0; c < 3; ++c) t[c][l] = static_cast<T>(vj[c] - vi[c]);
    }
    const T *const p = shell.vector(v);
    along = Vec<T>{};
    for (int c = 0; c < 3; ++c) along += load(p + c * width) * load(t[c]);
    const Vec<T> inverse = load(p + Shell<T>::inverse * width);
    for (int c = 0; c < 3; ++c) across[c] = (load(t[c]) - along * load(p + c * width)) * inverse;
  }

  void add_radial(Shell<T> &shell, int v, Vec<T> along)
  {
    T *const sums = radial_sums.get();
    basis<T>(network.kradial, load(shell.field(v, Shell<T>::fc)),
             load(shell.field(v, Shell<T>::dfc)), load(shell.field(v, Shell<T>::x)),
             load(shell.field(v, Shell<T>::dx)), along, [&](int k, Vec<T> f, Vec<T> df) {
               T *const s = sums + 2 * k * width;
               store(s, load(s) + f);
               store(s + width, load(s + width) + df);
             });
  }

  /// Of species b: totals of f_k and their rates, [kradial, 2], and the part of q_n.
  void contract_radial(const GradientPair<T> &pair, int b)
  {
    const int k_padded = round_up(network.kradial, 4);
    T *const totals = &radial_totals[static_cast<std::size_t>(b) * 2 * k_padded];
    for (int k = 0; k < 2 * k_padded; k += 4) {
      const T *const s = &radial_sums[k * width];
      sum4<T>(load(s), load(s + width), load(s + 2 * width), load(s + 3 * width), totals + k);
    }
    for (int n = 0; n < network.nradial; n += width) {
      Vec<T> value = load(&q[n]), rate = load(&q[nd_padded + n]);
      for (int k = 0; k < network.kradial; ++k) {
        const Vec<T> c = load(&pair.c_radial[k * nr_padded + n]);
        value += c * totals[2 * k];
        rate += c * totals[2 * k + 1];
      }
      store(&q[n], value);
      store(&q[nd_padded + n], rate);
    }
  }

  void back_to_radial(GradientPair<T> &pair, int b)
  {
    const T *const totals =
        &radial_totals[static_cast<std::size_t>(b) * 2 * round_up(network.kradial, 4)];
    for (int n = 0; n < network.nradial; n += width) {
      const Vec<T> value = load(&by_q[n]), both = a * value - load(&by_q[nd_padded + n]);
      for (int k = 0; k < network.kradial; ++k) {
        T *const to = &pair.by_c_radial[k * nr_padded + n];
        store(to, load(to) + both * totals[2 * k] - value * totals[2 * k + 1]);
      }
    }
  }

  double of_charge(int o) const
  {
    return network.last_charge[static_cast<std::size_t>(species) * network.nhidden0 + o];
  }

  /// From q through the hidden layers. @return the last of them
  GradientLayer<T> &forward()
  {
    for (int part = 0; part < 2; ++part)
      for (int d = 0; d < nd; ++d) q[part * nd_padded + d] *= static_cast<T>(network.q_scaler[d]);
    GradientLayer<T> &bottom = *layers[2 * species], &top = *layers[2 * species + nlayers - 1];
    bottom.forward(q.get(), nd_padded);
    if (nlayers == 2) top.forward(bottom.h.get(), bottom.padded);
    return top;
  }

  /// From q to by_q, the slopes of the energy by it.
  void run_network()
  {
    GradientLayer<T> &top = forward(), &bottom = *layers[2 * species];
    by_shift[species] += static_cast<double>(energy * a);
    const int n = network.nlast();
    top.by_h.fill(0);    // the last weights have no rate
    for (int o = 0; o < n; ++o) {
      const std::size_t at = static_cast<std::size_t>(species) * n + o;
      top.by_h[o] = energy * static_cast<T>(network.last[at]);
      by_last[at] += energy * (a * top.h[o] - top.h[top.padded + o]);
    }
    // The energy of a charge c is phi c, at the potential that all of them make.
    for (int o = 0; o < n && network.charge_mode > 0; ++o) {
      const std::size_t at = static_cast<std::size_t>(species) * n + o;
      const T c = static_cast<T>(of_charge(o));
      top.by_h[o] += phi[0] * c;
      top.by_h[top.padded + o] = phi[1] * c;
      by_charge[at] += (a * phi[0] - phi[1]) * top.h[o] - phi[0] * top.h[top.padded + o];
    }
    if (nlayers == 2) top.backward(bottom.h.get(), bottom.padded, a, bottom.by_h.get());
    bottom.backward(q.get(), nd_padded, a, by_q.get());
    for (int part = 0; part < 2; ++part)
      for (int d = 0; d < nd; ++d)
        by_q[part * nd_padded + d] *= static_cast<T>(network.q_scaler[d]);
  }

  /// Move what was added up to the gradient.
  void flush(double *to)
  {
    const int h0 = network.nhidden0, h1 = network.nhidden1;
    double *const weight0 = to, *const bias0 = weight0 + network.weight0.size(),
                  *const weight1 = bias0 + network.bias0.size(),
                  *const bias1 = weight1 + network.weight1.size(),
                  *const last = bias1 + network.bias1.size(),
                  *const shift = last + network.last.size(),
                  *const c_radial = shift + network.shift.size(),
                  *const c_angular = c_radial + network.c_radial.size();
    for (int a = 0; a < nspecies; ++a) {
      if (!layers[2 * a]) continue;
      layers[2 * a]->flush(weight0 + static_cast<std::size_t>(a) * h0 * nd, bias0 + a * h0);
      if (h1)
        layers[2 * a + 1]->flush(weight1 + static_cast<std::size_t>(a) * h1 * h0, bias1 + a * h1);
      shift[a] += by_shift[a];
    }
    for (std::size_t k = 0; k < by_last.size(); ++k) last[k] += static_cast<double>(by_last[k]);
    by_last.fill(0);
    by_shift.fill(0);
    double *const charge = c_angular + network.c_angular.size();
    // What root_epsilon has is no matter of centers (../nep_training.cpp).
    for (std::size_t k = 0; k < network.last_charge.size(); ++k)
      charge[k] += static_cast<double>(by_charge[k]);
    by_charge.fill(0);
    const int nr = network.nradial, kr = network.kradial, na = network.nangular,
              ka = network.kangular;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (!pairs[p]) continue;
      GradientPair<T> &pair = *pairs[p];
      for (int n = 0; n < nr; ++n)
        for (int k = 0; k < kr; ++k)
          c_radial[(p * nr + n) * kr + k] +=
              static_cast<double>(pair.by_c_radial[k * nr_padded + n]);
      pair.by_c_radial.fill(0);
      if (!nharmonics) continue;
      for (int n = 0; n < na; ++n)
        for (int k = 0; k < ka; ++k)
          c_angular[(p * na + n) * ka + k] += static_cast<double>(sum<T>(
              load(&pair.by_c_angular[static_cast<std::size_t>(k * functions + n) * width])));
      pair.by_c_angular.fill(0);
    }
  }

  const Invariants<T, true> invariants;
  std::vector<std::unique_ptr<GradientLayer<T>>>
      layers;                 // [nspecies, 2] null where not needed so far
  Buffer<T> by_last;          // [nspecies, nlast]
  Buffer<T> by_charge;        // likewise, of a model with charges
  Buffer<double> by_shift;    // [nspecies]
  std::vector<std::unique_ptr<GradientPair<T>>> pairs;    // [nspecies, nspecies] likewise

  // Of a call and a center.
  T a = 0, energy = 1;
  T phi[2] = {};    // potential of a center, and its rate
  const double *velocity = nullptr;
  int species = 0;
  Buffer<Reach> reach;    // [npresent]
  Buffer<double> squares;
  Buffer<T> q, by_q;          // [2, nd_padded] values and rates
  Buffer<T> radial_sums;      // [kradial, 2, width]
  Buffer<T> radial_totals;    // [npresent, kradial, 2]
};

/// NA: functions of the angular part, or more of which the last are zero.
template <class T, int NA> class AngularGradient final : public Gradient<T> {
  using Base = Gradient<T>;
  using Base::around, Base::moments, Base::moments_size, Base::network, Base::nharmonics,
      Base::padded, Base::slopes, Base::width;

 public:
  AngularGradient(const NepNetwork &network, const std::vector<bool> &present) :
      Base(network, present, NA)
  {
  }

 private:
  // Behind the fields of a near vector: f_k [kangular, 2], g_n and their rates [2, NA], harmonics
  // and their rates [2, nharmonics].
  T *numbers(int v) { return around.near.vector(v) + Shell<T>::nfields * width; }

  void evaluate_angular(const GradientPair<T> &pair, Shell<T> &shell, int v, Vec<T> along,
                        const Vec<T> *across) override
  {
    const T *const p = shell.vector(v);
    const CutoffTerms<T> terms(T(1) / load(p + Shell<T>::inverse * width),
                               static_cast<T>(1.0 / pair.angular));
    T *const f = numbers(v), *const g = f + 2 * network.kangular * width;
    Vec<T> value[NA] = {}, rate[NA] = {};
    const T *c = pair.c_angular.get();
    basis<T>(network.kangular, terms.fc, terms.dfc, terms.x, terms.dx, along,
             [&](int k, Vec<T> f_k, Vec<T> df_k) {
               store(f + 2 * k * width, f_k);
               store(f + (2 * k + 1) * width, df_k);
#pragma GCC unroll 32
               for (int n = 0; n < NA; ++n) {
                 value[n] += c[n] * f_k;
                 rate[n] += c[n] * df_k;
               }
               c += NA;
             });
#pragma GCC unroll 32
    for (int n = 0; n < NA; ++n) {
      store(g + n * width, value[n]);
      store(g + (NA + n) * width, rate[n]);
    }
    T *const y = g + 2 * NA * width;
    const Vec<T> u[3] = {load(p), load(p + width), load(p + 2 * width)};
    harmonics_along_of_degree<T>(network.largest_degree(), u, across, y, y + nharmonics * width);
  }

  void add_up_moments() override
  {
    constexpr int sums_padded = (2 * NA + 3) / 4 * 4;
    for (int k = 0; k < nharmonics; ++k) {
      Vec<T> sum[sums_padded] = {};
      for (int v = 0; v < around.near_vectors; ++v) {
        const T *const g = numbers(v) + 2 * network.kangular * width;
        const T *const y = g + (2 * NA + k) * width;
        const Vec<T> harmonic = load(y), rate = load(y + nharmonics * width);
#pragma GCC unroll 32
        for (int n = 0; n < NA; ++n) {
          const Vec<T> value = load(g + n * width);
          sum[n] += value * harmonic;
          sum[NA + n] += value * rate + load(g + (NA + n) * width) * harmonic;
        }
      }
      alignas(64) T total[sums_padded];
#pragma GCC unroll 32
      for (int j = 0; j < sums_padded; j += 4)
        sum4<T>(sum[j], sum[j + 1], sum[j + 2], sum[j + 3], total + j);
      for (int n = 0; n < network.nangular; ++n) {
        moments[k * padded + n] = total[n];
        moments[moments_size + k * padded + n] = total[NA + n];
      }
    }
  }

  void back_to_angular(GradientPair<T> &pair, int v) override
  {
    const T *const f = numbers(v), *const y = f + 2 * (network.kangular + NA) * width;
    Vec<T> by_g[NA] = {}, by_rate[NA] = {};
    const T *s = slopes.get();
    for (int k = 0; k < nharmonics; ++k, s += 2 * NA) {
      const Vec<T> harmonic = load(y + k * width), rate = load(y + (nharmonics + k) * width);
#pragma GCC unroll 32
      for (int n = 0; n < NA; ++n) {
        by_g[n] += s[n] * harmonic + s[NA + n] * rate;
        by_rate[n] += s[NA + n] * harmonic;
      }
    }
    T *to = pair.by_c_angular.get();
    for (int k = 0; k < network.kangular; ++k) {
      const Vec<T> f_k = load(f + 2 * k * width), df_k = load(f + (2 * k + 1) * width);
#pragma GCC unroll 32
      for (int n = 0; n < NA; ++n, to += width)
        store(to, load(to) + by_g[n] * f_k + by_rate[n] * df_k);
    }
  }
};

template <class T>
NepGradient *make_gradient_for(const NepNetwork &network, const std::vector<bool> &present)
{
  const int n = network.angular() ? network.nangular : 1;
#define PWMLFF_CASE(most) \
  if (n <= (most)) return new AngularGradient<T, (most)>(network, present);
  PWMLFF_CASE(5)
  PWMLFF_CASE(9)
  PWMLFF_CASE(20)
#undef PWMLFF_CASE
  return nullptr;
}

}    // namespace
}    // namespace nep

NepGradient *make_nep_gradient(const NepNetwork &network, bool single,
                               const std::vector<bool> &present)
{
  return single ? nep::make_gradient_for<float>(network, present)
                : nep::make_gradient_for<double>(network, present);
}

NepPotentials *make_nep_potentials(const NepNetwork &network)
{
  return new nep::PotentialRates(network);
}

}    // namespace pwmlff::PWMLFF_ISA
