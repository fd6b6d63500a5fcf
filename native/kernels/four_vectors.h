// Reductions of four vectors at once, with the bits of the ones of vector.h: a block's scale takes
// two, and one at a time they are most of what quantising costs.
#pragma once

#include "vector.h"

namespace helios::HELIOS_ISA {

#if defined(HELIOS_AVX512)

// results[i] = total or largest of vectors[i], by `combine`, the lower lanes on its left.
template <class Combine>
HELIOS_INLINE void reduce_four(const Floats* vectors, float* results, const Combine& combine) {
  const auto halves = [&](__m512 a, __m512 b) {
    return combine(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const __m512 first = halves(vectors[0].v, vectors[1].v);
  const __m512 second = halves(vectors[2].v, vectors[3].v);
  // A 128-bit part for each vector.
  const __m512 quarters = combine(_mm512_shuffle_f32x4(first, second, 0x88),
                                  _mm512_shuffle_f32x4(first, second, 0xdd));
  const __m512 pairs = combine(quarters, _mm512_permute_ps(quarters, 0xee));
  const __m512 lanes = combine(pairs, _mm512_permute_ps(pairs, 0x55));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(results, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, lanes)));
}
HELIOS_INLINE void total_of_four(const Floats* vectors, float* results) {
  reduce_four(vectors, results, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
HELIOS_INLINE void largest_of_four(const Floats* vectors, float* results) {
  reduce_four(vectors, results, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}

#else

HELIOS_INLINE void total_of_four(const Floats* vectors, float* results) {
  for (int i = 0; i < 4; ++i) results[i] = total(vectors[i]);
}
HELIOS_INLINE void largest_of_four(const Floats* vectors, float* results) {
  for (int i = 0; i < 4; ++i) results[i] = largest(vectors[i]);
}

#endif

}  // namespace helios::HELIOS_ISA
