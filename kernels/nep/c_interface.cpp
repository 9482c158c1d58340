// SPDX-License-Identifier: GPL-2.0-or-later

#include "c_interface.h"

#include "plain_nep.h"
#include "read_nep.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

using pwmlff::Evaluation;
using pwmlff::Input;

struct pwmlff_nep {
  explicit pwmlff_nep(pwmlff::NepNetwork network) : plain(std::move(network))
  {
    for (const std::string &warning : plain.network().warnings) warnings += warning + "\n";
  }

  pwmlff::PlainNep plain;
  std::string warnings;
};

namespace {

/// The text of an error is left in message.
/// @return whether there was none
template <class Work> bool succeeds(Work work, char *message, int size)
try {
  work();
  return true;
} catch (const std::exception &error) {
  std::snprintf(message, static_cast<std::size_t>(size), "%s", error.what());
  return false;
}

}    // namespace

pwmlff_nep *pwmlff_read_nep(const char *text, uint64_t size, char *message, int message_size)
{
  std::unique_ptr<pwmlff_nep> model;
  succeeds([&] { model = std::make_unique<pwmlff_nep>(pwmlff::read_nep({text, size})); }, message,
           message_size);
  return model.release();
}

void pwmlff_free_nep(pwmlff_nep *model) { delete model; }

int pwmlff_looks_like_nep(const char *contents, uint64_t size)
{
  return pwmlff::looks_like_nep({contents, size});
}

int pwmlff_nep_species(const pwmlff_nep *model) { return model->plain.network().nspecies(); }
int pwmlff_nep_descriptors(const pwmlff_nep *model)
{
  return model->plain.network().ndescriptors();
}
double pwmlff_nep_cutoff(const pwmlff_nep *model) { return model->plain.network().cutoff(); }
const char *pwmlff_nep_warnings(const pwmlff_nep *model) { return model->warnings.c_str(); }

void pwmlff_nep_elements(const pwmlff_nep *model, int *atom_type)
{
  const auto &elements = model->plain.network().atom_type;
  std::copy(elements.begin(), elements.end(), atom_type);
}

int pwmlff_evaluate_nep(pwmlff_nep *model, int ncenters, int nrows, const double *x,
                        const int *species, const int *first, const int *candidate,
                        double temperature, double *energy, double *atom_energy,
                        double *descriptors, double *force, double *virial, double *atom_virial,
                        double *centroid_virial, char *message, int message_size)
{
  const auto work = [&] {
    Input input;
    input.ncenters = ncenters;
    input.nrows = nrows;
    input.x = x;
    input.species = species;
    input.first = first;
    input.candidate = candidate;
    input.temperature = temperature;
    input.want_atom_virial = input.want_centroid_virial = true;
    const Evaluation &found = model->plain.evaluate(input);
    const std::size_t rows = nrows;
    *energy = found.energy;
    std::copy_n(found.atom_energy, ncenters, atom_energy);
    std::copy_n(model->plain.descriptors().data(), model->plain.descriptors().size(), descriptors);
    std::copy_n(found.force, 3 * rows, force);
    std::copy_n(found.virial.data(), 9, virial);
    std::copy_n(found.atom_virial, 6 * rows, atom_virial);
    std::copy_n(found.centroid_virial, 9 * rows, centroid_virial);
  };
  return succeeds(work, message, message_size) ? 0 : -1;
}
