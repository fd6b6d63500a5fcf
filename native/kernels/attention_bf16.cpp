// `attention_bf16`: `attention` with products of bf16 pairs, over planes that hold pairs.
//
// A query's arithmetic is the same whatever tile it is in: scores add pairs of the head's elements
// in ascending order, the softmax step looks at the query's own valid tokens only, and the mix adds
// pairs of tokens in ascending order, a token that doesn't count with a weight of zero. In a tile
// such a token's value is another row's: where one isn't finite, rows are computed one by one.
#include "attention_bf16.h"

#include "activation.h"
#include "attention_items.h"
#include "attention_bf16_query_lanes.h"
#include "attention_bf16_token_lanes.h"
#include "kernels.h"
#include "transpose.h"

namespace helios::HELIOS_ISA {
namespace {

class PairTileRun {
 public:
  PairTileRun(const Attention& attention, const Piece& piece)
      : a_(attention),
        g_(attention.g),
        layout_(g_.heads(), g_.head_dim, g_.page_tokens),
        scratch_(reinterpret_cast<float*>(piece.scratch)),
        scale_(g_.scale * 1.44269504f),
        ahead_(attention, piece) {
    // From here on every page's turn brings the one after it.
    const PageElements& page = ahead_.next();
    for (std::int64_t i = 0; i < g_.page_elements(); i += 2 * kLanes) {
      prefetch(page.keys + i);
      prefetch(page.values + i);
    }
  }

  // `next` is the item whose turn comes then, or the same again.
  void run(const Item& item, const Item& next) {
    const std::int64_t count = item.rows * g_.heads();
    if (item.rows > 1 && (count <= kFewQueries || !finite_edges(item))) {
      for (std::int64_t r = 0; r < item.rows; ++r) {
        Item row = item;
        row.row += r;
        row.rows = 1;
        const std::int64_t position = a_.positions[row.row];
        row.first_page = g_.oldest(position) / g_.page_tokens;
        row.end_page = position / g_.page_tokens + 1;
        run_tile(row, row, r == 0);
      }
    } else {
      run_tile(item, next, true);
    }
  }

 private:
  void run_tile(const Item& item, const Item& next, bool advance) {
    PairTile tile = begin(item);
    if (item.rows == 1 && tile.count <= kFewQueries) {
      read_row(item, tile);
      add_pages_to_row(item, tile, advance);
    } else {
      read_rows(item, tile);
      add_pages(item, next, tile, advance);
    }
    write(item, tile);
  }

  PairTile begin(const Item& item) const {
    const Bf16AttentionScratch& at = layout_;
    const std::int64_t count = item.rows * g_.heads();
    const std::int64_t lanes = AttentionScratch::padded(count);
    PairTile tile{};
    tile.rows = item.rows;
    tile.position = a_.positions[item.row];
    tile.count = count;
    tile.lanes = lanes;
    tile.tokens = at.tokens;
    tile.scores = scratch_ + at.scores;
    tile.mixed = scratch_ + at.mixed;
    tile.largest = scratch_ + at.largest;
    tile.sums = scratch_ + at.sums;
    tile.corrections = scratch_ + at.corrections;
    tile.begins = scratch_ + at.begins;
    tile.ends = scratch_ + at.ends;
    tile.pairs = pairs_at(at.queries);
    tile.weights = pairs_at(at.weights);
    tile.edges = pairs_at(at.edges);
    for (std::int64_t q = 0; q < lanes; q += kLanes) {
      store(tile.largest + q, broadcast(-kInfinity));
      store(tile.sums + q, zeros());
    }
    for (std::int64_t i = 0; i < count * g_.head_dim; i += kLanes) store(tile.mixed + i, zeros());
    return tile;
  }

  std::uint16_t* pairs_at(std::int64_t offset) const {
    return reinterpret_cast<std::uint16_t*>(scratch_ + offset);
  }

  // The first query of one of the tile's rows; the row's others follow.
  const float* query(const Item& item, std::int64_t row) const {
    return a_.qkv + (item.row + row) * g_.row_elements() + item.kv_head * g_.heads() * g_.head_dim;
  }

  void prefetch_queries(const Item& item, std::int64_t row) const {
    const float* from = query(item, row);
    for (std::int64_t i = 0; i < g_.heads() * g_.head_dim; i += kLanes) prefetch(from + i);
  }

  void read_query(const float* from, std::int64_t count, std::uint16_t* out) const {
    for (std::int64_t d = 0; d < count; d += kLanes) {
      const Floats scaled = load_up_to(from + d, count - d) * broadcast(scale_);
      store_bf16_up_to(out + d, scaled, count - d);
    }
  }

  void read_row(const Item& item, const PairTile& tile) const {
    read_query(query(item, 0), tile.count * g_.head_dim, pairs_at(layout_.queries));
  }

  // Queries of sixteen lanes at a time, pairs turned round as if they were floats.
  void read_rows(const Item& item, const PairTile& tile) const {
    float* out = scratch_ + layout_.queries;
    float* turning = scratch_ + layout_.turning;
    const std::int64_t pairs = g_.head_dim / 2;
    const float* next = query(item, 0);
    std::int64_t head = 0;
    for (std::int64_t q = 0; q < tile.lanes; q += kLanes) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        // Lanes past the last query take part with what is there; nobody reads them.
        if (q + i >= tile.count) break;
        read_query(next, g_.head_dim, reinterpret_cast<std::uint16_t*>(turning + i * pairs));
        next += g_.head_dim;
        if (++head == g_.heads()) {
          head = 0;
          next += g_.row_elements() - g_.heads() * g_.head_dim;
        }
      }
      std::int64_t d = 0;
      for (; d + kLanes <= pairs; d += kLanes) {
        transpose_block([&](int i) { return turning + i * pairs + d; }, out + d * tile.lanes + q,
                        tile.lanes);
      }
      for (; d < pairs; ++d) {
        for (int i = 0; i < kLanes; ++i) {
          __builtin_memcpy(out + d * tile.lanes + q + i, turning + i * pairs + d, 4);
        }
      }
    }
  }

  // Whether the values are finite that some of the tile's rows attend to and others don't.
  bool finite_edges(const Item& item) const {
    const std::int64_t position = a_.positions[item.row];
    for (std::int64_t n = item.first_page; n < item.end_page; ++n) {
      const std::int64_t start = n * g_.page_tokens;
      const TokenSpan all = span_of_rows(g_, position, item.rows, start);
      const TokenSpan first = span_of(g_, position, start);
      const TokenSpan last = span_of(g_, position + item.rows - 1, start);
      if (first.begin == all.begin && first.end == all.end && last.begin == all.begin &&
          last.end == all.end) {
        continue;
      }
      const PageElements page = a_.page(item.row, n, item.kv_head);
      if (page.keys != nullptr && !finite_values(g_, page.values, all)) {
        return false;
      }
    }
    return true;
  }

  PageElements ahead_if(bool advance, const PageElements& otherwise) {
    if (advance) return ahead_.next();
    return otherwise.keys != nullptr ? otherwise : PageElements{a_.keys, a_.values};
  }

  void add_pages(const Item& item, const Item& next, PairTile& tile, bool advance) {
    const std::int64_t pages = item.end_page - item.first_page;
    std::int64_t asked = 0;
    for (std::int64_t n = item.first_page; n < item.end_page; ++n) {
      const std::int64_t rows = next.rows * (n + 1 - item.first_page) / pages;
      for (; asked < rows; ++asked) prefetch_queries(next, asked);
      const PageElements page = a_.page(item.row, n, item.kv_head);
      tile.start = n * g_.page_tokens;
      add_page_of_pairs(g_, tile, page, ahead_if(advance, page));
    }
  }

  // Scores of a page are computed between the softmax of the page before it and its mix, which
  // then needn't wait for that softmax. Keys are prefetched as the keys before them are read, and
  // values likewise: all at once would fill the core's miss buffers and leave them idle after.
  void add_pages_to_row(const Item& item, const PairTile& tile, bool advance) {
    if (item.first_page == item.end_page) return;
    float* scores = tile.scores;
    float* other = scores + kFewQueries * tile.tokens;
    PageElements page = a_.page(item.row, item.first_page, item.kv_head);
    PageElements ahead = ahead_if(advance, page);
    score_row(g_, tile, page, ahead, scores, 0);
    for (std::int64_t n = item.first_page; n < item.end_page; ++n) {
      const TokenSpan span = span_of(g_, tile.position, n * g_.page_tokens);
      const PageElements now = page;
      // What is prefetched with the softmax.
      const std::int64_t asked = g_.page_elements() / 4;
      if (n + 1 < item.end_page) {
        page = a_.page(item.row, n + 1, item.kv_head);
        ahead = ahead_if(advance, page);
        softmax_row(tile, span, scores, ahead.keys, asked);
        score_row(g_, tile, page, ahead, other, asked);
        mix_row(g_, tile, span, now, page.keys != nullptr ? page : ahead);
      } else {
        softmax_row(tile, span, scores, ahead.values, asked);
        mix_row(g_, tile, span, now, ahead);
      }
      float* const used = scores;
      scores = other;
      other = used;
    }
  }

  void write(const Item& item, const PairTile& tile) const {
    const std::int64_t width = g_.q_heads * g_.head_dim;
    const std::int64_t piece = g_.heads() * g_.head_dim;
    for (std::int64_t q = 0; q < tile.count; ++q) {
      const float sum = tile.sums[q];
      const Floats factor = broadcast(sum == 0.0f ? 0.0f : 1.0f / sum);
      float* mixed = tile.mixed + q * g_.head_dim;
      for (std::int64_t d = 0; d < g_.head_dim; d += kLanes) {
        const std::int64_t count = g_.head_dim - d;
        // Adding zero makes a negative zero positive: which of them a sum ends with depends on how
        // many tokens of no weight were added.
        store_up_to(mixed + d, load_up_to(mixed + d, count) * factor + zeros(), count);
      }
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      std::byte* out = a_.launch.write<std::byte>(attention::kOut) +
                       (item.row + r) * row_nbytes(a_.format, width);
      write_activation(a_.format, out, width, item.kv_head * piece, tile.mixed + r * piece, piece);
    }
  }

  const Attention& a_;
  const Geometry& g_;
  const Bf16AttentionScratch layout_;
  float* scratch_;
  float scale_;
  PagesAhead ahead_;
};

}  // namespace

void run_attention_bf16(const Launch& launch, const Piece& piece) {
  const Attention attention(launch, kBf16TileQueries);
  Items items(attention, piece);
  Item item;
  if (!items.next(item)) return;
  PairTileRun tiles(attention, piece);
  for (Item next = item; items.next(next); item = next) tiles.run(item, next);
  tiles.run(item, item);
}

}  // namespace helios::HELIOS_ISA
