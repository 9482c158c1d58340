// SPDX-License-Identifier: GPL-2.0-or-later

// A Deep Potential out of arrays:
//
//   rmin, rmax, m2
//   atom_type [ntypes]
//   sel [ntypes]                     and the number 1 as all_species where those of all types count
//   davg, dstd [ntypes, ntypes, 4]
//   embedding_net.P.layers.L.weight [in, out], .bias and .resnet_dt [out]
//                                    for each pair P, center first; what is not there is 0 and 1
//   fitting_net.A.layers.L...        likewise for each type
//   type_vector [ntypes, n]          the last embedding net takes it of the neighbor beside R~_0
//                                    and serves all pairs
//   plain_layers                     1 or 0: whether a hidden fitting layer after the first that
//                                    keeps the width adds its input where it has no resnet_dt;
//                                    exporters of PWMLFF and MatPL mean 1
//   zbl_radii [ntypes*ntypes, 2]     inner and outer radius, 0 and 0 for pairs without ZBL
//   grade_mean [ntypes, n], grade_factor [ntypes, n, n]
//
// all_species and what stands behind the fitting nets may be left out.

#pragma once

#include "../../core/arrays.h"
#include "network.h"

namespace pwmlff {

/// @throws std::runtime_error that names what is missing, unknown or of the wrong shape
PWMLFF_KERNELS_API DPNetwork read_dp(const Arrays &arrays);

}    // namespace pwmlff
