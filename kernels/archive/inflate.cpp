/* -*- c++ -*- ----------------------------------------------------------
   pair_style pwmlff: machine-learned potentials stored as TorchScript in LAMMPS
   SPDX-License-Identifier: GPL-2.0-or-later
------------------------------------------------------------------------- */

#include "inflate.h"

#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace pwmlff {
namespace {

/* ---- checksum: eight bytes at a time (M. E. Kounavis and F. L. Berry, doi:10.1109/TC.2008.85) ---- */

constexpr std::size_t SLICES = 8;
using Slices = std::array<std::array<std::uint32_t, 256>, SLICES>;

constexpr Slices crc_slices()
{
  constexpr std::uint32_t reflected_polynomial = 0xEDB88320;
  Slices slices{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ ((value & 1) ? reflected_polynomial : 0);
    slices[0][byte] = value;
  }
  // slices[k][b] is what b becomes after k more bytes of zeros.
  for (std::size_t k = 1; k < SLICES; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = slices[k - 1][byte];
      slices[k][byte] = (before >> 8) ^ slices[0][before & 0xFF];
    }
  return slices;
}

constexpr Slices CRC = crc_slices();

/* ---- decompression ---- */

[[noreturn]] void broken(const char *what)
{
  throw std::runtime_error(std::string("its compressed data are broken (") + what + ")");
}

/// Bits of a stream, the lowest of each byte first.
class Bits {
 public:
  explicit Bits(std::string_view bytes) : bytes(bytes) {}

  /// The next n <= 16 bits without taking them; zeros beyond the end.
  std::uint32_t peek(int n)
  {
    while (count < n && at < bytes.size()) {
      held |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at++])) << count;
      count += 8;
    }
    return held & ((1u << n) - 1);
  }

  void drop(int n)
  {
    if (n > count) broken("it ends too early");
    held >>= n;
    count -= n;
  }

  std::uint32_t take(int n)
  {
    const std::uint32_t value = peek(n);
    drop(n);
    return value;
  }

  /// Bytes that follow the byte which the last bit came from.
  std::string_view take_bytes(std::size_t n)
  {
    at -= count / 8;
    held = 0;
    count = 0;
    if (n > bytes.size() - at) broken("it ends too early");
    at += n;
    return bytes.substr(at - n, n);
  }

  std::size_t left() const { return bytes.size() - at + count / 8; }

 private:
  std::string_view bytes;
  std::size_t at = 0;
  std::uint32_t held = 0;
  int count = 0;    // bits in held
};

/// A canonical Huffman code, as a table over the longest code.
class Code {
 public:
  static constexpr int LONGEST = 15;

  explicit Code(const std::vector<std::uint8_t> &lengths)
  {
    std::array<int, LONGEST + 1> used{};
    for (const auto length : lengths) ++used[length];
    used[0] = 0;
    for (int length = 1; length <= LONGEST; ++length)
      if (used[length] > 0) bits = length;
    std::array<std::uint32_t, LONGEST + 2> next{};
    for (int length = 1; length <= LONGEST; ++length) {
      next[length + 1] = (next[length] + used[length]) << 1;
      if (next[length] + used[length] > (1u << length)) broken("more codes than fit");
    }
    table.assign(std::size_t{1} << bits, Entry{});
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const int length = lengths[symbol];
      if (length == 0) continue;
      const std::uint32_t code = next[length]++;
      std::uint32_t reversed = 0;    // the stream has the highest bit of a code first
      for (int bit = 0; bit < length; ++bit) reversed |= ((code >> bit) & 1) << (length - 1 - bit);
      for (std::size_t k = reversed; k < table.size(); k += std::size_t{1} << length)
        table[k] = {static_cast<std::uint16_t>(symbol), static_cast<std::uint8_t>(length)};
    }
  }

  int decode(Bits &stream) const
  {
    const Entry entry = table[stream.peek(bits)];
    if (entry.length == 0) broken("a code that means nothing");
    stream.drop(entry.length);
    return entry.symbol;
  }

 private:
  struct Entry {
    std::uint16_t symbol = 0;
    std::uint8_t length = 0;    // 0: no code begins like this
  };
  std::vector<Entry> table;
  int bits = 0;
};

constexpr int END_OF_BLOCK = 256;
constexpr int NLENGTHS = 29, NDISTANCES = 30;

/// Base and number of further bits of the symbols for a length (257 and on) or a distance.
struct Range {
  std::uint16_t base;
  std::uint8_t bits;
};

template <std::size_t n> constexpr std::array<Range, n> ranges(int first, int of_each_width)
{
  std::array<Range, n> result{};
  std::uint32_t base = first;
  for (std::size_t k = 0; k < n; ++k) {
    const int group = static_cast<int>(k) / of_each_width;
    const int bits = group > 0 ? group - 1 : 0;
    result[k] = {static_cast<std::uint16_t>(base), static_cast<std::uint8_t>(bits)};
    base += 1u << bits;
  }
  return result;
}

constexpr std::array<Range, NLENGTHS> lengths_of_copies()
{
  std::array<Range, NLENGTHS> result = ranges<NLENGTHS>(3, 4);
  result[NLENGTHS - 1] = {258, 0};    // out of line with the others
  return result;
}

constexpr std::array<Range, NLENGTHS> COPY_LENGTH = lengths_of_copies();
constexpr std::array<Range, NDISTANCES> COPY_DISTANCE = ranges<NDISTANCES>(1, 2);

struct Codes {
  Code symbols, distances;
};

Codes fixed_codes()
{
  std::vector<std::uint8_t> lengths(288, 8);
  std::fill(lengths.begin() + 144, lengths.begin() + 256, 9);
  std::fill(lengths.begin() + 256, lengths.begin() + 280, 7);
  return {Code(lengths), Code(std::vector<std::uint8_t>(NDISTANCES, 5))};
}

Codes read_codes(Bits &stream)
{
  constexpr std::array<int, 19> order = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                         11, 4,  12, 3, 13, 2, 14, 1, 15};
  const std::size_t nsymbols = stream.take(5) + 257, ndistances = stream.take(5) + 1;
  const std::size_t norder = stream.take(4) + 4;
  std::vector<std::uint8_t> of_lengths(order.size(), 0);
  for (std::size_t k = 0; k < norder; ++k)
    of_lengths[order[k]] = static_cast<std::uint8_t>(stream.take(3));
  const Code code(of_lengths);

  std::vector<std::uint8_t> lengths;
  while (lengths.size() < nsymbols + ndistances) {
    const int symbol = code.decode(stream);
    if (symbol < 16) {
      lengths.push_back(static_cast<std::uint8_t>(symbol));
    } else if (symbol == 16) {
      if (lengths.empty()) broken("a repetition of nothing");
      lengths.insert(lengths.end(), stream.take(2) + 3, std::uint8_t{lengths.back()});
    } else {
      lengths.insert(lengths.end(), symbol == 17 ? stream.take(3) + 3 : stream.take(7) + 11, 0);
    }
  }
  if (lengths.size() > nsymbols + ndistances) broken("too many code lengths");
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(nsymbols);
  return {Code({lengths.begin(), middle}), Code({middle, lengths.end()})};
}

}    // namespace

std::uint32_t crc32(std::string_view bytes)
{
  std::uint32_t crc = 0xFFFFFFFF;
  std::size_t at = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (; at + SLICES <= bytes.size(); at += SLICES) {
      std::uint32_t low, high;
      std::memcpy(&low, bytes.data() + at, 4);
      std::memcpy(&high, bytes.data() + at + 4, 4);
      low ^= crc;
      crc = 0;
      for (int byte = 0; byte < 4; ++byte)
        crc ^=
            CRC[7 - byte][(low >> (8 * byte)) & 0xFF] ^ CRC[3 - byte][(high >> (8 * byte)) & 0xFF];
    }
  }
  for (; at < bytes.size(); ++at)
    crc = (crc >> 8) ^ CRC[0][(crc ^ static_cast<unsigned char>(bytes[at])) & 0xFF];
  return ~crc;
}

std::string inflate(std::string_view stream, std::size_t size)
{
  Bits bits(stream);
  std::string result;
  result.reserve(size);
  const auto room = [&](std::size_t n) {
    if (n > size - result.size()) broken("it is longer than it says");
  };
  for (bool last = false; !last;) {
    last = bits.take(1) != 0;
    const std::uint32_t kind = bits.take(2);
    if (kind == 0) {
      const std::string_view head = bits.take_bytes(4);
      const auto byte = [&](int k) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(head[k]));
      };
      const std::uint32_t n = byte(0) | byte(1) << 8;
      if ((byte(2) | byte(3) << 8) != (n ^ 0xFFFF)) broken("a length and its complement differ");
      room(n);
      result.append(bits.take_bytes(n));
      continue;
    }
    if (kind == 3) broken("an unknown kind of block");
    const Codes codes = kind == 1 ? fixed_codes() : read_codes(bits);
    for (;;) {
      const int symbol = codes.symbols.decode(bits);
      if (symbol == END_OF_BLOCK) break;
      if (symbol < END_OF_BLOCK) {
        room(1);
        result.push_back(static_cast<char>(symbol));
        continue;
      }
      const int k = symbol - END_OF_BLOCK - 1;
      if (k >= NLENGTHS) broken("an unknown length");
      const std::size_t length = COPY_LENGTH[k].base + bits.take(COPY_LENGTH[k].bits);
      const int d = codes.distances.decode(bits);
      const std::size_t distance = COPY_DISTANCE[d].base + bits.take(COPY_DISTANCE[d].bits);
      if (distance > result.size()) broken("a copy from before the beginning");
      room(length);
      for (std::size_t n = 0; n < length; ++n) result.push_back(result[result.size() - distance]);
    }
  }
  if (result.size() != size) broken("it is shorter than it says");
  if (bits.left() != 0) broken("bytes are left over");
  return result;
}

}    // namespace pwmlff
