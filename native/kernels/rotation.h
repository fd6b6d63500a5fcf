// Sine and cosine of rotary angles. The angle is rounded to f32 as models are trained with; its
// reduction runs in f64, so that large positions stay exact on machines without fused operations.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

// cos and sin of position * inverse_frequency[i], times `factor`, for `count` frequencies.
inline void rotations(std::int32_t position, const float* inverse_frequency, std::int64_t count,
                      float factor, float* cosines, float* sines) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double angle = static_cast<float>(position) * inverse_frequency[i];
    const double rounder = 6755399441055744.0;  // 1.5 * 2^52
    const double shifted = angle * 0.63661977236758134 + rounder;
    const double turns = shifted - rounder;  // quarter turns
    const auto quarter = read_as<std::uint64_t>(&shifted);
    const double r = (angle - turns * 1.5707963267341256) - turns * 6.0771005065061922e-11;
    const double r2 = r * r;
    const double sine =
        r + r * r2 *
                (-1.6666666666666632e-1 +
                 r2 * (8.3333333332248946e-3 +
                       r2 * (-1.9841269829857949e-4 +
                             r2 * (2.7557313707070068e-6 + r2 * -2.5050760253406863e-8))));
    const double cosine =
        1.0 - 0.5 * r2 +
        r2 * r2 *
            (4.1666666666666602e-2 +
             r2 * (-1.3888888888874110e-3 +
                   r2 * (2.4801587289476729e-5 +
                         r2 * (-2.7557314351390663e-7 + r2 * 2.0875723212981748e-9))));
    const double c = (quarter & 1) != 0 ? sine : cosine;
    const double s = (quarter & 1) != 0 ? cosine : sine;
    cosines[i] = factor * static_cast<float>(((quarter + 1) & 2) != 0 ? -c : c);
    sines[i] = factor * static_cast<float>((quarter & 2) != 0 ? -s : s);
  }
}

}  // namespace helios::HELIOS_ISA
