// SPDX-License-Identifier: GPL-2.0-or-later

#include "training.h"

#include "../core/cpu/instruction_set.h"

#include <algorithm>

namespace pwmlff {

template <class T> const TrainingParts<T> &training_parts()
{
  return PWMLFF_IN_USE(training_parts<T>());
}

template const TrainingParts<float> &training_parts();
template const TrainingParts<double> &training_parts();

template <class T> TrainingParts<T>::~TrainingParts() = default;
template class TrainingParts<float>;
template class TrainingParts<double>;

/// Arrays of the atoms of one species; features in rows, N atoms (or 4 N components) in columns.
/// Columns beyond these hold the derivative in the direction of gradient(), or what belongs to it.
template <class T> struct Training<T>::Species {
  /// Distances of rows; without the padding they would be powers of two, and all rows share a few
  /// sets of the cache.
  std::int64_t lx() const { return 2 * n + TrainingParts<T>::COLUMNS; }
  std::int64_t lt() const { return 8 * n + TrainingParts<T>::COLUMNS; }

  int natoms = 0;
  std::int64_t n = 0;                  // N
  Buffer<T> c;                         // [2, 4*N, nspecies*ncoef] C, C'
  Buffer<T> t;                         // [width, lt] T, T'
  Buffer<T> t_adjoint;                 // [width, lt] dS/dT, dS/dT' = dE/dT
  Buffer<T> c_adjoint;                 // [4*N, nspecies*ncoef] dE/dC
  std::vector<Buffer<T>> x;            // inputs of the layers [in, lx]: x, x'
  std::vector<Buffer<T>> h;            // tanh of the hidden layers [out, N]
  std::vector<Buffer<T>> y_adjoint;    // dE/dy of the hidden layers [out, N]
  std::vector<Buffer<T>> z_adjoint;    // dS/dz, dS/dz' = dE/dz [out, lx]
  Buffer<T> d_adjoint, d_total;        // [ndescriptor, N] dE/dD = dS/dD', dS/dD
  Buffer<T> z, y;                      // [widest, N] dS/dy of a layer and of the one before it
};

template <class T> struct Training<T>::FrameState {
  TrainingFrame frame;
  std::vector<Species> species;
  std::vector<T *> c;          // [nspecies] C of each species, or C'
  std::vector<const T *> g;    // [nspecies] dE/dC
  Buffer<T> numbers;           // scratch over edges
  Buffer<double> more;
  std::vector<std::int32_t> intervals;
  TrainingScratch<T> scratch;

  void reserve(int edges)
  {
    const std::int64_t n = edges + 16;
    numbers.reserve(13 * n);
    more.reserve(3 * n);
    if (static_cast<std::int64_t>(intervals.size()) < n) intervals.resize(n);
    T *p = numbers.get();
    for (T **const field : {&scratch.inverse_r, &scratch.s, &scratch.slope, &scratch.place,
                            &scratch.r0, &scratch.r1, &scratch.r2, &scratch.r3, &scratch.t0,
                            &scratch.t1, &scratch.t2, &scratch.t3, &scratch.radial}) {
      *field = p;
      p += n;
    }
    scratch.g0 = more.get();
    scratch.g1 = scratch.g0 + n;
    scratch.g2 = scratch.g1 + n;
    scratch.interval = intervals.data();
  }
};

template <class T>
Training<T>::Training(const TrainingModel &model_, const std::vector<std::int64_t> &widths,
                      const std::vector<std::int64_t> &residual,
                      const std::vector<std::int64_t> &scaled, Product<T> multiply_) :
    model(model_), parts(&training_parts<T>()), multiply(multiply_)
{
  std::int64_t total = 0;
  std::vector<std::int64_t> relative;
  const auto place = [&](std::int64_t n) {
    const std::int64_t first = total;
    ends.push_back(total + n);
    total += (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    relative.push_back(first);
    return first;
  };
  int in = model.ndescriptor();
  for (std::size_t l = 0; l < widths.size(); ++l) {
    TrainingLayer layer{in, static_cast<int>(widths[l]), residual[l] != 0, scaled[l] != 0, 0, 0,
                        -1};
    layer.weight = place(static_cast<std::int64_t>(layer.in) * layer.out);
    layer.bias = place(layer.out);
    if (layer.scaled) layer.step = place(layer.out);
    layers.push_back(layer);
    in = layer.out;
  }
  last_weight = place(in);
  last_bias = place(1);
  coefficients = place(static_cast<std::int64_t>(model.nspecies) * model.ncoef() * model.width);
  per_species = total;
  size = per_species * model.nspecies;
  for (int a = 0; a < model.nspecies; ++a)
    for (const std::int64_t offset : relative) begin.push_back(a * per_species + offset);
}

template <class T> Training<T>::~Training() = default;

template <class T>
void Training<T>::evaluate(const std::vector<TrainingFrame> &frames, const T *parameters,
                           int nthreads, double *energy, double *force, double *virial)
{
  while (states.size() < frames.size()) states.push_back(std::make_unique<FrameState>());
  used = 0;    // until all is there
  std::vector<std::ptrdiff_t> first(frames.size() + 1, 0);
  for (std::size_t k = 0; k < frames.size(); ++k) {
    states[k]->frame = frames[k];
    first[k + 1] = first[k] + 3 * static_cast<std::ptrdiff_t>(frames[k].natoms);
  }
  std::fill_n(force, first.back(), 0.0);
  std::fill_n(virial, 9 * frames.size(), 0.0);
  parallel_for(frames.size(), nthreads, [&](std::size_t k) {
    evaluate(*states[k], parameters, energy + k, force + first[k], virial + 9 * k);
  });
  used = frames.size();
}

template <class T>
void Training<T>::gradients(const T *parameters, int nthreads, const double *a, const double *v,
                            const double *w, T *rows)
{
  std::vector<std::ptrdiff_t> first(used + 1, 0);
  for (std::size_t k = 0; k < used; ++k)
    first[k + 1] = first[k] + 3 * static_cast<std::ptrdiff_t>(states[k]->frame.natoms);
  parallel_for(used, nthreads, [&](std::size_t k) {
    gradient(*states[k], parameters, a[k], v + first[k], w + 9 * k,
             rows + static_cast<std::ptrdiff_t>(k) * size);
  });
}

template <class T>
void Training<T>::evaluate(FrameState &state, const T *parameters, double *energy, double *force,
                           double *virial)
{
  const TrainingFrame &frame = state.frame;
  const int nspecies = model.nspecies, width = model.width, ncoef = model.ncoef();
  const std::int64_t row = static_cast<std::int64_t>(nspecies) * ncoef;
  state.species.resize(nspecies);
  state.c.resize(nspecies);
  state.g.resize(nspecies);
  for (int a = 0; a < nspecies; ++a) {
    Species &species = state.species[a];
    species.n = frame.width[a];
    species.c.reserve(8 * species.n * row);
    state.c[a] = species.c.get();
    std::fill_n(state.c[a], 4 * species.n * row, T(0));
    species.natoms = 0;
  }
  int most = 0;
  for (int i = 0; i < frame.natoms; ++i) {
    ++state.species[frame.species[i]].natoms;
    for (int b = 0; b < nspecies; ++b) most = std::max(most, frame.count[i * nspecies + b]);
  }
  state.reserve(most);
  parts->moments(frame, model.pairs.data(), ncoef, model.max_neighbor, state.scratch,
                 state.c.data());

  double total = 0.0;
  for (int a = 0; a < nspecies; ++a) {
    Species &species = state.species[a];
    if (species.natoms == 0) continue;
    const std::int64_t n = species.n, lx = species.lx(), lt = species.lt(),
                       ndescriptor = model.ndescriptor();
    const T *const own = parameters + a * per_species;
    species.t.reserve(lt * width);
    const Matrix<T> coefficient = matrix(own + coefficients, row, width, width);
    multiply(matrix(species.t.get(), width, 4 * n, lt), coefficient.t(),
             matrix(species.c.get(), 4 * n, row, row).t());

    const std::size_t depth = layers.size();
    species.x.resize(depth + 1);
    species.h.resize(depth);
    species.y_adjoint.resize(depth);
    species.z_adjoint.resize(depth);
    species.x[0].reserve(lx * ndescriptor);
    parts->describe(width, model.m2, n, lt, species.t.get(), lx, species.x[0].get());
    std::int64_t widest = 1;
    for (const TrainingLayer &layer : layers) widest = std::max<std::int64_t>(widest, layer.out);
    species.z.reserve(widest * n);
    species.y.reserve(widest * n);
    for (std::size_t l = 0; l < depth; ++l) {
      const TrainingLayer &layer = layers[l];
      species.x[l + 1].reserve(lx * layer.out);
      species.h[l].reserve(n * layer.out);
      species.y_adjoint[l].reserve(n * layer.out);
      species.z_adjoint[l].reserve(lx * layer.out);
      T *const z = species.x[l + 1].get();    // rows at the distance that y has
      const T *const bias = own + layer.bias;
      for (int o = 0; o < layer.out; ++o) std::fill_n(z + o * lx, n, bias[o]);
      multiply(matrix(z, layer.out, n, lx),
               matrix(own + layer.weight, layer.in, layer.out, layer.out).t(),
               matrix(species.x[l].get(), layer.in, n, lx), true);
      parts->activate(layer.out, n, lx, species.x[l].get(),
                      layer.scaled ? own + layer.step : nullptr, layer.residual, z,
                      species.h[l].get());
    }

    const std::int64_t nlast = layers[depth - 1].out;
    const T *const last = own + last_weight;
    const T *const x = species.x[depth].get();
    total += species.natoms * static_cast<double>(own[last_bias]);
    for (std::int64_t i = 0; i < nlast; ++i) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < species.natoms; ++k) sum += static_cast<double>(x[i * lx + k]);
      total += static_cast<double>(last[i]) * sum;
    }

    // dE/dy and dE/dz of the layers, dE/dD, dE/dT, dE/dC
    species.d_adjoint.reserve(ndescriptor * n);
    species.d_total.reserve(ndescriptor * n);
    T *dx = species.y_adjoint[depth - 1].get();
    for (std::int64_t i = 0; i < nlast; ++i) std::fill_n(dx + i * n, n, last[i]);
    for (std::size_t l = depth; l-- > 0;) {
      const TrainingLayer &layer = layers[l];
      const T *const dy = species.y_adjoint[l].get();
      T *const dz = species.z_adjoint[l].get() + n;
      parts->back(layer.out, n, lx, layer.scaled ? own + layer.step : nullptr, species.h[l].get(),
                  dy, dz);
      dx = l ? species.y_adjoint[l - 1].get() : species.d_adjoint.get();
      if (layer.residual) std::copy_n(dy, layer.in * n, dx);
      multiply(matrix(dx, layer.in, n, n),
               matrix(own + layer.weight, layer.in, layer.out, layer.out),
               matrix(dz, layer.out, n, lx), layer.residual);
    }
    species.t_adjoint.reserve(lt * width);
    for (int m = 0; m < width; ++m)
      std::fill_n(species.t_adjoint.get() + m * lt + 4 * n, 4 * n, T(0));
    parts->describe_backward(width, model.m2, n, lt, species.t.get(), n, species.d_adjoint.get(),
                             species.t_adjoint.get() + 4 * n);
    species.c_adjoint.reserve(4 * n * row);
    multiply(matrix(species.c_adjoint.get(), 4 * n, row, row),
             matrix(species.t_adjoint.get() + 4 * n, width, 4 * n, lt).t(), coefficient.t());
    state.g[a] = species.c_adjoint.get();
  }
  *energy = total;
  parts->forces(frame, model.pairs.data(), ncoef, state.scratch, state.g.data(), force, virial);
}

template <class T>
void Training<T>::gradient(FrameState &state, const T *parameters, double a_, const double *v,
                           const double *w, T *rows)
{
  const TrainingFrame &frame = state.frame;
  const int nspecies = model.nspecies, width = model.width, ncoef = model.ncoef();
  const std::int64_t row = static_cast<std::int64_t>(nspecies) * ncoef;
  const T weight_of_energy = static_cast<T>(a_);
  for (int a = 0; a < nspecies; ++a) {
    const std::int64_t half = 4 * static_cast<std::int64_t>(frame.width[a]) * row;
    state.c[a] = state.species[a].c.get() + half;
    std::fill_n(state.c[a], half, T(0));
  }
  parts->tangents(frame, model.pairs.data(), ncoef, state.scratch, v, w, state.c.data());

  for (int a = 0; a < nspecies; ++a) {
    Species &species = state.species[a];
    T *const result = rows + a * per_species;
    if (species.natoms == 0) {
      std::fill_n(result, per_species, T(0));
      continue;
    }
    for (const std::int64_t end : ends)
      std::fill(result + end, result + (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, T(0));
    const std::int64_t n = species.n, lx = species.lx(), lt = species.lt();
    const T *const own = parameters + a * per_species;
    const std::size_t depth = layers.size();
    const Matrix<T> coefficient = matrix(own + coefficients, row, width, width);

    // The derivatives T', D', x'
    multiply(matrix(species.t.get() + 4 * n, width, 4 * n, lt), coefficient.t(),
             matrix(species.c.get() + 4 * n * row, 4 * n, row, row).t());
    parts->describe_tangent(width, model.m2, n, lt, species.t.get(), species.t.get() + 4 * n, lx,
                            species.x[0].get() + n);
    // dS/dz keeps z' until it is overwritten on the way back.
    for (std::size_t l = 0; l < depth; ++l) {
      const TrainingLayer &layer = layers[l];
      T *const change = species.z_adjoint[l].get(), *const y = species.x[l + 1].get() + n;
      multiply(matrix(change, layer.out, n, lx),
               matrix(own + layer.weight, layer.in, layer.out, layer.out).t(),
               matrix(species.x[l].get() + n, layer.in, n, lx));
      parts->change(layer.out, n, lx, species.x[l].get() + n,
                    layer.scaled ? own + layer.step : nullptr, layer.residual, species.h[l].get(),
                    change, y);
    }

    // The last layer, and dS/dx of it; columns beyond the atoms stay out.
    const std::int64_t nlast = layers[depth - 1].out;
    const T *const x_last = species.x[depth].get();
    T *dx = species.y.get();
    for (std::int64_t i = 0; i < nlast; ++i) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < species.natoms; ++k)
        sum += a_ * static_cast<double>(x_last[i * lx + k]) +
               static_cast<double>(x_last[i * lx + n + k]);
      result[last_weight + i] = static_cast<T>(sum);
      std::fill_n(dx + i * n, n, T(0));
      std::fill_n(dx + i * n, species.natoms, weight_of_energy * own[last_weight + i]);
    }
    result[last_bias] = static_cast<T>(a_ * species.natoms);

    for (std::size_t l = depth; l-- > 0;) {
      const TrainingLayer &layer = layers[l];
      const T *const dy = species.y.get();
      T *const dz = species.z_adjoint[l].get();
      parts->back_twice(layer.out, n, lx, layer.scaled ? own + layer.step : nullptr,
                        species.h[l].get(), dy, species.y_adjoint[l].get(), dz, result + layer.bias,
                        layer.scaled ? result + layer.step : nullptr);
      multiply(matrix(result + layer.weight, layer.in, layer.out, layer.out),
               matrix(species.x[l].get(), layer.in, 2 * n, lx),
               matrix(dz, layer.out, 2 * n, lx).t());
      dx = l ? species.z.get() : species.d_total.get();
      if (layer.residual) std::copy_n(dy, layer.in * n, dx);
      multiply(matrix(dx, layer.in, n, n),
               matrix(own + layer.weight, layer.in, layer.out, layer.out),
               matrix(dz, layer.out, n, lx), layer.residual);
      std::swap(species.z, species.y);
    }

    // dS/dT = from dS/dD with T, and from dS/dD' = dE/dD with T'
    for (int m = 0; m < width; ++m) std::fill_n(species.t_adjoint.get() + m * lt, 4 * n, T(0));
    parts->describe_backward(width, model.m2, n, lt, species.t.get() + 4 * n, n,
                             species.d_adjoint.get(), species.t_adjoint.get());
    parts->describe_backward(width, model.m2, n, lt, species.t.get(), n, species.d_total.get(),
                             species.t_adjoint.get());
    multiply(matrix(result + coefficients, row, width, width),
             matrix(species.c.get(), 8 * n, row, row).t(),
             matrix(species.t_adjoint.get(), width, 8 * n, lt).t());
  }
}

template class Training<float>;
template class Training<double>;

}    // namespace pwmlff
