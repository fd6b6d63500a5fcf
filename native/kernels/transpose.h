// Transposes blocks of 16 x 16 floats.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

#if defined(HELIOS_AVX512)

// out[j * stride + i] = rows[i][j] for i, j < 16.
template <class Row>
HELIOS_INLINE void transpose_block(const Row& row, float* out, std::int64_t stride) {
  __m512 pairs[16];
  for (int i = 0; i < 16; i += 2) {
    const __m512 even = _mm512_loadu_ps(row(i));
    const __m512 odd = _mm512_loadu_ps(row(i + 1));
    pairs[i] = _mm512_unpacklo_ps(even, odd);
    pairs[i + 1] = _mm512_unpackhi_ps(even, odd);
  }
  // quads[i + c]: column c of each 128-bit part of rows i .. i + 3.
  __m512 quads[16];
  for (int i = 0; i < 16; i += 4) {
    for (int half = 0; half < 2; ++half) {
      const __m512d first = _mm512_castps_pd(pairs[i + half]);
      const __m512d second = _mm512_castps_pd(pairs[i + 2 + half]);
      quads[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
      quads[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
    }
  }
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xee);
    _mm512_storeu_ps(out + c * stride, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_storeu_ps(out + (4 + c) * stride, _mm512_shuffle_f32x4(low01, low23, 0xdd));
    _mm512_storeu_ps(out + (8 + c) * stride, _mm512_shuffle_f32x4(high01, high23, 0x88));
    _mm512_storeu_ps(out + (12 + c) * stride, _mm512_shuffle_f32x4(high01, high23, 0xdd));
  }
}

#else

template <class Row>
HELIOS_INLINE void transpose_block(const Row& row, float* out, std::int64_t stride) {
  for (int i = 0; i < 16; ++i) {
    const float* from = row(i);
    // Copied as bytes: pairs of bf16 are turned round as well.
    for (int j = 0; j < 16; ++j) __builtin_memcpy(out + j * stride + i, from + j, 4);
  }
}

#endif

}  // namespace helios::HELIOS_ISA
