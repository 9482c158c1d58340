// SPDX-License-Identifier: GPL-2.0-or-later

#include "near_candidates.h"

#include "../threads.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace pwmlff {

namespace {

constexpr double MARGIN = 1.0 / 16.0;    // of the cutoff

double squared_distance(const double *a, const double *b)
{
  const double d0 = a[0] - b[0], d1 = a[1] - b[1], d2 = a[2] - b[2];
  return d0 * d0 + d1 * d1 + d2 * d2;
}

}    // namespace

NearCandidates::NearCandidates(double cutoff, int nspecies) :
    cutoff(cutoff), margin(MARGIN * cutoff), nspecies(nspecies)
{
}

const Input &NearCandidates::of(const Input &input)
{
  if (cutoff == 0.0 || input.list == 0) return input;
  if (input.list != list) {
    list = input.list;
    x.clear();
    return input;
  }
  if (x.empty() || has_moved(input)) find(input);
  near = input;
  near.first = first.data();
  near.candidate = candidate.data();
  return near;
}

bool NearCandidates::has_moved(const Input &input) const
{
  const double limit = 0.25 * margin * margin;
  std::atomic<bool> moved = false;
  in_parts(input.nrows, input.nthreads, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t row = begin; row < end; ++row)
      if (!(squared_distance(&input.x[3 * row], &x[3 * row]) <= limit)) moved = true;
  });
  return moved;
}

void NearCandidates::find(const Input &input)
{
  x.clear();    // void until all is done
  const double reach = cutoff + margin, limit = reach * reach;
  const int nshares = std::max(1, input.nthreads);
  shares.resize(nshares);
  const std::ptrdiff_t nslices = static_cast<std::ptrdiff_t>(input.ncenters) * nspecies;
  first.resize(nslices + 1);
  const auto center_of = [&](int share) { return end_of_share(share, nshares, input.ncenters); };
  in_shares(nshares, [&](int share) {
    std::vector<int> &found = shares[share];
    std::size_t n = 0;
    for (std::ptrdiff_t i = center_of(share - 1); i < center_of(share); ++i) {
      const double *const xi = input.x + 3 * i;
      for (std::ptrdiff_t slice = i * nspecies; slice < (i + 1) * nspecies; ++slice) {
        first[slice] = static_cast<int>(n);
        const int begin = input.first[slice], end = input.first[slice + 1];
        if (found.size() < n + (end - begin)) found.resize(n + n / 8 + (end - begin));
        // No branch, as its prediction would often fail. What is no number stays.
        for (int k = begin; k < end; ++k) {
          const int j = input.candidate[k];
          found[n] = j;
          n += !(squared_distance(xi, input.x + 3 * static_cast<std::ptrdiff_t>(j)) >= limit);
        }
      }
    }
    found.resize(n);
  });
  std::vector<std::size_t> begins = {0};
  for (const std::vector<int> &found : shares) begins.push_back(begins.back() + found.size());
  candidate.resize(begins.back());
  in_shares(nshares, [&](int share) {
    std::ranges::copy(shares[share], candidate.begin() + begins[share]);
    for (std::ptrdiff_t k = center_of(share - 1) * nspecies; k < center_of(share) * nspecies; ++k)
      first[k] += static_cast<int>(begins[share]);
  });
  first[nslices] = static_cast<int>(begins.back());
  x.assign(input.x, input.x + 3 * static_cast<std::ptrdiff_t>(input.nrows));
}

}    // namespace pwmlff
