// SPDX-License-Identifier: GPL-2.0-or-later

#include "recorded_model.h"

#include "core/cpu/instruction_set.h"
#include "engine_choice.h"
#include "placement/device_mapping.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace pwmlff::models {
namespace {

/// What the file's own code gave; the code itself where that is not enough.
class RecordedCode : public Original {
 public:
  RecordedCode(ModelInfo info, std::string contents, Record record, EngineOptions options) :
      Original(std::move(info)),
      contents(std::move(contents)),
      record_(std::move(record)),
      options(std::move(options))
  {
  }

  const Record &record() const { return record_; }

  void select_species(const std::vector<bool> &selected) override
  {
    present = selected;
    if (loaded) loaded->select_species(present);
  }
  Expected expected(const std::vector<bool> &selected) override
  {
    const Record::Trial *const trial = record_.trial(selected);
    const bool usable = trial && trial->identity == identity_of_clusters(info_, selected);
    return usable ? Expected{"the file's own code", trial->clusters}
                  : expected_of(code(), selected);
  }
  void get_ready() override { code(); }

  std::string name() const override { return "torchscript"; }
  std::string engine() const override { return code().engine(); }
  bool on_gpu() const override { return false; }
  Needs needs() const override { return code().needs(); }
  bool has_atom_virial() const override { return code().has_atom_virial(); }
  Gate gate() const override { return record_.gate; }
  bool has_gpu_code() const override { return true; }
  std::unique_ptr<Model> copy_to_gpu(int gpu) const override
  {
    EngineOptions there = own_code();
    there.gpu = gpu;
    there.gpu_demanded = gpu != pwmlff::CPU;
    return load(there);
  }
  const Evaluation &evaluate(const Input &input) override { return code().evaluate(input); }

 private:
  EngineOptions own_code() const
  {
    EngineOptions changed = options;
    changed.engine = Engine::torchscript;
    changed.gpu = -1;
    changed.gpu_demanded = false;
    return changed;
  }

  std::unique_ptr<Model> load(const EngineOptions &with) const
  {
    if (options.open_torch) options.open_torch();
    std::unique_ptr<Model> model = torch_part().load(info_.file, contents, with);
    model->select_species(present);
    return model;
  }

  Model &code() const
  {
    if (!loaded) loaded = load(own_code());
    return *loaded;
  }

  std::string contents;
  Record record_;
  EngineOptions options;
  std::vector<bool> present;
  mutable std::unique_ptr<Model> loaded;
};

class RecordedModel : public EngineChoice {
 public:
  RecordedModel(std::unique_ptr<RecordedCode> code, const EngineOptions &options) :
      EngineChoice(std::move(code), options)
  {
    pwmlff::instruction_set_name();    // a wrong PWMLFF_CPU is an error
  }

 private:
  std::vector<Candidate> candidates(const std::vector<bool> &present) const override
  {
    const Record &record = static_cast<const RecordedCode &>(*original).record();
    return fused_candidates(record.network.get(), {}, present);
  }
};

}    // namespace

std::unique_ptr<Model> make_recorded_model(const std::string &file, const std::string &contents,
                                           Record record, const EngineOptions &options)
{
  ModelInfo info = record.info;
  info.file = file;
  return std::make_unique<RecordedModel>(
      std::make_unique<RecordedCode>(std::move(info), contents, std::move(record), options),
      options);
}

}    // namespace pwmlff::models
