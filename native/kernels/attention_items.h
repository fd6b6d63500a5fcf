// An attention launch as a kernel walks it: its operands, its items (query tiles, each with one
// key/value head), and the pages that a piece will read. Used by attention.cpp and
// attention_bf16.cpp, whose operands and attributes are the same.
#pragma once

#include "../catalogue.h"
#include "../layouts.h"
#include "attention_tile.h"
#include "paging.h"

namespace helios::HELIOS_ISA {

struct Attention {
  const Launch& launch;
  Geometry g;
  std::int64_t most_rows;  // of a tile
  PageTable table;
  Format format;
  const float* qkv;
  const std::int32_t* positions;
  const std::int32_t* slots;
  const std::uint16_t* keys;
  const std::uint16_t* values;

  Attention(const Launch& source, std::int64_t tile_queries)
      : launch(source),
        g{source.integer(attention::kQHeads),
          source.integer(attention::kKvHeads),
          source.integer(attention::kHeadDim),
          source.integer(attention::kPageTokens),
          AttentionScratch::padded(source.integer(attention::kPageTokens)),
          source.integer(attention::kWindow),
          source.real(attention::kScale)},
        most_rows(tile_rows_of(tile_queries, g.heads())),
        table(page_table(source, attention::kPageTable, attention::kKPlane, attention::kVPlane,
                         g.kv_heads * g.head_dim, g.page_tokens,
                         source.integer(attention::kTablePages))),
        format(static_cast<Format>(source.integer(attention::kFormat))),
        qkv(source.read<float>(attention::kQkv)),
        positions(source.read<std::int32_t>(attention::kPositions)),
        slots(source.read<std::int32_t>(attention::kSlot)),
        keys(source.read<std::uint16_t>(attention::kKPlane)),
        values(source.read<std::uint16_t>(attention::kVPlane)) {}

  // Whether the row attends to anything: its slot and position lie inside the page table.
  bool live(std::int64_t row) const {
    return positions[row] >= 0 && positions[row] < table.pages_per_slot * g.page_tokens &&
           slots[row] >= 0 && slots[row] < table.slots;
  }

  // Rows of the tile that starts at `row`.
  std::int64_t tile_rows(std::int64_t row, std::int64_t rows) const {
    std::int64_t count = 1;
    if (!live(row)) return count;
    while (count < most_rows && row + count < rows && live(row + count) &&
           slots[row + count] == slots[row] &&
           positions[row + count] == positions[row] + count) {
      ++count;
    }
    return count;
  }

  PageElements page(std::int64_t row, std::int64_t n, std::int64_t kv_head) const {
    const std::int64_t id = table.page_of(slots[row], n);
    if (id < 0) return {nullptr, nullptr};
    const std::int64_t base = (id * g.kv_heads + kv_head) * g.page_elements();
    return {keys + base, values + base};
  }
};

// A tile's place in the launch: rows of one slot and one key/value head, and the pages that the
// rows attend to, [first_page, end_page).
struct Item {
  std::int64_t row;
  std::int64_t rows;
  std::int64_t kv_head;
  std::int64_t first_page;
  std::int64_t end_page;
};

// Walks the items of a piece in order. They are dealt out there and back, since the later ones of a
// prompt have more pages.
class Items {
 public:
  Items(const Attention& attention, const Piece& piece)
      : attention_(attention), piece_(piece), rows_(attention.launch.rows()),
        head_(attention.g.kv_heads) {}

  // The next item of the piece; false where there is none left.
  bool next(Item& item) {
    for (;;) {
      if (++head_ >= attention_.g.kv_heads) {
        row_ += tile_rows_;
        if (row_ >= rows_) return false;
        tile_rows_ = attention_.tile_rows(row_, rows_);
        head_ = 0;
      }
      ++index_;
      const std::int64_t turn = index_ % piece_.count;
      const bool back = index_ / piece_.count % 2 != 0;
      if ((back ? piece_.count - 1 - turn : turn) == piece_.index) break;
    }
    item = {row_, tile_rows_, head_, 0, 0};
    if (!attention_.live(row_)) return true;
    const std::int64_t position = attention_.positions[row_];
    item.first_page = attention_.g.oldest(position) / attention_.g.page_tokens;
    item.end_page = (position + tile_rows_ - 1) / attention_.g.page_tokens + 1;
    return true;
  }

 private:
  const Attention& attention_;
  const Piece& piece_;
  std::int64_t rows_;
  std::int64_t row_ = 0;
  std::int64_t tile_rows_ = 0;
  std::int64_t head_;
  std::int64_t index_ = -1;
};

// The pages that a piece will read, in order: what a later step reads is prefetched. Pages lie
// anywhere, so the hardware can't guess them.
class PagesAhead {
 public:
  PagesAhead(const Attention& attention, const Piece& piece)
      : attention_(attention),
        items_(attention, piece),
        page_{attention.keys, attention.values} {}

  // The next page, or where there is none the last one again.
  const PageElements& next() {
    while (n_ >= item_.end_page) {
      if (!items_.next(item_)) return page_;
      n_ = item_.first_page;
    }
    const PageElements page = attention_.page(item_.row, n_++, item_.kv_head);
    if (page.keys != nullptr) page_ = page;
    return page_;
  }

 private:
  const Attention& attention_;
  Items items_;
  Item item_{};
  std::int64_t n_ = 0;
  PageElements page_;
};

}  // namespace helios::HELIOS_ISA
