// SPDX-License-Identifier: GPL-2.0-or-later

// Pair style pwmlff: its commands, and the sums into LAMMPS's arrays.

#pragma once

#include "atom_charges.h"
#include "calibration.h"
#include "coulomb_mesh.h"
#include "deviation_recorder.h"
#include "distance_guard.h"
#include "engine_check.h"
#include "ensemble.h"
#include "extrapolation.h"
#include "graph_budget.h"
#include "halo_exchange.h"
#include "kokkos_atoms.h"
#include "loader.h"
#include "neighbor_source.h"
#include "pair_settings.h"
#include "rank_placement.h"
#include "supervision.h"

#include "pair.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pwmlff {
struct Evaluation;
}

namespace LAMMPS_NS {

/// Energy, forces and virial from one model file, and the deviation of further models from it. The
/// commands are described in docs/pair_pwmlff.md.
class PairPWMLFF : public Pair {
 public:
  /// @param style  its name in the input; other programs' names come with their defaults and forms
  PairPWMLFF(class LAMMPS *, const std::string &style, pair_pwmlff::OpenTorch *open_torch);
  ~PairPWMLFF() override;

  void compute(int eflag, int vflag) override;
  void settings(int narg, char **arg) override;
  void coeff(int narg, char **arg) override;
  void init_style() override;
  double init_one(int i, int j) override;

  int pack_forward_comm(int n, int *list, double *buf, int pbc_flag, int *pbc) override;
  void unpack_forward_comm(int n, int first, double *buf) override;
  int pack_reverse_comm(int n, int first, double *buf) override;
  void unpack_reverse_comm(int n, int *list, double *buf) override;

  /// Scalars: "cutoff" (double, of the models; a copy), of models with charges "cut_coul" for
  /// kspace styles, "nmodels" (int), and for fix pair the flags (int) "energy_flag", "charge_flag",
  /// "potential_flag", "born_flag", "gamma_flag", "force_deviation_flag" and
  /// "energy_deviation_flag": where one of the last two is 1, the models are compared at the next
  /// evaluation whatever out_freq is. The flags live as long as this object. Matrix: "scale"
  /// [ntypes+1, ntypes+1] of energies and forces, for fix adapt and compute ti; the same for all
  /// types that an element is mapped to.
  /// @return null for another name, or where there is no such quantity
  void *extract(const char *name, int &dim) override;

  /// [nlocal] in LAMMPS's units: "energy" of each atom at the last evaluation, by what drives;
  /// likewise, in e and V, "charge", "potential" and "born" [nlocal][9] (AtomCharges);
  /// "force_deviation" and "energy_deviation" (DeviationRecorder); "gamma", the first
  /// model's extrapolation grade (Extrapolation), where gamma_flag or the keyword asked for it.
  /// @return null for another name, or where it has not been computed on this step
  void *extract_peratom(const char *name, int &ncol) override;

  /// Bytes on this rank: the arrays of the pair style, the list of neighbors, the ensemble's
  /// arrays, parameters as float64. Tables and scratch of engines, torch and GPUs are not counted.
  double memory_usage() override;

 protected:
  pair_pwmlff::HaloExchange halo;

 private:
  const std::string style;
  pair_pwmlff::OpenTorch *const open_torch;
  std::unique_ptr<pair_pwmlff::KokkosAtoms> kokkos;    // of styles with /kk, where it runs
  std::string no_kokkos;                               // why it does not
  bool has_torch = false;                              // open_torch was called

  // From pair_style; all of it anew with each.
  pair_pwmlff::Settings options;
  pair_pwmlff::DeviceChoice device;
  pair_pwmlff::Ensemble models;
  std::vector<std::string> hashes;    // SHA-256 of their files, where something asks for them
  std::unique_ptr<pair_pwmlff::NeighborSource> source;
  std::unique_ptr<pair_pwmlff::DeviationRecorder> recorder;    // of several models
  std::unique_ptr<pair_pwmlff::Calibration> calibration;       // where it is asked for
  std::unique_ptr<pair_pwmlff::EngineCheck> check;             // likewise
  std::unique_ptr<pair_pwmlff::DistanceGuard> guard;           // likewise
  std::unique_ptr<pair_pwmlff::Extrapolation> extrapolation;
  std::unique_ptr<pair_pwmlff::GraphBudget> budget;
  std::unique_ptr<pair_pwmlff::AtomCharges> charges;    // of models that have them
  std::unique_ptr<pair_pwmlff::CoulombMesh> mesh;
  std::unique_ptr<pair_pwmlff::Supervision> supervision;

  // From pair_coeff.
  std::vector<int> species_of_type;    // [ntypes+1] -1 for NULL
  double energy_unit = 1.0;            // LAMMPS's unit of energy in the model's
  bool has_atom_virial = false;        // on all ranks
  bool has_grade = false;              // likewise, of the first model
  bool logged = false;                 // models and devices are in the log
  std::optional<bool> was_resident;    // as the log says

  // What extract() and extract_peratom() give out.
  double cutoff = 0.0;
  int nmodels = 0;
  double **scale = nullptr;              // [ntypes+1, ntypes+1]
  std::array<double, 6> deviations{};    // of compute pair: take_deviation()
  int energy_flag = 0, charge_flag = 0, born_flag = 0, gamma_flag = 0, force_deviation_flag = 0,
      energy_deviation_flag = 0;
  bool wants_atom_energy = false, wants_born = false;
  std::vector<double> atom_energy;    // [nlocal]
  bigint atom_energy_step = -1;

  void allocate();
  void reset(pair_pwmlff::Settings with = {});
  void clear_mapping();
  void choose_device();
  void load(const std::vector<std::string> &files);
  void take_torch();
  double unit_of_energy() const;
  std::vector<int> species_of_names(int nnames, char **names) const;
  std::string select_species(const std::vector<int> &mapping);
  void take_engines();
  void log_models();
  std::string kokkos_line() const;
  void refuse_probes() const;
  void init_charges();
  std::string device_label() const;
  [[noreturn]] void stop_rank(const std::string &text);
  template <typename Work> void or_stop_rank(Work &&work);
  template <typename Work> void or_stop_with_frame(Work &&work);
  double common_scale() const;
  bool wanted_by_compute() const;
  void take_deviation(bool graded);
  [[noreturn]] void stop_all(const std::string &text);
  /// What is wanted of an evaluation besides sums.
  struct Wanted {
    bool grade, rows;
    double *forces;    // where KOKKOS has them, to be added to; null: they are tallied
    double weight;     // of a model that drives
  };
  const pwmlff::Evaluation &evaluate(int model, const Wanted &wanted);
  bool all_finite(const double *values, std::ptrdiff_t n) const;
  void require_finite(int model, const pwmlff::Evaluation &result) const;
  const pwmlff::Evaluation *evaluate_here(int model, const Wanted &wanted);
  void compute_there(int eflag, int vflag);
  void tally(const pwmlff::Evaluation &result, const Wanted &wanted);
};

}    // namespace LAMMPS_NS
