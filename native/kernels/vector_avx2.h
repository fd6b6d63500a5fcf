// AVX2 + FMA + F16C back end of vector.h: two ymm registers are sixteen lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace helios::HELIOS_ISA {

struct Floats { __m256 low, high; };
struct Ints { __m256i low, high; };
struct Bytes { __m256i low, high; };
struct Pairs { __m256i low, high; };

// All bits set in lanes [begin, end) of the eight lanes that start at lane `first` of sixteen.
HELIOS_INLINE __m256i lane_mask(int first, int begin, int end) {
  const __m256i lane =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}

HELIOS_INLINE Floats zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HELIOS_INLINE Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
HELIOS_INLINE Floats load(const float* at) {
  return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)};
}
HELIOS_INLINE Floats load_partial(const float* at, int count) {
  return {_mm256_maskload_ps(at, lane_mask(0, 0, count)),
          _mm256_maskload_ps(at + 8, lane_mask(8, 0, count))};
}
HELIOS_INLINE void store(float* at, Floats a) {
  _mm256_storeu_ps(at, a.low);
  _mm256_storeu_ps(at + 8, a.high);
}
HELIOS_INLINE void store_partial(float* at, Floats a, int count) {
  _mm256_maskstore_ps(at, lane_mask(0, 0, count), a.low);
  _mm256_maskstore_ps(at + 8, lane_mask(8, 0, count), a.high);
}

HELIOS_INLINE Floats operator+(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
HELIOS_INLINE Floats operator-(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
HELIOS_INLINE Floats operator*(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
HELIOS_INLINE Floats operator/(Floats a, Floats b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
HELIOS_INLINE Floats fused(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
// a where a > b, else b: the second operand where either is NaN.
HELIOS_INLINE Floats maximum(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
HELIOS_INLINE Floats minimum(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
HELIOS_INLINE Floats absolute(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
HELIOS_INLINE Floats select_less(Floats a, Floats b, Floats yes, Floats no) {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
// Lanes [begin, end) of a, `other` elsewhere; 0 <= begin, end <= 16.
HELIOS_INLINE Floats keep_lanes(Floats a, int begin, int end, Floats other) {
  return {_mm256_blendv_ps(other.low, a.low, _mm256_castsi256_ps(lane_mask(0, begin, end))),
          _mm256_blendv_ps(other.high, a.high, _mm256_castsi256_ps(lane_mask(8, begin, end)))};
}

HELIOS_INLINE float total(Floats a) {
  const __m256 h = _mm256_add_ps(a.low, a.high);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
HELIOS_INLINE float largest(Floats a) {
  const __m256 h = _mm256_max_ps(a.low, a.high);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

HELIOS_INLINE __m256 power_of_two(__m256 shifted) {
  const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3f800000)));
}
// 2^n where the low bits of `shifted` (n + 1.5 * 2^23) hold the integer n, -126 <= n <= 127.
HELIOS_INLINE Floats power_of_two(Floats shifted) {
  return {power_of_two(shifted.low), power_of_two(shifted.high)};
}

HELIOS_INLINE __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
HELIOS_INLINE Floats load_bf16(const std::uint16_t* at) {
  return {widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))),
          widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 8)))};
}
HELIOS_INLINE Floats load_bf16_partial(const std::uint16_t* at, int count) {
  std::uint16_t lanes[16] = {};
  for (int i = 0; i < count; ++i) lanes[i] = at[i];
  return load_bf16(lanes);
}
HELIOS_INLINE __m256i round_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
HELIOS_INLINE void store_bf16(std::uint16_t* at, Floats a) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(a.low), round_bf16(a.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_permute4x64_epi64(packed, 0xd8));
}
HELIOS_INLINE void store_bf16_partial(std::uint16_t* at, Floats a, int count) {
  std::uint16_t lanes[16];
  store_bf16(lanes, a);
  for (int i = 0; i < count; ++i) at[i] = lanes[i];
}
HELIOS_INLINE Floats load_f16(const std::uint16_t* at) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 8)))};
}
HELIOS_INLINE Floats load_f16_partial(const std::uint16_t* at, int count) {
  std::uint16_t lanes[16] = {};
  for (int i = 0; i < count; ++i) lanes[i] = at[i];
  return load_f16(lanes);
}
HELIOS_INLINE void store_f16(std::uint16_t* at, Floats a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                   _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 8),
                   _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}
HELIOS_INLINE void store_f16_partial(std::uint16_t* at, Floats a, int count) {
  std::uint16_t lanes[16];
  store_f16(lanes, a);
  for (int i = 0; i < count; ++i) at[i] = lanes[i];
}
HELIOS_INLINE Floats load_int8(const std::int8_t* at) {
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 8));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))};
}

HELIOS_INLINE Ints zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
HELIOS_INLINE Ints operator+(Ints a, Ints b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
HELIOS_INLINE Ints operator-(Ints a, Ints b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
HELIOS_INLINE Ints times_256(Ints a) {
  return {_mm256_slli_epi32(a.low, 8), _mm256_slli_epi32(a.high, 8)};
}
HELIOS_INLINE Floats to_floats(Ints a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
// The integers that lie in the low bits of `shifted` (n + 1.5 * 2^23), as int8, -128 <= n <= 127.
HELIOS_INLINE void store_rounded_int8(std::int8_t* at, Floats shifted) {
  float lanes[16];
  store(lanes, shifted);
  for (int i = 0; i < 16; ++i) {
    std::int32_t bits;
    __builtin_memcpy(&bits, lanes + i, 4);
    at[i] = static_cast<std::int8_t>(bits);
  }
}

HELIOS_INLINE Bytes load_bytes(const std::uint8_t* at) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32))};
}
HELIOS_INLINE Bytes broadcast_byte(std::uint8_t x) {
  const __m256i bytes = _mm256_set1_epi8(static_cast<char>(x));
  return {bytes, bytes};
}
HELIOS_INLINE Bytes low_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.low, mask), _mm256_and_si256(a.high, mask)};
}
HELIOS_INLINE Bytes high_nibbles(Bytes a) {
  return low_nibbles({_mm256_srli_epi16(a.low, 4), _mm256_srli_epi16(a.high, 4)});
}
// Four int8 activations, in every lane.
struct Quad { __m256i v; };
HELIOS_INLINE Quad broadcast_quad(const std::int8_t* at) {
  std::int32_t four;
  __builtin_memcpy(&four, at, 4);
  return {_mm256_set1_epi32(four)};
}
// The multiply-add of bytes saturates at 16 bits: 127 * 128 * 2 fits, 255 * 127 * 2 doesn't.
HELIOS_INLINE __m256i dot_small_bytes(__m256i sum, __m256i w, __m256i x, int weight) {
  const __m256i pairs = _mm256_maddubs_epi16(w, x);
  return _mm256_add_epi32(
      sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(static_cast<short>(weight))));
}
// sum + the exact dot product of each lane's four unsigned bytes, all below 128, with the quad.
HELIOS_INLINE Ints dot_small_bytes(Ints sum, Bytes w, Quad x) {
  return {dot_small_bytes(sum.low, w.low, x.v, 1), dot_small_bytes(sum.high, w.high, x.v, 1)};
}
HELIOS_INLINE __m256i dot_bytes(__m256i sum, __m256i w, __m256i x) {
  const __m256i seven = _mm256_and_si256(w, _mm256_set1_epi8(0x7f));
  const __m256i top = _mm256_and_si256(_mm256_srli_epi16(w, 7), _mm256_set1_epi8(1));
  return dot_small_bytes(dot_small_bytes(sum, seven, x, 1), top, x, 128);
}
// The same for any bytes: the low seven bits and the top bit apart.
HELIOS_INLINE Ints dot_bytes(Ints sum, Bytes w, Quad x) {
  return {dot_bytes(sum.low, w.low, x.v), dot_bytes(sum.high, w.high, x.v)};
}

HELIOS_INLINE Pairs load_pairs(const std::uint16_t* at) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 16))};
}
HELIOS_INLINE Pairs load_pairs_partial(const std::uint16_t* at, int count) {
  const auto* lanes = reinterpret_cast<const int*>(at);
  return {_mm256_maskload_epi32(lanes, lane_mask(0, 0, count)),
          _mm256_maskload_epi32(lanes + 8, lane_mask(8, 0, count))};
}
HELIOS_INLINE void store_pairs(std::uint16_t* at, Pairs a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), a.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + 16), a.high);
}
HELIOS_INLINE void store_pairs_partial(std::uint16_t* at, Pairs a, int count) {
  auto* lanes = reinterpret_cast<int*>(at);
  _mm256_maskstore_epi32(lanes, lane_mask(0, 0, count), a.low);
  _mm256_maskstore_epi32(lanes + 8, lane_mask(8, 0, count), a.high);
}
// All 32 in the order of the lanes, those of `low` first; what is subnormal may become zero.
HELIOS_INLINE Pairs round_in_order(Floats low, Floats high) {
  const __m256i first = _mm256_packus_epi32(round_bf16(low.low), round_bf16(low.high));
  const __m256i second = _mm256_packus_epi32(round_bf16(high.low), round_bf16(high.high));
  return {_mm256_permute4x64_epi64(first, 0xd8), _mm256_permute4x64_epi64(second, 0xd8)};
}
// Each lane of the two becomes a pair.
HELIOS_INLINE Pairs round_to_pairs(Floats even, Floats odd) {
  return {_mm256_or_si256(round_bf16(even.low), _mm256_slli_epi32(round_bf16(odd.low), 16)),
          _mm256_or_si256(round_bf16(even.high), _mm256_slli_epi32(round_bf16(odd.high), 16))};
}
HELIOS_INLINE Floats even_of(Pairs a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(a.low, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(a.high, 16))};
}
HELIOS_INLINE Floats odd_of(Pairs a) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(a.low, mask)),
          _mm256_castsi256_ps(_mm256_and_si256(a.high, mask))};
}
// Two bf16 activations, in every lane.
struct PairBroadcast { Floats even, odd; };
HELIOS_INLINE PairBroadcast broadcast_pair(const std::uint16_t* at) {
  std::int32_t two;
  __builtin_memcpy(&two, at, 4);
  const __m256i pair = _mm256_set1_epi32(two);
  const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
  const __m256 odd = _mm256_castsi256_ps(
      _mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  return {{even, even}, {odd, odd}};
}
HELIOS_INLINE Floats dot_pairs(Floats sum, Pairs w, PairBroadcast x) {
  return fused(odd_of(w), x.odd, fused(even_of(w), x.even, sum));
}

// Sixteen running f64 sums.
struct Doubles { __m256d part[4]; };
HELIOS_INLINE Doubles zero_doubles() {
  const __m256d zero = _mm256_setzero_pd();
  return {{zero, zero, zero, zero}};
}
HELIOS_INLINE Doubles add(Doubles sum, Floats a) {
  return {{_mm256_add_pd(sum.part[0], _mm256_cvtps_pd(_mm256_castps256_ps128(a.low))),
           _mm256_add_pd(sum.part[1], _mm256_cvtps_pd(_mm256_extractf128_ps(a.low, 1))),
           _mm256_add_pd(sum.part[2], _mm256_cvtps_pd(_mm256_castps256_ps128(a.high))),
           _mm256_add_pd(sum.part[3], _mm256_cvtps_pd(_mm256_extractf128_ps(a.high, 1)))}};
}
HELIOS_INLINE double total(Doubles sum) {
  double lanes[16];
  for (int i = 0; i < 4; ++i) _mm256_storeu_pd(lanes + 4 * i, sum.part[i]);
  double result = 0;
  for (double lane : lanes) result += lane;
  return result;
}

// Register tiles that fit 16 registers.
inline constexpr int kFloatRows = 4, kQuantisedRows = 2;
constexpr int float_tiles(int rows) { return rows == 1 ? 4 : 1; }
constexpr int quantised_tiles(int) { return 1; }
inline constexpr int kPairRows = 2;
constexpr int pair_tiles(int) { return 1; }
inline constexpr int kPassTiles = 4;
inline constexpr int kScoreQueries = 2;
inline constexpr int kMixQueries = 1, kMixVectors = 4;
inline constexpr int kLaneVectors = 2, kLaneTokens = 3, kLaneElements = 3;
inline constexpr int kPairVectors = 1, kPairTokens = 4;
inline constexpr int kPairQueries = 4, kPairMixVectors = 1;

}  // namespace helios::HELIOS_ISA
