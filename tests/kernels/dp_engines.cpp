// SPDX-License-Identifier: GPL-2.0-or-later

// A small Deep Potential without torch, whose neighbors and positions are on the device: the same
// numbers as from the host, and no more bytes up and down than these take. Exits with 1 where
// something differs.

#include "comparison.h"

#include "core/device.h"
#include "core/gpu/gpu_neighbors.h"
#include "families/dp/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace pwmlff;
using ::compare;

constexpr int NROWS = 14, NCENTERS = 9, NSPECIES = 2, SLOTS = 20;

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
  compare(name + "energy", &found.energy, &energy, 1, 1e-12);
  compare(name + "virial", found.virial.data(), virial.data(), 9, 1e-12);
  std::vector<double> sums(3 * NROWS), wanted;
  sum.download(sums.data(), sums.size());
  device->synchronize();
  for (const double f : force) wanted.push_back(1.0 - 2.0 * f - 2.0 * f);
  compare(name + "sums of forces", sums.data(), wanted.data(), 3 * NROWS, 1e-11);

  std::copy_n(atoms.x.begin(), 3, atoms.x.begin() + 3);    // one atom on another
  x.assign(atoms.x);
  device->synchronize();
  engine->evaluate(input);
  if (found.known_finite || !found.force || !found.atom_energy) {
    std::cout << name << "where a force is no number, arrays are not on the host\n";
    ++failures;
  }
}

}    // namespace

int main()
{
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
  return failures > 0;
}
