// `linear`: out = x W^T (+ bias), or out += that.
#include "../catalogue.h"
#include "kernels.h"
#include "tile_driver.h"

namespace helios::HELIOS_ISA {

void run_linear(const Launch& launch, const Worker& worker) {
  using namespace linear;
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t outputs = launch.integer(kOutputs);
  const auto packing = static_cast<Packing>(launch.integer(kPacking));
  const auto format = static_cast<Format>(launch.integer(kFormat));
  const bool accumulate = launch.integer(kAccumulate) != 0;
  const auto* bias = launch.read<float>(kBias);
  auto* out = launch.write<float>(kOut);

  const TileMatrix matrix{launch.read<std::byte>(kWeight), ceil_divide(outputs, kTileOutputs),
                          width};
  const ActivationMatrix x{launch.read<std::byte>(kX), launch.rows(), row_nbytes(format, width)};
  for_each_group(
      tile_product(packing, format), matrix, x, 1, worker,
      [&](std::int64_t first_row, int rows, std::int64_t first_tile, int tiles,
          const GroupSums& sums) {
        for (int t = 0; t < tiles; ++t) {
          const std::int64_t n = (first_tile + t) * kTileOutputs;
          const std::int64_t count = outputs - n;
          const Floats offset = bias != nullptr ? load_up_to(bias + n, count) : zeros();
          for (int r = 0; r < rows; ++r) {
            float* at = out + (first_row + r) * outputs + n;
            Floats value = load(sums.at[r][t]);
            if (bias != nullptr) value = value + offset;
            if (accumulate) value = load_up_to(at, count) + value;
            store_up_to(at, value, count);
          }
        }
      });
}

}  // namespace helios::HELIOS_ISA
