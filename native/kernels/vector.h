// Sixteen lanes of f32 (`Floats`), of i32 (`Ints`), 64 bytes (`Bytes`) and 32 bf16 (`Pairs`): the
// vocabulary in which every vector kernel is written once. The build compiles the kernels once for
// each instruction set, with HELIOS_ISA naming it; everything lives in that namespace and nothing
// here calls the standard library, so no function compiled for a wide instruction set can be
// linked into a narrow path.
//
// Each back end gives the same operations with the same order of every reduction; they differ in
// whether `fused` rounds once, and in the dot-product primitives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../inlining.h"

// HELIOS_UNROLL stands before a loop of few rounds over an array that is to live in registers:
// unrolled so early that the compiler can keep its elements there from the first one on. Where
// registers are few it makes things slower.
#if defined(HELIOS_AVX512)
#define HELIOS_UNROLL _Pragma("GCC unroll 16")
#else
#define HELIOS_UNROLL
#endif

#if defined(HELIOS_AVX512)
#include "vector_avx512.h"
#elif defined(HELIOS_AVX2)
#include "vector_avx2.h"
#else
#include "vector_portable.h"
#endif

namespace helios::HELIOS_ISA {

inline constexpr int kLanes = 16;

template <class T>
HELIOS_INLINE T read_as(const void* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

HELIOS_INLINE float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  return read_as<float>(&wide);
}

// Rounds to nearest even; a NaN stays one.
HELIOS_INLINE std::uint16_t float_to_bf16(float value) {
  const auto bits = read_as<std::uint32_t>(&value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// A hint only: touches nothing, whatever the address.
HELIOS_INLINE void prefetch(const void* at) { __builtin_prefetch(at, 0, 3); }
// The same for memory that will be written: takes the line from other cores' caches.
HELIOS_INLINE void prefetch_to_write(const void* at) { __builtin_prefetch(at, 1, 3); }

// First `count` lanes of memory (any count, 16 and more meaning all), zero elsewhere.
HELIOS_INLINE Floats load_up_to(const float* at, std::int64_t count) {
  return count >= kLanes ? load(at) : load_partial(at, static_cast<int>(count));
}
HELIOS_INLINE void store_up_to(float* at, Floats value, std::int64_t count) {
  if (count >= kLanes) {
    store(at, value);
  } else {
    store_partial(at, value, static_cast<int>(count));
  }
}
HELIOS_INLINE Floats load_bf16_up_to(const std::uint16_t* at, std::int64_t count) {
  return count >= kLanes ? load_bf16(at) : load_bf16_partial(at, static_cast<int>(count));
}
HELIOS_INLINE void store_bf16_up_to(std::uint16_t* at, Floats value, std::int64_t count) {
  if (count >= kLanes) {
    store_bf16(at, value);
  } else {
    store_bf16_partial(at, value, static_cast<int>(count));
  }
}

HELIOS_INLINE Pairs load_pairs_up_to(const std::uint16_t* at, std::int64_t count) {
  return count >= kLanes ? load_pairs(at) : load_pairs_partial(at, static_cast<int>(count));
}

HELIOS_INLINE Floats load_f16_up_to(const std::uint16_t* at, std::int64_t count) {
  return count >= kLanes ? load_f16(at) : load_f16_partial(at, static_cast<int>(count));
}
// Clamps to the largest finite f16.
HELIOS_INLINE void store_f16_up_to(std::uint16_t* at, Floats value, std::int64_t count) {
  const Floats finite = minimum(broadcast(65504.0f), maximum(broadcast(-65504.0f), value));
  if (count >= kLanes) {
    store_f16(at, finite);
  } else {
    store_f16_partial(at, finite, static_cast<int>(count));
  }
}

// e^x as a power of two, whose exponent lies in the low bits of `shifted`, and a factor near 1.
struct PowerParts { Floats shifted, fraction; };
HELIOS_INLINE PowerParts power_parts(Floats x) {
  const Floats rounder = broadcast(12582912.0f);  // 1.5 * 2^23: the sum's low bits are the integer
  const Floats shifted = fused(x, broadcast(1.44269504f), rounder);
  const Floats n = shifted - rounder;
  Floats r = fused(n, broadcast(-0.693359375f), x);
  r = fused(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.9875691500e-4f);
  p = fused(p, r, broadcast(1.3981999507e-3f));
  p = fused(p, r, broadcast(8.3334519073e-3f));
  p = fused(p, r, broadcast(4.1665795894e-2f));
  p = fused(p, r, broadcast(1.6666665459e-1f));
  p = fused(p, r, broadcast(5.0000001201e-1f));
  p = fused(p * r, r, r) + broadcast(1.0f);
  return {shifted, p};
}

// 2^x for x up to 0 with a relative error of about 3e-6, 1 for 0; 0 below -126.5, NaN for NaN.
HELIOS_INLINE Floats power_of_two_up_to_zero(Floats x) {
  const Floats rounder = broadcast(12582912.0f);
  const Floats clamped = maximum(broadcast(-127.0f), x);
  const Floats shifted = clamped + rounder;
  const Floats r = clamped - (shifted - rounder);
  Floats p = broadcast(9.58285322e-3f);
  p = fused(p, r, broadcast(5.59064262e-2f));
  p = fused(p, r, broadcast(2.40240986e-1f));
  p = fused(p, r, broadcast(6.93124193e-1f));
  p = fused(p, r, broadcast(1.0f));
  // The exponent field of 2^-127 is 0.
  return p * power_of_two(shifted);
}

// e^x with a relative error of about 1e-7; 0 below -86, infinite above 88.7, NaN for NaN.
HELIOS_INLINE Floats exponential(Floats x) {
  const Floats clamped = minimum(broadcast(88.8f), maximum(broadcast(-86.0f), x));
  const PowerParts parts = power_parts(clamped);
  // 2^(n-1) and a doubling: n reaches 128.
  const Floats result =
      parts.fraction * power_of_two(parts.shifted - broadcast(1.0f)) * broadcast(2.0f);
  return select_less(x, broadcast(-86.0f), zeros(), result);
}

// The same bits for x up to 0 in fewer operations; anything for larger x.
HELIOS_INLINE Floats exponential_up_to_zero(Floats x) {
  const Floats clamped = maximum(broadcast(-86.0f), x);
  const PowerParts parts = power_parts(clamped);
  return select_less(x, broadcast(-86.0f), zeros(), parts.fraction * power_of_two(parts.shifted));
}

}  // namespace helios::HELIOS_ISA
