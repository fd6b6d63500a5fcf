// `linear_silu_mul`: silu(gate) * up of a matrix whose tiles alternate gate and up; the same with a
// tuned blocking; and the measuring of blockings.
#include "../catalogue.h"
#include "activation.h"
#include "kernels.h"
#include "tile_driver.h"
#include "tile_tuning.h"

namespace helios::HELIOS_ISA {
namespace {

struct GatedProjection {
  TileMatrix matrix;
  ActivationMatrix x;
  Format format;
  std::int64_t outputs;
  Format out_format;
  std::byte* out;
};

// Writes silu(gate) * up as activation rows.
struct GatedRows {
  const GatedProjection& p;
  std::int64_t row_nbytes;

  HELIOS_INLINE SumRows begin(std::int64_t first_row, int rows, std::int64_t first_tile, int,
                              GroupSums& sums) const {
    const std::int64_t output = first_tile / 2 * kTileOutputs;
    for (int r = 0; r < rows; ++r) {
      std::byte* at = p.out + (first_row + r) * row_nbytes;
      if (!is_quantised(p.out_format)) {
        prefetch_to_write(at + output * (p.out_format == Format::kBf16 ? 2 : 4));
        continue;
      }
      const std::int64_t planes = p.out_format == Format::kQ16 ? 2 : 1;
      for (std::int64_t i = 0; i < planes; ++i) prefetch_to_write(at + i * p.outputs + output);
      const std::byte* scales = at + planes * p.outputs + output / kBlock * 4;
      prefetch_to_write(scales);
      prefetch_to_write(scales + p.outputs / kBlock * 4);
    }
    return sums.rows();
  }

  // The values of all rows first: their long chains of operations overlap best among themselves.
  HELIOS_INLINE void finish(std::int64_t first_row, int rows, std::int64_t first_tile, int tiles,
                            GroupSums& sums) const {
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < tiles; t += 2) {
        const Floats gate = load(sums.at[r][t]);
        const Floats up = load(sums.at[r][t + 1]);
        const Floats silu = gate / (broadcast(1.0f) + exponential(zeros() - gate));
        store(sums.at[r][t / 2], silu * up);
      }
    }
    for (int r = 0; r < rows; ++r) {
      write_activation(p.out_format, p.out + (first_row + r) * row_nbytes, p.outputs,
                       first_tile / 2 * kTileOutputs, sums.at[r][0], tiles / 2 * kTileOutputs);
    }
  }
};

void project(const GatedProjection& p, const Piece& piece, std::int32_t choice) {
  // A q8 block takes two tiles of gate and two of up.
  const int unit = is_quantised(p.out_format)
                       ? static_cast<int>(2 * width_multiple(p.out_format) / kTileOutputs)
                       : 2;
  const TileProduct& product = tile_product(p.matrix.packing, p.format);
  for_each_group(product, p.matrix, p.x, unit, piece, blocking(product, choice),
                 GatedRows{p, row_nbytes(p.out_format, p.outputs)});
}

GatedProjection projection(const Launch& launch) {
  using namespace linear_silu_mul;
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t outputs = launch.integer(kOutputs);
  const auto format = static_cast<Format>(launch.integer(kFormat));
  return {{launch.read<std::byte>(kWeight), 2 * outputs / kTileOutputs, width,
           static_cast<Packing>(launch.integer(kPacking))},
          {launch.read<std::byte>(kX), launch.rows(), row_nbytes(format, width)},
          format,
          outputs,
          static_cast<Format>(launch.integer(kOutFormat)),
          launch.write<std::byte>(kOut)};
}

}  // namespace

void run_linear_silu_mul(const Launch& launch, const Piece& piece) {
  project(projection(launch), piece, 0);
}

void run_linear_silu_mul_tuned(const Launch& launch, const Piece& piece) {
  project(projection(launch), piece, *launch.read<std::int32_t>(linear_silu_mul_tuned::kTuning));
}

void run_tune_linear_silu_mul(const Launch& launch, const Piece&) {
  using namespace tune_linear_silu_mul;
  const std::int64_t rows = launch.integer(kCapacity);
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t outputs = launch.integer(kOutputs);
  const auto format = static_cast<Format>(launch.integer(kFormat));
  const auto out_format = static_cast<Format>(launch.integer(kOutFormat));
  auto* x = launch.write<std::byte>(kX);
  fill_activations(format, x, rows, width);
  const GatedProjection p{
      {launch.read<std::byte>(kWeight), 2 * outputs / kTileOutputs, width,
       static_cast<Packing>(launch.integer(kPacking))},
      {x, rows, row_nbytes(format, width)},
      format,
      outputs,
      out_format,
      launch.write<std::byte>(kOut)};
  *launch.write<std::int32_t>(kChoice) = fastest_blocking(
      p.matrix.tiles, launch.read<std::byte>(kOut), rows * row_nbytes(out_format, outputs),
      [&](std::int32_t choice, const Piece& piece) { project(p, piece, choice); });
}

}  // namespace helios::HELIOS_ISA
