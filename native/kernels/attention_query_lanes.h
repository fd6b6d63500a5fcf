// Attention of a tile with many queries: lanes are queries, so the softmax needs no reduction over
// lanes, and keys and values, widened to f32 once a page and tile, come as broadcasts.
#pragma once

#include "attention_lane_spans.h"

namespace helios::HELIOS_ISA {

// Scores of `Tokens` tokens for 16 * Vectors queries from `lane` on. What begins at `ahead` is
// prefetched bit by bit: 2 * Tokens elements for each of the head's.
template <int Vectors, int Tokens>
HELIOS_INLINE void score_tokens(const Geometry& g, const Tile& tile, std::int64_t lane,
                                const float* keys, std::int64_t token,
                                const std::uint16_t* ahead) {
  Floats sums[Tokens][Vectors];
  for (int t = 0; t < Tokens; ++t) {
    for (int v = 0; v < Vectors; ++v) sums[t][v] = zeros();
  }
  const float* x = tile.queries + lane;
  const float* key = keys + token;
  for (std::int64_t d = 0; d < g.head_dim; ++d, x += tile.lanes, key += g.page_tokens) {
    prefetch(ahead + 2 * Tokens * d);
    Floats query[Vectors];
    for (int v = 0; v < Vectors; ++v) query[v] = load(x + v * kLanes);
    for (int t = 0; t < Tokens; ++t) {
      const Floats element = broadcast(key[t]);
      for (int v = 0; v < Vectors; ++v) sums[t][v] = fused(element, query[v], sums[t][v]);
    }
  }
  for (int t = 0; t < Tokens; ++t) {
    for (int v = 0; v < Vectors; ++v) {
      store(tile.scores + (token + t) * tile.lanes + lane + v * kLanes,
            sums[t][v] * broadcast(g.scale));
    }
  }
}

// Where the prefetching of the next page is when the scores have come to `token`: first its keys,
// then its values.
HELIOS_INLINE const std::uint16_t* ahead_at(const Geometry& g, const PageElements& next,
                                            std::int64_t token) {
  return 2 * token < g.page_tokens ? next.keys + 2 * token * g.head_dim
                                   : next.values + (2 * token - g.page_tokens) * g.head_dim;
}

// Covers the span's tokens, and maybe some before and after them.
template <int Vectors>
inline void score_lanes(const Geometry& g, const Tile& tile, std::int64_t lane,
                        const float* keys, const PageElements& next, TokenSpan span) {
  std::int64_t token = span.begin / kLaneTokens * kLaneTokens;
  for (; token < span.end && token + kLaneTokens <= g.page_tokens; token += kLaneTokens) {
    score_tokens<Vectors, kLaneTokens>(g, tile, lane, keys, token, ahead_at(g, next, token));
  }
  for (; token < span.end; ++token) {
    score_tokens<Vectors, 1>(g, tile, lane, keys, token, ahead_at(g, next, token));
  }
}

// The sums of sixteen queries' weights, `tokens` a multiple of 16, in the order of a sum over vectors
// of tokens and then of `total`: token t goes to place t mod 16, then the places are added pairwise.
HELIOS_INLINE Floats sum_of_weights(const float* weights, std::int64_t stride,
                                    std::int64_t tokens) {
  Floats places[kLanes];
  for (int i = 0; i < kLanes; ++i) places[i] = load(weights + i * stride);
  for (std::int64_t t = kLanes; t < tokens; t += kLanes) {
    for (int i = 0; i < kLanes; ++i) places[i] = places[i] + load(weights + (t + i) * stride);
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) places[i] = places[i] + places[i + half];
  }
  return places[0];
}

// One online softmax step of sixteen queries: scores become weights.
inline void softmax_lanes(const Geometry& g, const Tile& tile, std::int64_t lane, LaneSpan span) {
  const Floats lowest = broadcast(-kInfinity);
  const std::int64_t stride = tile.lanes;
  float* scores = tile.scores + lane;
  const LaneBounds bounds(tile, lane);
  Floats highest = lowest;
  const auto look = [&](std::int64_t t) {
    highest = maximum(bounds.select(t, load(scores + t * stride), lowest), highest);
  };
  for (std::int64_t t = span.begin; t < span.shared.begin; ++t) look(t);
  highest = maximum(highest_score(scores, stride, span.shared), highest);
  for (std::int64_t t = span.shared.end; t < span.end; ++t) look(t);

  const Floats before = load(tile.largest + lane);
  const Floats now = maximum(highest, before);
  // Where every score is -infinity all weights are zero.
  const Floats correction =
      exponential_up_to_zero(select_less(lowest, now, before - now, zeros()));
  const Floats base = select_less(lowest, now, now, zeros());
  store(tile.largest + lane, now);
  store(tile.corrections + lane, correction);

  const auto weigh = [&](std::int64_t t) {
    const Floats weight = exponential_up_to_zero(load(scores + t * stride) - base);
    store(scores + t * stride, bounds.select(t, weight, zeros()));
  };
  for (std::int64_t t = 0; t < span.begin; ++t) store(scores + t * stride, zeros());
  for (std::int64_t t = span.begin; t < span.shared.begin; ++t) weigh(t);
  for (std::int64_t t = span.shared.begin; t < span.shared.end; ++t) {
    store(scores + t * stride, exponential_up_to_zero(load(scores + t * stride) - base));
  }
  for (std::int64_t t = span.shared.end; t < span.end; ++t) weigh(t);
  for (std::int64_t t = span.end; t < g.padded_page_tokens; ++t) {
    store(scores + t * stride, zeros());
  }
  const Floats sum = sum_of_weights(scores, stride, g.padded_page_tokens);
  store(tile.sums + lane, load(tile.sums + lane) * correction + sum);
}

// mixed = mixed * correction + weights * values for `Elements` elements of 16 * Vectors queries and
// the span's tokens, ascending; without `Correct` there is no correction. With `Bounded` a query
// doesn't see the value of a token that it doesn't attend to: anything can lie there.
template <int Vectors, int Elements, bool Correct, bool Bounded>
HELIOS_INLINE void mix_elements(const Geometry& g, const Tile& tile, std::int64_t lane,
                                const float* values, std::int64_t d, TokenSpan span) {
  Floats sums[Elements][Vectors];
  float* mixed = tile.mixed + d * tile.lanes + lane;
  for (int v = 0; v < Vectors; ++v) {
    const Floats correction = load(tile.corrections + lane + v * kLanes);
    for (int e = 0; e < Elements; ++e) {
      const Floats before = load(mixed + e * tile.lanes + v * kLanes);
      sums[e][v] = Correct ? before * correction : before;
    }
  }
  const float* weights = tile.scores + span.begin * tile.lanes + lane;
  const float* value = values + span.begin * g.head_dim + d;
  for (std::int64_t t = span.begin; t < span.end; ++t) {
    Floats weight[Vectors];
    for (int v = 0; v < Vectors; ++v) weight[v] = load(weights + v * kLanes);
    for (int e = 0; e < Elements; ++e) {
      const Floats element = broadcast(value[e]);
      for (int v = 0; v < Vectors; ++v) {
        const Floats sum = fused(element, weight[v], sums[e][v]);
        sums[e][v] = Bounded ? LaneBounds(tile, lane + v * kLanes).select(t, sum, sums[e][v]) : sum;
      }
    }
    weights += tile.lanes;
    value += g.head_dim;
  }
  for (int e = 0; e < Elements; ++e) {
    for (int v = 0; v < Vectors; ++v) store(mixed + e * tile.lanes + v * kLanes, sums[e][v]);
  }
}

template <int Vectors, bool Correct, bool Bounded>
inline void mix_span(const Geometry& g, const Tile& tile, std::int64_t lane, const float* values,
                     TokenSpan span) {
  std::int64_t d = 0;
  for (; d + kLaneElements <= g.head_dim; d += kLaneElements) {
    mix_elements<Vectors, kLaneElements, Correct, Bounded>(g, tile, lane, values, d, span);
  }
  for (; d < g.head_dim; ++d) {
    mix_elements<Vectors, 1, Correct, Bounded>(g, tile, lane, values, d, span);
  }
}

// Runs `part` for all lanes of the tile, as many vectors at a time as registers allow.
template <class Part>
HELIOS_INLINE void each_lanes(const Tile& tile, const Part& part) {
  std::int64_t lane = 0;
  for (; lane + kLaneVectors * kLanes <= tile.lanes; lane += kLaneVectors * kLanes) {
    part.template run<kLaneVectors>(lane);
  }
  for (; lane < tile.lanes; lane += kLanes) part.template run<1>(lane);
}

// The two products of a page that every query attends to the whole of.
struct ScoreWhole {
  const Geometry& g;
  const Tile& tile;
  const float* keys;
  const PageElements& next;
  template <int Vectors>
  HELIOS_INLINE void run(std::int64_t lane) const {
    score_lanes<Vectors>(g, tile, lane, keys, next, {0, g.page_tokens});
  }
};
struct MixWhole {
  const Geometry& g;
  const Tile& tile;
  const float* values;
  template <int Vectors>
  HELIOS_INLINE void run(std::int64_t lane) const {
    mix_span<Vectors, true, false>(g, tile, lane, values, {0, g.page_tokens});
  }
};

// One vector's mix of a page of which its queries attend to different tokens.
inline void mix_bounded(const Geometry& g, const Tile& tile, std::int64_t lane,
                        const float* values, const LaneSpan& span) {
  const TokenSpan before{span.begin, span.shared.begin};
  const TokenSpan after{span.shared.end, span.end};
  mix_span<1, true, true>(g, tile, lane, values, before);
  mix_span<1, false, false>(g, tile, lane, values, span.shared);
  if (after.begin < after.end) mix_span<1, false, true>(g, tile, lane, values, after);
}

// A page's contribution to every query of the tile; `widened` has room for its keys and its values
// in f32. Where there are none the page has no place: its keys and values are zero.
inline void add_page_to_lanes(const Geometry& g, const Tile& tile, std::int64_t start,
                              const PageElements& page, const PageElements& next,
                              float* widened) {
  const TokenSpan first = span_of(g, tile.position, start);
  const TokenSpan last = span_of(g, tile.position + tile.rows - 1, start);
  const bool whole = first.end == g.page_tokens && last.begin == 0 && last.end == g.page_tokens;
  float* values = widened + g.page_elements();
  const bool there = page.keys != nullptr;
  if (there) {
    widen_page(page.keys, g.page_elements(), widened);
    widen_page(page.values, g.page_elements(), values);
  } else {
    for (std::int64_t i = 0; i < g.page_tokens * tile.lanes; ++i) tile.scores[i] = 0.0f;
  }
  if (whole && there) {
    each_lanes(tile, ScoreWhole{g, tile, widened, next});
    for (std::int64_t lane = 0; lane < tile.lanes; lane += kLanes) {
      softmax_lanes(g, tile, lane, {0, g.page_tokens, {0, g.page_tokens}});
    }
    each_lanes(tile, MixWhole{g, tile, values});
    return;
  }
  for (std::int64_t lane = 0; lane < tile.lanes; lane += kLanes) {
    LaneSpan span = lane_span(g, tile, lane, start);
    if (span.begin == span.end) continue;
    if (there) score_lanes<1>(g, tile, lane, widened, next, {span.begin, span.end});
    softmax_lanes(g, tile, lane, span);
    if (!there) span = {0, 0, {0, 0}};
    mix_bounded(g, tile, lane, values, span);
  }
}

}  // namespace helios::HELIOS_ISA
