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
  QueryState* states;
};

// Dot products of `Queries` queries with 16 * Vectors keys; lanes are the page's tokens.
template <int Queries, int Vectors>
HELIOS_INLINE void score_vectors(const Geometry& g, const Tile& tile, std::int64_t first,
                                 const std::uint16_t* keys, std::int64_t token) {
  Floats sums[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) sums[q][v] = zeros();
  }
  const float* x = tile.transposed + first;
  for (std::int64_t d = 0; d < g.head_dim; ++d, x += tile.queries) {
    Floats key[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = token + v * kLanes;
      key[v] = load_f16_up_to(keys + d * g.page_tokens + at, g.page_tokens - at);
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

template <int Queries>
HELIOS_INLINE void score_queries(const Geometry& g, const Tile& tile, std::int64_t first,
                                 const std::uint16_t* keys) {
  std::int64_t token = 0;
  for (; token + 2 * kLanes <= g.page_tokens; token += 2 * kLanes) {
    score_vectors<Queries, 2>(g, tile, first, keys, token);
  }
  for (; token < g.page_tokens; token += kLanes) {
    score_vectors<Queries, 1>(g, tile, first, keys, token);
  }
}

void score_page(const Geometry& g, const Tile& tile, const std::uint16_t* keys) {
  std::int64_t q = 0;
  for (; q + kScoreQueries <= tile.queries; q += kScoreQueries) {
    score_queries<kScoreQueries>(g, tile, q, keys);
  }
  if constexpr (kScoreQueries > 3) {
    for (; q + 3 <= tile.queries; q += 3) score_queries<3>(g, tile, q, keys);
  }
  for (; q < tile.queries; ++q) score_queries<1>(g, tile, q, keys);
}

// One online softmax step of one query: scores become weights, the mix so far is rescaled.
void softmax_step(const Geometry& g, QueryState& state, float* scores, float* mixed) {
  const Floats masked = broadcast(-kInfinity);
  Floats highest = masked;
  const auto lanes_from = [&](std::int64_t token, std::int32_t bound) {
    const std::int64_t lane = bound - token;
    return static_cast<int>(lane < 0 ? 0 : lane < kLanes ? lane : kLanes);
  };
  for (std::int64_t t = 0; t < g.page_tokens; t += kLanes) {
    const Floats score = keep_lanes(load(scores + t), lanes_from(t, state.begin),
                                    lanes_from(t, state.end), masked);
    highest = maximum(score, highest);
  }
  const float page_largest = largest(highest);
  const float before = state.largest;
  const float now = page_largest > before ? page_largest : before;
  const float base = now == -kInfinity ? 0.0f : now;
  Floats sums = zeros();
  for (std::int64_t t = 0; t < g.page_tokens; t += kLanes) {
    const Floats weight =
        keep_lanes(exponential(load(scores + t) - broadcast(base)), lanes_from(t, state.begin),
                   lanes_from(t, state.end), zeros());
    store(scores + t, weight);
    sums = sums + weight;
  }
  alignas(64) float correction[kLanes];
  store(correction, exponential(broadcast(before - base)));
  state.sum = state.sum * correction[0] + total(sums);
  state.largest = now;
  for (std::int64_t d = 0; d < g.head_dim; d += kLanes) {
    const std::int64_t count = g.head_dim - d;
    store_up_to(mixed + d, load_up_to(mixed + d, count) * broadcast(correction[0]), count);
  }
}

// mixed += weight * value for tokens [begin, end) of the page, ascending.
template <int Queries, int Vectors>
HELIOS_INLINE void mix_vectors(const Geometry& g, const Tile& tile, std::int64_t first,
                               const std::uint16_t* values, std::int64_t begin,
                               std::int64_t end, std::int64_t d) {
  Floats sums[Queries][Vectors];
  const std::int64_t count = g.head_dim - d;
  float* mixed = tile.mixed + first * g.head_dim + d;
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      sums[q][v] = load_up_to(mixed + q * g.head_dim + v * kLanes, count - v * kLanes);
    }
  }
  for (std::int64_t t = begin; t < end; ++t) {
    Floats value[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      value[v] = load_f16_up_to(values + t * g.head_dim + d + v * kLanes, count - v * kLanes);
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

template <int Queries>
void mix_range(const Geometry& g, const Tile& tile, std::int64_t first,
               const std::uint16_t* values, std::int64_t begin, std::int64_t end) {
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
template <int Queries>
void mix_group(const Geometry& g, const Tile& tile, std::int64_t first,
               const std::uint16_t* values) {
  std::int64_t begin = 0;
  std::int64_t end = g.page_tokens;
  for (int q = 0; q < Queries; ++q) {
    const QueryState& state = tile.states[first + q];
    begin = state.begin > begin ? state.begin : begin;
    end = state.end < end ? state.end : end;
  }
  const bool shared = begin < end;
  for (int q = 0; q < Queries; ++q) {
    const QueryState& state = tile.states[first + q];
    mix_range<1>(g, tile, first + q, values, state.begin, shared ? begin : state.end);
  }
  if (!shared) return;
  mix_range<Queries>(g, tile, first, values, begin, end);
  for (int q = 0; q < Queries; ++q) {
    mix_range<1>(g, tile, first + q, values, end, tile.states[first + q].end);
  }
}

void mix_page(const Geometry& g, const Tile& tile, const std::uint16_t* values) {
  std::int64_t q = 0;
  for (; q + kMixQueries <= tile.queries; q += kMixQueries) {
    mix_group<kMixQueries>(g, tile, q, values);
  }
  if constexpr (kMixQueries > 3) {
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
                    reinterpret_cast<QueryState*>(scratch + layout.states)};
    const std::int64_t row_width = (g.q_heads + 2 * g.kv_heads) * g.head_dim;
    for (std::int64_t q = 0; q < tile.queries; ++q) {
      const float* head = qkv + (row + q / heads) * row_width +
                          (kv_head * heads + q % heads) * g.head_dim;
      for (std::int64_t d = 0; d < g.head_dim; ++d) {
        tile.transposed[d * tile.queries + q] = head[d];
        tile.mixed[q * g.head_dim + d] = 0.0f;
      }
      tile.states[q] = {-kInfinity, 0.0f, 0, 0};
    }
    return tile;
  }

  void write_tile(const Tile& tile, std::int64_t kv_head) const {
    const std::int64_t heads = g.q_heads / g.kv_heads;
    const std::int64_t width = g.q_heads * g.head_dim;
    const std::int64_t piece = heads * g.head_dim;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t q = r * heads + h;
        const float sum = tile.states[q].sum;
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

  void run_tile(std::int64_t row, std::int64_t rows, std::int64_t kv_head,
                float* scratch) const {
    const Tile tile = load_tile(row, rows, kv_head, scratch);
    if (live(row)) {
      const std::int64_t heads = g.q_heads / g.kv_heads;
      const std::int64_t first = positions[row];
      const std::int64_t last = first + rows - 1;
      const std::int64_t oldest = g.window > 0 && first >= g.window ? first - g.window + 1 : 0;
      for (std::int64_t n = oldest / g.page_tokens; n <= last / g.page_tokens; ++n) {
        const std::int64_t page = table.page_of(slots[row], n);
        const std::int64_t base = (page * g.kv_heads + kv_head) * g.head_dim * g.page_tokens;
        if (page >= 0) {
          score_page(g, tile, launch.read<std::uint16_t>(attention::kKPlane) + base);
        }
        for (std::int64_t q = 0; q < tile.queries; ++q) {
          float* scores = tile.scores + q * g.padded_page_tokens;
          if (page < 0) {
            for (std::int64_t t = 0; t < g.padded_page_tokens; ++t) scores[t] = 0.0f;
          }
          const std::int64_t position = first + q / heads;
          const std::int64_t since =
              g.window > 0 && position >= g.window ? position - g.window + 1 : 0;
          const std::int64_t page_start = n * g.page_tokens;
          const std::int64_t begin = since > page_start ? since - page_start : 0;
          const std::int64_t end = position + 1 - page_start < g.page_tokens
                                       ? position + 1 - page_start
                                       : g.page_tokens;
          QueryState& state = tile.states[q];
          state.begin = static_cast<std::int32_t>(begin < end ? begin : 0);
          state.end = static_cast<std::int32_t>(begin < end ? end : 0);
          if (begin < end) softmax_step(g, state, scores, tile.mixed + q * g.head_dim);
        }
        if (page >= 0) mix_page(g, tile, launch.read<std::uint16_t>(attention::kVPlane) + base);
      }
    }
    write_tile(tile, kv_head);
  }
};

}  // namespace

void run_attention(const Launch& launch, const Worker& worker) {
  const Attention attention(launch);
  const std::int64_t rows = launch.rows();
  auto* scratch = reinterpret_cast<float*>(worker.scratch);
  std::int64_t item = 0;
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t tile_rows = attention.tile_rows(row, rows);
    for (std::int64_t h = 0; h < attention.g.kv_heads; ++h, ++item) {
      if (item % worker.count == worker.index) attention.run_tile(row, tile_rows, h, scratch);
    }
    row += tile_rows;
  }
}

}  // namespace helios::HELIOS_ISA
