// Scratch layout of `attention`, shared by the kernel and its load-time check. A work item is a
// query tile: consecutive rows of one slot at consecutive positions, with the query heads of one
// key/value head. A query is one (row, head) of the tile.
#pragma once

#include <cstdint>

#include "../inlining.h"

namespace helios {

inline constexpr std::int64_t kTileQueries = 24;

struct AttentionScratch {
  HELIOS_INLINE static constexpr std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

  std::int64_t tile_rows;
  std::int64_t queries;
  // Offsets in floats, each a multiple of 16.
  std::int64_t transposed;   // [head_dim][queries]: queries side by side
  std::int64_t scores;       // [queries][page_tokens rounded up to 16]
  std::int64_t mixed;        // [queries][head_dim]: the running output
  std::int64_t largest;      // [queries]: the running maximum of the scores
  std::int64_t sums;         // [queries]: the running sum of the weights
  std::int64_t corrections;  // [queries]: what the current page scales earlier weights by
  std::int64_t spans;        // [queries]: TokenSpan
  std::int64_t page;         // [head_dim * page_tokens]: keys or values of a page, widened
  std::int64_t floats;

  HELIOS_INLINE constexpr AttentionScratch(std::int64_t heads_per_kv, std::int64_t head_dim,
                             std::int64_t page_tokens) {
    tile_rows = kTileQueries / heads_per_kv > 1 ? kTileQueries / heads_per_kv : 1;
    queries = tile_rows * heads_per_kv;
    transposed = 0;
    scores = transposed + padded(head_dim * queries);
    mixed = scores + queries * padded(page_tokens);
    largest = mixed + padded(queries * head_dim);
    sums = largest + padded(queries);
    corrections = sums + padded(queries);
    spans = corrections + padded(queries);
    page = spans + padded(queries * 2);
    floats = page + padded(head_dim * page_tokens);
  }
};

// A query's valid tokens [begin, end) in the current page; begin = end where there are none.
struct TokenSpan {
  std::int32_t begin;
  std::int32_t end;
};

}  // namespace helios
