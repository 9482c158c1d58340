// Loaded before a program: it dies within change DIES_AT of files below the folder DIES_IN.
//
// A write is made by half. Any other change is made or not, in turns.

#include <dlfcn.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::atomic<long> changes{0};

bool dies(const std::string &path)
{
  static const std::string folder = getenv("DIES_IN");
  static const long at = atol(getenv("DIES_AT"));
  return path.starts_with(folder) && ++changes == at;
}

bool dies(int file)
{
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return length > 0 && dies(std::string(path, length));
}

[[noreturn]] void die()
{
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

template <class Function> Function real(Function, const char *name)
{
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

template <class Where, class Call> auto change(Where where, Call call)
{
  if (!dies(where)) return call();
  if (changes % 2) call();
  die();
}

}    // namespace

extern "C" {

ssize_t write(int file, const void *data, size_t size)
{
  static const auto call = real(&write, "write");
  if (!dies(file)) return call(file, data, size);
  call(file, data, size / 2);
  die();
}

ssize_t writev(int file, const iovec *parts, int count)
{
  static const auto call = real(&writev, "writev");
  if (!dies(file)) return call(file, parts, count);
  call(file, parts, count / 2);
  die();
}

int fsync(int file)
{
  static const auto call = real(&fsync, "fsync");
  return change(file, [&] { return call(file); });
}

int ftruncate(int file, off_t size)
{
  static const auto call = real(&ftruncate, "ftruncate");
  return change(file, [&] { return call(file, size); });
}

int rename(const char *from, const char *to)
{
  static const auto call = real(&rename, "rename");
  return change(to, [&] { return call(from, to); });
}

int unlink(const char *path)
{
  static const auto call = real(&unlink, "unlink");
  return change(path, [&] { return call(path); });
}
}
