// Writes f32 values into an activation row of any format. A piece is a run of `count` elements at
// `offset` of a row of `width`; for q8 both are multiples of 32.
#pragma once

#include "../layouts.h"
#include "vector.h"

namespace helios::HELIOS_ISA {

HELIOS_INLINE void write_q8_block(std::byte* row, std::int64_t width, std::int64_t offset,
                                  Floats low, Floats high) {
  const float largest_magnitude = largest(maximum(absolute(low), absolute(high)));
  const float inverse = 127.0f / largest_magnitude;
  // Also false for an inverse that overflows: such a block is zero.
  const bool usable = inverse < 3.0e38f;
  const float scale = usable ? largest_magnitude / 127.0f : 0.0f;
  const Floats rounder = broadcast(12582912.0f);
  const Floats factor = broadcast(usable ? inverse : 0.0f);
  const Floats first = low * factor + rounder;
  const Floats second = high * factor + rounder;
  auto* q = reinterpret_cast<std::int8_t*>(row) + offset;
  store_rounded_int8(q, first);
  store_rounded_int8(q + 16, second);
  const float sum = scale * total((first - rounder) + (second - rounder));
  const std::int64_t block = offset / kBlock;
  std::byte* scales = row + width;
  __builtin_memcpy(scales + 4 * block, &scale, 4);
  __builtin_memcpy(scales + 4 * (width / kBlock + block), &sum, 4);
}

HELIOS_INLINE void write_activation(Format format, std::byte* row, std::int64_t width,
                                    std::int64_t offset, const float* values,
                                    std::int64_t count) {
  if (format == Format::kQ8) {
    for (std::int64_t i = 0; i < count; i += kBlock) {
      write_q8_block(row, width, offset + i, load(values + i), load(values + i + 16));
    }
  } else if (format == Format::kBf16) {
    auto* out = reinterpret_cast<std::uint16_t*>(row) + offset;
    for (std::int64_t i = 0; i < count; i += kLanes) {
      store_bf16_up_to(out + i, load_up_to(values + i, count - i), count - i);
    }
  } else {
    auto* out = reinterpret_cast<float*>(row) + offset;
    for (std::int64_t i = 0; i < count; i += kLanes) {
      store_up_to(out + i, load_up_to(values + i, count - i), count - i);
    }
  }
}

}  // namespace helios::HELIOS_ISA
