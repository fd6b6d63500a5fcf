// `linear_silu_mul`: silu(gate) * up of a matrix whose tiles alternate gate and up.
#include "../catalogue.h"
#include "activation.h"
#include "kernels.h"
#include "tile_driver.h"

namespace helios::HELIOS_ISA {

void run_linear_silu_mul(const Launch& launch, const Worker& worker) {
  using namespace linear_silu_mul;
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t outputs = launch.integer(kOutputs);
  const auto packing = static_cast<Packing>(launch.integer(kPacking));
  const auto format = static_cast<Format>(launch.integer(kFormat));
  const auto out_format = static_cast<Format>(launch.integer(kOutFormat));
  auto* out = launch.write<std::byte>(kOut);
  const std::int64_t out_row_nbytes = row_nbytes(out_format, outputs);

  const TileMatrix matrix{launch.read<std::byte>(kWeight), 2 * outputs / kTileOutputs, width};
  const ActivationMatrix x{launch.read<std::byte>(kX), launch.rows(), row_nbytes(format, width)};
  // A q8 block takes two pairs of gate and up.
  const int unit = is_quantised(out_format) ? 4 : 2;
  for_each_group(
      tile_product(packing, format), matrix, x, unit, worker,
      [&](std::int64_t first_row, int rows, std::int64_t first_tile, int tiles,
          const GroupSums& sums) {
        for (int r = 0; r < rows; ++r) {
          alignas(64) float values[kGroupTiles / 2 * kTileOutputs];
          for (int t = 0; t < tiles; t += 2) {
            const Floats gate = load(sums.at[r][t]);
            const Floats up = load(sums.at[r][t + 1]);
            const Floats silu = gate / (broadcast(1.0f) + exponential(zeros() - gate));
            store(values + t / 2 * kTileOutputs, silu * up);
          }
          write_activation(out_format, out + (first_row + r) * out_row_nbytes, outputs,
                           first_tile / 2 * kTileOutputs, values, tiles / 2 * kTileOutputs);
        }
      });
}

}  // namespace helios::HELIOS_ISA
