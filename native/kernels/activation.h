// Writes f32 values into an activation row of any format. A piece is a run of `count` elements at
// `offset` of a row of `width`; for q8 and q16 both are multiples of 32.
#pragma once

#include "../layouts.h"
#include "four_vectors.h"
#include "pair_vectors.h"
#include "vector.h"

namespace helios::HELIOS_ISA {

// Adding it rounds to an integer, half to even, and leaves that integer in the float's low bits.
inline constexpr float kRounder = 12582912.0f;

// A block of 32 scaled so that its largest magnitude becomes `limit`: integers, as floats.
struct ScaledBlock {
  Floats first, second;
  float scale;

  HELIOS_INLINE ScaledBlock(Floats low, Floats high, float limit) {
    const float largest_magnitude = largest(maximum(absolute(low), absolute(high)));
    const float inverse = limit / largest_magnitude;
    // Also false for an inverse that overflows: such a block is zero.
    const bool usable = inverse < 3.0e38f;
    scale = usable ? largest_magnitude / limit : 0.0f;
    const Floats rounder = broadcast(kRounder);
    const Floats factor = broadcast(usable ? inverse : 0.0f);
    first = low * factor + rounder - rounder;
    second = high * factor + rounder - rounder;
  }

  // Writes scale and sum where `scales`, the first of width / 32 scales, says.
  HELIOS_INLINE void write_scale(std::byte* scales, std::int64_t blocks, std::int64_t block) const {
    const float sum = scale * total(first + second);
    __builtin_memcpy(scales + 4 * block, &scale, 4);
    __builtin_memcpy(scales + 4 * (blocks + block), &sum, 4);
  }
};

HELIOS_INLINE void store_int8(std::int8_t* at, Floats integers) {
  store_rounded_int8(at, integers + broadcast(kRounder));
}

HELIOS_INLINE void write_q8_block(std::byte* row, std::int64_t width, std::int64_t offset,
                                  Floats low, Floats high) {
  const ScaledBlock block(low, high, 127.0f);
  auto* q = reinterpret_cast<std::int8_t*>(row) + offset;
  store_int8(q, block.first);
  store_int8(q + 16, block.second);
  block.write_scale(row + width, width / kBlock, offset / kBlock);
}

// Splits 16 integers v of at most 32512 into v = 256 high + low, low in [-128, 127].
HELIOS_INLINE void store_int16_planes(std::int8_t* high_plane, std::int8_t* low_plane, Floats v) {
  // The quarter sends v = 256 h + 128 to h + 1 and moves no other integer across a half.
  const Floats rounder = broadcast(kRounder);
  const Floats high = (v + broadcast(0.25f)) * broadcast(1.0f / 256.0f) + rounder - rounder;
  store_int8(high_plane, high);
  store_int8(low_plane, v - high * broadcast(256.0f));
}

HELIOS_INLINE void write_q16_block(std::byte* row, std::int64_t width, std::int64_t offset,
                                   Floats low, Floats high) {
  const ScaledBlock block(low, high, 32512.0f);
  auto* high_plane = reinterpret_cast<std::int8_t*>(row) + offset;
  store_int16_planes(high_plane, high_plane + width, block.first);
  store_int16_planes(high_plane + 16, high_plane + width + 16, block.second);
  block.write_scale(row + 2 * width, width / kBlock, offset / kBlock);
}

using FloatFour = float __attribute__((vector_size(16)));

// Four blocks side by side, with the bits of one after the other.
template <bool Wide>
HELIOS_INLINE void write_four_blocks(std::byte* row, std::int64_t width, std::int64_t offset,
                                     const float* values) {
  constexpr float kLimit = Wide ? 32512.0f : 127.0f;
  Floats vectors[4];
  for (int i = 0; i < 4; ++i) {
    const float* at = values + i * kBlock;
    vectors[i] = maximum(absolute(load(at)), absolute(load(at + kLanes)));
  }
  float results[4];
  largest_of_four(vectors, results);
  const auto magnitudes = read_as<FloatFour>(results);
  const FloatFour inverses = kLimit / magnitudes;
  const auto usable = inverses < 3.0e38f;
  const FloatFour none{};
  const FloatFour scales = usable ? magnitudes / kLimit : none;
  const FloatFour factors = usable ? inverses : none;
  const Floats rounder = broadcast(kRounder);
  for (int i = 0; i < 4; ++i) {
    const float* at = values + i * kBlock;
    const Floats factor = broadcast(factors[i]);
    const Floats first = load(at) * factor + rounder - rounder;
    const Floats second = load(at + kLanes) * factor + rounder - rounder;
    auto* out = reinterpret_cast<std::int8_t*>(row) + offset + i * kBlock;
    if (Wide) {
      store_int16_planes(out, out + width, first);
      store_int16_planes(out + kLanes, out + width + kLanes, second);
    } else {
      store_int8(out, first);
      store_int8(out + kLanes, second);
    }
    vectors[i] = first + second;
  }
  total_of_four(vectors, results);
  const FloatFour sums = scales * read_as<FloatFour>(results);
  std::byte* at = row + (Wide ? 2 : 1) * width + 4 * (offset / kBlock);
  __builtin_memcpy(at, &scales, sizeof scales);
  __builtin_memcpy(at + 4 * (width / kBlock), &sums, sizeof sums);
}

using IntFour = std::int32_t __attribute__((vector_size(16)));
using ShortFour = std::int16_t __attribute__((vector_size(8)));

// One pair of blocks or two. Each block has its largest magnitude's share of the pair's as an
// integer, so that the pair has one scale in floating point; shares are rounded up, so that no code
// exceeds 127.
template <int Pairs>
HELIOS_INLINE void write_q8_pairs(std::byte* row, std::int64_t width, std::int64_t offset,
                                  const float* values) {
  constexpr float kSteps = 127.0f * 32767.0f;
  constexpr int kBlocks = 2 * Pairs;
  const auto part = [values](int block, int half) {
    return load(values + block % kBlocks * kBlock + half * kLanes);
  };
  Floats vectors[4];
  for (int i = 0; i < 4; ++i) {
    vectors[i] = maximum(absolute(part(i, 0)), absolute(part(i, 1)));
  }
  float results[4];
  largest_of_four(vectors, results);
  const auto magnitudes = read_as<FloatFour>(results);
  const FloatFour others{magnitudes[1], magnitudes[0], magnitudes[3], magnitudes[2]};
  const FloatFour tops = magnitudes > others ? magnitudes : others;
  const FloatFour steps = kSteps / tops;
  // Also false for a number of steps that overflows: such a pair is zero.
  const auto usable = steps < 3.0e38f && steps > 0.0f;
  const FloatFour none{};
  const FloatFour exact = usable ? magnitudes * (steps * (1.0f / 127.0f)) : none;
  const IntFour above = __builtin_convertvector(exact, IntFour) + 1;
  const IntFour most = IntFour{} + 32767;
  const IntFour shares = above > most ? most : above;
  const FloatFour factors =
      usable ? steps / __builtin_convertvector(shares, FloatFour) : none;
  const Floats rounder = broadcast(kRounder);
  Floats codes[kBlocks][2];
  for (int i = 0; i < 4; ++i) {
    if (i < kBlocks) {
      const Floats factor = broadcast(factors[i]);
      for (int half = 0; half < 2; ++half) codes[i][half] = part(i, half) * factor + rounder;
    }
    const Floats* both = codes[i % kBlocks];
    vectors[i] = (both[0] - rounder) + (both[1] - rounder);
  }
  for (int p = 0; p < Pairs; ++p) {
    auto* out = reinterpret_cast<std::int8_t*>(row) + offset + p * kPair;
    store_rounded_by_fours(out, codes[2 * p][0], codes[2 * p + 1][0]);
    store_rounded_by_fours(out + kBlock, codes[2 * p][1], codes[2 * p + 1][1]);
  }
  total_of_four(vectors, results);
  const auto totals = read_as<FloatFour>(results);
  // Not so where a value isn't a number.
  const auto counted = totals < 8192.0f && totals > -8192.0f;
  const IntFour sums = __builtin_convertvector(counted ? totals : none, IntFour);
  const IntFour shared = (sums * shares + 16384) >> 15;
  const IntFour starts = -8 * sums;
  const ShortFour short_shares = __builtin_convertvector(shares, ShortFour);
  const ShortFour short_sums = __builtin_convertvector(shared, ShortFour);
  const float scales[2] = {tops[0] * (32768.0f / kSteps), tops[2] * (32768.0f / kSteps)};
  const std::int64_t pairs = width / kPair;
  std::byte* at = row + width + 4 * (offset / kPair);
  __builtin_memcpy(at, scales, 4 * Pairs);
  __builtin_memcpy(at + 4 * pairs, &short_shares, 4 * Pairs);
  __builtin_memcpy(at + 8 * pairs, &short_sums, 4 * Pairs);
  __builtin_memcpy(at + 12 * pairs + 4 * (offset / kPair), &starts, 8 * Pairs);
}

HELIOS_INLINE void write_activation(Format format, std::byte* row, std::int64_t width,
                                    std::int64_t offset, const float* values,
                                    std::int64_t count) {
  if (format == Format::kQ8) {
    std::int64_t i = 0;
    for (; i + 4 * kBlock <= count; i += 4 * kBlock) {
      write_four_blocks<false>(row, width, offset + i, values + i);
    }
    for (; i < count; i += kBlock) {
      write_q8_block(row, width, offset + i, load(values + i), load(values + i + 16));
    }
  } else if (format == Format::kQ16) {
    std::int64_t i = 0;
    for (; i + 4 * kBlock <= count; i += 4 * kBlock) {
      write_four_blocks<true>(row, width, offset + i, values + i);
    }
    for (; i < count; i += kBlock) {
      write_q16_block(row, width, offset + i, load(values + i), load(values + i + 16));
    }
  } else if (format == Format::kQ8Pairs) {
    std::int64_t i = 0;
    for (; i + 2 * kPair <= count; i += 2 * kPair) {
      write_q8_pairs<2>(row, width, offset + i, values + i);
    }
    if (i < count) write_q8_pairs<1>(row, width, offset + i, values + i);
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
