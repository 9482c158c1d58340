// SPDX-License-Identifier: GPL-2.0-or-later

// Checksum and decompression of zip members by zlib.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pwmlff {

/// CRC-32 of IEEE 802.3, as zip files have it: polynomial 0x04C11DB7, reflected, inverted at both
/// ends.
std::uint32_t crc32(std::string_view bytes);

/// Decompress a raw deflate stream (RFC 1951).
/// @param size  of the result; memory for no more than that is taken
/// @throws std::runtime_error where the stream is no such stream, or gives or takes another number
///        of bytes
std::string inflate(std::string_view stream, std::size_t size);

}    // namespace pwmlff
