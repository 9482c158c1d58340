// SPDX-License-Identifier: GPL-2.0-or-later

#include "families.h"

#include "../core/family.h"

#include <algorithm>
#include <stdexcept>

namespace pwmlff {

#define PWMLFF_DECLARE(name) extern const Family name##_family;
PWMLFF_FAMILIES(PWMLFF_DECLARE)
#undef PWMLFF_DECLARE

std::vector<const Family *> &families()
{
#define PWMLFF_ADDRESS(name) &name##_family,
  static std::vector<const Family *> all = {PWMLFF_FAMILIES(PWMLFF_ADDRESS)};
#undef PWMLFF_ADDRESS
  return all;
}

const Family *family_of_file(std::string_view contents)
{
  const auto found = std::ranges::find_if(families(), [&](const Family *family) {
    return family->recognizes && family->recognizes(contents);
  });
  return found == families().end() ? nullptr : *found;
}

const Family &family_named(const std::string &name)
{
  for (const Family *const family : families())
    if (family->name == name) return *family;
  throw std::runtime_error("its arrays for the fused engine are of a family '" + name +
                           "' that is unknown here");
}

std::unique_ptr<Network> read_network(const Arrays &arrays)
{
  return family_named(arrays.family()).read(arrays);
}

}    // namespace pwmlff
