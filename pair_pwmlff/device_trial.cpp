// SPDX-License-Identifier: GPL-2.0-or-later

#include "device_trial.h"

#include "collective.h"
#include "models/messages.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

using namespace pwmlff::models;

namespace pair_pwmlff {
namespace {

using Vector = std::array<double, 3>;

// Atoms of a piece: enough for a GPU that a larger one would take as long for each atom, or nearly.
constexpr int MOST_ATOMS = 8000;

// Evaluations: the first ones load code and grow memory.
constexpr int WARM_UP = 2, TIMED = 3;

// Where images of a share that is not periodic meet it, atoms may coincide, which they never do in
// a run: nearer ones are not seen.
constexpr double TOO_CLOSE = 0.5;

double dot(const double *a, const Vector &b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

Vector cross(const Vector &a, const Vector &b)
{
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// Places of atoms along an edge, in units of it.
struct Places {
  double height;             // of the part of the box in that direction
  std::vector<double> of;    // [n]
  double least, most;

  Places(const Share &share, int d)
  {
    Vector across = cross(share.edges[(d + 1) % 3], share.edges[(d + 2) % 3]);
    const double volume = dot(share.edges[d].data(), across);
    for (double &component : across) component /= volume;
    height = 1.0 / std::sqrt(dot(across.data(), across));
    for (int i = 0; i < share.natoms(); ++i) of.push_back(dot(&share.x[3 * i], across));
    const auto [first, last] = std::ranges::minmax_element(of);
    least = of.empty() ? 0.0 : *first;
    most = of.empty() ? 0.0 : *last;
  }
};

StepTime time_of(MPI_Comm comm, Model &model, const std::vector<int> &order, Piece &piece,
                 int nthreads, const std::function<double()> &clock)
{
  const auto evaluate = [&](int times) {
    for (int k = 0; k < times && piece.neighbors.ncenters() > 0; ++k) try {
        piece.neighbors.update(piece.x.data());
        model.evaluate(piece.neighbors.input(model.needs(), nthreads, order));
      } catch (const pwmlff::TooManyNeighbors &) {
        throw std::runtime_error("more neighbors than the model has room for");
      } catch (const std::exception &error) {
        throw std::runtime_error(first_line(error));
      }
  };
  StepTime found;
  found.failure = first_failure(comm, [&] { evaluate(WARM_UP); });
  if (!found.failure.empty()) return found;
  found.failure = first_failure(comm, [&] {
    const double begin = clock();
    evaluate(TIMED);
    found.seconds = (clock() - begin) / TIMED;
  });
  MPI_Allreduce(MPI_IN_PLACE, &found.seconds, 1, MPI_DOUBLE, MPI_MAX, comm);
  return found;
}

}    // namespace

void Share::reduce(int most)
{
  while (natoms() > most) {
    const std::size_t n = species.size(), begin = n / 4, end = begin + n / 2;
    int direction = 0;
    double farthest = -1.0, width = 0.0;
    std::vector<int> atoms(n), sorted(n);
    std::iota(atoms.begin(), atoms.end(), 0);
    for (int d = 0; d < 3; ++d) {
      const Places places(*this, d);
      std::ranges::stable_sort(atoms, {}, [&](int i) { return places.of[i]; });
      const double part = places.of[atoms[end]] - places.of[atoms[begin]];
      if (part * places.height <= farthest) continue;
      farthest = part * places.height;
      direction = d;
      width = part;
      sorted = atoms;
    }
    if (!(width > 0.0)) return;    // all of them in one place
    Share part{edges, repeats, {}, {}};
    for (double &component : part.edges[direction]) component *= width;
    part.repeats[direction] = true;
    for (std::size_t k = begin; k < end; ++k) {
      const int i = sorted[k];
      part.x.insert(part.x.end(), &x[3 * i], &x[3 * i] + 3);
      part.species.push_back(species[i]);
    }
    *this = std::move(part);
  }
}

Piece::Piece(const Share &share, int nspecies, double reach, double shell)
{
  const std::array<Places, 3> places = {Places(share, 0), Places(share, 1), Places(share, 2)};
  std::array<int, 3> last{};
  for (int d = 0; d < 3; ++d)
    if (share.repeats[d])
      last[d] = static_cast<int>(
          std::ceil((reach + shell) / places[d].height + places[d].most - places[d].least));

  // Rows: the atoms, images that edges start from, those that edges end at alone.
  const int n = share.natoms();
  std::vector<int> species = share.species, home(n);
  std::iota(home.begin(), home.end(), 0);
  x = share.x;
  int ncenters = n;
  for (const bool starts : {true, false}) {
    for (int a = -last[0]; a <= last[0]; ++a)
      for (int b = -last[1]; b <= last[1]; ++b)
        for (int c = -last[2]; c <= last[2]; ++c) {
          const Vector step = {1.0 * a, 1.0 * b, 1.0 * c};
          for (int i = 0; i < n && (a || b || c); ++i) {
            double distance = 0.0;    // from the share, along the direction that is farthest
            for (int d = 0; d < 3; ++d) {
              const double place = places[d].of[i] + step[d];
              distance = std::max(distance, places[d].height * std::max(place - places[d].most,
                                                                        places[d].least - place));
            }
            const bool is_start = shell > 0.0 && distance <= shell;
            if (distance > reach + shell || is_start != starts) continue;
            home.push_back(shell > 0.0 ? static_cast<int>(home.size()) : i);
            species.push_back(share.species[i]);
            for (int k = 0; k < 3; ++k)
              x.push_back(share.x[3 * i + k] + a * share.edges[0][k] + b * share.edges[1][k] +
                          c * share.edges[2][k]);
          }
        }
    if (starts) ncenters = static_cast<int>(home.size());
  }

  std::vector<std::vector<int>> rows(nspecies);
  for (std::size_t row = 0; row < species.size(); ++row)
    rows[species[row]].push_back(static_cast<int>(row));
  std::vector<int> first{0}, candidate;
  for (int i = 0; i < ncenters; ++i)
    for (const std::vector<int> &of_species : rows) {
      for (const int j : of_species) {
        double square = 0.0;
        for (int k = 0; k < 3; ++k) {
          const double difference = x[3 * j + k] - x[3 * i + k];
          square += difference * difference;
        }
        if (j != i && square < reach * reach && square > TOO_CLOSE * TOO_CLOSE)
          candidate.push_back(j);
      }
      first.push_back(static_cast<int>(candidate.size()));
    }
  neighbors.assign(ncenters, nspecies, std::move(species), std::move(first), std::move(candidate),
                   std::move(home), /*hops=*/0);
}

DeviceTrial try_devices(MPI_Comm comm, Model &gpu, Model &cpu, Share share, double skin,
                        int nthreads, const std::function<double()> &clock)
{
  const ModelInfo &info = gpu.info();
  int nprocs;
  MPI_Comm_size(comm, &nprocs);
  DeviceTrial trial;
  const auto time_on_piece = [&](Model &one) {
    // Of atoms of other ranks, those within the range of an energy; with hops, edges start there.
    const double shell =
        nprocs > 1 && one.needs().hops > 0 ? info.interaction_range - info.cutoff : 0.0;
    std::unique_ptr<Piece> piece;
    StepTime found;
    found.failure = first_failure(comm, [&] {
      share.reduce(MOST_ATOMS);
      piece = std::make_unique<Piece>(share, static_cast<int>(info.atom_type.size()),
                                      info.cutoff + skin, shell);
    });
    return found.failure.empty() ? time_of(comm, one, gpu.order, *piece, nthreads, clock) : found;
  };
  trial.gpu = time_on_piece(gpu);
  trial.cpu = time_on_piece(cpu);
  trial.natoms = share.natoms();
  MPI_Allreduce(MPI_IN_PLACE, &trial.natoms, 1, MPI_INT, MPI_MAX, comm);
  return trial;
}

}    // namespace pair_pwmlff
