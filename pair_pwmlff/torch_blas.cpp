// SPDX-License-Identifier: GPL-2.0-or-later

#include "torch_blas.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace pair_pwmlff {
namespace {

// Kind of the entries through which an object calls functions by name.
#if defined(__x86_64__)
constexpr unsigned CALL = R_X86_64_JUMP_SLOT;
#elif defined(__aarch64__)
constexpr unsigned CALL = R_AARCH64_JUMP_SLOT;
#else
constexpr unsigned CALL = 0;    // none
#endif

// Where the object is in memory that a function is part of; null without one.
const void *object_of(const void *function)
{
  Dl_info info{};
  return function && dladdr(function, &info) ? info.dli_fbase : nullptr;
}

// Tables of a library hold addresses as integers.
template <class T> T *pointer(ElfW(Addr) address)
{
  return reinterpret_cast<T *>(address);    // NOLINT(performance-no-int-to-ptr)
}

// As Fortran compilers name functions: dgemm_.
bool of_fortran(const char *name)
{
  const std::size_t n = std::strlen(name);
  return n > 1 && name[0] != '_' && name[n - 1] == '_';
}

// Have the entry of a call lead to another function. It may be in memory that is read-only by now.
void lead(ElfW(Addr) entry, const void *function)
{
  const auto size = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  void *const page = pointer<void>(entry / size * size);
  if (mprotect(page, size, PROT_READ | PROT_WRITE) == 0) *pointer<const void *>(entry) = function;
}

}    // namespace

void use_blas_of_torch(void *torch)
{
  const void *const lammps = object_of(dlsym(RTLD_DEFAULT, "lammps_version"));
  link_map *map = nullptr;
  if (!lammps || dlinfo(torch, RTLD_DI_LINKMAP, static_cast<void *>(&map)) != 0) return;

  const ElfW(Rela) *calls = nullptr;
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;
  std::size_t bytes = 0;
  for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) address = entry->d_un.d_ptr;
    if (entry->d_tag == DT_JMPREL) calls = pointer<const ElfW(Rela)>(address);
    if (entry->d_tag == DT_SYMTAB) symbols = pointer<const ElfW(Sym)>(address);
    if (entry->d_tag == DT_STRTAB) names = pointer<const char>(address);
    if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
  }
  if (!calls || !symbols || !names) return;
  for (std::size_t k = 0; k < bytes / sizeof(*calls); ++k) {
    if (ELF64_R_TYPE(calls[k].r_info) != CALL) continue;
    const char *const name = names + symbols[ELF64_R_SYM(calls[k].r_info)].st_name;
    if (!of_fortran(name) || object_of(dlsym(RTLD_DEFAULT, name)) != lammps) continue;
    const void *const own = dlsym(torch, name);    // in torch and what it is linked to
    if (own) lead(map->l_addr + calls[k].r_offset, own);
  }
}

}    // namespace pair_pwmlff
