// AVX-512 (F, BW, DQ, VL, VNNI, BF16) back end of vector.h: one zmm register is sixteen lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace helios::HELIOS_ISA {

struct Floats { __m512 v; };
struct Ints { __m512i v; };
struct Bytes { __m512i v; };
struct Pairs { __m512i v; };

HELIOS_INLINE __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}

HELIOS_INLINE Floats zeros() { return {_mm512_setzero_ps()}; }
HELIOS_INLINE Floats broadcast(float x) { return {_mm512_set1_ps(x)}; }
HELIOS_INLINE Floats load(const float* at) { return {_mm512_loadu_ps(at)}; }
HELIOS_INLINE Floats load_partial(const float* at, int count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), at)};
}
HELIOS_INLINE void store(float* at, Floats a) { _mm512_storeu_ps(at, a.v); }
HELIOS_INLINE void store_partial(float* at, Floats a, int count) {
  _mm512_mask_storeu_ps(at, first_lanes(count), a.v);
}

HELIOS_INLINE Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
HELIOS_INLINE Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
HELIOS_INLINE Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
HELIOS_INLINE Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
HELIOS_INLINE Floats fused(Floats a, Floats b, Floats c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
// a where a > b, else b: the second operand where either is NaN.
HELIOS_INLINE Floats maximum(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
HELIOS_INLINE Floats minimum(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
HELIOS_INLINE Floats absolute(Floats a) { return {_mm512_abs_ps(a.v)}; }
HELIOS_INLINE Floats select_less(Floats a, Floats b, Floats yes, Floats no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// Lanes [begin, end) of a, `other` elsewhere; 0 <= begin, end <= 16.
HELIOS_INLINE Floats keep_lanes(Floats a, int begin, int end, Floats other) {
  const auto mask = static_cast<__mmask16>(first_lanes(end) & ~first_lanes(begin));
  return {_mm512_mask_blend_ps(mask, other.v, a.v)};
}

HELIOS_INLINE float total(Floats a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
HELIOS_INLINE float largest(Floats a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

// 2^n where the low bits of `shifted` (n + 1.5 * 2^23) hold the integer n, -126 <= n <= 127.
HELIOS_INLINE Floats power_of_two(Floats shifted) {
  const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3f800000)))};
}

HELIOS_INLINE Floats widen_bf16(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
HELIOS_INLINE Floats load_bf16(const std::uint16_t* at) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
HELIOS_INLINE Floats load_bf16_partial(const std::uint16_t* at, int count) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(count), at));
}
HELIOS_INLINE __m256i round_bf16(Floats a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
HELIOS_INLINE void store_bf16(std::uint16_t* at, Floats a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), round_bf16(a));
}
HELIOS_INLINE void store_bf16_partial(std::uint16_t* at, Floats a, int count) {
  _mm256_mask_storeu_epi16(at, first_lanes(count), round_bf16(a));
}
HELIOS_INLINE Floats load_f16(const std::uint16_t* at) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))};
}
HELIOS_INLINE Floats load_f16_partial(const std::uint16_t* at, int count) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(count), at))};
}
HELIOS_INLINE void store_f16(std::uint16_t* at, Floats a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
HELIOS_INLINE void store_f16_partial(std::uint16_t* at, Floats a, int count) {
  _mm256_mask_storeu_epi16(at, first_lanes(count),
                           _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
HELIOS_INLINE Floats load_int8(const std::int8_t* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}

HELIOS_INLINE Ints zero_ints() { return {_mm512_setzero_si512()}; }
HELIOS_INLINE Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
HELIOS_INLINE Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
HELIOS_INLINE Ints times_256(Ints a) { return {_mm512_slli_epi32(a.v, 8)}; }
HELIOS_INLINE Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// The integers that lie in the low bits of `shifted` (n + 1.5 * 2^23), as int8, -128 <= n <= 127.
HELIOS_INLINE void store_rounded_int8(std::int8_t* at, Floats shifted) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                   _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted.v)));
}

HELIOS_INLINE Bytes load_bytes(const std::uint8_t* at) { return {_mm512_loadu_si512(at)}; }
HELIOS_INLINE Bytes broadcast_byte(std::uint8_t x) {
  return {_mm512_set1_epi8(static_cast<char>(x))};
}
HELIOS_INLINE Bytes low_nibbles(Bytes a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))};
}
HELIOS_INLINE Bytes high_nibbles(Bytes a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
// Four int8 activations, in every lane.
struct Quad { __m512i v; };
HELIOS_INLINE Quad broadcast_quad(const std::int8_t* at) {
  std::int32_t four;
  __builtin_memcpy(&four, at, 4);
  return {_mm512_set1_epi32(four)};
}
// sum + the exact dot product of each lane's four unsigned bytes with the quad.
HELIOS_INLINE Ints dot_bytes(Ints sum, Bytes w, Quad x) {
  return {_mm512_dpbusd_epi32(sum.v, w.v, x.v)};
}
// The same where every byte of w is below 128.
HELIOS_INLINE Ints dot_small_bytes(Ints sum, Bytes w, Quad x) { return dot_bytes(sum, w, x); }

HELIOS_INLINE Pairs load_pairs(const std::uint16_t* at) { return {_mm512_loadu_si512(at)}; }
HELIOS_INLINE Pairs load_pairs_partial(const std::uint16_t* at, int count) {
  return {_mm512_maskz_loadu_epi32(first_lanes(count), at)};
}
HELIOS_INLINE void store_pairs(std::uint16_t* at, Pairs a) { _mm512_storeu_si512(at, a.v); }
HELIOS_INLINE void store_pairs_partial(std::uint16_t* at, Pairs a, int count) {
  _mm512_mask_storeu_epi32(at, first_lanes(count), a.v);
}
// All 32 in the order of the lanes, those of `low` first; what is subnormal may become zero.
HELIOS_INLINE Pairs round_in_order(Floats low, Floats high) {
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v))};
}
// Each lane of the two becomes a pair.
HELIOS_INLINE Pairs round_to_pairs(Floats even, Floats odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return {_mm512_permutexvar_epi16(order, round_in_order(even, odd).v)};
}
HELIOS_INLINE Floats even_of(Pairs a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))};
}
HELIOS_INLINE Floats odd_of(Pairs a) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}
// Two bf16 activations, in every lane.
struct PairBroadcast { __m512i v; };
HELIOS_INLINE PairBroadcast broadcast_pair(const std::uint16_t* at) {
  std::int32_t two;
  __builtin_memcpy(&two, at, 4);
  return {_mm512_set1_epi32(two)};
}
HELIOS_INLINE Floats dot_pairs(Floats sum, Pairs w, PairBroadcast x) {
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(w.v),
                           reinterpret_cast<__m512bh>(x.v))};
}

// Sixteen running f64 sums.
struct Doubles { __m512d low, high; };
HELIOS_INLINE Doubles zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
HELIOS_INLINE Doubles add(Doubles sum, Floats a) {
  return {_mm512_add_pd(sum.low, _mm512_cvtps_pd(_mm512_castps512_ps256(a.v))),
          _mm512_add_pd(sum.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1)))};
}
HELIOS_INLINE double total(Doubles sum) {
  double lanes[16];
  _mm512_storeu_pd(lanes, sum.low);
  _mm512_storeu_pd(lanes + 8, sum.high);
  double result = 0;
  for (double lane : lanes) result += lane;
  return result;
}

// Register tiles that fit 32 registers.
inline constexpr int kFloatRows = 6, kQuantisedRows = 6;
constexpr int float_tiles(int) { return 4; }
// One row is bound by memory, which is read best as one stream.
constexpr int quantised_tiles(int rows) { return rows == 1 ? 1 : 2; }
// Pairs of blocks take two accumulators for each sum.
inline constexpr int kPairRows = 4;
constexpr int pair_tiles(int rows) { return rows == 1 ? 1 : 2; }
// Tiles that all rows of a pass meet before the next ones, at least: the fewer, the nearer stay the
// weights, and the more often the rows come by.
inline constexpr int kPassTiles = 1;
inline constexpr int kScoreQueries = 12;
inline constexpr int kMixQueries = 6, kMixVectors = 4;
inline constexpr int kLaneVectors = 3, kLaneTokens = 8, kLaneElements = 8;
inline constexpr int kPairVectors = 3, kPairTokens = 8;
inline constexpr int kPairQueries = 6, kPairMixVectors = 4;

}  // namespace helios::HELIOS_ISA
