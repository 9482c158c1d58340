// SPDX-License-Identifier: GPL-2.0-or-later

#include "c_error.h"

#include <string>

namespace {

thread_local std::string text_of_error;

}    // namespace

const char *pwmlff_error() { return text_of_error.c_str(); }

void pwmlff::set_error(const char *text) noexcept
try {
  text_of_error = text;
} catch (const std::exception &) {
  text_of_error.clear();    // there is no memory for it
}
