// A tile of many queries in bf16: lanes are queries for scores and softmax, which then needs no
// reduction over lanes, and a head's elements for the mix, whose result then lies as it is written.
#pragma once

#include "attention_bf16_tile.h"
#include "attention_lane_spans.h"

namespace helios::HELIOS_ISA {

// Scores of `Tokens` tokens for 16 * Vectors queries from `lane` on. What begins at `ahead` is
// prefetched, a line for each pair of the head's elements.
template <int Vectors, int Tokens>
HELIOS_INLINE void score_tokens(const Geometry& g, const PairTile& tile, std::int64_t lane,
                                const std::uint16_t* keys, std::int64_t token,
                                const std::uint16_t* ahead) {
  Floats sums[Tokens][Vectors];
  HELIOS_UNROLL for (int t = 0; t < Tokens; ++t) {
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) sums[t][v] = zeros();
  }
  const std::uint16_t* x = tile.pairs + 2 * lane;
  const std::uint16_t* key = keys + 2 * token;
  for (std::int64_t d = 0; d < g.head_dim; d += 2, x += 2 * tile.lanes, key += 2 * g.page_tokens) {
    prefetch(ahead + 2 * Tokens * d);
    Pairs query[Vectors];
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) query[v] = load_pairs(x + 2 * v * kLanes);
    HELIOS_UNROLL for (int t = 0; t < Tokens; ++t) {
      const PairBroadcast elements = broadcast_pair(key + 2 * t);
      HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
        sums[t][v] = dot_pairs(sums[t][v], query[v], elements);
      }
    }
  }
  HELIOS_UNROLL for (int t = 0; t < Tokens; ++t) {
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
      store(tile.scores + (token + t) * tile.lanes + lane + v * kLanes, sums[t][v]);
    }
  }
}

// Where the prefetching of the next page is when the scores have come to `token`: first its keys,
// then its values.
HELIOS_INLINE const std::uint16_t* pairs_ahead(const Geometry& g, const PageElements& next,
                                               std::int64_t token) {
  return 2 * token < g.page_tokens ? next.keys + 2 * token * g.head_dim
                                   : next.values + (2 * token - g.page_tokens) * g.head_dim;
}

struct ScorePairs {
  const Geometry& g;
  const PairTile& tile;
  const std::uint16_t* keys;
  const PageElements& next;
  TokenSpan span;  // covered, and maybe some tokens before and after
  template <int Vectors>
  HELIOS_INLINE void run(std::int64_t lane) const {
    std::int64_t token = span.begin / kPairTokens * kPairTokens;
    for (; token < span.end && token + kPairTokens <= g.page_tokens; token += kPairTokens) {
      score_tokens<Vectors, kPairTokens>(g, tile, lane, keys, token, pairs_ahead(g, next, token));
    }
    for (; token < span.end; ++token) {
      score_tokens<Vectors, 1>(g, tile, lane, keys, token, pairs_ahead(g, next, token));
    }
  }
};

// As many vectors of lanes at a time as registers allow.
template <class Part>
HELIOS_INLINE void each_pair_lanes(const PairTile& tile, const Part& part) {
  std::int64_t lane = 0;
  for (; lane + kPairVectors * kLanes <= tile.lanes; lane += kPairVectors * kLanes) {
    part.template run<kPairVectors>(lane);
  }
  for (; lane < tile.lanes; lane += kLanes) part.template run<1>(lane);
}

// The sums of sixteen queries' weights in the order of a sum over vectors of pairs and then of
// `total`: pair t goes to place t mod 16, then the places are added pairwise.
HELIOS_INLINE Floats sum_of_pairs(const std::uint16_t* weights, std::int64_t stride,
                                  std::int64_t pairs) {
  Floats places[kLanes];
  HELIOS_UNROLL for (int i = 0; i < kLanes; ++i) {
    places[i] = add_weights(zeros(), load_pairs(weights + i * stride));
  }
  for (std::int64_t t = kLanes; t < pairs; t += kLanes) {
    HELIOS_UNROLL for (int i = 0; i < kLanes; ++i) {
      places[i] = add_weights(places[i], load_pairs(weights + (t + i) * stride));
    }
  }
  HELIOS_UNROLL for (int half = kLanes / 2; half > 0; half /= 2) {
    HELIOS_UNROLL for (int i = 0; i < half; ++i) places[i] = places[i] + places[i + half];
  }
  return places[0];
}

// One online softmax step of sixteen queries: scores become weights. With `Whole` all of them
// attend to all of the page's tokens, a multiple of 32.
template <bool Whole>
inline void softmax_pairs(const Geometry& g, const PairTile& tile, std::int64_t lane) {
  const Floats lowest = broadcast(-kInfinity);
  const std::int64_t stride = tile.lanes;
  const float* scores = tile.scores + lane;
  std::uint16_t* weights = tile.weights + 2 * lane;
  LaneSpan span{0, g.page_tokens, {0, g.page_tokens}};
  if (!Whole) span = lane_span(g, tile, lane, tile.start);
  const LaneBounds bounds(tile, lane);
  Floats highest = lowest;
  const auto look = [&](std::int64_t t) {
    highest = maximum(bounds.select(t, load(scores + t * stride), lowest), highest);
  };
  if (!Whole) {
    for (std::int64_t t = span.begin; t < span.shared.begin; ++t) look(t);
  }
  highest = maximum(highest_score(scores, stride, span.shared), highest);
  if (!Whole) {
    for (std::int64_t t = span.shared.end; t < span.end; ++t) look(t);
  }
  const Floats before = load(tile.largest + lane);
  const Floats now = maximum(highest, before);
  // Where every score is -infinity all weights are zero.
  const Floats correction =
      power_of_two_up_to_zero(select_less(lowest, now, before - now, zeros()));
  const Floats base = select_less(lowest, now, now, zeros());
  store(tile.largest + lane, now);
  store(tile.corrections + lane, correction);

  const auto weight = [&](std::int64_t t) {
    return power_of_two_up_to_zero(load(scores + t * stride) - base);
  };
  const auto bounded = [&](std::int64_t t) { return bounds.select(t, weight(t), zeros()); };
  std::int64_t t = 0;
  if (!Whole) {
    const auto none = round_to_pairs(zeros(), zeros());
    for (; t + 2 <= span.begin; t += 2) store_pairs(weights + t * stride, none);
    for (; t < span.shared.begin; t += 2) {
      store_pairs(weights + t * stride, round_to_pairs(bounded(t), bounded(t + 1)));
    }
  }
  for (; t + 2 <= span.shared.end; t += 2) {
    store_pairs(weights + t * stride, round_to_pairs(weight(t), weight(t + 1)));
  }
  if (!Whole) {
    const auto none = round_to_pairs(zeros(), zeros());
    for (; t < span.end; t += 2) {
      store_pairs(weights + t * stride, round_to_pairs(bounded(t), bounded(t + 1)));
    }
    for (; t < tile.tokens; t += 2) store_pairs(weights + t * stride, none);
  }
  const Floats sum = sum_of_pairs(weights, 2 * stride, tile.tokens / 2);
  store(tile.sums + lane, load(tile.sums + lane) * correction + sum);
}

// Whether all values of the tokens are finite.
inline bool finite_values(const Geometry& g, const std::uint16_t* values, TokenSpan span) {
  Floats bad = zeros();
  for (std::int64_t t = span.begin / 2; 2 * t < span.end; ++t) {
    const std::uint16_t* pair = values + 2 * t * g.head_dim;
    for (std::int64_t d = 0; d < g.head_dim; d += kLanes) {
      const Pairs both = load_pairs_up_to(pair + 2 * d, g.head_dim - d);
      // x - x is zero, but NaN where x is not finite.
      const Floats even = even_of(both), odd = odd_of(both);
      if (2 * t >= span.begin) bad = bad + (even - even);
      if (2 * t + 1 < span.end) bad = bad + (odd - odd);
    }
  }
  return total(bad) == 0.0f;
}

// A page's contribution to every query of the tile. A page without a place has keys and values of
// zero.
inline void add_page_of_pairs(const Geometry& g, const PairTile& tile, const PageElements& page,
                              const PageElements& next) {
  const TokenSpan first = span_of(g, tile.position, tile.start);
  const TokenSpan last = span_of(g, tile.position + tile.rows - 1, tile.start);
  const bool whole = first.begin == 0 && first.end == g.page_tokens && last.begin == 0 &&
                     last.end == g.page_tokens && g.page_tokens == tile.tokens;
  const TokenSpan all = span_of_rows(g, tile.position, tile.rows, tile.start);
  const bool there = page.keys != nullptr;
  if (there) {
    each_pair_lanes(tile, ScorePairs{g, tile, page.keys, next, all});
  } else {
    for (std::int64_t i = 0; i < g.page_tokens * tile.lanes; ++i) tile.scores[i] = 0.0f;
  }
  for (std::int64_t lane = 0; lane < tile.lanes; lane += kLanes) {
    if (whole) {
      softmax_pairs<true>(g, tile, lane);
    } else {
      softmax_pairs<false>(g, tile, lane);
    }
  }
  PairSpan span{0, 0, nullptr, nullptr};
  if (there) span = pair_span(g, all, page.values, tile.edges);
  const Weights weights{tile.weights, 1, tile.lanes};
  std::int64_t q = 0;
  for (; q + kPairQueries <= tile.count; q += kPairQueries) {
    mix_queries<kPairQueries>(g, tile, q, weights, page.values, nullptr, span);
  }
  for (; q < tile.count; ++q) {
    mix_queries<1>(g, tile, q, weights, page.values, nullptr, span);
  }
}

}  // namespace helios::HELIOS_ISA
