// The RMS norm of one vector: its factor, and the product with factor and weight. Used by
// `rms_norm` and, for query and key heads, by `rope_and_cache`.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

// 1 / sqrt(mean(x^2) + epsilon). Four running vectors, added in a fixed order.
HELIOS_INLINE float rms_factor(const float* x, std::int64_t width, float epsilon) {
  Floats sums[4] = {zeros(), zeros(), zeros(), zeros()};
  std::int64_t k = 0;
  for (; k + 4 * kLanes <= width; k += 4 * kLanes) {
    for (int i = 0; i < 4; ++i) {
      const Floats value = load(x + k + i * kLanes);
      sums[i] = fused(value, value, sums[i]);
    }
  }
  for (int i = 0; k < width; k += kLanes, ++i) {
    const Floats value = load_up_to(x + k, width - k);
    sums[i] = fused(value, value, sums[i]);
  }
  const float squares = total((sums[0] + sums[1]) + (sums[2] + sums[3]));
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
}

// out = x * factor * weight for `count` elements; `out` holds a multiple of 16, zero at the end.
HELIOS_INLINE void scale_by(const float* x, const float* weight, float factor,
                            std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Floats scaled = load_up_to(x + i, count - i) * broadcast(factor);
    store(out + i, scaled * load_up_to(weight + i, count - i));
  }
}

}  // namespace helios::HELIOS_ISA
