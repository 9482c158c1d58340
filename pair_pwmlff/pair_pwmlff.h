/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#ifndef LMP_PAIR_PWMLFF_H
#define LMP_PAIR_PWMLFF_H

#include "pair.h"

#include <memory>

namespace LAMMPS_NS {

/// Pair style pwmlff: energy, forces and virial from one TorchScript model, and the deviation of
/// further models from it. The commands are described in docs/pair_pwmlff.md.
class PairPWMLFF : public Pair {
 public:
  PairPWMLFF(class LAMMPS *);
  ~PairPWMLFF() override;

  void compute(int eflag, int vflag) override;
  void settings(int narg, char **arg) override;
  void coeff(int narg, char **arg) override;
  void init_style() override;
  double init_one(int i, int j) override;

  int pack_reverse_comm(int n, int first, double *buf) override;
  void unpack_reverse_comm(int n, int *list, double *buf) override;

 private:
  struct Impl;    // keeps torch and the model classes out of this header
  std::unique_ptr<Impl> impl;

  void allocate();
  void choose_device();
  void load_models();
  void check_ensemble();
  void check_units();
  void log_models();
  bool on_all_ranks(bool here) const;
  bool can_find_neighbors() const;
  bool has_exclusions() const;
  int absent_groups() const;
  void request_neighbors();
  void update_neighbors();
  [[noreturn]] void stop_rank(const std::string &text);
  void evaluate(int model);
  void write_deviation();
};

}    // namespace LAMMPS_NS

#endif
