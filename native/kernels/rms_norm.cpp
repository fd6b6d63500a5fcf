// `rms_norm`: x / sqrt(mean(x^2) + epsilon) * weight, in the format that the next kernel takes.
#include "../catalogue.h"
#include "activation.h"
#include "kernels.h"
#include "norm.h"

namespace helios::HELIOS_ISA {

// Elements that are written at once: four blocks, so that they are quantised together.
constexpr std::int64_t kPart = 4 * kBlock;

void run_rms_norm(const Launch& launch, const Piece& piece) {
  using namespace rms_norm;
  const std::int64_t width = launch.integer(kWidth);
  const auto format = static_cast<Format>(launch.integer(kFormat));
  const float epsilon = launch.real(kEpsilon);
  const auto* x = launch.read<float>(kX);
  const auto* weight = launch.read<float>(kWeight);
  auto* out = launch.write<std::byte>(kOut);

  const Range share = piece.share(launch.rows());
  for (std::int64_t r = share.begin; r < share.end; ++r) {
    const float* row = x + r * width;
    const float factor = rms_factor(row, width, epsilon);
    std::byte* out_row = out + r * row_nbytes(format, width);
    for (std::int64_t k = 0; k < width; k += kPart) {
      const std::int64_t count = width - k < kPart ? width - k : kPart;
      alignas(64) float values[kPart];
      scale_by(row + k, weight + k, factor, count, values);
      write_activation(format, out_row, width, k, values, count);
    }
  }
}

}  // namespace helios::HELIOS_ISA
