// SPDX-License-Identifier: GPL-2.0-or-later

// The families of models, a line each: the folder, whose family.cpp defines FOLDER_family.

#pragma once

// clang-format off
#define PWMLFF_FAMILIES(add) \
  add(ace) \
  add(dp) \
  add(mace) \
  add(nep)
// clang-format on
