// What blocks in pairs are multiplied and written with, beside vector.h: eight activations of two
// blocks in turn (`Octet`) and vectors of two int16 a lane (`Shorts`). Each back end gives the same
// bits.
#pragma once

#if defined(HELIOS_AVX512)
#include "pair_vectors_avx512.h"
#elif defined(HELIOS_AVX2)
#include "pair_vectors_avx2.h"
#else
#include "pair_vectors_portable.h"
#endif
