// SPDX-License-Identifier: GPL-2.0-or-later

#include "peak_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace pwmlff::models {
namespace {

// Of the nodes where edges start, the part in the larger of both evaluations.
constexpr std::int64_t PART = 8;

/// Follows what torch's allocator for the CPU does on this thread. (Derivatives of what is on the
/// CPU are computed by the thread that asks for them.)
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void *, std::int64_t size, std::size_t, std::size_t,
                         c10::Device device) override
  {
    if (!device.is_cpu()) return;
    current += size;
    peak = std::max(peak, current);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t current = 0, peak = 0;
};

// A part of an input: the edges that start at the first so many nodes.
struct Part {
  Part(const pwmlff::Input &whole, std::int64_t nodes) : input(whole)
  {
    const std::int64_t *const center = whole.edge_index, *const end = center + whole.nedges;
    input.nedges = std::lower_bound(center, end, nodes) - center;
    index.assign(center, center + input.nedges);
    index.insert(index.end(), end, end + input.nedges);
    input.edge_index = index.data();
    input.exchange = nullptr;    // other ranks have other parts
  }

  pwmlff::Input input;
  std::vector<std::int64_t> index;
};

}    // namespace

double expected_peak(const pwmlff::Input &input,
                     const std::function<void(const pwmlff::Input &)> &evaluate)
{
  const std::int64_t nodes = input.nedges > 0 ? input.edge_index[input.nedges - 1] + 1 : 0;
  if (nodes < 2 * PART) return 0.0;
  const auto bytes = [&](const Part &part) {
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard metered(c10::DebugInfoKind::PROFILER_STATE, meter);
    evaluate(part.input);
    return static_cast<double>(meter->peak);
  };
  try {
    const Part more(input, nodes / PART);
    const Part less(input, (nodes / PART + 1) / 2);
    evaluate(less.input);    // what is made once is not of this
    const double of_less = bytes(less), of_more = bytes(more);
    if (more.input.nedges == less.input.nedges) return 0.0;
    const double per_edge =
        (of_more - of_less) / static_cast<double>(more.input.nedges - less.input.nedges);
    return of_more + per_edge * static_cast<double>(input.nedges - more.input.nedges);
  } catch (const std::exception &) {
    return 0.0;
  }
}

}    // namespace pwmlff::models
