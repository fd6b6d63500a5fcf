// One row's few queries in bf16, as in decode: lanes are a page's tokens for the scores and a head's
// elements for the mix. Every query's bits are those of attention_bf16_query_lanes.h.
#pragma once

#include "attention_bf16_tile.h"

namespace helios::HELIOS_ISA {

// Dot products of `Queries` queries with 16 * Vectors keys. The next page's keys are prefetched but
// for the first `asked` elements. Several vectors are always whole, a
// single one may be the page's ragged end.
template <int Queries, int Vectors>
HELIOS_INLINE void score_pair_vectors(const Geometry& g, const PairTile& tile, std::int64_t first,
                                      const PageElements& page, const PageElements& next,
                                      std::int64_t token, float* scores, std::int64_t asked) {
  Floats sums[Queries][Vectors];
  HELIOS_UNROLL for (int q = 0; q < Queries; ++q) {
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) sums[q][v] = zeros();
  }
  const std::uint16_t* queries = tile.pairs + first * g.head_dim;
  for (std::int64_t d = 0; d < g.head_dim; d += 2) {
    Pairs key[Vectors];
    const std::int64_t at = d * g.page_tokens + 2 * token;
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
      if (at + 2 * v * kLanes >= asked) prefetch(next.keys + at + 2 * v * kLanes);
      key[v] = load_pairs_up_to(page.keys + at + 2 * v * kLanes,
                                Vectors > 1 ? std::int64_t{kLanes} : g.page_tokens - token);
    }
    HELIOS_UNROLL for (int q = 0; q < Queries; ++q) {
      const PairBroadcast elements = broadcast_pair(queries + q * g.head_dim + d);
      HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
        sums[q][v] = dot_pairs(sums[q][v], key[v], elements);
      }
    }
  }
  HELIOS_UNROLL for (int q = 0; q < Queries; ++q) {
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
      store(scores + (first + q) * tile.tokens + token + v * kLanes, sums[q][v]);
    }
  }
}

template <int Queries>
inline void score_pair_queries(const Geometry& g, const PairTile& tile, std::int64_t first,
                               const PageElements& page, const PageElements& next, float* scores, std::int64_t asked) {
  std::int64_t token = 0;
  for (; token + 2 * kLanes <= g.page_tokens; token += 2 * kLanes) {
    score_pair_vectors<Queries, 2>(g, tile, first, page, next, token, scores, asked);
  }
  for (; token < g.page_tokens; token += kLanes) {
    score_pair_vectors<Queries, 1>(g, tile, first, page, next, token, scores, asked);
  }
}

// Runs `part` for all queries of the tile, as many at a time as registers allow.
template <class Part>
HELIOS_INLINE void each_pair_queries(const PairTile& tile, const Part& part) {
  std::int64_t q = 0;
  if constexpr (kPairQueries > 4) {
    for (; q + kPairQueries <= tile.count; q += kPairQueries) part.template run<kPairQueries>(q);
  }
  if constexpr (kPairQueries >= 4) {
    for (; q + 4 <= tile.count; q += 4) part.template run<4>(q);
    for (; q + 3 <= tile.count; q += 3) part.template run<3>(q);
  }
  if constexpr (kPairQueries >= 2) {
    for (; q + 2 <= tile.count; q += 2) part.template run<2>(q);
  }
  for (; q < tile.count; ++q) part.template run<1>(q);
}

struct ScorePairsOfRow {
  const Geometry& g;
  const PairTile& tile;
  const PageElements& page;
  const PageElements& next;
  float* scores;
  std::int64_t asked;
  template <int Queries>
  HELIOS_INLINE void run(std::int64_t first) const {
    score_pair_queries<Queries>(g, tile, first, page, next, scores, asked);
  }
};

inline void score_row(const Geometry& g, const PairTile& tile, const PageElements& page,
                      const PageElements& next, float* scores, std::int64_t asked) {
  if (page.keys == nullptr) {  // the page has no place: its keys and values are zero
    for (std::int64_t i = 0; i < tile.count * tile.tokens; ++i) scores[i] = 0.0f;
  } else {
    each_pair_queries(tile, ScorePairsOfRow{g, tile, page, next, scores, asked});
  }
}

// One online softmax step for every query: scores become weights. Meanwhile `elements` elements from
// `ahead` on are prefetched: memory should never wait for arithmetic.
inline void softmax_row(const PairTile& tile, TokenSpan span, const float* scores,
                        const std::uint16_t* ahead, std::int64_t elements) {
  const Floats lowest = broadcast(-kInfinity);
  std::uint16_t* weights = tile.weights;
  std::int64_t asked = 0;
  for (std::int64_t q = 0; q < tile.count; ++q, scores += tile.tokens, weights += tile.tokens) {
    for (; asked * tile.count < elements * (q + 1); asked += 2 * kLanes) prefetch(ahead + asked);
    Floats highest = lowest;
    for (std::int64_t t = 0; t < tile.tokens; t += kLanes) {
      highest = maximum(masked(load(scores + t), t, span, lowest), highest);
    }
    const Floats before = broadcast(tile.largest[q]);
    const Floats now = maximum(broadcast(largest(highest)), before);
    // Where every score is -infinity all weights are zero.
    const Floats correction =
        power_of_two_up_to_zero(select_less(lowest, now, before - now, zeros()));
    const Floats base = select_less(lowest, now, now, zeros());
    Floats sums = zeros();
    const auto weight = [&](std::int64_t t) {
      return masked(power_of_two_up_to_zero(load(scores + t) - base), t, span, zeros());
    };
    for (std::int64_t t = 0; t < tile.tokens; t += kPairedTokens) {
      const Pairs pairs = round_in_order(weight(t), weight(t + kLanes));
      store_pairs(weights + t, pairs);
      sums = add_weights(sums, pairs);
    }
    tile.largest[q] = read_as<float>(&now);
    tile.corrections[q] = read_as<float>(&correction);
    tile.sums[q] = tile.sums[q] * read_as<float>(&correction) + total(sums);
  }
}

struct MixPairsOfRow {
  const Geometry& g;
  const PairTile& tile;
  const PageElements& page;
  const PageElements& next;
  PairSpan span;
  template <int Queries>
  HELIOS_INLINE void run(std::int64_t first) const {
    const Weights weights{tile.weights, tile.tokens / 2, 1};
    mix_queries<Queries>(g, tile, first, weights, page.values, next.values, span);
  }
};

inline void mix_row(const Geometry& g, const PairTile& tile, TokenSpan span,
                    const PageElements& page, const PageElements& next) {
  PairSpan pairs{0, 0, nullptr, nullptr};
  if (page.keys != nullptr) pairs = pair_span(g, span, page.values, tile.edges);
  // What the mix doesn't come by.
  for (std::int64_t t = pairs.end; 2 * t < g.page_tokens; ++t) {
    for (std::int64_t d = 0; d < g.head_dim; d += kLanes) {
      prefetch(next.values + 2 * (t * g.head_dim + d));
    }
  }
  each_pair_queries(tile, MixPairsOfRow{g, tile, page, next, pairs});
}

}  // namespace helios::HELIOS_ISA
