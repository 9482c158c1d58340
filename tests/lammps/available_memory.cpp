// SPDX-License-Identifier: GPL-2.0-or-later

// Prints the memory that a tree of files like those of the kernel says is left.

#include "pair_pwmlff/available_memory.h"

#include <cstdio>

int main(int, char **argv) { std::printf("%.0f\n", pair_pwmlff::available_memory(argv[1])); }
