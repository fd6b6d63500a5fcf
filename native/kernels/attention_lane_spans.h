// Which tokens of a page each query attends to where lanes are queries.
#pragma once

#include "attention_tile.h"

namespace helios::HELIOS_ISA {

// Tokens [begin, end) of a page that some query of a vector attends to; all of its queries do so
// between `shared`'s bounds, which lie within and may be empty.
struct LaneSpan {
  std::int64_t begin;
  std::int64_t end;
  TokenSpan shared;
};

// The span of the vector that begins at `lane`. Also writes its queries' own bounds, as f32.
inline LaneSpan lane_span(const Geometry& g, const Tile& tile, std::int64_t lane,
                          std::int64_t start) {
  LaneSpan span{g.page_tokens, 0, {0, g.page_tokens}};
  std::int64_t row = lane / g.heads();
  std::int64_t head = lane % g.heads();
  std::int64_t q = lane;
  for (; q < lane + kLanes && row < tile.rows; ++row, head = 0) {
    const TokenSpan own = span_of(g, tile.position + row, start);
    if (own.begin < own.end) {
      span.begin = own.begin < span.begin ? own.begin : span.begin;
      span.end = own.end > span.end ? own.end : span.end;
    }
    span.shared.begin = own.begin > span.shared.begin ? own.begin : span.shared.begin;
    span.shared.end = own.end < span.shared.end ? own.end : span.shared.end;
    for (; q < lane + kLanes && head < g.heads(); ++head, ++q) {
      tile.begins[q] = static_cast<float>(own.begin);
      tile.ends[q] = static_cast<float>(own.end);
    }
  }
  // Lanes without a query attend to what all others do.
  for (; q < lane + kLanes; ++q) tile.begins[q] = tile.ends[q] = 0.0f;
  if (span.begin > span.end) span.begin = span.end;
  if (span.shared.begin >= span.shared.end) span.shared = {span.end, span.end};
  return span;
}

// Sixteen queries' bounds in the page.
struct LaneBounds {
  Floats begins, ends;

  HELIOS_INLINE LaneBounds(const Tile& tile, std::int64_t lane)
      : begins(load(tile.begins + lane)), ends(load(tile.ends + lane)) {}
  // `yes` for the queries that attend to the token, `no` for the others.
  HELIOS_INLINE Floats select(std::int64_t token, Floats yes, Floats no) const {
    const Floats at = broadcast(static_cast<float>(token));
    return select_less(at, ends, select_less(at, begins, no, yes), no);
  }
};

// The largest scores of sixteen queries among the span's tokens; a NaN doesn't count.
HELIOS_INLINE Floats highest_score(const float* scores, std::int64_t stride, TokenSpan span) {
  constexpr int kChains = 4;
  Floats highest[kChains];
  for (Floats& chain : highest) chain = broadcast(-kInfinity);
  std::int64_t t = span.begin;
  for (; t + kChains <= span.end; t += kChains) {
    for (int i = 0; i < kChains; ++i) {
      highest[i] = maximum(load(scores + (t + i) * stride), highest[i]);
    }
  }
  for (; t < span.end; ++t) highest[0] = maximum(load(scores + t * stride), highest[0]);
  return maximum(maximum(highest[0], highest[1]), maximum(highest[2], highest[3]));
}

}  // namespace helios::HELIOS_ISA
