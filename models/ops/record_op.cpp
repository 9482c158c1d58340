// SPDX-License-Identifier: GPL-2.0-or-later

// torch.ops.pwmlff.engine_record(Tensor archive, Tensor present) -> Tensor
//
//   archive  uint8 [bytes] of a model file of TorchScript, as it will be but for the record
//   present  bool [n, nspecies] species that may take part together
//   returns  uint8, the contents of the extra file "engine-record" (record.h): what the file's own
//            code gives for each of the n
//
// A ValueError where no fused engine gives what the file's own code does.

#include "../dp/dp_model.h"
#include "../engine_choice.h"
#include "../record.h"
#include "checks.h"

#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace pwmlff::models {
namespace {

std::string record_of(const std::string &archive, const std::vector<std::vector<bool>> &selections)
{
  EngineOptions options;
  options.engine = Engine::fused;
  options.precision = "exact";
  const std::unique_ptr<Model> model = torch_part().load("model", archive, options);
  auto &choice = dynamic_cast<EngineChoice &>(*model);
  Record record{};
  record.info = model->info();
  for (const std::vector<bool> &present : selections) {
    choice.select_species(present);
    record.gate = choice.partner()->gate();
    const std::optional<Expected> &expected = choice.expected();
    if (!expected) throw std::logic_error("a fused engine was compared with nothing");
    record.trials.push_back(
        {present, identity_of_clusters(record.info, present), expected->clusters});
  }
  const auto *const dp = dynamic_cast<const DPModel *>(model.get());
  return written(record, dp ? dp->arrays() : nullptr, archive);
}

at::Tensor engine_record(const at::Tensor &archive, const at::Tensor &present)
{
  check_array("archive", archive, at::kByte, {archive.numel()});
  check_array("present", present, at::kBool, {present.size(0), present.size(-1)});
  const std::uint8_t *const bytes = archive.const_data_ptr<std::uint8_t>();
  const std::string contents(bytes, bytes + archive.numel());
  std::vector<std::vector<bool>> selections;
  for (std::int64_t n = 0; n < present.size(0); ++n) {
    const bool *const row = present.const_data_ptr<bool>() + n * present.size(1);
    selections.emplace_back(row, row + present.size(1));
  }
  std::string text, failure;
  try {
    text = record_of(contents, selections);
  } catch (const std::exception &error) {
    failure = first_line(error);
  }
  TORCH_CHECK_VALUE(failure.empty(), failure);
  at::Tensor result = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::ranges::copy(text, result.mutable_data_ptr<std::uint8_t>());
  return result;
}

}    // namespace

TORCH_LIBRARY_FRAGMENT(pwmlff, library)
{
  library.def("engine_record(Tensor archive, Tensor present) -> Tensor", TORCH_FN(engine_record));
}

}    // namespace pwmlff::models
