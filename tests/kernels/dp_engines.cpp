// SPDX-License-Identifier: GPL-2.0-or-later

// A small Deep Potential without torch. Energies are compared with the formulas of
// families/dp/network.h as they stand there, forces, virials and gradients by parameters with
// finite differences, and the codes for all processors with each other. Exits with 1 where
// something differs.

#include "core/device.h"
#include "core/gpu/gpu_neighbors.h"
#include "families/dp/engine.h"
#include "training/training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;

constexpr int NROWS = 14, NCENTERS = 9, NSPECIES = 2, SLOTS = 20;

int failures = 0;

void expect_close(const std::string &what, const double *found, const double *wanted, int n,
                  double tolerance)
{
  double worst = 0.0;
  for (int k = 0; k < n; ++k) worst = std::max(worst, std::abs(found[k] - wanted[k]));
  if (worst <= tolerance) return;
  std::cout << what << " differ by " << worst << ", allowed are " << tolerance << "\n";
  ++failures;
}

double uniform(double low, double high)
{
  static std::mt19937 generator(1);
  return low + (high - low) * (generator() / 4294967296.0);
}

std::vector<double> numbers(std::size_t n, double low, double high)
{
  std::vector<double> result(n);
  for (double &value : result) value = uniform(low, high);
  return result;
}

DPNet net(const std::vector<int> &widths, bool embedding)
{
  DPNet result;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    const int in = widths[l], out = widths[l + 1];
    const bool residual =
        embedding ? out == in || out == 2 * in : l > 0 && l + 2 < widths.size() && in == out;
    result.layers.push_back(
        {in, out, numbers(static_cast<std::size_t>(in) * out, -0.5, 0.5), numbers(out, -0.2, 0.2),
         residual ? numbers(out, 0.5, 1.0) : std::vector<double>(out, 1.0), residual});
  }
  return result;
}

DPNetwork random_network()
{
  DPNetwork network{};
  network.rmin = 1.5;
  network.rmax = 4.5;
  network.sel = {SLOTS, SLOTS - 3};
  network.width = 8;
  network.m2 = 3;
  network.atom_type = {8, 72};
  network.davg = numbers(4 * NSPECIES * NSPECIES, -0.05, 0.05);
  network.dstd = numbers(4 * NSPECIES * NSPECIES, 0.1, 0.3);
  for (int pair = 0; pair < NSPECIES * NSPECIES; ++pair)
    network.embedding.push_back(net({1, 4, 8}, true));
  for (int a = 0; a < NSPECIES; ++a) network.fitting.push_back(net({24, 6, 6, 1}, false));
  check_network(network);
  return network;
}

/// Atoms, and all pairs as candidates.
struct Atoms {
  std::vector<double> x;
  std::vector<int> species, first{0}, candidate;

  Atoms()
  {
    while (static_cast<int>(x.size()) < 3 * NROWS) {
      const std::vector<double> trial = numbers(3, 0.0, 5.0);
      bool close = false;
      for (std::size_t k = 0; k < x.size(); k += 3)
        close |= std::hypot(trial[0] - x[k], trial[1] - x[k + 1], trial[2] - x[k + 2]) < 1.2;
      if (!close) x.insert(x.end(), trial.begin(), trial.end());
    }
    for (int i = 0; i < NROWS; ++i) species.push_back(i % 3 == 0);
    for (int i = 0; i < NCENTERS; ++i)
      for (int s = 0; s < NSPECIES; ++s) {
        for (int j = 0; j < NROWS; ++j)
          if (j != i && species[j] == s) candidate.push_back(j);
        first.push_back(static_cast<int>(candidate.size()));
      }
  }
};

std::vector<double> evaluate(const DPNet &net, std::vector<double> x, bool linear_end)
{
  for (std::size_t l = 0; l < net.layers.size(); ++l) {
    const DPLayer &layer = net.layers[l];
    std::vector<double> y(layer.bias);
    for (int o = 0; o < layer.out; ++o) {
      for (int i = 0; i < layer.in; ++i) y[o] += x[i] * layer.weight[i * layer.out + o];
      if (linear_end && l + 1 == net.layers.size()) continue;
      y[o] = layer.step[o] * std::tanh(y[o]) + (layer.residual ? x[o % layer.in] : 0.0);
    }
    x = y;
  }
  return x;
}

/// Energies of the centers, from the formulas.
std::vector<double> energies(const DPNetwork &network, const std::vector<double> &x,
                             const std::vector<int> &species)
{
  std::vector<double> result;
  for (int i = 0; i < NCENTERS; ++i) {
    std::vector<std::array<double, 4>> moments(network.width, std::array<double, 4>{});
    const auto add = [&](int b, const double *environment, double slots) {
      const int pair = species[i] * NSPECIES + b;
      double r[4];
      for (int c = 0; c < 4; ++c)
        r[c] = (environment[c] - network.davg[4 * pair + c]) / network.dstd[4 * pair + c];
      const std::vector<double> g = evaluate(network.embedding[pair], {r[0]}, false);
      for (int m = 0; m < network.width; ++m)
        for (int c = 0; c < 4; ++c)
          moments[m][c] += slots * r[c] * g[m] / (network.sel[0] + network.sel[1]);
    };
    int used[NSPECIES] = {};
    for (int j = 0; j < NROWS; ++j) {
      const double d[3] = {x[3 * j] - x[3 * i], x[3 * j + 1] - x[3 * i + 1],
                           x[3 * j + 2] - x[3 * i + 2]};
      const double r = std::hypot(d[0], d[1], d[2]);
      if (j == i || r >= network.rmax) continue;
      const double u = std::max(0.0, (r - network.rmin) / (network.rmax - network.rmin));
      const double s = (u * u * u * (-6.0 * u * u + 15.0 * u - 10.0) + 1.0) / r;
      const double environment[4] = {s, s * d[0] / r, s * d[1] / r, s * d[2] / r};
      add(species[j], environment, 1.0);
      ++used[species[j]];
    }
    const double empty[4] = {};
    for (int b = 0; b < NSPECIES; ++b) add(b, empty, network.sel[b] - used[b]);
    std::vector<double> descriptor;
    for (int m = 0; m < network.width; ++m)
      for (int k = 0; k < network.m2; ++k) {
        double sum = 0.0;
        for (int c = 0; c < 4; ++c) sum += moments[m][c] * moments[k][c];
        descriptor.push_back(sum);
      }
    result.push_back(evaluate(network.fitting[species[i]], descriptor, true)[0]);
  }
  return result;
}

/// Slope of a function at 0.
template <class Function> double slope(const Function &f)
{
  constexpr double h = 1e-3;    // of sixth order
  return (45.0 * (f(h) - f(-h)) - 9.0 * (f(2 * h) - f(-2 * h)) + f(3 * h) - f(-3 * h)) / (60.0 * h);
}

void test_engines()
{
  const DPNetwork network = random_network();
  const Atoms atoms;
  const auto total = [&](const std::vector<double> &x) {
    double sum = 0.0;
    for (const double energy : energies(network, x, atoms.species)) sum += energy;
    return sum;
  };
  const std::vector<double> energy = energies(network, atoms.x, atoms.species);
  std::vector<double> force, by_row;
  for (int k = 0; k < 3 * NROWS; ++k)
    force.push_back(-slope([&](double h) {
      std::vector<double> x(atoms.x);
      x[k] += h;
      return total(x);
    }));
  for (int k = 0; k < 9; ++k)
    by_row.push_back(-slope([&](double h) {
      std::vector<double> x(atoms.x);
      for (int i = 0; i < NROWS; ++i) x[3 * i + k % 3] += h * atoms.x[3 * i + k / 3];
      return total(x);
    }));
  const std::array<double, 9> virial = in_order_of_lammps(by_row.data());
  const std::vector<bool> present(NSPECIES, true);
  const struct {
    const char *name;
    double energy, force;
  } precisions[] = {{"exact", 1e-10, 1e-8}, {"double", 1e-8, 1e-6}, {"mixed", 1e-6, 1e-4}};
  int sets = 0;
  for (const char *const set : {"baseline", "avx2", "avx512"}) {
    setenv("PWMLFF_CPU", set, 1);
    for (const auto &precision : precisions) try {
        const auto engine = make_dp_engine(network, {precision_of(precision.name), present});
        Input input{NCENTERS,           NROWS,
                    atoms.x.data(),     atoms.species.data(),
                    atoms.first.data(), atoms.candidate.data()};
        input.nthreads = 2;
        const Evaluation &found = engine->evaluate(input);
        const std::string name = std::string(set) + ", " + precision.name;
        expect_close(name + ": energies", found.atom_energy, energy.data(), NCENTERS,
                     precision.energy);
        expect_close(name + ": forces", found.force, force.data(), 3 * NROWS, precision.force);
        expect_close(name + ": virials", found.virial.data(), virial.data(), 9,
                     10 * precision.force);
        ++sets;
      } catch (const std::runtime_error &) {    // this processor does not run it
      }
  }
  unsetenv("PWMLFF_CPU");
  if (sets < 3) ++failures;

  for (const char *const device : {"cpu", "cpu:lanes"})
    for (const auto &precision : precisions) {
      const auto engine =
          make_dp_engine(network, {precision_of(precision.name), present, Device::make(device)});
      GpuNeighbors neighbors(engine->device());
      neighbors.update(NROWS, atoms.x.data());
      neighbors.build(NCENTERS, NROWS, NSPECIES, atoms.species.data(), 5.0);
      Input input{NCENTERS, NROWS};
      input.on_device = &neighbors;
      const Evaluation &found = engine->evaluate(input);
      const std::string name = std::string(device) + ", " + precision.name;
      expect_close(name + ": energies", found.atom_energy, energy.data(), NCENTERS,
                   precision.energy);
      expect_close(name + ": forces", found.force, force.data(), 3 * NROWS, precision.force);
      expect_close(name + ": virials", found.virial.data(), virial.data(), 9, 10 * precision.force);
    }

  DPNetwork wrong = network;
  wrong.m2 = 9;
  try {
    check_network(wrong);
    ++failures;
  } catch (const std::runtime_error &) {
  }
}

/// One lane on the host, which counts the bytes that go up and down.
class CountingDevice : public Device {
 public:
  CountingDevice() : Device(Mode::serial, "counting"), host(Device::make("cpu")) {}

  std::size_t up = 0, down = 0;

  void *allocate(Place place, std::size_t bytes) override { return host->allocate(place, bytes); }
  void release(Place place, void *memory) noexcept override { host->release(place, memory); }
  void upload(void *target, const void *source, std::size_t bytes) override
  {
    up += bytes;
    host->upload(target, source, bytes);
  }
  void download(void *target, const void *source, std::size_t bytes) override
  {
    down += bytes;
    host->download(target, source, bytes);
  }
  void clear(void *memory, std::size_t bytes) override { host->clear(memory, bytes); }
  void synchronize() override {}
  std::size_t memory() const override { return host->memory(); }
  std::size_t largest_scratch() const override { return host->largest_scratch(); }
  int multiprocessors() const override { return host->multiprocessors(); }

 private:
  void launch(const std::function<void(void *, const char **)> &) override {}
  void mark_begin(const char *) override {}
  void mark_end() override {}

  const std::shared_ptr<Device> host;
};

/// Positions and forces that stay on a device, against those that go up and down.
void test_residence(const std::shared_ptr<Device> &device, CountingDevice *counting = nullptr)
{
  const DPNetwork network = random_network();
  Atoms atoms;
  const auto engine =
      make_dp_engine(network, {Precision::tables, std::vector<bool>(NSPECIES, true), device});
  GpuNeighbors sent(device), followed(device);
  sent.update(NROWS, atoms.x.data());
  sent.build(NCENTERS, NROWS, NSPECIES, atoms.species.data(), 5.0);
  Input input{NCENTERS, NROWS};
  input.on_device = &sent;
  const Evaluation &found = engine->evaluate(input);
  const double energy = found.energy;
  const std::array<double, 9> virial = found.virial;
  const std::vector<double> force(found.force, found.force + 3 * NROWS);

  DeviceArray<double> x(device), sum(device);
  x.assign(atoms.x);
  sum.assign(std::vector<double>(3 * NROWS, 1.0));
  device->synchronize();
  followed.follow(x.get());
  followed.build(NCENTERS, NROWS, NSPECIES, atoms.species.data(), 5.0);
  input.on_device = &followed;
  input.force_on_device = sum.get();
  input.force_factor = -2.0;
  input.want_rows = false;
  engine->evaluate(input);    // makes what belongs to this list
  if (counting) counting->up = counting->down = 0;
  engine->evaluate(input);
  const std::string name = device->name() + ", resident: ";
  if (found.force || found.atom_energy) {
    std::cout << name << "there are arrays on the host\n";
    ++failures;
  }
  // Nine of a virial, the energy, two flags.
  if (counting && (counting->up != 0 || counting->down != 12 * sizeof(double))) {
    std::cout << name << counting->up << " bytes up, " << counting->down << " down\n";
    ++failures;
  }
  expect_close(name + "energy", &found.energy, &energy, 1, 1e-12);
  expect_close(name + "virial", found.virial.data(), virial.data(), 9, 1e-12);
  std::vector<double> sums(3 * NROWS), wanted;
  sum.download(sums.data(), sums.size());
  device->synchronize();
  for (const double f : force) wanted.push_back(1.0 - 2.0 * f - 2.0 * f);
  expect_close(name + "sums of forces", sums.data(), wanted.data(), 3 * NROWS, 1e-11);

  std::copy_n(atoms.x.begin(), 3, atoms.x.begin() + 3);    // one atom on another
  x.assign(atoms.x);
  device->synchronize();
  engine->evaluate(input);
  if (found.known_finite || !found.force || !found.atom_energy) {
    std::cout << name << "where a force is no number, arrays are not on the host\n";
    ++failures;
  }
}

void multiply(const Matrix<double> &out, const Matrix<double> &a, const Matrix<double> &b, bool add)
{
  const auto at = [](const Matrix<double> &m, std::int64_t i, std::int64_t j) -> double & {
    return m.data[i * m.rows + j * m.columns];
  };
  for (std::int64_t i = 0; i < out.n; ++i)
    for (std::int64_t j = 0; j < out.m; ++j) {
      double sum = add ? at(out, i, j) : 0.0;
      for (std::int64_t k = 0; k < a.m; ++k) sum += at(a, i, k) * at(b, k, j);
      at(out, i, j) = sum;
    }
}

/// dS/d(parameters) in some directions, S = a E + v.F + w:W of a frame.
void test_training()
{
  const Atoms atoms;
  TrainingModel model{NSPECIES, 8, 3, SLOTS, 12, 1.5, 4.5, {}};
  for (int pair = 0; pair < NSPECIES * NSPECIES; ++pair)
    model.pairs.push_back({1.5, 4.5, 1.0, 3.5 / 11, 11, {0.01, 0.02, -0.01, 0.0}, {5, 4, 6, 5}});
  Training<double> training(model, {6, 6}, {0, 1}, {0, 1}, {multiply});

  std::vector<double> rij;
  std::vector<std::int32_t> j, count;
  std::vector<int> column, width(NSPECIES, TrainingParts<double>::COLUMNS), next(NSPECIES, 0);
  for (int i = 0; i < NROWS; ++i) {
    column.push_back(next[atoms.species[i]]++);
    for (int b = 0; b < NSPECIES; ++b) {
      count.push_back(0);
      for (int k = 0; k < NROWS; ++k) {
        double d[3], squared = 0.0;
        for (int c = 0; c < 3; ++c) {
          d[c] = atoms.x[3 * k + c] - atoms.x[3 * i + c];
          squared += d[c] * d[c];
        }
        if (k == i || atoms.species[k] != b || squared >= 4.5 * 4.5) continue;
        rij.insert(rij.end(), d, d + 3);
        j.push_back(k);
        ++count.back();
      }
    }
  }
  const std::vector<TrainingFrame> frames(1, {NROWS, NSPECIES, atoms.species.data(), column.data(),
                                              rij.data(), j.data(), count.data(), width.data()});
  const std::size_t n = training.nparameters();
  const std::vector<double> parameters = numbers(n, -0.3, 0.3), v = numbers(3 * NROWS, -1, 1),
                            w = numbers(9, -0.1, 0.1);
  const double a = 0.7;
  const auto sum = [&](const std::vector<double> &p) {
    double energy = 0.0;
    std::vector<double> force(3 * NROWS), virial(9);
    training.evaluate(frames, p.data(), 1, &energy, force.data(), virial.data());
    double s = a * energy;
    for (int k = 0; k < 3 * NROWS; ++k) s += v[k] * force[k];
    for (int k = 0; k < 9; ++k) s += w[k] * virial[k];
    return s;
  };
  sum(parameters);
  std::vector<double> row(n);
  training.gradients(parameters.data(), 1, &a, v.data(), w.data(), row.data());
  for (int trial = 0; trial < 5; ++trial) {
    const std::vector<double> direction = numbers(n, -1.0, 1.0);
    double found = 0.0;
    for (std::size_t k = 0; k < n; ++k) found += row[k] * direction[k];
    const double wanted = slope([&](double h) {
      std::vector<double> p(parameters);
      for (std::size_t k = 0; k < n; ++k) p[k] += h * direction[k];
      return sum(p);
    });
    expect_close("gradients", &found, &wanted, 1, 1e-7 * std::max(1.0, std::abs(wanted)));
  }
}

}    // namespace

int main()
{
  test_engines();
  for (const char *const name : {"cpu", "cpu:lanes", "cuda:0"}) {
    std::shared_ptr<Device> device;
    try {
      device = Device::make(name);
    } catch (const std::runtime_error &) {    // there is no GPU here
      continue;
    }
    test_residence(device);
  }
  const auto counting = std::make_shared<CountingDevice>();
  test_residence(counting, counting.get());
  test_training();
  return failures > 0;
}
