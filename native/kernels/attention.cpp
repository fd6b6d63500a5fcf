// `attention`: paged causal attention with an online softmax, one step a page in ascending order.
//
// A query's arithmetic is the same whatever tile it is in: scores add the head's elements in
// ascending order, the softmax step looks at the query's own valid tokens only, and the mix adds
// tokens in ascending order. Tiles only let several queries share the loads of a page.
#include "attention.h"

#include "activation.h"
#include "attention_items.h"
#include "attention_query_lanes.h"
#include "attention_token_lanes.h"
#include "kernels.h"
#include "transpose.h"

namespace helios::HELIOS_ISA {
namespace {

void prefetch_page(const PageElements& page, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 2 * kLanes) {
    prefetch(page.keys + i);
    prefetch(page.values + i);
  }
}

class TileRun {
 public:
  TileRun(const Attention& attention, const Piece& piece)
      : a_(attention),
        g_(attention.g),
        layout_(g_.heads(), g_.head_dim, g_.page_tokens),
        scratch_(reinterpret_cast<float*>(piece.scratch)),
        page_(scratch_ + layout_.page),
        ahead_(attention, piece) {
    // From here on every page's turn brings the one after it.
    prefetch_page(ahead_.next(), g_.page_elements());
  }

  // `next` is the item whose turn comes then, or the same again.
  void run(const Item& item, const Item& next) {
    const bool few = item.rows * g_.heads() <= kFewQueries;
    Tile tile = few ? few_queries(item) : many_queries(item);
    if (few) {
      add_pages_to_few(item, tile);
    } else {
      const std::int64_t pages = item.end_page - item.first_page;
      std::int64_t asked = 0;
      for (std::int64_t n = item.first_page; n < item.end_page; ++n) {
        const std::int64_t rows = next.rows * (n + 1 - item.first_page) / pages;
        for (; asked < rows; ++asked) prefetch_queries(next, asked);
        add_page_to_lanes(g_, tile, n * g_.page_tokens, a_.page(item.row, n, item.kv_head),
                          ahead_.next(), page_);
      }
      // What is left of the transposed queries makes room for the transposed output.
      transpose_output(tile);
    }
    write(item, tile);
  }

 private:
  Tile begin(const Item& item) const {
    const AttentionScratch& at = layout_;
    const std::int64_t count = item.rows * g_.heads();
    const std::int64_t lanes = AttentionScratch::padded(count);
    const Tile tile{item.rows,
                    a_.positions[item.row],
                    count,
                    lanes,
                    scratch_ + at.queries,
                    scratch_ + at.scores,
                    scratch_ + at.mixed,
                    scratch_ + at.largest,
                    scratch_ + at.sums,
                    scratch_ + at.corrections,
                    scratch_ + at.begins,
                    scratch_ + at.ends};
    for (std::int64_t q = 0; q < lanes; q += kLanes) {
      store(tile.largest + q, broadcast(-kInfinity));
      store(tile.sums + q, zeros());
    }
    return tile;
  }

  // The first query of one of the tile's rows; the row's others follow.
  const float* query(const Item& item, std::int64_t row) const {
    return a_.qkv + (item.row + row) * g_.row_elements() + item.kv_head * g_.heads() * g_.head_dim;
  }

  void prefetch_queries(const Item& item, std::int64_t row) const {
    const float* from = query(item, row);
    for (std::int64_t i = 0; i < g_.heads() * g_.head_dim; i += kLanes) prefetch(from + i);
  }

  Tile few_queries(const Item& item) const {
    Tile tile = begin(item);
    const std::int64_t count = tile.count * g_.head_dim;
    for (std::int64_t i = 0; i < count; i += kLanes) store(tile.mixed + i, zeros());
    if (tile.rows == 1) {
      tile.queries = query(item, 0);
      return tile;
    }
    float* copy = scratch_ + layout_.queries;
    const std::int64_t piece = g_.heads() * g_.head_dim;
    for (std::int64_t r = 0; r < tile.rows; ++r, copy += piece) {
      const float* from = query(item, r);
      for (std::int64_t i = 0; i < piece; i += kLanes) {
        store_up_to(copy + i, load_up_to(from + i, piece - i), piece - i);
      }
    }
    return tile;
  }

  Tile many_queries(const Item& item) const {
    const Tile tile = begin(item);
    float* out = scratch_ + layout_.queries;
    for (std::int64_t i = 0; i < g_.head_dim * tile.lanes; i += kLanes) {
      store(tile.mixed + i, zeros());
    }
    const float* rows[kLanes];
    const float* next = query(item, 0);
    std::int64_t head = 0;
    for (std::int64_t q = 0; q < tile.lanes; q += kLanes) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        // Lanes past the last query take part with another one's elements; nobody reads them.
        rows[i] = q + i < tile.count ? next : rows[0];
        next += g_.head_dim;
        if (++head == g_.heads()) {
          head = 0;
          next += g_.row_elements() - g_.heads() * g_.head_dim;
        }
      }
      std::int64_t d = 0;
      for (; d + kLanes <= g_.head_dim; d += kLanes) {
        transpose_block([&](int i) { return rows[i] + d; }, out + d * tile.lanes + q, tile.lanes);
      }
      for (; d < g_.head_dim; ++d) {
        for (int i = 0; i < kLanes; ++i) out[d * tile.lanes + q + i] = rows[i][d];
      }
    }
    return tile;
  }

  // [head_dim][lanes] to [queries][head_dim], by way of the queries' room.
  void transpose_output(Tile& tile) const {
    float* out = scratch_ + layout_.queries;
    for (std::int64_t q = 0; q < tile.lanes; q += kLanes) {
      std::int64_t d = 0;
      for (; d + kLanes <= g_.head_dim; d += kLanes) {
        const float* block = tile.mixed + d * tile.lanes + q;
        transpose_block([&](int i) { return block + i * tile.lanes; }, out + q * g_.head_dim + d,
                        g_.head_dim);
      }
      for (; d < g_.head_dim; ++d) {
        for (int i = 0; i < kLanes; ++i) {
          out[(q + i) * g_.head_dim + d] = tile.mixed[d * tile.lanes + q + i];
        }
      }
    }
    tile.mixed = out;
  }

  // Scores of a page are computed between the softmax of the page before it and its mix, which
  // then needn't wait for that softmax. Keys are prefetched as the keys before them are read, and
  // values likewise: all at once would fill the core's miss buffers and leave them idle after.
  void add_pages_to_few(const Item& item, const Tile& tile) {
    if (item.first_page == item.end_page) return;
    float* scores = tile.scores;
    float* other = scores + kFewQueries * g_.padded_page_tokens;
    PageElements elements = a_.page(item.row, item.first_page, item.kv_head);
    PageElements ahead = ahead_.next();
    score_few(g_, tile, elements, ahead, 0, page_, scores);
    for (std::int64_t n = item.first_page; n < item.end_page; ++n) {
      const QuerySpans spans = query_spans(g_, tile, n * g_.page_tokens);
      const PageElements now = elements;
      // What is prefetched with the softmax.
      const std::int64_t asked = g_.page_elements() / 4;
      if (n + 1 < item.end_page) {
        elements = a_.page(item.row, n + 1, item.kv_head);
        ahead = ahead_.next();
        softmax_step(g_, tile, spans, ahead.keys, asked, scores);
        score_few(g_, tile, elements, ahead, asked, page_, other);
        mix_few(g_, tile, spans, now, elements.keys != nullptr ? elements : ahead, page_, scores);
      } else {
        softmax_step(g_, tile, spans, ahead.values, asked, scores);
        mix_few(g_, tile, spans, now, ahead, page_, scores);
      }
      float* const used = scores;
      scores = other;
      other = used;
    }
  }

  void write(const Item& item, const Tile& tile) const {
    const std::int64_t heads = g_.heads();
    const std::int64_t width = g_.q_heads * g_.head_dim;
    const std::int64_t piece = heads * g_.head_dim;
    for (std::int64_t q = 0; q < tile.count; ++q) {
      const float sum = tile.sums[q];
      const Floats factor = broadcast(sum == 0.0f ? 0.0f : 1.0f / sum);
      float* mixed = tile.mixed + q * g_.head_dim;
      for (std::int64_t d = 0; d < g_.head_dim; d += kLanes) {
        const std::int64_t count = g_.head_dim - d;
        store_up_to(mixed + d, load_up_to(mixed + d, count) * factor, count);
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
  const AttentionScratch layout_;
  float* scratch_;
  float* page_;
  PagesAhead ahead_;
};

}  // namespace

void run_attention(const Launch& launch, const Piece& piece) {
  const Attention attention(launch, kTileQueries);
  Items items(attention, piece);
  Item item;
  if (!items.next(item)) return;
  TileRun tiles(attention, piece);
  for (Item next = item; items.next(next); item = next) tiles.run(item, next);
  tiles.run(item, item);
}

}  // namespace helios::HELIOS_ISA
