// SPDX-License-Identifier: GPL-2.0-or-later

#ifndef LMP_PAIR_PWMLFF_H
#define LMP_PAIR_PWMLFF_H

#include "pair.h"

#include <memory>
#include <string>
#include <vector>

namespace pwmlff {
struct Evaluation;
}

namespace LAMMPS_NS {

/// Pair style pwmlff: energy, forces and virial from one TorchScript model, and the deviation of
/// further models from it. The commands are described in docs/pair_pwmlff.md.
class PairPWMLFF : public Pair {
 public:
  /// @param style  its name in the input; the names of MatPL's styles come with MatPL's defaults
  PairPWMLFF(class LAMMPS *, const std::string &style);
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
  std::string style;

  void allocate();
  void reset();
  void forget_mapping();
  void choose_device();
  double unit_of_energy() const;
  std::string select_species(const std::vector<int> &species_of_type);
  void log_models();
  std::string place() const;
  [[noreturn]] void stop_rank(const std::string &text);
  const pwmlff::Evaluation &evaluate(int model);
  void tally(const pwmlff::Evaluation &result);
};

}    // namespace LAMMPS_NS

#endif
