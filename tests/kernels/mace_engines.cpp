// SPDX-License-Identifier: GPL-2.0-or-later

// The engine of MACE for GPUs against that for CPUs: shapes, precisions, chunks, images of atoms on
// this rank and on another one. Exits with 1 where something differs.
//
//   mace_engines FILE N EDGE PRECISION DEVICE    evaluate arrays of a file once, for N^3 cells of 8
//                                                atoms and this edge, to count what kernels do

#include "comparison.h"
#include "core/arrays.h"
#include "core/family.h"
#include "core/gpu/gpu_neighbors.h"
#include "core/gpu/row_packer.h"
#include "core/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;
using ::compare;

std::mt19937 generator(11);

double uniform(double low, double high)
{
  return low + (high - low) * (generator() / 4294967296.0);
}

/// What a model is made of (families/mace/network.h).
struct Shape {
  std::string name;
  int nspecies, channels, largest;
  std::vector<int> leaving;
  std::size_t correlation;
  bool density, residual, agnesi, zbl;
};

/// Arrays by chance, of the names that read_mace.cpp asks for.
class RandomMace {
 public:
  explicit RandomMace(const Shape &shape) : arrays("mace"), shape(shape)
  {
    const std::size_t n = shape.nspecies, k = shape.channels;
    std::vector<int> numbers = {1, 6, 8, 72};
    numbers.resize(n);
    arrays.set("atom_type", numbers);
    arrays.set("cutoff", 3.0);
    random("energies", {n}, 1.0);
    arrays.set("scaling", {2}, {0.8, 0.1});
    random("embedding", {n, k}, 1.0);
    arrays.set("radial.options", {3}, {0.0, 5.0, shape.agnesi ? 0.0 : 1.0});
    arrays.set("radial.basis", {NBASIS + 1}, {1.05, 2.09, 3.14, 4.19, 0.8});
    if (shape.agnesi) {
      arrays.set("radial.agnesi", {3}, {0.9183, 4.5791, 1.0805});
      arrays.set("radial.radii", {n}, std::vector<double>(n, 0.9));
    }
    if (shape.zbl) {
      arrays.set("zbl.numbers", {5}, {6.0, 0.18, 0.51, 0.28, 0.03});
      for (const auto &[name, value] :
           {std::pair{"length", 0.2}, {"strength", 5.0}, {"reach", 2.2}})
        arrays.set(std::string("zbl.") + name, {n, n}, std::vector<double>(n * n, value));
    }
    int entering = 0;
    for (std::size_t t = 0; t < shape.leaving.size(); ++t) {
      add_layer("layer" + std::to_string(t) + ".", entering, shape.leaving[t]);
      entering = shape.leaving[t];
    }
  }

  Arrays arrays;

 private:
  static constexpr std::size_t NBASIS = 4, HIDDEN = 6, TERMS = 9;

  void random(const std::string &name, const std::vector<std::size_t> &dimensions, double size)
  {
    std::size_t n = 1;
    for (const std::size_t one : dimensions) n *= one;
    std::vector<double> values(n);
    for (double &value : values) value = uniform(-size, size);
    arrays.set(name, dimensions, values);
  }

  void add_layer(const std::string &layer, int entering, int leaving)
  {
    const std::size_t n = shape.nspecies, k = shape.channels;
    const double size = 1.7 / std::sqrt(static_cast<double>(k));
    std::vector<double> paths;
    std::vector<std::size_t> of_degree(shape.largest + 1);
    std::size_t npaths = 0;
    for (int l1 = 0; l1 <= entering; ++l1)
      for (int l2 = 0; l2 <= shape.largest; ++l2)
        for (int l = std::abs(l1 - l2); l <= std::min(l1 + l2, shape.largest); ++l) {
          paths.insert(paths.end(), {1.0 * l1, 1.0 * l2, 1.0 * l});
          random(layer + "coupling." + std::to_string(npaths++),
                 {2 * std::size_t(l1) + 1, 2 * std::size_t(l2) + 1, 2 * std::size_t(l) + 1}, 0.5);
          ++of_degree[l];
        }
    arrays.set(layer + "paths", {npaths, 3}, paths);
    random(layer + "radial.0", {NBASIS, HIDDEN}, 1.0);
    random(layer + "radial.1", {HIDDEN, npaths * k}, 1.0);
    if (shape.density) random(layer + "density", {NBASIS}, 1.0);
    for (int l = 0; l <= shape.largest; ++l)
      random(layer + "message." + std::to_string(l), {shape.residual ? 1 : n, of_degree[l] * k, k},
             0.5 * size);
    for (int l = 0; l <= entering; ++l) {
      random(layer + "up." + std::to_string(l), {k, k}, size);
      if (shape.residual && l <= leaving)
        random(layer + "skip." + std::to_string(l), {n, k, k}, size);
    }
    for (int l = 0; l <= leaving; ++l) {
      random(layer + "product." + std::to_string(l), {k, k}, size);
      for (std::size_t order = 1; order <= shape.correlation; ++order) {
        const std::string place = layer + "contraction." + std::to_string(l) + ".",
                          number = std::to_string(order);
        random(place + "weights." + number, {n, 2, k}, 0.5);
        arrays.set(place + "terms." + number, {TERMS, 3 + order}, terms(l, order));
      }
    }
    random(layer + "readout", {k}, 1.0);
    random(layer + "readout.first", {k, 5}, size);
    random(layer + "readout.last", {5}, 1.0);
  }

  std::vector<double> terms(int l, std::size_t order) const
  {
    std::vector<double> rows;
    const int ncomponents = (shape.largest + 1) * (shape.largest + 1);
    for (std::size_t t = 0; t < TERMS; ++t) {
      std::vector<double> factors;
      for (std::size_t k = 0; k < order; ++k)
        factors.push_back(std::floor(uniform(0.0, ncomponents)));
      std::sort(factors.begin(), factors.end());
      rows.insert(rows.end(), {std::floor(uniform(0.0, 2 * l + 1)), std::floor(uniform(0.0, 2.0)),
                               uniform(-0.4, 0.4)});
      rows.insert(rows.end(), factors.begin(), factors.end());
    }
    return rows;
  }

  const Shape &shape;
};

/// Cells of a crystal with its images as rows of their own, the atoms a little off their places.
struct Crystal {
  Crystal(int ncells, double edge, double reach, int nspecies)
  {
    std::vector<double> centers;
    for (int c = 0; c < ncells * ncells * ncells; ++c)
      for (int k = 0; k < 8; ++k) {
        constexpr double quarter = 0.25;
        const int face = k / 2;    // diamond: two atoms at each point of a lattice
        const double place[3] = {(face == 1 || face == 2) * 0.5 + k % 2 * quarter,
                                 (face == 1 || face == 3) * 0.5 + k % 2 * quarter,
                                 (face == 2 || face == 3) * 0.5 + k % 2 * quarter};
        const int cell[3] = {c % ncells, c / ncells % ncells, c / ncells / ncells};
        for (int d = 0; d < 3; ++d)
          centers.push_back((cell[d] + place[d]) * edge + uniform(-0.1, 0.1));
        species.push_back((c + k) % nspecies);
      }
    const double box = ncells * edge;
    ncenters = static_cast<int>(species.size());
    for (int i = 0; i < ncenters; ++i) home.push_back(i);
    x = centers;
    const int around = static_cast<int>(reach / box) + 1;
    for (int a = -around; a <= around; ++a)
      for (int b = -around; b <= around; ++b)
        for (int c = -around; c <= around; ++c)
          for (int i = 0; (a || b || c) && i < ncenters; ++i) {
            const double image[3] = {centers[3 * i] + a * box, centers[3 * i + 1] + b * box,
                                     centers[3 * i + 2] + c * box};
            if (std::any_of(image, image + 3,
                            [&](double at) { return at < -reach || at > box + reach; }))
              continue;
            x.insert(x.end(), image, image + 3);
            species.push_back(species[i]);
            home.push_back(i);
          }
    for (int i = 0; i < ncenters; ++i)
      for (int s = 0; s < nspecies; ++s) {
        first.push_back(static_cast<int>(candidate.size()));
        for (int j = 0; j < static_cast<int>(species.size()); ++j) {
          double squared = 0.0;
          for (int d = 0; d < 3; ++d) squared += std::pow(x[3 * j + d] - x[3 * i + d], 2);
          if (j != i && species[j] == s && squared < reach * reach) candidate.push_back(j);
        }
      }
    first.push_back(static_cast<int>(candidate.size()));
  }

  Input input() const
  {
    Input result;
    result.ncenters = ncenters;
    result.nrows = static_cast<int>(species.size());
    result.x = x.data();
    result.species = species.data();
    result.first = first.data();
    result.candidate = candidate.data();
    return result;
  }

  int ncenters;
  std::vector<double> x;
  std::vector<int> species, home, first, candidate;
};

/// Images get what the atoms have that they are of. Where there are other ranks, by the steps that
/// LAMMPS takes: half of the images at a time, through a buffer.
class Exchange : public Images {
 public:
  Exchange(const Crystal &crystal, bool others) :
      Images(crystal.home, crystal.ncenters), crystal(crystal), others(others)
  {
  }
  void forward(const ExchangedRows &rows) override
  {
    if (rows.device) move(rows, {RowMove::pack, RowMove::set});
    else Images::forward(rows);
  }
  void reverse(const ExchangedRows &rows) override
  {
    if (rows.device) move(rows, {RowMove::add, RowMove::pack});
    else Images::reverse(rows);
  }
  bool has_others() const override { return others; }

 private:
  /// @param moves  of the centers, and of their images; packing comes first
  void move(const ExchangedRows &rows, const std::array<RowMove, 2> &moves)
  {
    RowPacker packer;
    std::vector<int> row(crystal.home.size());    // of atoms that are in the reverse order
    for (std::size_t a = 0; a < row.size(); ++a) row[a] = static_cast<int>(row.size() - 1 - a);
    packer.take(row);
    const int nimages = static_cast<int>(row.size()) - crystal.ncenters;
    for (int first = 0; first < nimages;) {
      // No center twice at a time.
      std::vector<int> centers;
      std::set<int> used;
      int n = first;
      while (n < nimages && used.insert(crystal.home[row[n]]).second)
        centers.push_back(row[crystal.home[row[n++]]]);
      const int count = n - first;
      std::vector<double> buffer(count * RowPacker::buffer_width(rows));
      const AtomsToMove of_centers{centers.data(), 0, count}, of_images{nullptr, first, count};
      if (moves[0] == RowMove::pack) packer.move(moves[0], rows, of_centers, buffer.data());
      packer.move(moves[1], rows, of_images, buffer.data());
      if (moves[0] != RowMove::pack) packer.move(moves[0], rows, of_centers, buffer.data());
      first = n;
    }
  }

  const Crystal &crystal;
  const bool others;
};

/// An engine on a device and what it needs.
struct OnDevice {
  OnDevice(const Network &network, Precision precision, const std::string &device,
           std::size_t chunk_bytes, const Crystal &crystal) :
      engine(network.engine({precision, std::vector<bool>(network.info().atom_type.size(), true),
                             Device::make(device), chunk_bytes})),
      neighbors(engine->device()),
      input(crystal.input())
  {
    input.on_device = &neighbors;
    neighbors.assign(input.ncenters, input.nrows, static_cast<int>(network.info().atom_type.size()),
                     input.species, input.first, input.candidate);
    neighbors.update(input.nrows, input.x);
  }

  std::unique_ptr<FusedEngine> engine;
  GpuNeighbors neighbors;
  Input input;
};

void compare_devices(const Shape &shape, const std::string &device)
{
  const auto network = read_network(RandomMace(shape).arrays);
  const Crystal crystal(1, 3.9, 3.4, shape.nspecies);
  for (const Precision precision : {Precision::exact, Precision::tables, Precision::mixed}) {
    const std::vector<bool> present(shape.nspecies, true);
    const auto plain = network->engine({precision, present});
    Input input = crystal.input();
    Exchange images(crystal, false);
    input.exchange = &images;
    const Evaluation wanted = plain->evaluate(input);
    double scale = 1.0;
    for (int k = 0; k < 3 * input.nrows; ++k) scale = std::max(scale, std::abs(wanted.force[k]));
    const double gate = scale * (precision == Precision::mixed ? 5e-6 : 1e-12);
    for (const bool others : {false, true})
      for (const std::size_t chunk_bytes : {std::size_t{0}, std::size_t{1}}) {
        OnDevice one(*network, precision, device, chunk_bytes, crystal);
        Exchange around(crystal, others);
        one.input.exchange = &around;
        for (int k = 0; k < 2; ++k) {    // the second finds what the first has left
          const Evaluation &found = one.engine->evaluate(one.input);
          const std::string what = shape.name + ", " + device + (others ? ", host" : "") +
                                   (chunk_bytes ? ", chunks" : "") +
                                   (precision == Precision::mixed ? ", mixed" : "");
          compare(what + ": energies", found.atom_energy, wanted.atom_energy, input.ncenters, gate);
          compare(what + ": forces", found.force, wanted.force, 3 * input.nrows, gate);
          compare(what + ": virial", found.virial.data(), wanted.virial.data(), 9, 100 * gate);
        }
      }
  }
}

void evaluate_file(char **argv)
{
  std::ifstream file(argv[0], std::ios::binary);
  const auto network =
      read_network(Arrays::read(std::string(std::istreambuf_iterator<char>(file), {})));
  const NetworkInfo info = network->info();
  const Crystal crystal(std::atoi(argv[1]), std::atof(argv[2]), info.cutoff + 0.3,
                        static_cast<int>(info.atom_type.size()));
  OnDevice one(*network, precision_of(argv[3]), argv[4], 0, crystal);
  Exchange around(crystal, false);
  one.input.exchange = &around;
  std::cout << crystal.ncenters << " atoms, " << crystal.home.size() << " rows, "
            << crystal.candidate.size() << " candidates, energy "
            << one.engine->evaluate(one.input).energy << "\n";
}

}    // namespace

int main(int argc, char **argv)
{
  if (argc == 6) {
    evaluate_file(argv + 1);
    return 0;
  }
  const std::vector<Shape> shapes = {
      {"small", 2, 5, 2, {1, 0}, 3, false, true, false, false},
      {"16x0e", 1, 16, 3, {0}, 3, true, false, false, false},
      {"32x0e, two layers", 4, 32, 3, {0, 0}, 2, false, true, false, true},
      {"32x0e+32x1o", 2, 32, 3, {1, 0}, 3, false, true, false, false},
      {"33, three layers", 3, 33, 3, {2, 1, 0}, 3, true, true, true, true},
      {"48, degree 4", 1, 48, 4, {1, 0}, 2, true, true, false, false},
      {"64x0e+64x1o+64x2e", 2, 64, 3, {2, 0}, 3, false, false, true, false},
      {"70, degree 3 of features", 1, 70, 1, {3, 0}, 3, false, true, false, false},
      {"96x0e+96x1o", 2, 96, 2, {1, 0}, 3, true, true, true, false},
      {"128x0e+128x1o", 3, 128, 3, {1, 0}, 3, false, true, false, true},
  };
  bool gpu = true;
  try {
    Device::make("cuda:0");
  } catch (const std::runtime_error &) {
    gpu = false;
  }
  for (const Shape &shape : shapes) {
    compare_devices(shape, "cpu");
    if (gpu) compare_devices(shape, "cuda:0");
  }
  return failures > 0;
}
