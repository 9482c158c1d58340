// SPDX-License-Identifier: GPL-2.0-or-later

// Rows that are periodic images of centers of the same rank.

#pragma once

#include "evaluation.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace pwmlff {

class Images : public RowExchange {
 public:
  /// @param home [nrows] the center that a row is an image of; a center is its own
  Images(std::vector<int> home, int ncenters) : home(std::move(home)), ncenters(ncenters) {}

  void forward(const ExchangedRows &rows) override
  {
    for_images(rows, [](auto *center, auto *image, std::size_t width) {
      std::copy_n(center, width, image);
    });
  }
  void reverse(const ExchangedRows &rows) override
  {
    for_images(rows, [](auto *center, auto *image, std::size_t width) {
      for (std::size_t k = 0; k < width; ++k) center[k] += image[k];
    });
  }
  void sum(double * /*numbers*/, int /*n*/) override {}
  bool has_others() const override { return false; }

 private:
  template <class Work> void for_images(const ExchangedRows &rows, const Work &work) const
  {
    const auto of_type = [&](auto *values) {
      for (std::size_t r = ncenters; r < home.size(); ++r)
        work(values + home[r] * rows.width, values + r * rows.width, rows.width);
    };
    std::visit(of_type, rows.rows);
  }

  const std::vector<int> home;
  const std::size_t ncenters;
};

}    // namespace pwmlff
