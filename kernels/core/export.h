// SPDX-License-Identifier: GPL-2.0-or-later

#pragma once

/// What libpwmlff_kernels shows to others; everything else has hidden visibility.
#define PWMLFF_KERNELS_API __attribute__((visibility("default")))
