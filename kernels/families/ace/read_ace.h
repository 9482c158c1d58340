// SPDX-License-Identifier: GPL-2.0-or-later

// Reads files of ACE: .yace of pacemaker, the YAML of GRACE/FS, and the older .ace, which is text;
// and gives a network as arrays.
//
// Arrays have the names and shapes of network.h: atom_type, energy, chemical, and of bonds radial,
// nbase, bonds [bonds, 7] (lambda, rcut, dcut, rcut_in, dcut_in, prehc, lambdahc) and crad [bonds,
// nradial, l_max + 1, nbase]. Those of species k begin with species.k. and a dot.

#pragma once

#include "../../core/arrays.h"
#include "network.h"

#include <string_view>

namespace pwmlff {

/// Whether contents begin as such a file does, also one that is refused. Looks at its first key.
PWMLFF_KERNELS_API bool looks_like_ace(std::string_view contents);

/// @throws std::runtime_error for a file that is damaged; the text goes on after the name of the
///         file, and has the line, what was found, what was expected, and what to do
/// @throws std::invalid_argument likewise, for a kind of ACE that is not evaluated here
PWMLFF_KERNELS_API AceNetwork read_ace(std::string_view contents);

PWMLFF_KERNELS_API Arrays ace_arrays(const AceNetwork &network);

/// @throws std::runtime_error that names what is missing, or of the wrong shape
PWMLFF_KERNELS_API AceNetwork ace_of(const Arrays &arrays);

/// @throws std::runtime_error for a network that cannot be evaluated: numbers beyond their ranges
void check_ace(const AceNetwork &network);

}    // namespace pwmlff
