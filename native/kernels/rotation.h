// Sine and cosine of rotary angles. The angle is rounded to f32 as models are trained with; its
// reduction runs in f64, so that large positions stay exact on machines without fused operations.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

using DoubleOctet = double __attribute__((vector_size(64)));
using FloatOctet = float __attribute__((vector_size(32)));
using WordOctet = std::int64_t __attribute__((vector_size(64)));

struct Rotation {
  FloatOctet cosines, sines;
};

// cos and sin of eight angles.
HELIOS_INLINE Rotation rotation(FloatOctet angles) {
  const DoubleOctet angle = __builtin_convertvector(angles, DoubleOctet);
  const double rounder = 6755399441055744.0;  // 1.5 * 2^52
  const DoubleOctet shifted = angle * 0.63661977236758134 + rounder;
  const DoubleOctet turns = shifted - rounder;  // quarter turns
  const WordOctet quarter = (WordOctet)shifted;
  const DoubleOctet r = (angle - turns * 1.5707963267341256) - turns * 6.0771005065061922e-11;
  const DoubleOctet r2 = r * r;
  const DoubleOctet sine =
      r + r * r2 *
              (-1.6666666666666632e-1 +
               r2 * (8.3333333332248946e-3 +
                     r2 * (-1.9841269829857949e-4 +
                           r2 * (2.7557313707070068e-6 + r2 * -2.5050760253406863e-8))));
  const DoubleOctet cosine =
      1.0 - 0.5 * r2 +
      r2 * r2 *
          (4.1666666666666602e-2 +
           r2 * (-1.3888888888874110e-3 +
                 r2 * (2.4801587289476729e-5 +
                       r2 * (-2.7557314351390663e-7 + r2 * 2.0875723212981748e-9))));
  const WordOctet odd = (quarter & 1) != 0;
  const DoubleOctet c = odd ? sine : cosine;
  const DoubleOctet s = odd ? cosine : sine;
  return {__builtin_convertvector(((quarter + 1) & 2) != 0 ? -c : c, FloatOctet),
          __builtin_convertvector((quarter & 2) != 0 ? -s : s, FloatOctet)};
}

// cos and sin of position * inverse_frequency[i], times `factor`, for `count` frequencies.
inline void rotations(std::int32_t position, const float* inverse_frequency, std::int64_t count,
                      float factor, float* cosines, float* sines) {
  for (std::int64_t i = 0; i < count; i += 8) {
    const auto nbytes = static_cast<std::size_t>(4 * (count - i < 8 ? count - i : 8));
    FloatOctet frequencies{};
    __builtin_memcpy(&frequencies, inverse_frequency + i, nbytes);
    const Rotation part = rotation(static_cast<float>(position) * frequencies);
    const FloatOctet c = factor * part.cosines;
    const FloatOctet s = factor * part.sines;
    __builtin_memcpy(cosines + i, &c, nbytes);
    __builtin_memcpy(sines + i, &s, nbytes);
  }
}

}  // namespace helios::HELIOS_ISA
