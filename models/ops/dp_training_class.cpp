// SPDX-License-Identifier: GPL-2.0-or-later

// torch.classes.pwmlff.DPTraining: energies, forces and gradients by the parameters (training.h) of
// a set of frames.
//
//   DPTraining(int m2, int width, int max_neighbor, int nodes, float rmin, float rmax,
//              Tensor davg, Tensor dstd, Tensor low,
//              int[] widths, int[] residual, int[] scaled, int[] embedding, Tensor x,
//              Tensor to_coefficients, bool single)
//       davg, dstd  float64 [ntypes, ntypes, 4] of the environment matrix, by center and neighbor
//       low         float64 [ntypes, ntypes] first node of a pair of types: no distance is shorter
//       widths      of the hidden layers of a fitting net; with residual or not, with dt or not
//       embedding   widths of the layers of an embedding net, the last one `width`
//       x           float64 [ntypes * ntypes, nodes] what the nets take at the nodes
//       to_coefficients  float64 [nodes + 2, nodes] of splines, from values at the nodes
//       single      float32, else float64: what the kernels compute in
//   set_frames(Tensor first, Tensor species, Tensor count, Tensor first_edge, Tensor rij, Tensor j)
//       first       int64 [nframes + 1] where the atoms of a frame begin
//       species     int32 [natoms] types
//       count       int32 [natoms, ntypes] edges of an atom by the type of the neighbor
//       first_edge  int64 [nframes + 1] where the edges of a frame begin
//       rij         float64 [nedges, 3] x_j - x_i, in the order of `count`; kept, not copied
//       j           int32 [nedges] neighbors, within the frame
//   prepare(Tensor parameters, int nthreads)
//       parameters  float64, of the model (parameters.h), for the calls that follow
//   evaluate(Tensor frames, int nthreads) -> (Tensor energy, force, virial)
//       frames      int64 [n]; results are float64 [n], [atoms of these frames, 3], [n, 9]
//   gradients(Tensor a, Tensor v, Tensor w, int nthreads) -> Tensor
//       of a E + v.F + w:W of each frame that was evaluated last, a row for each;
//       a [n], v [atoms of these frames, 3], w [n, 9], all float64
//   finish(Tensor row, int nthreads) -> Tensor
//       the gradient by the parameters of the model, float64, of a row or a sum of rows in float64

#include "../one_thread.h"
#include "checks.h"
#include "training/parameters.h"
#include "training/training.h"

#include <torch/custom_class.h>

#include <algorithm>
#include <memory>
#include <variant>

namespace pwmlff::models {
namespace {

using at::Tensor;

bool ascends_to(const Tensor &first, std::int64_t last)
{
  const std::int64_t *const f = first.const_data_ptr<std::int64_t>();
  bool fine = f[0] == 0 && f[first.numel() - 1] == last;
  for (std::int64_t k = 1; k < first.numel(); ++k) fine &= f[k - 1] <= f[k];
  return fine;
}

template <class T> Tensor tensor_of(const Matrix<T> &matrix)
{
  return at::from_blob(matrix.data, {matrix.n, matrix.m}, {matrix.rows, matrix.columns},
                       at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

/// As Product has it.
template <class T>
void multiply(const Matrix<T> &out, const Matrix<T> &a, const Matrix<T> &b, bool add)
{
  const at::AutoDispatchBelowADInplaceOrView guard;    // of each thread
  Tensor result = tensor_of(out);
  if (add) at::addmm_out(result, result, tensor_of(a), tensor_of(b));
  else at::mm_out(result, tensor_of(a), tensor_of(b));
}

class DPTrainingClass : public torch::CustomClassHolder {
 public:
  DPTrainingClass(std::int64_t m2, std::int64_t width, std::int64_t max_neighbor,
                  std::int64_t nodes, double rmin, double rmax, const Tensor &davg,
                  const Tensor &dstd, const Tensor &low, const std::vector<std::int64_t> &widths,
                  const std::vector<std::int64_t> &residual,
                  const std::vector<std::int64_t> &scaled,
                  const std::vector<std::int64_t> &embedding, const Tensor &x,
                  const Tensor &to_coefficients, bool single) :
      held_coefficients(to_coefficients)
  {
    const std::int64_t n = low.size(0);
    check_array("davg", davg, at::kDouble, {n, n, 4});
    check_array("dstd", dstd, at::kDouble, {n, n, 4});
    check_array("low", low, at::kDouble, {n, n});
    TORCH_CHECK_VALUE(
        1 <= m2 && m2 <= width && max_neighbor >= 1 && nodes >= 4 && 0.0 <= rmin && rmin < rmax &&
            low.min().item<double>() > 0.0 && low.max().item<double>() < rmax,
        "m2 is ", m2, ", width ", width, ", max_neighbor ", max_neighbor, ", nodes ", nodes,
        ", rmin ", rmin, ", rmax ", rmax,
        "; expected 1 <= m2 <= width, at least one neighbor and four nodes, 0 <= rmin "
        "< rmax and first nodes between 0 and rmax");
    TORCH_CHECK_VALUE(!widths.empty() && widths.size() == residual.size() &&
                          widths.size() == scaled.size(),
                      "the fitting nets have ", widths.size(), " hidden layers, ", residual.size(),
                      " and ", scaled.size(), " flags; expected at least one, and as many of each");
    check_array("x", x, at::kDouble, {n * n, nodes});
    check_array("to_coefficients", to_coefficients, at::kDouble, {nodes + 2, nodes});
    TORCH_CHECK_VALUE(!embedding.empty() && embedding.back() == width &&
                          *std::min_element(embedding.begin(), embedding.end()) >= 1,
                      "the embedding nets have layers of widths ", embedding,
                      ", expected at least 1, and ", width, " at the end");
    TrainingModel model{static_cast<int>(n),
                        static_cast<int>(width),
                        static_cast<int>(m2),
                        static_cast<int>(max_neighbor),
                        static_cast<int>(nodes),
                        rmin,
                        rmax,
                        {}};
    for (std::int64_t l = 0; l < static_cast<std::int64_t>(widths.size()); ++l)
      TORCH_CHECK_VALUE(
          widths[l] >= 1 &&
              (!residual[l] || widths[l] == (l ? widths[l - 1] : model.ndescriptor())),
          "hidden layer ", l, " of the fitting nets has width ", widths[l],
          residual[l] ? " and a residual, but another width before it" : ", expected at least 1");
    for (std::int64_t k = 0; k < n * n; ++k) {
      TrainingPair pair{rmin, rmax, low.const_data_ptr<double>()[k], 0.0, model.nodes - 1, {}, {}};
      pair.spacing = (rmax - pair.low) / pair.intervals;
      for (int c = 0; c < 4; ++c) {
        pair.mean[c] = davg.const_data_ptr<double>()[k * 4 + c];
        pair.inverse_dev[c] = 1.0 / dstd.const_data_ptr<double>()[k * 4 + c];
      }
      model.pairs.push_back(pair);
    }
    nspecies = model.nspecies;
    if (single)
      training.emplace<Training<float>>(model, widths, residual, scaled,
                                        Product<float>{multiply<float>});
    else
      training.emplace<Training<double>>(model, widths, residual, scaled,
                                         Product<double>{multiply<double>});
    run([&]<class T>(Training<T> &t) {
      packed = at::zeros({t.nparameters()}, c10::CppTypeToScalarType<T>::value);
      parameters = std::make_unique<TrainingParameters>(
          model, embedding, t.hidden(), t.offsets(), x.const_data_ptr<double>(),
          to_coefficients.const_data_ptr<double>(), Product<double>{multiply<double>});
    });
  }

  void set_frames(const Tensor &first, const Tensor &species_, const Tensor &count_,
                  const Tensor &first_edge, const Tensor &rij_, const Tensor &j_)
  {
    const std::int64_t nframes = first.numel() - 1, natoms = species_.numel();
    check_array("first", first, at::kLong, {nframes + 1});
    check_array("first_edge", first_edge, at::kLong, {nframes + 1});
    check_array("species", species_, at::kInt, {natoms});
    check_array("count", count_, at::kInt, {natoms, nspecies});
    check_array("rij", rij_, at::kDouble, {j_.numel(), 3});
    check_array("j", j_, at::kInt, {j_.numel()});
    TORCH_CHECK_VALUE(ascends_to(first, natoms) && ascends_to(first_edge, j_.numel()),
                      "first and first_edge have to rise from 0 to the number of atoms and edges");
    forget();
    frames.clear();
    widths.assign(static_cast<std::size_t>(nframes) * nspecies, 0);
    columns.resize(natoms);
    held = {species_, count_, rij_, j_};
    const int *const species = species_.const_data_ptr<int>();
    const int *const count = count_.const_data_ptr<int>(), *const j = j_.const_data_ptr<int>();
    for (std::int64_t f = 0; f < nframes; ++f) {
      const std::int64_t begin = first.const_data_ptr<std::int64_t>()[f];
      const std::int64_t n = first.const_data_ptr<std::int64_t>()[f + 1] - begin;
      const std::int64_t edge = first_edge.const_data_ptr<std::int64_t>()[f];
      const std::int64_t nedges = first_edge.const_data_ptr<std::int64_t>()[f + 1] - edge;
      int *const width = widths.data() + f * nspecies;
      std::int64_t edges = 0;
      for (std::int64_t i = begin; i < begin + n; ++i) {
        TORCH_CHECK_VALUE(species[i] >= 0 && species[i] < nspecies, "atom ", i, " has type ",
                          species[i], ", expected 0 to ", nspecies - 1);
        columns[i] = width[species[i]]++;
        for (int b = 0; b < nspecies; ++b) {
          TORCH_CHECK_VALUE(count[i * nspecies + b] >= 0, "count has a negative entry");
          edges += count[i * nspecies + b];
        }
      }
      bool inside = edges == nedges;
      for (std::int64_t e = edge; e < edge + nedges; ++e) inside &= j[e] >= 0 && j[e] < n;
      TORCH_CHECK_VALUE(inside, "frame ", f, " has ", nedges, " edges and counts of ", edges,
                        ", to atoms 0 to ", n - 1, " expected");
      for (int b = 0; b < nspecies; ++b)
        width[b] = (width[b] + TrainingParts<float>::COLUMNS - 1) / TrainingParts<float>::COLUMNS *
                   TrainingParts<float>::COLUMNS;
      frames.push_back({static_cast<int>(n), nspecies, species + begin, columns.data() + begin,
                        rij_.const_data_ptr<double>() + 3 * edge, j + edge,
                        count + begin * nspecies, width});
    }
  }

  void prepare(const Tensor &values, std::int64_t nthreads)
  {
    check_array("parameters", values, at::kDouble, {parameters->size()});
    check_threads(nthreads);
    forget();
    run([&]<class T>(Training<T> &) {
      parameters->pack(values.const_data_ptr<double>(), static_cast<int>(nthreads),
                       packed.data_ptr<T>());
    });
    prepared = true;
  }

  std::tuple<Tensor, Tensor, Tensor> evaluate(const Tensor &which, std::int64_t nthreads)
  {
    check_array("frames", which, at::kLong, {which.numel()});
    check_threads(nthreads);
    TORCH_CHECK_VALUE(prepared, "there are no parameters, expected a call of prepare before");
    forget();
    std::vector<TrainingFrame> chosen;
    std::int64_t atoms = 0;
    for (std::int64_t k = 0; k < which.numel(); ++k) {
      const std::int64_t f = which.const_data_ptr<std::int64_t>()[k];
      TORCH_CHECK_VALUE(f >= 0 && f < static_cast<std::int64_t>(frames.size()), "frame ", f,
                        " is asked for, there are ", frames.size());
      chosen.push_back(frames[f]);
      atoms += frames[f].natoms;
    }
    const std::int64_t n = which.numel();
    const Tensor energy = at::empty({n}, at::kDouble), force = at::empty({atoms, 3}, at::kDouble),
                 virial = at::empty({n, 9}, at::kDouble);
    run([&]<class T>(Training<T> &t) {
      t.evaluate(chosen, packed.const_data_ptr<T>(), static_cast<int>(nthreads),
                 energy.data_ptr<double>(), force.data_ptr<double>(), virial.data_ptr<double>());
    });
    nevaluated = n;
    natoms = atoms;
    return {energy, force, virial};
  }

  Tensor gradients(const Tensor &a, const Tensor &v, const Tensor &w, std::int64_t nthreads)
  {
    check_array("a", a, at::kDouble, {nevaluated});
    check_array("v", v, at::kDouble, {natoms, 3});
    check_array("w", w, at::kDouble, {nevaluated, 9});
    check_threads(nthreads);
    Tensor rows = at::empty({nevaluated, packed.numel()}, packed.options());
    run([&]<class T>(Training<T> &t) {
      t.gradients(packed.const_data_ptr<T>(), static_cast<int>(nthreads),
                  a.const_data_ptr<double>(), v.const_data_ptr<double>(),
                  w.const_data_ptr<double>(), rows.data_ptr<T>());
    });
    return rows;
  }

  Tensor finish(const Tensor &row, std::int64_t nthreads)
  {
    check_array("row", row, at::kDouble, {packed.numel()});
    check_threads(nthreads);
    TORCH_CHECK_VALUE(prepared, "there are no parameters, expected a call of prepare before");
    const OneThread one;
    Tensor gradient = at::empty({parameters->size()}, at::kDouble);
    parameters->unpack(row.const_data_ptr<double>(), static_cast<int>(nthreads),
                       gradient.data_ptr<double>());
    return gradient;
  }

 private:
  /// Nothing has been evaluated that gradients() could go on from.
  void forget()
  {
    nevaluated = natoms = 0;
    run([]<class T>(Training<T> &t) { t.forget(); });
  }

  template <class Work> void run(const Work &work)
  {
    const OneThread one;
    if (auto *const single = std::get_if<Training<float>>(&training)) work(*single);
    else work(std::get<Training<double>>(training));
  }

  static void check_threads(std::int64_t n)
  {
    TORCH_CHECK_VALUE(n >= 1, "nthreads is ", n, ", expected at least 1");
  }

  std::variant<std::monostate, Training<float>, Training<double>> training;
  Tensor held_coefficients;    // whose memory the parameters point into
  std::unique_ptr<TrainingParameters> parameters;
  Tensor packed;    // what the kernels take
  bool prepared = false;
  int nspecies;
  std::vector<TrainingFrame> frames;
  std::vector<int> widths, columns;    // of all frames
  std::vector<Tensor> held;            // whose memory the frames point into
  std::int64_t nevaluated = 0, natoms = 0;
};

}    // namespace

TORCH_LIBRARY_FRAGMENT(pwmlff, library)
{
  library.class_<DPTrainingClass>("DPTraining")
      .def(
          torch::init<std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, double,
                      Tensor, Tensor, Tensor, std::vector<std::int64_t>, std::vector<std::int64_t>,
                      std::vector<std::int64_t>, std::vector<std::int64_t>, Tensor, Tensor, bool>())
      .def("set_frames", &DPTrainingClass::set_frames)
      .def("prepare", &DPTrainingClass::prepare)
      .def("evaluate", &DPTrainingClass::evaluate)
      .def("gradients", &DPTrainingClass::gradients)
      .def("finish", &DPTrainingClass::finish);
}

}    // namespace pwmlff::models
