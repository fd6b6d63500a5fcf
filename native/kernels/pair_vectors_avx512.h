// AVX-512 back end of pair_vectors.h.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

// Eight int8 activations, in every two lanes: four for even lanes, four for odd ones.
struct Octet { __m512i v; };
HELIOS_INLINE Octet broadcast_octet(const std::int8_t* at) {
  long long eight;
  __builtin_memcpy(&eight, at, 8);
  return {_mm512_set1_epi64(eight)};
}
HELIOS_INLINE Ints dot_small_bytes(Ints sum, Bytes w, Octet x) {
  return {_mm512_dpbusd_epi32(sum.v, w.v, x.v)};
}
// Two integers, in even and in odd lanes.
HELIOS_INLINE Ints broadcast_two(const std::int32_t* at) {
  long long two;
  __builtin_memcpy(&two, at, 8);
  return {_mm512_set1_epi64(two)};
}
// Two int16 a lane.
struct Shorts { __m512i v; };
HELIOS_INLINE Shorts load_shorts(const std::int16_t* at) { return {_mm512_loadu_si512(at)}; }
HELIOS_INLINE Shorts broadcast_shorts(const std::int16_t* at) {
  std::int32_t two;
  __builtin_memcpy(&two, at, 4);
  return {_mm512_set1_epi32(two)};
}
// The first int16 of each lane, and the second.
HELIOS_INLINE Floats firsts_of(Shorts a) {
  return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(a.v, 16), 16))};
}
HELIOS_INLINE Floats seconds_of(Shorts a) {
  return {_mm512_cvtepi32_ps(_mm512_srai_epi32(a.v, 16))};
}
// Every two neighbours of a and b in a lane, saturated: in each 128 bits two lanes of a, two of b.
HELIOS_INLINE Shorts join_neighbours(Ints a, Ints b) { return {_mm512_packs_epi32(a.v, b.v)}; }
// (a b + 2^14) >> 15 of each int16; not for two times -32768.
HELIOS_INLINE Shorts times_fraction(Shorts a, Shorts b) {
  return {_mm512_mulhrs_epi16(a.v, b.v)};
}
// sum + both products of each lane, without regard to overflow.
HELIOS_INLINE Ints dot_shorts(Ints sum, Shorts a, Shorts b) {
  return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)};
}
// Integers as store_rounded_int8 takes them, four of the first, four of the second in turn.
HELIOS_INLINE void store_rounded_by_fours(std::int8_t* at, Floats first, Floats second) {
  const __m128i a = _mm512_cvtepi32_epi8(_mm512_castps_si512(first.v));
  const __m128i b = _mm512_cvtepi32_epi8(_mm512_castps_si512(second.v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm_unpacklo_epi32(a, b));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 16), _mm_unpackhi_epi32(a, b));
}

}  // namespace helios::HELIOS_ISA
