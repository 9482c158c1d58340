// SPDX-License-Identifier: GPL-2.0-or-later

// The family of tests/kernels/lennard_jones, known from when this library is loaded.

#include "../kernels/lennard_jones/family.cpp"

namespace {

const bool added = (pwmlff::families().push_back(&pwmlff::lennard_jones_family), true);

}    // namespace
