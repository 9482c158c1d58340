// SPDX-License-Identifier: GPL-2.0-or-later

#include "report.h"

#include "elements.h"
#include "options.h"

#include "atom.h"
#include "error.h"
#include "fmt/format.h"
#include "lammps.h"

#include <cmath>

using namespace LAMMPS_NS;
using namespace pwmlff::models;

namespace pair_pwmlff {

static std::string most_neighbors(const ModelInfo &info)
{
  if (info.max_neighbor == 0) return "";
  std::string most;
  for (std::size_t s = 0; s < info.sel.size(); ++s)
    most += fmt::format("{}{} {}", s > 0 ? ", " : "", info.sel[s], symbol(info.atom_type[s]));
  if (!most.empty()) return ", at most " + most + " neighbors";
  return fmt::format(", at most {} neighbors of an element", info.max_neighbor);
}

std::string describe(const Ensemble &models, const std::string &style,
                     const std::vector<int> &species_of_type, int out_freq,
                     const std::string &out_file)
{
  std::string text = "Pair style pwmlff:\n  pair-pwmlff " PWMLFF_VERSION;
  text += *PWMLFF_COMMIT ? ", commit " PWMLFF_COMMIT "\n" : "\n";
  if (is_matpl(style))
    text += fmt::format("  pair_style {} is run by pair_style pwmlff, with the defaults out_freq 1 "
                        "and out_file explr.error\n",
                        style);
  int index = 0;
  for (const auto &model : models) {
    const ModelInfo &info = model->info();
    const std::string dtype = info.dtype.empty() ? "" : " in " + info.dtype;
    text +=
        fmt::format("  model {}: {}\n    kind {}, elements {}, units {}, cutoff {}{}{}, {} "
                    "parameters{}\n    engine {}\n",
                    ++index, info.file, info.kind, symbols(info.atom_type), info.units, info.cutoff,
                    info.interaction_range > info.cutoff
                        ? fmt::format(", interaction range {}", info.interaction_range)
                        : "",
                    most_neighbors(info), info.nparameters, dtype, model->engine());
  }
  const std::vector<int> &elements = models.front()->info().atom_type;
  text += "  types:";
  for (std::size_t type = 1; type < species_of_type.size(); ++type) {
    const int species = species_of_type[type];
    text += fmt::format("{} {} {}", type > 1 ? "," : "", type,
                        species < 0 ? "NULL" : symbol(elements[species]));
  }
  text += "\n";
  if (models.size() > 1)
    text += fmt::format("  model 1 drives; deviation of {} models every {} steps to {}\n",
                        models.size(), out_freq, out_file);
  return text;
}

void check_masses(LAMMPS *lmp, const ModelInfo &info, const std::vector<int> &species_of_type)
{
  const Atom *const atom = lmp->atom;
  if (info.units != "metal" || !atom->mass) return;    // masses are in g/mol, for types
  constexpr double TOLERANCE = 0.1;
  const auto fits = [](double mass, int number) {
    const double weight = ATOMIC_WEIGHTS[number];
    return std::abs(mass - weight) <= TOLERANCE * weight;
  };
  for (int type = 1; type <= atom->ntypes; ++type) {
    const int species = species_of_type[type];
    if (species < 0 || !atom->mass_setflag[type]) continue;
    const double mass = atom->mass[type];
    const int number = info.atom_type[species];
    if (fits(mass, number)) continue;
    std::string like;
    for (const int other : info.atom_type)
      if (fits(mass, other)) like += (like.empty() ? ", like " : " or ") + symbol(other);
    lmp->error->warning(
        FLERR,
        "Pair style pwmlff: atom type {} has mass {:.6g}{}, but pair_coeff makes it {} ({}); "
        "check the order of the elements",
        type, mass, like, symbol(number), ATOMIC_WEIGHTS[number]);
  }
}

}    // namespace pair_pwmlff
