// What the two ways of computing an attention tile share: the launch's extents, a tile's state in
// scratch, and which tokens of a page each of its rows attends to. Used by attention.cpp alone.
#pragma once

#include "attention.h"
#include "vector.h"

namespace helios::HELIOS_ISA {

inline constexpr float kInfinity = __builtin_inff();

struct Geometry {
  std::int64_t q_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_tokens;
  std::int64_t padded_page_tokens;
  std::int64_t window;
  float scale;

  HELIOS_INLINE std::int64_t heads() const { return q_heads / kv_heads; }
  HELIOS_INLINE std::int64_t page_elements() const { return head_dim * page_tokens; }
  HELIOS_INLINE std::int64_t row_elements() const { return (q_heads + 2 * kv_heads) * head_dim; }
  // The first position that a row at `position` attends to.
  HELIOS_INLINE std::int64_t oldest(std::int64_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};

// Tokens [begin, end) of a page; begin = end where there are none.
struct TokenSpan {
  std::int64_t begin;
  std::int64_t end;
};

// The tokens of the page that starts at position `start` which a row at `position` attends to.
HELIOS_INLINE TokenSpan span_of(const Geometry& g, std::int64_t position, std::int64_t start) {
  const std::int64_t since = g.oldest(position) - start;
  const std::int64_t until = position + 1 - start;
  const std::int64_t begin = since > 0 ? since : 0;
  const std::int64_t end = until < g.page_tokens ? until : g.page_tokens;
  return begin < end ? TokenSpan{begin, end} : TokenSpan{0, 0};
}

// Lanes of the 16 tokens from `token` on that lie before `bound`.
HELIOS_INLINE int lanes_before(std::int64_t token, std::int64_t bound) {
  const std::int64_t lanes = bound - token;
  return static_cast<int>(lanes < 0 ? 0 : lanes < kLanes ? lanes : kLanes);
}

// Sixteen scores of a query; lanes outside its span hold `other`.
HELIOS_INLINE Floats masked(Floats scores, std::int64_t token, TokenSpan span, Floats other) {
  if (span.begin <= token && token + kLanes <= span.end) return scores;
  return keep_lanes(scores, lanes_before(token, span.begin), lanes_before(token, span.end), other);
}

struct Tile {
  std::int64_t rows;
  std::int64_t position;  // of the first row; the others follow
  std::int64_t count;     // queries: rows times heads, the heads of a row side by side
  std::int64_t lanes;     // count, rounded up to 16
  const float* queries;
  float* scores;
  float* mixed;
  float* largest;
  float* sums;
  float* corrections;
  float* begins;
  float* ends;
};

// A page's keys and values for one key/value head, both null where the page has no place.
struct PageElements {
  const std::uint16_t* keys;    // [head_dim][page_tokens]
  const std::uint16_t* values;  // [page_tokens][head_dim]
};

// Widens a page's keys or values to f32. Not inlined: gcc makes slower code of it within others.
__attribute__((noinline)) inline void widen_page(const std::uint16_t* elements, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_up_to(out + i, load_f16_up_to(elements + i, count - i), count - i);
  }
}

}  // namespace helios::HELIOS_ISA
