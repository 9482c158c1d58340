// SPDX-License-Identifier: GPL-2.0-or-later

// Reads nep.txt as GPUMD, NEP_CPU and MatPL write it. Its forms are in docs/nep.md.

#pragma once

#include "../../core/export.h"
#include "network.h"

#include <string_view>

namespace pwmlff {

/// Whether the contents of a file begin as a NEP of any kind does, also one that is refused. Looks
/// at the first word alone.
PWMLFF_KERNELS_API bool looks_like_nep(std::string_view contents);

/// @param text the contents of the file
/// @throws std::runtime_error for a file that is damaged; the text goes on after the name of the
///         file, and has the line, what was found, what was expected, and what to do
/// @throws std::invalid_argument likewise, for a kind of NEP that is not evaluated here
PWMLFF_KERNELS_API NepNetwork read_nep(std::string_view text);

}    // namespace pwmlff
