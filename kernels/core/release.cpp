// SPDX-License-Identifier: GPL-2.0-or-later

#include "export.h"

/// Release and commit of the library that this is part of, as `pwmlff.plugin.origin` writes them: a
/// process must not mix those of two.
extern "C" PWMLFF_KERNELS_API const char *pwmlff_release() { return PWMLFF_RELEASE; }
