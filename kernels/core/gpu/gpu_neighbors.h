// SPDX-License-Identifier: GPL-2.0-or-later

// Atoms and their candidates for neighbors on a device, shared by all models of an ensemble.
//
// Rows are atoms, the first ncenters of them those whose energies are wanted. A list is taken from
// the host or made on the device by a cell list; it serves until the atoms have moved too far, and
// only positions go up in between.

#pragma once

#include "../device.h"
#include "../export.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pwmlff {

/// @throws std::runtime_error where a list of so many entries is too long for 32-bit indices
PWMLFF_KERNELS_API void require_short_list(std::int64_t nentries);

class PWMLFF_KERNELS_API GpuNeighbors {
 public:
  explicit GpuNeighbors(const std::shared_ptr<Device> &device);
  ~GpuNeighbors();
  GpuNeighbors(const GpuNeighbors &) = delete;
  GpuNeighbors &operator=(const GpuNeighbors &) = delete;

  /// Take a list that the host has made.
  /// @param species [nrows] of the model, or -1: takes no part
  /// @param first [ncenters*nspecies + 1]
  /// @param candidate rows of species s near center i, from first[i*nspecies+s] up to
  ///                  first[i*nspecies+s+1]
  void assign(int ncenters, int nrows, int nspecies, const int *species, const int *first,
              const int *candidate);

  /// Make the list of all rows closer than `reach` to a center, in an order that depends on the
  /// positions only, which update() or follow() has given for so many rows. They are Cartesian;
  /// images are rows of their own.
  /// @param species [nrows]
  /// @throws std::runtime_error where the list would be too long for 32-bit indices
  void build(int ncenters, int nrows, int nspecies, const int *species, double reach);

  /// Send the current positions [nrows, 3], which so many threads copy. They may change again at
  /// once.
  void update(int nrows, const double *x, int nthreads = 1);

  /// Take positions [nrows, 3] that somebody else keeps on this device. They stay as they are until
  /// what uses them has been waited for.
  void follow(const double *x);

  const std::shared_ptr<Device> &device() const;
  int ncenters() const;
  int most_candidates() const;                        // of one center
  std::int64_t ncandidates() const;                   // of all
  std::int64_t generation() const;                    // of the list; no other list has it
  const std::vector<int> &species_of_rows() const;    // [nrows]

  // On the device.
  const double *x() const;
  const int *species() const;
  const int *first() const;
  const int *candidate() const;
  /// [ncandidates] by FindPartners, found once for a list
  const int *partner() const;

  /// The list, for those who want to look at it.
  void download(std::vector<int> &first, std::vector<int> &candidate) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation;
};

}    // namespace pwmlff
