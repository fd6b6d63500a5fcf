// Scratch layout of `attention_bf16`, shared by the kernel and its load-time check. Items and
// queries are as in attention.h.
#pragma once

#include <cstdint>

#include "attention.h"

namespace helios {

inline constexpr std::int64_t kBf16TileQueries = 48;
// Tokens whose weights fill a vector of pairs.
inline constexpr std::int64_t kPairedTokens = 32;

struct Bf16AttentionScratch {
  HELIOS_INLINE static constexpr std::int64_t padded(std::int64_t n) {
    return AttentionScratch::padded(n);
  }

  std::int64_t lanes;   // queries of the largest tile, rounded up to 16
  std::int64_t tokens;  // of a page, rounded up to 32
  // Offsets in floats, each a multiple of 16. A pair of bf16 takes a float's room.
  std::int64_t queries;      // pairs [head_dim / 2][lanes], or bf16 [queries][head_dim] of one row
  std::int64_t scores;       // [tokens][lanes], or twice [queries][tokens]
  std::int64_t weights;      // pairs [tokens / 2][lanes], or [queries][tokens / 2]
  std::int64_t mixed;        // [lanes][head_dim]: the running output
  std::int64_t largest;      // [lanes]: the running maximum of the scores
  std::int64_t sums;         // [lanes]: the running sum of the weights
  std::int64_t corrections;  // [lanes]: what the current page scales earlier weights by
  std::int64_t begins;       // [lanes]: where a query's valid tokens of the current page begin
  std::int64_t ends;         // [lanes]: and end, as f32
  std::int64_t edges;        // pairs [2][head_dim]: values of which only one token counts
  std::int64_t turning;      // bf16 [16][head_dim]: queries on their way
  std::int64_t floats;

  HELIOS_INLINE constexpr Bf16AttentionScratch(std::int64_t heads_per_kv, std::int64_t head_dim,
                                               std::int64_t page_tokens) {
    lanes = padded(tile_rows_of(kBf16TileQueries, heads_per_kv) * heads_per_kv);
    tokens = (page_tokens + kPairedTokens - 1) / kPairedTokens * kPairedTokens;
    queries = 0;
    scores = queries + padded(head_dim / 2) * lanes;
    weights = scores + tokens * lanes;
    mixed = weights + tokens / 2 * lanes;
    largest = mixed + lanes * padded(head_dim);
    sums = largest + lanes;
    corrections = sums + lanes;
    begins = corrections + lanes;
    ends = begins + lanes;
    edges = ends + lanes;
    turning = edges + 2 * padded(head_dim);
    floats = turning + 8 * padded(head_dim);
  }
};

// Two buffers of scores for the few queries of one row fit where one for a tile is.
static_assert(2 * kFewQueries <= kBf16TileQueries / 2);

}  // namespace helios
