// SPDX-License-Identifier: GPL-2.0-or-later

#include "dp_model.h"

#include "../fused_model.h"
#include "core/cpu/instruction_set.h"
#include "dp_arrays.h"
#include "families/dp/read_dp.h"

#include <stdexcept>
#include <utility>

namespace pwmlff::models {

/* ---- DPTorchScript ---- */

DPTorchScript::DPTorchScript(const ModelFile &file, ModelInfo info) :
    FileCode(file, std::move(info))
{
  describe_dp(file, info_);
  code.check_forward(
      4, 5,
      "forward(Tensor list_neigh, Tensor Imagetype_map, Tensor atom_type, Tensor ImageDR, int "
      "nghost) -> (Etot, Ei, Force, Egroup, Virial)");
  DPTorchScript::select_species(std::vector<bool>(info_.atom_type.size(), true));
}

std::unique_ptr<FileCode> DPTorchScript::copy_to(c10::Device device) const
{
  auto copy = std::make_unique<DPTorchScript>(*this);
  copy->code = code.copy_to(device);
  copy->atom_type = atom_type.to(device);
  return copy;
}

void DPTorchScript::select_species(const std::vector<bool> &present)
{
  // Each element once, in the order of the model: the descriptor is divided by the number of
  // entries, and atomic energies come back grouped in this order. With `sel` all are named.
  species.clear();
  std::vector<int> numbers;
  for (std::size_t s = 0; s < info_.atom_type.size(); ++s) {
    if (!present[s] && info_.sel.empty()) continue;
    species.push_back(static_cast<int>(s));
    numbers.push_back(info_.atom_type[s]);
  }
  atom_type = torch::tensor(numbers, torch::kInt32).to(code.device());
}

const Evaluation &DPTorchScript::evaluate(const Input &input)
{
  const std::int64_t ncenters = input.ncenters, nrows = input.nrows, nslots = input.nslots;
  std::vector<int> species_of_row(input.species, input.species + ncenters);
  const c10::IValue output = code.call(
      "forward",
      {
          code.upload(0, torch::from_blob(input.slot_row, {1, ncenters, nslots}, torch::kInt32)),
          code.upload(1, torch::from_blob(species_of_row.data(), {ncenters}, torch::kInt32)),
          atom_type,
          code.upload(2,
                      torch::from_blob(input.slot_rij, {1, ncenters, nslots, 4}, torch::kFloat64)),
          nrows - ncenters,
      });
  const std::vector<c10::IValue> elements = output.toTupleRef().elements().vec();
  const at::Tensor etot = code.download(elements[0], "Etot", {1, 1});
  const at::Tensor ei = code.download(elements[1], "Ei", {1, ncenters});
  force = code.download(elements[2], "Force", {1, nrows, 3});
  const at::Tensor virial = code.download(elements[4], "Virial", {1, 9});

  result.energy = *etot.data_ptr<double>();
  result.force = force.data_ptr<double>();
  result.virial = in_order_of_lammps(virial.data_ptr<double>());

  // Energies come grouped by species; put them back in the order of the rows.
  atom_energy.resize(ncenters);
  const double *energy = ei.data_ptr<double>();
  for (const int s : species)
    for (std::int64_t row = 0; row < ncenters; ++row)
      if (input.species[row] == s) atom_energy[row] = *energy++;
  result.atom_energy = atom_energy.data();
  return result;
}

/* ---- DPModel ---- */

DPModel::DPModel(const ModelFile &file, ModelInfo info, const EngineOptions &options) :
    EngineChoice(std::make_unique<DPTorchScript>(file, std::move(info)), options)
{
  if (options.engine == Engine::torchscript) return;
  pwmlff::instruction_set_name();    // a wrong PWMLFF_CPU is an error, not a reason for TorchScript
  try {
    arrays_ = dp_arrays(file, info_);
    guess_plain_layers();
    network = pwmlff::read_network(arrays_);
  } catch (const std::exception &error) {
    unreadable = first_line(error);
    if (options.engine == Engine::fused)
      throw std::runtime_error("model file " + in_quotes(info_.file) +
                               " cannot be run by the fused engine: " + unreadable +
                               "; use engine auto or torchscript");
  }
}

// The parameters of some files do not tell whether a layer adds its input; exporters of PWMLFF and
// MatPL write such as do.
void DPModel::guess_plain_layers()
{
  if (!pwmlff::read_dp(arrays_).ambiguous) return;
  const std::vector<bool> all(info_.atom_type.size(), true);
  arrays_.set("plain_layers", 1);
  const auto make = [&] {
    return std::make_unique<FusedModel>(
        info_, "exact", pwmlff::read_network(arrays_)->engine({pwmlff::Precision::exact, all}));
  };
  std::string reason;
  if (!verified([&] { return original->expected(all); }, all, gate_of("exact"), make, reason))
    arrays_.set("plain_layers", 0);
}

std::vector<EngineChoice::Candidate> DPModel::candidates(const std::vector<bool> &present) const
{
  if (options.engine == Engine::torchscript) return {};
  return fused_candidates(network.get(), unreadable, present);
}

}    // namespace pwmlff::models
