// SPDX-License-Identifier: GPL-2.0-or-later

#include "mace_tables.h"

#include "radial.h"

#include <memory>
#include <vector>

namespace pwmlff::PWMLFF_ISA {
namespace {

template <class T> class Tables : public MaceTables<T> {
 public:
  Tables(const MacePlan &plan, int stride, int density)
  {
    for (const MaceLayer &layer : plan.network.layers) {
      layers.push_back(std::make_unique<mace::PackedRadial<T>>(layer, stride, density));
      layers.back()->tabulate(plan, layer);
    }
  }

  MaceTable<T> table(int layer, int pair) const override
  {
    const auto &found = layers[layer]->tables[pair];
    return found ? found->view() : MaceTable<T>{};
  }
  int columns(int layer) const override { return layers[layer]->columns; }
  std::size_t bytes() const override
  {
    std::size_t bytes = 0;
    for (const auto &layer : layers) bytes += layer->table_bytes();
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<mace::PackedRadial<T>>> layers;
};

}    // namespace

template <class T> MaceTables<T> *make_mace_tables(const MacePlan &plan, int stride, int density)
{
  return new Tables<T>(plan, stride, density);
}
template MaceTables<float> *make_mace_tables(const MacePlan &, int, int);
template MaceTables<double> *make_mace_tables(const MacePlan &, int, int);

}    // namespace pwmlff::PWMLFF_ISA
