// Attention of a tile with few queries, as one row's heads in decode: lanes are a page's tokens for
// the scores and a head's elements for the mix, so nothing is computed for queries that aren't
// there. Every query's bits are those of attention_query_lanes.h.
#pragma once

#include "attention_tile.h"

namespace helios::HELIOS_ISA {

// Elements of a page: as they are stored, or widened to f32 in scratch where the queries go over a
// page several times. The values are the same.
struct StoredElements {
  const std::uint16_t* at;
  HELIOS_INLINE Floats all(std::int64_t i) const { return load_f16(at + i); }
  HELIOS_INLINE Floats up_to(std::int64_t i, std::int64_t count) const {
    return load_f16_up_to(at + i, count);
  }
};
struct WidenedElements {
  const float* at;
  HELIOS_INLINE Floats all(std::int64_t i) const { return load(at + i); }
  HELIOS_INLINE Floats up_to(std::int64_t i, std::int64_t count) const {
    return load_up_to(at + i, count);
  }
};

struct QuerySpans {
  TokenSpan of[kFewQueries];
};

// Dot products of `Queries` queries with 16 * Vectors keys. Several vectors are always whole, a
// single one may be the page's ragged end. The next page's keys are prefetched but for the first
// `asked` elements.
template <int Queries, int Vectors, class Elements>
HELIOS_INLINE void score_vectors(const Geometry& g, const float* queries, Elements keys,
                                 const PageElements& next, std::int64_t asked, std::int64_t token,
                                 float* scores) {
  Floats sums[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) sums[q][v] = zeros();
  }
  for (std::int64_t d = 0; d < g.head_dim; ++d) {
    Floats key[Vectors];
    const std::int64_t first = d * g.page_tokens + token;
    if (first >= asked) prefetch(next.keys + first);
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = first + v * kLanes;
      key[v] = Vectors > 1 ? keys.all(at) : keys.up_to(at, g.page_tokens - token);
    }
    for (int q = 0; q < Queries; ++q) {
      const Floats element = broadcast(queries[q * g.head_dim + d]);
      for (int v = 0; v < Vectors; ++v) sums[q][v] = fused(key[v], element, sums[q][v]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      store(scores + q * g.padded_page_tokens + token + v * kLanes,
            sums[q][v] * broadcast(g.scale));
    }
  }
}

template <int Queries, class Elements>
inline void score_queries(const Geometry& g, const Tile& tile, std::int64_t first, Elements keys,
                          const PageElements& next, std::int64_t asked, float* scores) {
  const float* queries = tile.queries + first * g.head_dim;
  float* out = scores + first * g.padded_page_tokens;
  std::int64_t token = 0;
  for (; token + 2 * kLanes <= g.page_tokens; token += 2 * kLanes) {
    score_vectors<Queries, 2>(g, queries, keys, next, asked, token, out);
  }
  for (; token < g.page_tokens; token += kLanes) {
    score_vectors<Queries, 1>(g, queries, keys, next, asked, token, out);
  }
}

template <class Elements>
inline void score_page(const Geometry& g, const Tile& tile, Elements keys,
                       const PageElements& next, std::int64_t asked, float* scores) {
  std::int64_t q = 0;
  if constexpr (kScoreQueries > 4) {
    for (; q + kScoreQueries <= tile.count; q += kScoreQueries) {
      score_queries<kScoreQueries>(g, tile, q, keys, next, asked, scores);
    }
  }
  if constexpr (kScoreQueries >= 4) {
    for (; q + 4 <= tile.count; q += 4) score_queries<4>(g, tile, q, keys, next, asked, scores);
    for (; q + 3 <= tile.count; q += 3) score_queries<3>(g, tile, q, keys, next, asked, scores);
  }
  if constexpr (kScoreQueries >= 2) {
    for (; q + 2 <= tile.count; q += 2) score_queries<2>(g, tile, q, keys, next, asked, scores);
  }
  for (; q < tile.count; ++q) score_queries<1>(g, tile, q, keys, next, asked, scores);
}

// One online softmax step for every query of the tile: scores become weights, what earlier pages
// left is scaled down to the new maximum. A query with an empty span stays as it is. Meanwhile
// `elements` elements from `ahead` on are prefetched: memory should never wait for arithmetic.
inline void softmax_step(const Geometry& g, const Tile& tile, const QuerySpans& spans,
                         const std::uint16_t* ahead, std::int64_t elements, float* scores) {
  const Floats lowest = broadcast(-kInfinity);
  std::int64_t asked = 0;
  for (std::int64_t q = 0; q < tile.count; ++q, scores += g.padded_page_tokens) {
    for (; asked * tile.count < elements * (q + 1); asked += 2 * kLanes) prefetch(ahead + asked);
    const TokenSpan span = spans.of[q];
    Floats highest = lowest;
    for (std::int64_t t = 0; t < g.page_tokens; t += kLanes) {
      highest = maximum(masked(load(scores + t), t, span, lowest), highest);
    }
    const Floats before = broadcast(tile.largest[q]);
    const Floats now = maximum(broadcast(largest(highest)), before);
    // Where every score is -infinity all weights are zero.
    const Floats correction =
        exponential_up_to_zero(select_less(lowest, now, before - now, zeros()));
    const Floats base = select_less(lowest, now, now, zeros());
    Floats sums = zeros();
    for (std::int64_t t = 0; t < g.page_tokens; t += kLanes) {
      const Floats weight = exponential_up_to_zero(load(scores + t) - base);
      const Floats weights = masked(weight, t, span, zeros());
      store(scores + t, weights);
      sums = sums + weights;
    }
    tile.largest[q] = read_as<float>(&now);
    tile.sums[q] = tile.sums[q] * read_as<float>(&correction) + total(sums);
    float* mixed = tile.mixed + q * g.head_dim;
    for (std::int64_t d = 0; d < g.head_dim; d += kLanes) {
      const std::int64_t count = g.head_dim - d;
      store_up_to(mixed + d, load_up_to(mixed + d, count) * correction, count);
    }
  }
}

// mixed += weight * value for tokens [begin, end) of the page, ascending. Several vectors are
// always whole, a single one may be the head's ragged end.
template <int Queries, int Vectors, class Elements>
HELIOS_INLINE void mix_vectors(const Geometry& g, float* mixed, const float* weights,
                               Elements values, const std::uint16_t* ahead, TokenSpan span,
                               std::int64_t d) {
  Floats sums[Queries][Vectors];
  const std::int64_t count = Vectors > 1 ? Vectors * kLanes : g.head_dim - d;
  mixed += d;
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      sums[q][v] = load_up_to(mixed + q * g.head_dim + v * kLanes, count - v * kLanes);
    }
  }
  for (std::int64_t t = span.begin; t < span.end; ++t) {
    Floats value[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = t * g.head_dim + d + v * kLanes;
      if (v % 2 == 0) prefetch(ahead + at);
      value[v] = Vectors > 1 ? values.all(at) : values.up_to(at, count);
    }
    for (int q = 0; q < Queries; ++q) {
      const Floats weight = broadcast(weights[q * g.padded_page_tokens + t]);
      for (int v = 0; v < Vectors; ++v) sums[q][v] = fused(value[v], weight, sums[q][v]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      store_up_to(mixed + q * g.head_dim + v * kLanes, sums[q][v], count - v * kLanes);
    }
  }
}

template <int Queries, class Elements>
inline void mix_range(const Geometry& g, const Tile& tile, std::int64_t first,
                      const float* weights, Elements values, const std::uint16_t* ahead,
                      TokenSpan span) {
  if (span.begin >= span.end) return;
  float* mixed = tile.mixed + first * g.head_dim;
  weights += first * g.padded_page_tokens;
  std::int64_t d = 0;
  for (; d + kMixVectors * kLanes <= g.head_dim; d += kMixVectors * kLanes) {
    mix_vectors<Queries, kMixVectors>(g, mixed, weights, values, ahead, span, d);
  }
  for (; d < g.head_dim; d += kLanes) {
    mix_vectors<Queries, 1>(g, mixed, weights, values, ahead, span, d);
  }
}

// Tokens that all queries of the group have in common are read once for all; the rest before and
// after is each query's own.
template <int Queries, class Elements>
inline void mix_group(const Geometry& g, const Tile& tile, std::int64_t first,
                      const QuerySpans& spans, const float* weights, Elements values,
                      const std::uint16_t* ahead) {
  TokenSpan common{0, g.page_tokens};
  for (int q = 0; q < Queries; ++q) {
    const TokenSpan span = spans.of[first + q];
    common.begin = span.begin > common.begin ? span.begin : common.begin;
    common.end = span.end < common.end ? span.end : common.end;
  }
  const bool shared = common.begin < common.end;
  for (int q = 0; q < Queries; ++q) {
    const TokenSpan span = spans.of[first + q];
    mix_range<1>(g, tile, first + q, weights, values, ahead,
                 {span.begin, shared ? common.begin : span.end});
  }
  if (!shared) return;
  mix_range<Queries>(g, tile, first, weights, values, ahead, common);
  for (int q = 0; q < Queries; ++q) {
    mix_range<1>(g, tile, first + q, weights, values, ahead,
                 {common.end, spans.of[first + q].end});
  }
}

template <class Elements>
inline void mix_page(const Geometry& g, const Tile& tile, const QuerySpans& spans,
                     const float* weights, Elements values, const std::uint16_t* ahead) {
  std::int64_t q = 0;
  for (; q + kMixQueries <= tile.count; q += kMixQueries) {
    mix_group<kMixQueries>(g, tile, q, spans, weights, values, ahead);
  }
  if constexpr (kMixQueries > 4) {
    for (; q + 4 <= tile.count; q += 4) mix_group<4>(g, tile, q, spans, weights, values, ahead);
    for (; q + 3 <= tile.count; q += 3) mix_group<3>(g, tile, q, spans, weights, values, ahead);
  }
  if constexpr (kMixQueries > 1) {
    for (; q < tile.count; ++q) mix_group<1>(g, tile, q, spans, weights, values, ahead);
  }
}

// The three steps of a page. Scores of the next page can be computed before this one's are mixed.
inline void score_few(const Geometry& g, const Tile& tile, const PageElements& elements,
                      const PageElements& next, std::int64_t asked, float* page, float* scores) {
  if (elements.keys == nullptr) {  // the page has no place: its keys and values are zero
    const std::int64_t count = tile.count * g.padded_page_tokens;
    for (std::int64_t i = 0; i < count; ++i) scores[i] = 0.0f;
  } else if (tile.count > kScoreQueries) {
    widen_page(elements.keys, g.page_elements(), page);
    score_page(g, tile, WidenedElements{page}, next, asked, scores);
  } else {
    score_page(g, tile, StoredElements{elements.keys}, next, asked, scores);
  }
}

inline QuerySpans query_spans(const Geometry& g, const Tile& tile, std::int64_t start) {
  QuerySpans spans;
  std::int64_t q = 0;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const TokenSpan span = span_of(g, tile.position + r, start);
    for (std::int64_t h = 0; h < g.heads(); ++h) spans.of[q++] = span;
  }
  return spans;
}

inline void mix_few(const Geometry& g, const Tile& tile, const QuerySpans& spans,
                    const PageElements& elements, const PageElements& next, float* page,
                    const float* weights) {
  // What the mix doesn't come by.
  for (std::int64_t t = spans.of[tile.count - 1].end; t < g.page_tokens; ++t) {
    for (std::int64_t d = 0; d < g.head_dim; d += 2 * kLanes) {
      prefetch(next.values + t * g.head_dim + d);
    }
  }
  if (elements.keys == nullptr) return;
  if (tile.count > kScoreQueries) {
    widen_page(elements.values, g.page_elements(), page);
    mix_page(g, tile, spans, weights, WidenedElements{page}, next.values);
  } else {
    mix_page(g, tile, spans, weights, StoredElements{elements.values}, next.values);
  }
}

}  // namespace helios::HELIOS_ISA
