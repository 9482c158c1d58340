// SPDX-License-Identifier: GPL-2.0-or-later

#ifndef PWMLFF_TRAINING_BINDING_H
#define PWMLFF_TRAINING_BINDING_H

#include <torch/library.h>

namespace pwmlff {

/// Add the class torch.classes.pwmlff.DPTraining; see binding.cpp.
void register_training(torch::Library &library);

}    // namespace pwmlff

#endif
