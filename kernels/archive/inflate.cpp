// SPDX-License-Identifier: GPL-2.0-or-later

#include "inflate.h"

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>

// The interface of zlib (https://zlib.net/manual.html), which all systems have, unlike its header.
// inflateInit2_ compares the size of the structure with its own.
extern "C" {

struct z_stream {
  const char *next_in;
  unsigned avail_in;
  unsigned long total_in;
  char *next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char *msg;
  void *state, *zalloc, *zfree, *opaque;
  int data_type;
  unsigned long adler, reserved;
};

unsigned long crc32_z(unsigned long crc, const char *bytes, std::size_t size);
int inflateInit2_(z_stream *stream, int window_bits, const char *version, int stream_size);
int inflate(z_stream *stream, int flush);
int inflateEnd(z_stream *stream);
}

namespace pwmlff {
namespace {

constexpr int NO_FLUSH = 0, OK = 0, STREAM_END = 1, DATA_ERROR = -3, RAW_DEFLATE = -15;
constexpr std::size_t MOST_BYTES = 1 << 30;    // of one call, which counts in 32 bits

[[noreturn]] void broken(const std::string &what)
{
  throw std::runtime_error("its compressed data are broken (" + what + ")");
}

}    // namespace

std::uint32_t crc32(std::string_view bytes)
{
  return static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
}

std::string inflate(std::string_view stream, std::size_t size)
{
  std::string result(size, '\0');
  z_stream state{};
  if (inflateInit2_(&state, RAW_DEFLATE, "1", sizeof state) != OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> owner(&state, inflateEnd);
  state.next_in = stream.data();
  state.next_out = result.data();
  const char *const end = stream.data() + stream.size(), *const room = result.data() + size;
  int status = OK;
  while (status == OK) {    // ends where neither in nor out goes on
    state.avail_in = static_cast<unsigned>(std::min<std::size_t>(end - state.next_in, MOST_BYTES));
    state.avail_out =
        static_cast<unsigned>(std::min<std::size_t>(room - state.next_out, MOST_BYTES));
    status = ::inflate(&state, NO_FLUSH);
  }
  if (status == DATA_ERROR) broken(state.msg);
  if (status != STREAM_END)
    broken(state.next_in == end ? "it ends too early" : "it is longer than it says");
  if (state.next_out != room) broken("it is shorter than it says");
  if (state.next_in != end) broken("bytes are left over");
  return result;
}

}    // namespace pwmlff
