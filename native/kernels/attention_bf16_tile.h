// What the two ways of computing a tile in bf16 share: the tile's state, and the mix of a page's
// values. Used by attention_bf16.cpp alone.
#pragma once

#include "attention_bf16.h"
#include "attention_tile.h"

namespace helios::HELIOS_ISA {

// `queries` are not used: `pairs` are.
struct PairTile : Tile {
  std::int64_t tokens;         // of a page, rounded up to 32
  std::int64_t start;          // position of the page's first token
  const std::uint16_t* pairs;  // queries times scale
  std::uint16_t* weights;
  std::uint16_t* edges;
};

// The tokens of the page that starts at position `start` which some of `rows` rows from `position` on
// attend to.
HELIOS_INLINE TokenSpan span_of_rows(const Geometry& g, std::int64_t position, std::int64_t rows,
                                     std::int64_t start) {
  const std::int64_t since = g.oldest(position) - start;
  const std::int64_t until = position + rows - start;
  const std::int64_t begin = since > 0 ? since : 0;
  const std::int64_t end = until < g.page_tokens ? until : g.page_tokens;
  return begin < end ? TokenSpan{begin, end} : TokenSpan{0, 0};
}

// A page's pairs of tokens [begin, end). Of the first or the last one a token may not count: then
// `first` or `last` has the pair's values with zeros in its place.
struct PairSpan {
  std::int64_t begin;
  std::int64_t end;
  const std::uint16_t* first;
  const std::uint16_t* last;
};

// The values of one pair of tokens, zero where the even or the odd one doesn't count.
inline void keep_token(const Geometry& g, const std::uint16_t* pair, bool odd, std::uint16_t* out) {
  for (std::int64_t d = 0; d < g.head_dim; ++d) {
    out[2 * d] = odd ? std::uint16_t{0} : pair[2 * d];
    out[2 * d + 1] = odd ? pair[2 * d + 1] : std::uint16_t{0};
  }
}

// `values` are those of the page, `edges` has room for two pairs.
inline PairSpan pair_span(const Geometry& g, TokenSpan span, const std::uint16_t* values,
                          std::uint16_t* edges) {
  PairSpan pairs{span.begin / 2, (span.end + 1) / 2, nullptr, nullptr};
  if (span.begin % 2 != 0) {
    keep_token(g, values + pairs.begin * 2 * g.head_dim, true, edges);
    pairs.first = edges;
  }
  if (span.end % 2 != 0) {
    std::uint16_t* last = edges + 2 * g.head_dim;
    keep_token(g, values + (pairs.end - 1) * 2 * g.head_dim, false, last);
    pairs.last = last;
  }
  return pairs;
}

// Where the weights of queries and pairs of tokens lie.
struct Weights {
  const std::uint16_t* at;
  std::int64_t query_stride;
  std::int64_t pair_stride;
};

// mixed = mixed * correction + weights * values for `Queries` queries from `first` on and
// 16 * Vectors elements from `d` on. Several vectors are always whole, a single one may be the
// head's ragged end.
template <int Queries, int Vectors>
HELIOS_INLINE void mix_pairs(const Geometry& g, const PairTile& tile, std::int64_t first,
                             const Weights& weights, const std::uint16_t* values,
                             const std::uint16_t* ahead, const PairSpan& span, std::int64_t d) {
  Floats sums[Queries][Vectors];
  const std::int64_t count = Vectors > 1 ? Vectors * kLanes : g.head_dim - d;
  float* mixed = tile.mixed + first * g.head_dim + d;
  HELIOS_UNROLL for (int q = 0; q < Queries; ++q) {
    const Floats correction = broadcast(tile.corrections[first + q]);
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
      const float* at = mixed + q * g.head_dim + v * kLanes;
      sums[q][v] = load_up_to(at, count - v * kLanes) * correction;
    }
  }
  const std::uint16_t* own = weights.at + 2 * first * weights.query_stride;
  const auto add = [&](std::int64_t t, const std::uint16_t* pair) {
    Pairs value[Vectors];
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
      value[v] = load_pairs_up_to(pair + 2 * (d + v * kLanes), count - v * kLanes);
    }
    HELIOS_UNROLL for (int q = 0; q < Queries; ++q) {
      const PairBroadcast weight =
          broadcast_pair(own + 2 * (t * weights.pair_stride + q * weights.query_stride));
      HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
        sums[q][v] = dot_pairs(sums[q][v], value[v], weight);
      }
    }
  };
  std::int64_t t = span.begin;
  if (span.first != nullptr) add(t++, span.first);
  const std::int64_t end = span.end - (span.last != nullptr ? 1 : 0);
  for (; t < end; ++t) {
    const std::int64_t at = 2 * t * g.head_dim;
    if (ahead != nullptr) {
      for (int v = 0; v < Vectors; ++v) prefetch(ahead + at + 2 * (d + v * kLanes));
    }
    add(t, values + at);
  }
  if (span.last != nullptr) add(t, span.last);
  HELIOS_UNROLL for (int q = 0; q < Queries; ++q) {
    HELIOS_UNROLL for (int v = 0; v < Vectors; ++v) {
      store_up_to(mixed + q * g.head_dim + v * kLanes, sums[q][v], count - v * kLanes);
    }
  }
}

template <int Queries>
inline void mix_queries(const Geometry& g, const PairTile& tile, std::int64_t first,
                        const Weights& weights, const std::uint16_t* values,
                        const std::uint16_t* ahead, const PairSpan& span) {
  std::int64_t d = 0;
  for (; d + kPairMixVectors * kLanes <= g.head_dim; d += kPairMixVectors * kLanes) {
    mix_pairs<Queries, kPairMixVectors>(g, tile, first, weights, values, ahead, span, d);
  }
  for (; d < g.head_dim; d += kLanes) {
    mix_pairs<Queries, 1>(g, tile, first, weights, values, ahead, span, d);
  }
}

// Sums of both tokens' weights: a vector of pairs times ones.
HELIOS_INLINE Floats add_weights(Floats sums, Pairs weights) {
  constexpr std::uint16_t kOnes[2] = {0x3f80, 0x3f80};
  return dot_pairs(sums, weights, broadcast_pair(kOnes));
}

}  // namespace helios::HELIOS_ISA
