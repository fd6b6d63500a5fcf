// Back end of pair_vectors.h for any machine.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

// Eight int8 activations: four for even lanes, four for odd ones.
struct Octet { std::int32_t x[8]; };
HELIOS_INLINE Octet broadcast_octet(const std::int8_t* at) {
  return {{at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]}};
}
HELIOS_INLINE Ints dot_small_bytes(Ints sum, Bytes w, Octet x) {
  for (int i = 0; i < 16; ++i) {
    const std::int32_t* four = x.x + i % 2 * 4;
    sum.part[i / 4][i % 4] += w.at[4 * i] * four[0] + w.at[4 * i + 1] * four[1] +
                              w.at[4 * i + 2] * four[2] + w.at[4 * i + 3] * four[3];
  }
  return sum;
}
// Two integers, in even and in odd lanes.
HELIOS_INLINE Ints broadcast_two(const std::int32_t* at) {
  const IntQuad four{at[0], at[1], at[0], at[1]};
  return {{four, four, four, four}};
}
// Two int16 a lane.
struct Shorts { std::int16_t at[32]; };
HELIOS_INLINE Shorts load_shorts(const std::int16_t* at) {
  Shorts a;
  __builtin_memcpy(&a, at, 64);
  return a;
}
HELIOS_INLINE Shorts broadcast_shorts(const std::int16_t* at) {
  Shorts a;
  for (int i = 0; i < 32; ++i) a.at[i] = at[i % 2];
  return a;
}
// The first int16 of each lane, and the second.
HELIOS_INLINE Floats firsts_of(Shorts a) {
  Floats firsts;
  for (int i = 0; i < 16; ++i) firsts.part[i / 4][i % 4] = a.at[2 * i];
  return firsts;
}
HELIOS_INLINE Floats seconds_of(Shorts a) {
  Floats seconds;
  for (int i = 0; i < 16; ++i) seconds.part[i / 4][i % 4] = a.at[2 * i + 1];
  return seconds;
}
// Every two neighbours of a and b in a lane, saturated: in each 128 bits two lanes of a, two of b.
HELIOS_INLINE Shorts join_neighbours(Ints a, Ints b) {
  Shorts both;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 8; ++j) {
      const std::int32_t value = j < 4 ? a.part[i][j] : b.part[i][j - 4];
      both.at[8 * i + j] = static_cast<std::int16_t>(
          value > 32767 ? 32767 : value < -32768 ? -32768 : value);
    }
  }
  return both;
}
// (a b + 2^14) >> 15 of each int16; not for two times -32768.
HELIOS_INLINE Shorts times_fraction(Shorts a, Shorts b) {
  for (int i = 0; i < 32; ++i) {
    a.at[i] = static_cast<std::int16_t>((a.at[i] * b.at[i] + 16384) >> 15);
  }
  return a;
}
// sum + both products of each lane, without regard to overflow.
HELIOS_INLINE Ints dot_shorts(Ints sum, Shorts a, Shorts b) {
  for (int i = 0; i < 16; ++i) {
    const auto product = [&](int j) { return static_cast<std::uint32_t>(a.at[j] * b.at[j]); };
    sum.part[i / 4][i % 4] = static_cast<std::int32_t>(
        static_cast<std::uint32_t>(sum.part[i / 4][i % 4]) + product(2 * i) + product(2 * i + 1));
  }
  return sum;
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
