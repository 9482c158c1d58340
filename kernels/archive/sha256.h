// SPDX-License-Identifier: GPL-2.0-or-later

// SHA-256 (FIPS 180-4), as hashlib of Python and sha256sum give it.

#pragma once

#include <string>
#include <string_view>

namespace pwmlff {

/// @return 64 hexadecimal digits in lower case
std::string sha256(std::string_view bytes);

}    // namespace pwmlff
