// Scratch layout of `attention`, shared by the kernel and its load-time check. A work item is a
// query tile: consecutive rows of one slot at consecutive positions, with the query heads of one
// key/value head. A query is one (row, head) of the tile.
#pragma once

#include <cstdint>

#include "../inlining.h"

namespace helios {

inline constexpr std::int64_t kTileQueries = 96;
// Tiles of no more queries than this have them beside each other, larger ones in vectors of 16.
inline constexpr std::int64_t kFewQueries = 12;

// Rows of the largest tile of so many queries.
HELIOS_INLINE constexpr std::int64_t tile_rows_of(std::int64_t queries, std::int64_t heads_per_kv) {
  return queries / heads_per_kv > 1 ? queries / heads_per_kv : 1;
}

struct AttentionScratch {
  HELIOS_INLINE static constexpr std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

  std::int64_t lanes;  // queries of the largest tile, rounded up to 16
  // Offsets in floats, each a multiple of 16.
  std::int64_t queries;      // [head_dim][lanes], or [queries][head_dim] where they are few
  std::int64_t scores;       // [page_tokens rounded up to 16][lanes], or twice
                             // [queries][page_tokens rounded up to 16]
  std::int64_t mixed;        // as queries: the running output
  std::int64_t largest;      // [lanes]: the running maximum of the scores
  std::int64_t sums;         // [lanes]: the running sum of the weights
  std::int64_t corrections;  // [lanes]: what the current page scales earlier weights by
  std::int64_t begins;       // [lanes]: where a query's valid tokens of the current page begin
  std::int64_t ends;         // [lanes]: and end, as f32
  std::int64_t page;         // [2][head_dim * page_tokens]: a page's keys and values, widened
  std::int64_t floats;

  HELIOS_INLINE constexpr AttentionScratch(std::int64_t heads_per_kv, std::int64_t head_dim,
                                           std::int64_t page_tokens) {
    lanes = padded(tile_rows_of(kTileQueries, heads_per_kv) * heads_per_kv);
    queries = 0;
    scores = queries + padded(head_dim) * lanes;
    mixed = scores + padded(page_tokens) * lanes;
    largest = mixed + padded(head_dim) * lanes;
    sums = largest + lanes;
    corrections = sums + lanes;
    begins = corrections + lanes;
    ends = begins + lanes;
    page = ends + lanes;
    floats = page + padded(2 * head_dim * page_tokens);
  }
};

// Two buffers of scores for few queries fit where one for many is.
static_assert(2 * kFewQueries <= AttentionScratch::padded(kTileQueries / 2 + 1));

}  // namespace helios
