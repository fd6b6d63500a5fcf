// `attention`: paged causal attention with an online softmax, one step a page in ascending order.
//
// A query's arithmetic is the same whatever tile it is in: scores add the head's elements in
// ascending order, the softmax step looks at the query's own valid tokens only, and the mix adds
// tokens in ascending order. Tiles only let several queries share the loads of a page.
#include "attention.h"

#include "../catalogue.h"
#include "activation.h"
#include "kernels.h"
#include "paging.h"

namespace helios::HELIOS_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

struct Geometry {
  std::int64_t q_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_tokens;
  std::int64_t padded_page_tokens;
  std::int64_t window;
  float scale;
};

struct Tile {
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t queries;
  float* transposed;
  float* scores;
  float* mixed;
  float* largest;
  float* sums;
  float* corrections;
  TokenSpan* spans;
};

// Elements of a page: as they are stored, or widened to f32 in scratch for tiles whose queries go
// over a page several times. The values are the same.
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

WidenedElements widened(const std::uint16_t* elements, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store_up_to(out + i, load_f16_up_to(elements + i, count - i), count - i);
  }
  return {out};
}

// Dot products of `Queries` queries with 16 * Vectors keys; lanes are the page's tokens. Several
// vectors are always whole, a single one may be the page's ragged end.
template <int Queries, int Vectors, class Elements>
HELIOS_INLINE void score_vectors(const Geometry& g, const Tile& tile, std::int64_t first,
                                 Elements keys, std::int64_t token) {
  Floats sums[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) sums[q][v] = zeros();
  }
  const float* x = tile.transposed + first;
  for (std::int64_t d = 0; d < g.head_dim; ++d, x += tile.queries) {
    Floats key[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = d * g.page_tokens + token + v * kLanes;
      key[v] = Vectors > 1 ? keys.all(at) : keys.up_to(at, g.page_tokens - token);
    }
    for (int q = 0; q < Queries; ++q) {
      const Floats element = broadcast(x[q]);
      for (int v = 0; v < Vectors; ++v) sums[q][v] = fused(key[v], element, sums[q][v]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      store(tile.scores + (first + q) * g.padded_page_tokens + token + v * kLanes,
            sums[q][v] * broadcast(g.scale));
    }
  }
}

template <int Queries, class Elements>
HELIOS_INLINE void score_queries(const Geometry& g, const Tile& tile, std::int64_t first,
                                 Elements keys) {
  std::int64_t token = 0;
  for (; token + 2 * kLanes <= g.page_tokens; token += 2 * kLanes) {
    score_vectors<Queries, 2>(g, tile, first, keys, token);
  }
  for (; token < g.page_tokens; token += kLanes) {
    score_vectors<Queries, 1>(g, tile, first, keys, token);
  }
}

template <class Elements>
void score_page(const Geometry& g, const Tile& tile, Elements keys) {
  std::int64_t q = 0;
  for (; q + kScoreQueries <= tile.queries; q += kScoreQueries) {
    score_queries<kScoreQueries>(g, tile, q, keys);
  }
  if constexpr (kScoreQueries > 4) {
    for (; q + 4 <= tile.queries; q += 4) score_queries<4>(g, tile, q, keys);
    for (; q + 3 <= tile.queries; q += 3) score_queries<3>(g, tile, q, keys);
  }
  for (; q < tile.queries; ++q) score_queries<1>(g, tile, q, keys);
}

// Lanes of the 16 tokens from `token` on that lie before `bound`.
HELIOS_INLINE int lanes_before(std::int64_t token, std::int32_t bound) {
  const std::int64_t lanes = bound - token;
  return static_cast<int>(lanes < 0 ? 0 : lanes < kLanes ? lanes : kLanes);
}

// Sixteen scores of a query; lanes outside its span hold `other`.
HELIOS_INLINE Floats masked(Floats scores, std::int64_t token, TokenSpan span, Floats other) {
  if (span.begin <= token && token + kLanes <= span.end) return scores;
  return keep_lanes(scores, lanes_before(token, span.begin), lanes_before(token, span.end), other);
}

// One online softmax step for every query of the tile: scores become weights, what earlier pages
// left is scaled down to the new maximum. A query with an empty span stays as it is.
void softmax_step(const Geometry& g, const Tile& tile) {
  const Floats lowest = broadcast(-kInfinity);
  for (std::int64_t q = 0; q < tile.queries; ++q) {
    const float* scores = tile.scores + q * g.padded_page_tokens;
    Floats highest = lowest;
    for (std::int64_t t = 0; t < g.page_tokens; t += kLanes) {
      highest = maximum(masked(load(scores + t), t, tile.spans[q], lowest), highest);
    }
    const float page_largest = largest(highest);
    const float before = tile.largest[q];
    const float now = page_largest > before ? page_largest : before;
    // Where every score is -infinity all weights are zero.
    tile.corrections[q] = now == -kInfinity ? 0.0f : before - now;
    tile.largest[q] = now;
  }
  for (std::int64_t q = 0; q < tile.queries; q += kLanes) {
    store(tile.corrections + q, exponential(load(tile.corrections + q)));
  }
  for (std::int64_t q = 0; q < tile.queries; ++q) {
    float* scores = tile.scores + q * g.padded_page_tokens;
    const float now = tile.largest[q];
    const Floats base = broadcast(now == -kInfinity ? 0.0f : now);
    Floats sums = zeros();
    for (std::int64_t t = 0; t < g.page_tokens; t += kLanes) {
      const Floats weights = masked(exponential(load(scores + t) - base), t, tile.spans[q], zeros());
      store(scores + t, weights);
      sums = sums + weights;
    }
    const float correction = tile.corrections[q];
    tile.sums[q] = tile.sums[q] * correction + total(sums);
    if (correction == 1.0f) continue;
    float* mixed = tile.mixed + q * g.head_dim;
    for (std::int64_t d = 0; d < g.head_dim; d += kLanes) {
      const std::int64_t count = g.head_dim - d;
      store_up_to(mixed + d, load_up_to(mixed + d, count) * broadcast(correction), count);
    }
  }
}

// mixed += weight * value for tokens [begin, end) of the page, ascending. Several vectors are
// always whole, a single one may be the head's ragged end.
template <int Queries, int Vectors, class Elements>
HELIOS_INLINE void mix_vectors(const Geometry& g, const Tile& tile, std::int64_t first,
                               Elements values, std::int64_t begin, std::int64_t end,
                               std::int64_t d) {
  Floats sums[Queries][Vectors];
  const std::int64_t count = Vectors > 1 ? Vectors * kLanes : g.head_dim - d;
  float* mixed = tile.mixed + first * g.head_dim + d;
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      sums[q][v] = load_up_to(mixed + q * g.head_dim + v * kLanes, count - v * kLanes);
    }
  }
  for (std::int64_t t = begin; t < end; ++t) {
    Floats value[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = t * g.head_dim + d + v * kLanes;
      value[v] = Vectors > 1 ? values.all(at) : values.up_to(at, count);
    }
    for (int q = 0; q < Queries; ++q) {
      const Floats weight = broadcast(tile.scores[(first + q) * g.padded_page_tokens + t]);
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
void mix_range(const Geometry& g, const Tile& tile, std::int64_t first, Elements values,
               std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  std::int64_t d = 0;
  for (; d + kMixVectors * kLanes <= g.head_dim; d += kMixVectors * kLanes) {
    mix_vectors<Queries, kMixVectors>(g, tile, first, values, begin, end, d);
  }
  for (; d < g.head_dim; d += kLanes) {
    mix_vectors<Queries, 1>(g, tile, first, values, begin, end, d);
  }
}

// Tokens that all queries of the group have in common are read once for all; the rest before and
// after is each query's own.
template <int Queries, class Elements>
void mix_group(const Geometry& g, const Tile& tile, std::int64_t first, Elements values) {
  std::int64_t begin = 0;
  std::int64_t end = g.page_tokens;
  for (int q = 0; q < Queries; ++q) {
    const TokenSpan span = tile.spans[first + q];
    begin = span.begin > begin ? span.begin : begin;
    end = span.end < end ? span.end : end;
  }
  const bool shared = begin < end;
  for (int q = 0; q < Queries; ++q) {
    const TokenSpan span = tile.spans[first + q];
    mix_range<1>(g, tile, first + q, values, span.begin, shared ? begin : span.end);
  }
  if (!shared) return;
  mix_range<Queries>(g, tile, first, values, begin, end);
  for (int q = 0; q < Queries; ++q) {
    mix_range<1>(g, tile, first + q, values, end, tile.spans[first + q].end);
  }
}

template <class Elements>
void mix_page(const Geometry& g, const Tile& tile, Elements values) {
  std::int64_t q = 0;
  for (; q + kMixQueries <= tile.queries; q += kMixQueries) {
    mix_group<kMixQueries>(g, tile, q, values);
  }
  if constexpr (kMixQueries > 4) {
    for (; q + 4 <= tile.queries; q += 4) mix_group<4>(g, tile, q, values);
    for (; q + 3 <= tile.queries; q += 3) mix_group<3>(g, tile, q, values);
  }
  if constexpr (kMixQueries > 1) {
    for (; q < tile.queries; ++q) mix_group<1>(g, tile, q, values);
  }
}

struct Attention {
  const Launch& launch;
  Geometry g;
  AttentionScratch layout;
  PageTable table;
  Format format;
  const float* qkv;
  const std::int32_t* positions;
  const std::int32_t* slots;

  explicit Attention(const Launch& source)
      : launch(source),
        g{source.integer(attention::kQHeads),
          source.integer(attention::kKvHeads),
          source.integer(attention::kHeadDim),
          source.integer(attention::kPageTokens),
          (source.integer(attention::kPageTokens) + kLanes - 1) / kLanes * kLanes,
          source.integer(attention::kWindow),
          source.real(attention::kScale)},
        layout(g.q_heads / g.kv_heads, g.head_dim, g.page_tokens),
        table(page_table(source, attention::kPageTable, attention::kKPlane, attention::kVPlane,
                         g.kv_heads * g.head_dim, g.page_tokens,
                         source.integer(attention::kTablePages))),
        format(static_cast<Format>(source.integer(attention::kFormat))),
        qkv(source.read<float>(attention::kQkv)),
        positions(source.read<std::int32_t>(attention::kPositions)),
        slots(source.read<std::int32_t>(attention::kSlot)) {}

  // Whether the row attends to anything: its slot and position lie inside the page table.
  bool live(std::int64_t row) const {
    return positions[row] >= 0 && positions[row] < table.pages_per_slot * g.page_tokens &&
           slots[row] >= 0 && slots[row] < table.slots;
  }

  // Rows of the tile that starts at `row`.
  std::int64_t tile_rows(std::int64_t row, std::int64_t rows) const {
    std::int64_t count = 1;
    if (!live(row)) return count;
    while (count < layout.tile_rows && row + count < rows && live(row + count) &&
           slots[row + count] == slots[row] &&
           positions[row + count] == positions[row] + count) {
      ++count;
    }
    return count;
  }

  Tile load_tile(std::int64_t row, std::int64_t rows, std::int64_t kv_head,
                 float* scratch) const {
    const std::int64_t heads = g.q_heads / g.kv_heads;
    const Tile tile{row,
                    rows,
                    rows * heads,
                    scratch + layout.transposed,
                    scratch + layout.scores,
                    scratch + layout.mixed,
                    scratch + layout.largest,
                    scratch + layout.sums,
                    scratch + layout.corrections,
                    reinterpret_cast<TokenSpan*>(scratch + layout.spans)};
    const std::int64_t row_width = (g.q_heads + 2 * g.kv_heads) * g.head_dim;
    for (std::int64_t q = 0; q < tile.queries; ++q) {
      const float* head = qkv + (row + q / heads) * row_width +
                          (kv_head * heads + q % heads) * g.head_dim;
      for (std::int64_t d = 0; d < g.head_dim; ++d) {
        tile.transposed[d * tile.queries + q] = head[d];
        tile.mixed[q * g.head_dim + d] = 0.0f;
      }
      tile.largest[q] = -kInfinity;
      tile.sums[q] = 0.0f;
    }
    // Lanes past the last query take part in vector steps.
    const std::int64_t lanes = AttentionScratch::padded(tile.queries);
    for (std::int64_t q = tile.queries; q < lanes; ++q) tile.corrections[q] = 0.0f;
    return tile;
  }

  void write_tile(const Tile& tile, std::int64_t kv_head) const {
    const std::int64_t heads = g.q_heads / g.kv_heads;
    const std::int64_t width = g.q_heads * g.head_dim;
    const std::int64_t piece = heads * g.head_dim;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t q = r * heads + h;
        const float sum = tile.sums[q];
        const Floats factor = broadcast(sum == 0.0f ? 0.0f : 1.0f / sum);
        float* mixed = tile.mixed + q * g.head_dim;
        for (std::int64_t d = 0; d < g.head_dim; d += kLanes) {
          const std::int64_t count = g.head_dim - d;
          store_up_to(mixed + d, load_up_to(mixed + d, count) * factor, count);
        }
      }
      std::byte* out = launch.write<std::byte>(attention::kOut) +
                       (tile.first_row + r) * row_nbytes(format, width);
      write_activation(format, out, width, kv_head * piece,
                       tile.mixed + r * heads * g.head_dim, piece);
    }
  }

  // The page's offset in both planes for a key/value head; -1 where it has no place.
  std::int64_t page_base(std::int64_t row, std::int64_t n, std::int64_t kv_head) const {
    const std::int64_t page = table.page_of(slots[row], n);
    return page < 0 ? -1 : (page * g.kv_heads + kv_head) * g.head_dim * g.page_tokens;
  }

  // Pages lie anywhere, so the hardware can't guess the next one.
  void prefetch_page(std::int64_t base) const {
    if (base < 0) return;
    const auto* keys = launch.read<std::uint16_t>(attention::kKPlane) + base;
    const auto* values = launch.read<std::uint16_t>(attention::kVPlane) + base;
    for (std::int64_t i = 0; i < g.head_dim * g.page_tokens; i += 32) {
      prefetch(keys + i);
      prefetch(values + i);
    }
  }

  // The tokens of page n that each query attends to.
  void set_spans(const Tile& tile, std::int64_t n) const {
    const std::int64_t heads = g.q_heads / g.kv_heads;
    const std::int64_t page_start = n * g.page_tokens;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int64_t position = positions[tile.first_row] + r;
      const std::int64_t since = oldest(position);
      const std::int64_t begin = since > page_start ? since - page_start : 0;
      const std::int64_t end = position + 1 - page_start < g.page_tokens
                                   ? position + 1 - page_start
                                   : g.page_tokens;
      const bool any = begin < end;
      const TokenSpan span{static_cast<std::int32_t>(any ? begin : 0),
                           static_cast<std::int32_t>(any ? end : 0)};
      for (std::int64_t h = 0; h < heads; ++h) tile.spans[r * heads + h] = span;
    }
  }

  // The first position that a row at `position` attends to.
  std::int64_t oldest(std::int64_t position) const {
    return g.window > 0 && position >= g.window ? position - g.window + 1 : 0;
  }

  // One page's contribution to every query of the tile.
  void add_page(const Tile& tile, std::int64_t base, float* scratch) const {
    if (base < 0) {
      for (std::int64_t i = 0; i < tile.queries * g.padded_page_tokens; ++i) tile.scores[i] = 0;
      softmax_step(g, tile);
      return;
    }
    const auto* keys = launch.read<std::uint16_t>(attention::kKPlane) + base;
    const auto* values = launch.read<std::uint16_t>(attention::kVPlane) + base;
    const std::int64_t count = g.head_dim * g.page_tokens;
    if (tile.queries > kScoreQueries) {
      score_page(g, tile, widened(keys, count, scratch));
      softmax_step(g, tile);
      mix_page(g, tile, widened(values, count, scratch));
    } else {
      score_page(g, tile, StoredElements{keys});
      softmax_step(g, tile);
      mix_page(g, tile, StoredElements{values});
    }
  }

  void run_tile(std::int64_t row, std::int64_t rows, std::int64_t kv_head,
                float* scratch) const {
    const bool any = live(row);
    const std::int64_t first_page = any ? oldest(positions[row]) / g.page_tokens : 0;
    const std::int64_t last_page = any ? (positions[row] + rows - 1) / g.page_tokens : -1;
    std::int64_t base = any ? page_base(row, first_page, kv_head) : -1;
    prefetch_page(base);
    const Tile tile = load_tile(row, rows, kv_head, scratch);
    for (std::int64_t n = first_page; n <= last_page; ++n) {
      const std::int64_t next = n < last_page ? page_base(row, n + 1, kv_head) : -1;
      prefetch_page(next);
      set_spans(tile, n);
      add_page(tile, base, scratch + layout.page);
      base = next;
    }
    write_tile(tile, kv_head);
  }
};

}  // namespace

void run_attention(const Launch& launch, const Piece& piece) {
  const Attention attention(launch);
  const std::int64_t rows = launch.rows();
  auto* scratch = reinterpret_cast<float*>(piece.scratch);
  std::int64_t item = 0;
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t tile_rows = attention.tile_rows(row, rows);
    for (std::int64_t h = 0; h < attention.g.kv_heads; ++h, ++item) {
      if (item % piece.count == piece.index) attention.run_tile(row, tile_rows, h, scratch);
    }
    row += tile_rows;
  }
}

}  // namespace helios::HELIOS_ISA
