// SPDX-License-Identifier: GPL-2.0-or-later

#include "nearby_kernel.h"

#include "../common/threads.h"

namespace pwmlff {

void mean_square_nearby(const MeanSquareNearby &nearby, int ncenters, int nthreads)
{
#pragma omp parallel for num_threads(usable_threads(nthreads)) schedule(static) if (nthreads > 1)
  for (int center = 0; center < ncenters; ++center) nearby(SerialTeam(nullptr), center);
}

}    // namespace pwmlff
