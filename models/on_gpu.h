// SPDX-License-Identifier: GPL-2.0-or-later

// What kinds of models share that may run on a GPU.

#ifndef PWMLFF_ON_GPU_H
#define PWMLFF_ON_GPU_H

#include "model_file.h"

#include <stdexcept>
#include <string>

namespace pwmlff::models {

/// A GPU was demanded, and the model cannot use it.
struct NotOnGpu : std::runtime_error {
  NotOnGpu(const ModelInfo &info, const std::string &why) :
      std::runtime_error("model file " + in_quotes(info.file) + " cannot run on a GPU: " + why +
                         "; use device auto or cpu")
  {
  }
};

}    // namespace pwmlff::models

#endif
