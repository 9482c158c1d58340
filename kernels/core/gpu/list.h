// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

namespace pwmlff {

/// Atoms and candidates on the device, as in Input.
struct GpuList {
  const double *x;       // [nrows, 3]
  const int *species;    // [nrows]
  const int *first;      // [ncenters*nspecies + 1]
  const int *candidate;
};

}    // namespace pwmlff
