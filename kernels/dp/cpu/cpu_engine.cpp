// SPDX-License-Identifier: GPL-2.0-or-later

#include "cpu_engine.h"

#include "../../cpu/driver.h"
#include "../../cpu/instruction_set.h"
#include "backend.h"

#include <utility>

namespace pwmlff {
namespace {

class DPCpuEngine : public DPEngine {
 public:
  DPCpuEngine(DPNetwork network, DPPrecision precision, const std::vector<bool> &present) :
      DPEngine(std::move(network), precision, present, nullptr),
      driver(std::unique_ptr<Program>(PWMLFF_IN_USE(make_dp_program(
                 {&network_, &splines.tables, &this->present, precision == DPPrecision::mixed}))),
             present, network_.sel)
  {
    table_bytes_ = driver.program().table_bytes();
    splines.tables.clear();
  }

  const Evaluation &evaluate(const Input &input) override { return driver.evaluate(input); }

 private:
  Driver driver;
};

}    // namespace

std::unique_ptr<DPEngine> make_cpu_engine(DPNetwork network, DPPrecision precision,
                                          const std::vector<bool> &present)
{
  return std::make_unique<DPCpuEngine>(std::move(network), precision, present);
}

}    // namespace pwmlff
