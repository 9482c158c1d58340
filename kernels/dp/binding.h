// SPDX-License-Identifier: GPL-2.0-or-later

#ifndef PWMLFF_DP_BINDING_H
#define PWMLFF_DP_BINDING_H

#include <torch/library.h>

namespace pwmlff {

/// Add the class torch.classes.pwmlff.DPEngine; see binding.cpp.
void register_dp_engine(torch::Library &library);

}    // namespace pwmlff

#endif
