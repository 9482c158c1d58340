// SPDX-License-Identifier: GPL-2.0-or-later

#include "inflate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <stdexcept>

namespace pwmlff {
namespace {

/* ---- checksum: eight bytes at a time (Kounavis and Berry, doi:10.1109/TC.2008.85) ---- */

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
    while (count < n && position < bytes.size()) {
      held |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[position++])) << count;
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
    position -= count / 8;
    held = 0;
    count = 0;
    if (n > bytes.size() - position) broken("it ends too early");
    position += n;
    return bytes.substr(position - n, n);
  }

  std::size_t left() const { return bytes.size() - position + count / 8; }

 private:
  std::string_view bytes;
  std::size_t position = 0;
  std::uint32_t held = 0;
  int count = 0;    // bits in held
};

/// A canonical Huffman code: a table over its short codes, and the first code of each length for
/// the others. Making one takes no longer for long codes, so that a stream of many small blocks is
/// not slow.
class Code {
 public:
  static constexpr int LONGEST = 15, SHORT = 9;    // bits
  static constexpr std::size_t MOST_SYMBOLS = 288;

  /// @param complete  whether each sequence of bits has to mean something, which a single code
  ///        cannot
  void assign(std::span<const std::uint8_t> lengths, bool complete)
  {
    used.fill(0);
    for (const auto length : lengths) ++used[length];
    used[0] = 0;
    bits = 0;
    std::uint32_t next = 0, before = 0;
    for (int length = 1; length <= LONGEST; ++length) {
      next <<= 1;
      first[length] = next;
      place[length] = before;
      next += used[length];
      before += used[length];
      if (next > (1u << length)) broken("more codes than fit");
      if (used[length] > 0) bits = length;
    }
    if (complete && next < (1u << LONGEST)) broken("fewer codes than fit");

    short_bits = std::min(bits, SHORT);
    std::fill_n(table.begin(), std::size_t{1} << short_bits, Entry{});
    std::array<std::uint32_t, LONGEST + 1> taken{};
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const int length = lengths[symbol];
      if (length == 0) continue;
      const std::uint32_t nth = taken[length]++, code = first[length] + nth;
      sorted[place[length] + nth] = static_cast<std::uint16_t>(symbol);
      if (length > short_bits) continue;
      std::uint32_t reversed = 0;    // the stream has the highest bit of a code first
      for (int bit = 0; bit < length; ++bit) reversed |= ((code >> bit) & 1) << (length - 1 - bit);
      for (std::size_t k = reversed; k >> short_bits == 0; k += std::size_t{1} << length)
        table[k] = {static_cast<std::uint16_t>(symbol), static_cast<std::uint8_t>(length)};
    }
  }

  int decode(Bits &stream) const
  {
    const std::uint32_t ahead = stream.peek(bits);
    const Entry entry = table[ahead & ((1u << short_bits) - 1)];
    if (entry.length > 0) {
      stream.drop(entry.length);
      return entry.symbol;
    }
    std::uint32_t code = 0;
    for (int length = 1; length <= bits; ++length) {
      code = code << 1 | ((ahead >> (length - 1)) & 1);
      const std::uint32_t nth =
          code - first[length];    // huge where the code is a longer one's beginning
      if (nth >= used[length]) continue;
      stream.drop(length);
      return sorted[place[length] + nth];
    }
    broken("a code that means nothing");
  }

 private:
  struct Entry {
    std::uint16_t symbol = 0;
    std::uint8_t length = 0;    // 0: no short code begins like this
  };
  std::array<Entry, std::size_t{1} << SHORT> table;
  int bits = 0, short_bits = 0;    // of the longest code, and of the table

  // Of each length: the number of codes, the first one, and where its symbols begin in sorted.
  std::array<std::uint32_t, LONGEST + 1> used, first, place;
  std::array<std::uint16_t, MOST_SYMBOLS> sorted;
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
    const int tier = static_cast<int>(k) / of_each_width;
    const int bits = tier > 0 ? tier - 1 : 0;
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
  std::array<std::uint8_t, Code::MOST_SYMBOLS> lengths;
  lengths.fill(8);
  std::fill(lengths.begin() + 144, lengths.begin() + 256, 9);
  std::fill(lengths.begin() + 256, lengths.begin() + 280, 7);
  std::array<std::uint8_t, 32> of_distances;
  of_distances.fill(5);
  Codes codes;
  codes.symbols.assign(lengths, true);
  codes.distances.assign(of_distances, true);
  return codes;
}

void read_codes(Bits &stream, Codes &codes)
{
  constexpr std::array<int, 19> order = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                         11, 4,  12, 3, 13, 2, 14, 1, 15};
  constexpr std::size_t most_symbols = END_OF_BLOCK + 1 + NLENGTHS;
  const std::size_t nsymbols = stream.take(5) + 257, ndistances = stream.take(5) + 1;
  if (nsymbols > most_symbols || ndistances > NDISTANCES)
    broken("too many lengths or distances of copies");
  const std::size_t norder = stream.take(4) + 4;
  std::array<std::uint8_t, order.size()> of_lengths{};
  for (std::size_t k = 0; k < norder; ++k)
    of_lengths[order[k]] = static_cast<std::uint8_t>(stream.take(3));
  codes.symbols.assign(of_lengths, true);

  std::array<std::uint8_t, most_symbols + NDISTANCES> lengths;
  const std::size_t wanted = nsymbols + ndistances;
  for (std::size_t found = 0; found < wanted;) {
    const int symbol = codes.symbols.decode(stream);
    std::size_t times = 1;
    std::uint8_t length = 0;
    if (symbol < 16) {
      length = static_cast<std::uint8_t>(symbol);
    } else if (symbol == 16) {
      if (found == 0) broken("a repetition of nothing");
      length = lengths[found - 1];
      times = stream.take(2) + 3;
    } else {
      times = symbol == 17 ? stream.take(3) + 3 : stream.take(7) + 11;
    }
    if (times > wanted - found) broken("too many code lengths");
    std::fill_n(lengths.begin() + static_cast<std::ptrdiff_t>(found), times, length);
    found += times;
  }
  if (lengths[END_OF_BLOCK] == 0) broken("a block without an end");
  const std::span<const std::uint8_t> all(lengths.data(), wanted);
  // A code of one symbol has one bit, whose other value means nothing; of distances there may be
  // none.
  const auto single = [](std::span<const std::uint8_t> some) {
    return std::all_of(some.begin(), some.end(), [](std::uint8_t length) { return length <= 1; });
  };
  const auto symbols = all.first(nsymbols), distances = all.subspan(nsymbols);
  codes.symbols.assign(symbols, !single(symbols));
  codes.distances.assign(distances, !single(distances));
}

}    // namespace

std::uint32_t crc32(std::string_view bytes)
{
  std::uint32_t crc = 0xFFFFFFFF;
  std::size_t offset = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (; offset + SLICES <= bytes.size(); offset += SLICES) {
      std::uint32_t low, high;
      std::memcpy(&low, bytes.data() + offset, 4);
      std::memcpy(&high, bytes.data() + offset + 4, 4);
      low ^= crc;
      crc = 0;
      for (int byte = 0; byte < 4; ++byte)
        crc ^=
            CRC[7 - byte][(low >> (8 * byte)) & 0xFF] ^ CRC[3 - byte][(high >> (8 * byte)) & 0xFF];
    }
  }
  for (; offset < bytes.size(); ++offset)
    crc = (crc >> 8) ^ CRC[0][(crc ^ static_cast<unsigned char>(bytes[offset])) & 0xFF];
  return ~crc;
}

std::string inflate(std::string_view stream, std::size_t size)
{
  Bits bits(stream);
  Codes own;
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
    static const Codes fixed = fixed_codes();
    if (kind == 2) read_codes(bits, own);
    const Codes &codes = kind == 1 ? fixed : own;
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
      if (d >= NDISTANCES) broken("an unknown distance");
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
