// SPDX-License-Identifier: GPL-2.0-or-later

// What a GPU can be asked to run, in T = float. A file of its own: it takes a minute to compile.

#include "on_gpu.h"

namespace pwmlff {

PWMLFF_MACE_ON_GPU(float);

}    // namespace pwmlff
