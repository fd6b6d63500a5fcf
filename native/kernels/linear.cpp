// `linear`: out = x W^T (+ bias), or out += that; the same with a tuned blocking; and the measuring
// of blockings.
#include "../catalogue.h"
#include "kernels.h"
#include "tile_driver.h"
#include "tile_tuning.h"

namespace helios::HELIOS_ISA {
namespace {

struct Projection {
  TileMatrix matrix;
  ActivationMatrix x;
  Format format;
  std::int64_t outputs;
  const float* bias;
  float* out;
  bool accumulate;
};

// Writes f32 rows: whole tiles as they are computed, those with a bias or a ragged end from `sums`.
struct FloatRows {
  const Projection& p;

  HELIOS_INLINE bool direct(std::int64_t first_tile, int tiles) const {
    return p.bias == nullptr && (first_tile + tiles) * kTileOutputs <= p.outputs;
  }

  HELIOS_INLINE SumRows begin(std::int64_t first_row, int rows, std::int64_t first_tile, int tiles,
                              GroupSums& sums) const {
    float* at = p.out + first_row * p.outputs + first_tile * kTileOutputs;
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < tiles; ++t) prefetch_to_write(at + r * p.outputs + t * kTileOutputs);
    }
    return direct(first_tile, tiles) ? SumRows{at, p.outputs, p.accumulate} : sums.rows();
  }

  HELIOS_INLINE void finish(std::int64_t first_row, int rows, std::int64_t first_tile, int tiles,
                            const GroupSums& sums) const {
    if (direct(first_tile, tiles)) return;
    for (int t = 0; t < tiles; ++t) {
      const std::int64_t n = (first_tile + t) * kTileOutputs;
      const std::int64_t count = p.outputs - n;
      const Floats offset = p.bias != nullptr ? load_up_to(p.bias + n, count) : zeros();
      for (int r = 0; r < rows; ++r) {
        float* at = p.out + (first_row + r) * p.outputs + n;
        Floats value = load(sums.at[r][t]);
        if (p.bias != nullptr) value = value + offset;
        if (p.accumulate) value = load_up_to(at, count) + value;
        store_up_to(at, value, count);
      }
    }
  }
};

void project(const Projection& p, const Piece& piece, std::int32_t choice) {
  const TileProduct& product = tile_product(p.matrix.packing, p.format);
  for_each_group(product, p.matrix, p.x, 1, piece, blocking(product, choice), FloatRows{p});
}

Projection projection(const Launch& launch) {
  using namespace linear;
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t outputs = launch.integer(kOutputs);
  const auto format = static_cast<Format>(launch.integer(kFormat));
  return {{launch.read<std::byte>(kWeight), ceil_divide(outputs, kTileOutputs), width,
           static_cast<Packing>(launch.integer(kPacking))},
          {launch.read<std::byte>(kX), launch.rows(), row_nbytes(format, width)},
          format,
          outputs,
          launch.read<float>(kBias),
          launch.write<float>(kOut),
          launch.integer(kAccumulate) != 0};
}

}  // namespace

void run_linear(const Launch& launch, const Piece& piece) {
  project(projection(launch), piece, 0);
}

void run_linear_tuned(const Launch& launch, const Piece& piece) {
  project(projection(launch), piece, *launch.read<std::int32_t>(linear_tuned::kTuning));
}

void run_tune_linear(const Launch& launch, const Piece&) {
  using namespace tune_linear;
  const std::int64_t rows = launch.integer(kCapacity);
  const std::int64_t width = launch.integer(kWidth);
  const std::int64_t outputs = launch.integer(kOutputs);
  const auto format = static_cast<Format>(launch.integer(kFormat));
  auto* x = launch.write<std::byte>(kX);
  fill_activations(format, x, rows, width);
  const Projection p{{launch.read<std::byte>(kWeight), ceil_divide(outputs, kTileOutputs), width,
                      static_cast<Packing>(launch.integer(kPacking))},
                     {x, rows, row_nbytes(format, width)},
                     format,
                     outputs,
                     nullptr,
                     launch.write<float>(kOut),
                     false};
  *launch.write<std::int32_t>(kChoice) = fastest_blocking(
      p.matrix.tiles, launch.read<std::byte>(kOut), 4 * rows * outputs,
      [&](std::int32_t choice, const Piece& piece) { project(p, piece, choice); });
}

}  // namespace helios::HELIOS_ISA
