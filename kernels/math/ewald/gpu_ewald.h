// SPDX-License-Identifier: GPL-2.0-or-later

// Potentials of charges on a device by Ewald's sum in reciprocal space (reciprocal_lattice.h), or
// by what a ReciprocalSolver has found.

#pragma once

#include "../../core/device.h"
#include "../../core/evaluation.h"
#include "ewald_kernels.h"
#include "reciprocal_lattice.h"

#include <memory>
#include <vector>

namespace pwmlff {

class GpuEwald {
 public:
  /// @param lattice  outlives this
  GpuEwald(std::shared_ptr<Device> device, ReciprocalLattice &lattice);

  /// What the charges of a rank and of the others do to its atoms. All is on the device.
  struct Charged {
    const double *x;         // [natoms, 3]
    const double *charge;    // [natoms] e; 0 of atoms that take no part
    double *potential;       // [natoms] out, V
    RowSums rows;            // forces, and virials of atoms where they are wanted, are added to
  };

  /// Rows of virials that solve() fills, for this box.
  std::int64_t virial_rows(const Input &input);

  /// The sum of the sizes of structure factors that were added up over ranks; else 0.
  double size_of_sums() const { return size; }

  /// Collective.
  /// @param share   of the virial of all that this rank takes
  /// @param charge  [natoms] the same on the host, which a ReciprocalSolver takes
  /// @param virial  [virial_rows(), 9] on the device
  void solve(const Input &input, const Charged &atoms, double share, const double *charge,
             double *virial);

 private:
  void sum(const Input &input, const Charged &atoms, double share, double *virial);
  void ask(const Input &input, const Charged &atoms, const double *charge, double *virial);
  void find_fields(const double *axis, int nslabs, const Charged &atoms, std::int64_t natoms);

  std::shared_ptr<Device> device;
  ReciprocalLattice &lattice;
  DeviceArray<ReciprocalLattice::Group> groups{device};
  DeviceArray<EwaldPair> pairs{device};
  DeviceArray<double> by_atom{device}, by_power{device}, partial{device}, structure{device},
      coefficients{device}, of_atoms{device};
  HostArray<double> on_host{device};
  std::vector<double> found;    // by a ReciprocalSolver
  double size = 0.0;
  bool is_current = false;    // groups and pairs are those of the lattice
};

}    // namespace pwmlff
