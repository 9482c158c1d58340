// SPDX-License-Identifier: GPL-2.0-or-later

#include "cpu_engine.h"

#include "../../cpu/instruction_set.h"
#include "backend.h"

#include <utility>

namespace pwmlff {
namespace {

class CpuEngine : public DPEngine {
 public:
  CpuEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present) :
      DPEngine(std::move(network), precision, present, nullptr),
      blocks(std::unique_ptr<BlockBackend>(PWMLFF_IN_USE(make_backend(
                 {&network_, &splines.tables, &this->present, precision == DPPrecision::mixed}))),
             present, network_.sel)
  {
    table_bytes_ = blocks.backend().table_bytes();
    splines.tables.clear();
  }

  const Evaluation &evaluate(const Input &input) override { return blocks.evaluate(input); }

 private:
  Blocks blocks;
};

}    // namespace

std::unique_ptr<DPEngine> make_cpu_engine(DPNetwork network, DPPrecision precision,
                                          const std::vector<bool> &present)
{
  return std::make_unique<CpuEngine>(std::move(network), precision, present);
}

}    // namespace pwmlff
