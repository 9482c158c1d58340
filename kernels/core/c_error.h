// SPDX-License-Identifier: GPL-2.0-or-later

// Errors of the interfaces for other languages.

#pragma once

#include "export.h"

#include <exception>

extern "C" {

/// Text of the last error in this thread, until the next one there.
PWMLFF_KERNELS_API const char *pwmlff_error();
}

namespace pwmlff {

/// What pwmlff_error() gives from now on in this thread.
PWMLFF_KERNELS_API void set_error(const char *text) noexcept;

/// @return whether the work has thrown nothing; else the text is kept for pwmlff_error()
template <class Work> bool succeeds(const Work &work) noexcept
try {
  work();
  return true;
} catch (const std::exception &error) {
  set_error(error.what());
  return false;
}

}    // namespace pwmlff
