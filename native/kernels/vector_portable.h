// Back end of vector.h for any machine: four vectors of four lanes, written with the compiler's
// vector extension, which becomes SSE2, NEON or scalar code without any target option.
#pragma once

#include <cstdint>

namespace helios::HELIOS_ISA {

typedef float FloatQuad __attribute__((vector_size(16)));
typedef std::int32_t IntQuad __attribute__((vector_size(16)));
typedef std::uint32_t WordQuad __attribute__((vector_size(16)));

struct Floats { FloatQuad part[4]; };
struct Ints { IntQuad part[4]; };
struct Bytes { std::uint8_t at[64]; };
struct Pairs { WordQuad part[4]; };

template <class Operation>
HELIOS_INLINE Floats each_part(Operation operation) {
  return {{operation(0), operation(1), operation(2), operation(3)}};
}

HELIOS_INLINE Floats broadcast(float x) {
  return each_part([=](int) { return FloatQuad{x, x, x, x}; });
}
HELIOS_INLINE Floats zeros() { return broadcast(0.0f); }
HELIOS_INLINE Floats load(const float* at) {
  Floats a;
  __builtin_memcpy(&a, at, 64);
  return a;
}
HELIOS_INLINE Floats load_partial(const float* at, int count) {
  float lanes[16] = {};
  for (int i = 0; i < count; ++i) lanes[i] = at[i];
  return load(lanes);
}
HELIOS_INLINE void store(float* at, Floats a) { __builtin_memcpy(at, &a, 64); }
HELIOS_INLINE void store_partial(float* at, Floats a, int count) {
  float lanes[16];
  store(lanes, a);
  for (int i = 0; i < count; ++i) at[i] = lanes[i];
}

HELIOS_INLINE Floats operator+(Floats a, Floats b) {
  return each_part([&](int i) { return a.part[i] + b.part[i]; });
}
HELIOS_INLINE Floats operator-(Floats a, Floats b) {
  return each_part([&](int i) { return a.part[i] - b.part[i]; });
}
HELIOS_INLINE Floats operator*(Floats a, Floats b) {
  return each_part([&](int i) { return a.part[i] * b.part[i]; });
}
HELIOS_INLINE Floats operator/(Floats a, Floats b) {
  return each_part([&](int i) { return a.part[i] / b.part[i]; });
}
// Rounds twice: a fused operation isn't at hand everywhere.
HELIOS_INLINE Floats fused(Floats a, Floats b, Floats c) { return a * b + c; }

HELIOS_INLINE FloatQuad select(IntQuad mask, FloatQuad yes, FloatQuad no) {
  return (FloatQuad)(((IntQuad)yes & mask) | ((IntQuad)no & ~mask));
}
// a where a > b, else b: the second operand where either is NaN.
HELIOS_INLINE Floats maximum(Floats a, Floats b) {
  return each_part([&](int i) { return select(a.part[i] > b.part[i], a.part[i], b.part[i]); });
}
HELIOS_INLINE Floats minimum(Floats a, Floats b) {
  return each_part([&](int i) { return select(a.part[i] < b.part[i], a.part[i], b.part[i]); });
}
HELIOS_INLINE Floats absolute(Floats a) {
  return each_part([&](int i) { return (FloatQuad)((IntQuad)a.part[i] & 0x7fffffff); });
}
HELIOS_INLINE Floats select_less(Floats a, Floats b, Floats yes, Floats no) {
  return each_part([&](int i) {
    return select(a.part[i] < b.part[i], yes.part[i], no.part[i]);
  });
}
// Lanes [begin, end) of a, `other` elsewhere; 0 <= begin, end <= 16.
HELIOS_INLINE Floats keep_lanes(Floats a, int begin, int end, Floats other) {
  return each_part([&](int i) {
    const IntQuad lane = IntQuad{0, 1, 2, 3} + 4 * i;
    return select((lane >= begin) & (lane < end), a.part[i], other.part[i]);
  });
}

HELIOS_INLINE float total(Floats a) {
  const FloatQuad q = (a.part[0] + a.part[2]) + (a.part[1] + a.part[3]);
  return (q[0] + q[2]) + (q[1] + q[3]);
}
HELIOS_INLINE float largest(Floats a) {
  float lanes[16];
  store(lanes, a);
  float result = lanes[0];
  for (float lane : lanes) result = lane > result ? lane : result;
  return result;
}

// 2^n where the low bits of `shifted` (n + 1.5 * 2^23) hold the integer n, -126 <= n <= 127.
HELIOS_INLINE Floats power_of_two(Floats shifted) {
  return each_part([&](int i) {
    return (FloatQuad)(((WordQuad)shifted.part[i] << 23) + 0x3f800000u);
  });
}

HELIOS_INLINE Floats load_bf16_partial(const std::uint16_t* at, int count) {
  std::uint32_t lanes[16] = {};
  for (int i = 0; i < count; ++i) lanes[i] = std::uint32_t{at[i]} << 16;
  Floats a;
  __builtin_memcpy(&a, lanes, 64);
  return a;
}
HELIOS_INLINE Floats load_bf16(const std::uint16_t* at) { return load_bf16_partial(at, 16); }
HELIOS_INLINE void store_bf16_partial(std::uint16_t* at, Floats a, int count) {
  std::uint32_t lanes[16];
  __builtin_memcpy(lanes, &a, 64);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t bits = lanes[i];
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1);
    at[i] = static_cast<std::uint16_t>(rounded >> 16);
  }
}
HELIOS_INLINE void store_bf16(std::uint16_t* at, Floats a) { store_bf16_partial(at, a, 16); }

// Exponent and mantissa moved into place, then scaled by 2^112, which also makes subnormals right.
HELIOS_INLINE Floats load_f16(const std::uint16_t* at) {
  Floats a;
  for (int i = 0; i < 4; ++i) {
    WordQuad half;
    for (int j = 0; j < 4; ++j) half[j] = at[4 * i + j];
    const WordQuad magnitude = (half & 0x7fffu) << 13;
    const WordQuad finite = (WordQuad)((FloatQuad)magnitude * 0x1p112f);
    const WordQuad special = (WordQuad)((half & 0x7c00u) == 0x7c00u);
    const WordQuad bits = (special & (magnitude | 0x7f800000u)) | (~special & finite);
    a.part[i] = (FloatQuad)(bits | (half & 0x8000u) << 16);
  }
  return a;
}
HELIOS_INLINE Floats load_f16_partial(const std::uint16_t* at, int count) {
  std::uint16_t lanes[16] = {};
  for (int i = 0; i < count; ++i) lanes[i] = at[i];
  return load_f16(lanes);
}
// Rounds to nearest even; what is too large becomes infinite, a NaN stays one.
HELIOS_INLINE std::uint16_t float_to_f16(std::uint32_t bits) {
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 1/2 leaves the value, rounded to multiples of 2^-24, in the low bits.
    float value;
    __builtin_memcpy(&value, &magnitude, 4);
    value += 0.5f;
    std::uint32_t shifted;
    __builtin_memcpy(&shifted, &value, 4);
    return sign | static_cast<std::uint16_t>(shifted - 0x3f000000u);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}
HELIOS_INLINE void store_f16_partial(std::uint16_t* at, Floats a, int count) {
  std::uint32_t lanes[16];
  __builtin_memcpy(lanes, &a, 64);
  for (int i = 0; i < count; ++i) at[i] = float_to_f16(lanes[i]);
}
HELIOS_INLINE void store_f16(std::uint16_t* at, Floats a) { store_f16_partial(at, a, 16); }
HELIOS_INLINE Floats load_int8(const std::int8_t* at) {
  Floats a;
  for (int i = 0; i < 16; ++i) a.part[i / 4][i % 4] = at[i];
  return a;
}

HELIOS_INLINE Ints zero_ints() { return {}; }
HELIOS_INLINE Ints operator+(Ints a, Ints b) {
  for (int i = 0; i < 4; ++i) a.part[i] += b.part[i];
  return a;
}
HELIOS_INLINE Ints operator-(Ints a, Ints b) {
  for (int i = 0; i < 4; ++i) a.part[i] -= b.part[i];
  return a;
}
HELIOS_INLINE Ints times_256(Ints a) {
  for (int i = 0; i < 4; ++i) a.part[i] *= 256;
  return a;
}
HELIOS_INLINE Floats to_floats(Ints a) {
  return each_part([&](int i) { return __builtin_convertvector(a.part[i], FloatQuad); });
}
// The integers that lie in the low bits of `shifted` (n + 1.5 * 2^23), as int8, -128 <= n <= 127.
HELIOS_INLINE void store_rounded_int8(std::int8_t* at, Floats shifted) {
  std::int32_t bits[16];
  __builtin_memcpy(bits, &shifted, 64);
  for (int i = 0; i < 16; ++i) at[i] = static_cast<std::int8_t>(bits[i]);
}

HELIOS_INLINE Bytes load_bytes(const std::uint8_t* at) {
  Bytes a;
  __builtin_memcpy(&a, at, 64);
  return a;
}
HELIOS_INLINE Bytes broadcast_byte(std::uint8_t x) {
  Bytes a;
  for (auto& byte : a.at) byte = x;
  return a;
}
HELIOS_INLINE Bytes low_nibbles(Bytes a) {
  for (auto& byte : a.at) byte &= 15;
  return a;
}
HELIOS_INLINE Bytes high_nibbles(Bytes a) {
  for (auto& byte : a.at) byte >>= 4;
  return a;
}
// Four int8 activations.
struct Quad { std::int32_t x[4]; };
HELIOS_INLINE Quad broadcast_quad(const std::int8_t* at) {
  return {{at[0], at[1], at[2], at[3]}};
}
// sum + the exact dot product of each lane's four unsigned bytes with the quad.
HELIOS_INLINE Ints dot_bytes(Ints sum, Bytes w, Quad x) {
  for (int i = 0; i < 16; ++i) {
    sum.part[i / 4][i % 4] += w.at[4 * i] * x.x[0] + w.at[4 * i + 1] * x.x[1] +
                              w.at[4 * i + 2] * x.x[2] + w.at[4 * i + 3] * x.x[3];
  }
  return sum;
}
// The same where every byte of w is below 128.
HELIOS_INLINE Ints dot_small_bytes(Ints sum, Bytes w, Quad x) { return dot_bytes(sum, w, x); }

HELIOS_INLINE Pairs load_pairs(const std::uint16_t* at) {
  Pairs a;
  for (int i = 0; i < 16; ++i) {
    a.part[i / 4][i % 4] = std::uint32_t{at[2 * i]} | std::uint32_t{at[2 * i + 1]} << 16;
  }
  return a;
}
HELIOS_INLINE Pairs load_pairs_partial(const std::uint16_t* at, int count) {
  std::uint16_t lanes[32] = {};
  for (int i = 0; i < 2 * count; ++i) lanes[i] = at[i];
  return load_pairs(lanes);
}
HELIOS_INLINE void store_pairs_partial(std::uint16_t* at, Pairs a, int count) {
  for (int i = 0; i < count; ++i) {
    const std::uint32_t pair = a.part[i / 4][i % 4];
    at[2 * i] = static_cast<std::uint16_t>(pair);
    at[2 * i + 1] = static_cast<std::uint16_t>(pair >> 16);
  }
}
HELIOS_INLINE void store_pairs(std::uint16_t* at, Pairs a) { store_pairs_partial(at, a, 16); }
// All 32 in the order of the lanes, those of `low` first; what is subnormal may become zero.
HELIOS_INLINE Pairs round_in_order(Floats low, Floats high) {
  std::uint16_t lanes[32];
  store_bf16(lanes, low);
  store_bf16(lanes + 16, high);
  return load_pairs(lanes);
}
// Each lane of the two becomes a pair.
HELIOS_INLINE Pairs round_to_pairs(Floats even, Floats odd) {
  std::uint16_t lanes[32], evens[16], odds[16];
  store_bf16(evens, even);
  store_bf16(odds, odd);
  for (int i = 0; i < 16; ++i) {
    lanes[2 * i] = evens[i];
    lanes[2 * i + 1] = odds[i];
  }
  return load_pairs(lanes);
}
HELIOS_INLINE Floats even_of(Pairs a) {
  return each_part([&](int i) { return (FloatQuad)(a.part[i] << 16); });
}
HELIOS_INLINE Floats odd_of(Pairs a) {
  return each_part([&](int i) { return (FloatQuad)(a.part[i] & 0xffff0000u); });
}
// Two bf16 activations, in every lane.
struct PairBroadcast { Floats even, odd; };
HELIOS_INLINE PairBroadcast broadcast_pair(const std::uint16_t* at) {
  const std::uint32_t bits[2] = {std::uint32_t{at[0]} << 16, std::uint32_t{at[1]} << 16};
  float values[2];
  __builtin_memcpy(values, bits, 8);
  return {broadcast(values[0]), broadcast(values[1])};
}
HELIOS_INLINE Floats dot_pairs(Floats sum, Pairs w, PairBroadcast x) {
  return fused(odd_of(w), x.odd, fused(even_of(w), x.even, sum));
}

// Sixteen running f64 sums.
struct Doubles { double lane[16]; };
HELIOS_INLINE Doubles zero_doubles() { return {}; }
HELIOS_INLINE Doubles add(Doubles sum, Floats a) {
  for (int i = 0; i < 16; ++i) sum.lane[i] += a.part[i / 4][i % 4];
  return sum;
}
HELIOS_INLINE double total(Doubles sum) {
  double result = 0;
  for (double lane : sum.lane) result += lane;
  return result;
}

// Register tiles that fit 16 registers of four lanes.
inline constexpr int kFloatRows = 2, kQuantisedRows = 1;
constexpr int float_tiles(int rows) { return rows == 1 ? 4 : 1; }
constexpr int quantised_tiles(int) { return 1; }
inline constexpr int kPairRows = 1;
constexpr int pair_tiles(int) { return 1; }
inline constexpr int kPassTiles = 4;
inline constexpr int kScoreQueries = 1;
inline constexpr int kMixQueries = 1, kMixVectors = 2;
inline constexpr int kLaneVectors = 1, kLaneTokens = 4, kLaneElements = 4;
inline constexpr int kPairVectors = 1, kPairTokens = 2;
inline constexpr int kPairQueries = 1, kPairMixVectors = 2;

}  // namespace helios::HELIOS_ISA
