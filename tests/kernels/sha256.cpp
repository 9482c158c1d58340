// SPDX-License-Identifier: GPL-2.0-or-later

// Prints the SHA-256 of the first bytes of a sequence, for each of the numbers that it is given.

#include "archive/sha256.h"

#include <cstdlib>
#include <iostream>
#include <string>

int main(int count, char **numbers)
{
  for (int n = 1; n < count; ++n) {
    std::string bytes;
    for (long k = 0; k < std::atol(numbers[n]); ++k) bytes += static_cast<char>(7 * k % 251);
    std::cout << pwmlff::sha256(bytes) << '\n';
  }
}
