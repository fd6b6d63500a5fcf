// AVX2 back end of pair_vectors.h.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

// Eight int8 activations, in every two lanes: four for even lanes, four for odd ones.
struct Octet { __m256i v; };
HELIOS_INLINE Octet broadcast_octet(const std::int8_t* at) {
  long long eight;
  __builtin_memcpy(&eight, at, 8);
  return {_mm256_set1_epi64x(eight)};
}
HELIOS_INLINE Ints dot_small_bytes(Ints sum, Bytes w, Octet x) {
  return {dot_small_bytes(sum.low, w.low, x.v, 1), dot_small_bytes(sum.high, w.high, x.v, 1)};
}
// Two integers, in even and in odd lanes.
HELIOS_INLINE Ints broadcast_two(const std::int32_t* at) {
  long long two;
  __builtin_memcpy(&two, at, 8);
  const __m256i all = _mm256_set1_epi64x(two);
  return {all, all};
}
// Two int16 a lane.
struct Shorts { __m256i low, high; };
HELIOS_INLINE Shorts load_shorts(const std::int16_t* at) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 16))};
}
HELIOS_INLINE Shorts broadcast_shorts(const std::int16_t* at) {
  std::int32_t two;
  __builtin_memcpy(&two, at, 4);
  const __m256i all = _mm256_set1_epi32(two);
  return {all, all};
}
// The first int16 of each lane, and the second.
HELIOS_INLINE Floats seconds_of(Shorts a) {
  return {_mm256_cvtepi32_ps(_mm256_srai_epi32(a.low, 16)),
          _mm256_cvtepi32_ps(_mm256_srai_epi32(a.high, 16))};
}
HELIOS_INLINE Floats firsts_of(Shorts a) {
  return seconds_of({_mm256_slli_epi32(a.low, 16), _mm256_slli_epi32(a.high, 16)});
}
// Every two neighbours of a and b in a lane, saturated: in each 128 bits two lanes of a, two of b.
HELIOS_INLINE Shorts join_neighbours(Ints a, Ints b) {
  return {_mm256_packs_epi32(a.low, b.low), _mm256_packs_epi32(a.high, b.high)};
}
// (a b + 2^14) >> 15 of each int16; not for two times -32768.
HELIOS_INLINE Shorts times_fraction(Shorts a, Shorts b) {
  return {_mm256_mulhrs_epi16(a.low, b.low), _mm256_mulhrs_epi16(a.high, b.high)};
}
// sum + both products of each lane, without regard to overflow.
HELIOS_INLINE Ints dot_shorts(Ints sum, Shorts a, Shorts b) {
  return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low)),
          _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high))};
}

// Integers as store_rounded_int8 takes them, four of the first, four of the second in turn.
HELIOS_INLINE void store_rounded_by_fours(std::int8_t* at, Floats first, Floats second) {
  std::int8_t both[2][16];
  store_rounded_int8(both[0], first);
  store_rounded_int8(both[1], second);
  for (int i = 0; i < 4; ++i) {
    __builtin_memcpy(at + 8 * i, both[0] + 4 * i, 4);
    __builtin_memcpy(at + 8 * i + 4, both[1] + 4 * i, 4);
  }
}

}  // namespace helios::HELIOS_ISA
