// SPDX-License-Identifier: GPL-2.0-or-later

#include "engine.h"

#include "../../core/cpu/driver.h"
#include "../../core/cpu/instruction_set.h"
#include "cpu/dp_program.h"
#include "gpu/gpu_engine.h"

#include <utility>

namespace pwmlff {
namespace {

class DPCpuEngine : public DPEngine {
 public:
  DPCpuEngine(const DPNetwork &network, const EngineSettings &settings) :
      DPEngine(network, settings),
      driver(std::unique_ptr<Program>(PWMLFF_IN_USE(make_dp_program(
                 {&network_, &splines.tables, &present, settings.precision == Precision::mixed}))),
             settings.present, network_.sel)
  {
    table_bytes_ = driver.program().table_bytes();
    splines.tables.clear();
  }

  const Evaluation &evaluate(const Input &input) override { return driver.evaluate(input); }

 private:
  Driver driver;
};

}    // namespace

DPEngine::DPEngine(DPNetwork network, const EngineSettings &settings) :
    FusedEngine(settings.device),
    network_(std::move(network)),
    taking_part(settings.present),
    present(network_.with_slots(settings.present)),
    splines(network_, settings.precision, present)
{
  table_error_ = {splines.value_error, splines.slope_error};
  has_grade_ = !network_.grades.empty();
}

std::unique_ptr<FusedEngine> make_dp_engine(const DPNetwork &network,
                                            const EngineSettings &settings)
{
  if (settings.device) return make_dp_gpu_engine(network, settings);
  return std::make_unique<DPCpuEngine>(network, settings);
}

}    // namespace pwmlff
