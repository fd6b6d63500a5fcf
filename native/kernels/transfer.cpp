// Copies inside persistent storage: `save_page` and `load_page` between a slot's page and a saved
// row, `copy_rows` between rows of one buffer.
//
// Each piece copies its share of the bytes of every row, in row order. So rows that name the same
// place are applied one after the other whatever the number of pieces.
#include <cstring>

#include "../catalogue.h"
#include "../layouts.h"
#include "host_kernels.h"

namespace helios {
namespace {

// Fixed-size pieces of one operand.
struct Blocks {
  std::byte* first;
  std::int64_t nbytes;  // of one
  std::int64_t count;

  Blocks(const Launch& launch, int operand, std::int64_t elements, std::int64_t dtype)
      : first(launch.write<std::byte>(operand)),
        nbytes(elements * element_nbytes(dtype)),
        count(static_cast<std::int64_t>(launch.nbytes[operand] /
                                        static_cast<std::uint64_t>(nbytes))) {}

  bool holds(std::int64_t index) const { return index >= 0 && index < count; }
  std::byte* at(std::int64_t index, std::int64_t byte) const {
    return first + index * nbytes + byte;
  }
};

enum class Direction { kSave, kLoad };

void copy_pages(const Launch& launch, const Piece& piece, int plane, int saved,
                Direction direction) {
  using namespace save_page;
  const std::int64_t page_tokens = launch.integer(kPageTokens);
  const std::int64_t table_pages = launch.integer(kTablePages);
  const Blocks pages(launch, plane, launch.integer(kElements), launch.integer(kDtype));
  const Blocks rows(launch, saved, launch.integer(kElements), launch.integer(kDtype));
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* endpoints = launch.read<std::int32_t>(kEndpoint);
  const auto* destinations = launch.read<std::int32_t>(kRow);
  const auto* table = launch.read<std::int32_t>(kPageTable);
  const std::int64_t slot_count =
      static_cast<std::int64_t>(launch.nbytes[kPageTable] / 4) / table_pages;
  const Range bytes = piece.share(pages.nbytes);
  const auto size = static_cast<std::size_t>(bytes.end - bytes.begin);
  const std::int64_t live = launch.rows();
  for (std::int64_t r = 0; r < live; ++r) {
    const std::int64_t endpoint = endpoints[r];
    const std::int64_t column = endpoint / page_tokens;
    if (endpoint <= 0 || endpoint % page_tokens == 0 || column >= table_pages) continue;
    if (slots[r] < 0 || slots[r] >= slot_count || !rows.holds(destinations[r])) continue;
    const std::int64_t page = table[slots[r] * table_pages + column];
    if (!pages.holds(page)) continue;
    std::byte* in_cache = pages.at(page, bytes.begin);
    std::byte* in_row = rows.at(destinations[r], bytes.begin);
    // Operands of a hostile program may overlap.
    if (direction == Direction::kSave) {
      std::memmove(in_row, in_cache, size);
    } else {
      std::memmove(in_cache, in_row, size);
    }
  }
}

}  // namespace

void run_save_page(const Launch& launch, const Piece& piece) {
  copy_pages(launch, piece, save_page::kPlane, save_page::kSaved, Direction::kSave);
}

void run_load_page(const Launch& launch, const Piece& piece) {
  copy_pages(launch, piece, load_page::kPlane, load_page::kSaved, Direction::kLoad);
}

void run_copy_rows(const Launch& launch, const Piece& piece) {
  using namespace copy_rows;
  const Blocks rows(launch, kBuffer, launch.integer(kElements), launch.integer(kDtype));
  const auto* sources = launch.read<std::int32_t>(kSource);
  const auto* destinations = launch.read<std::int32_t>(kDestination);
  const Range bytes = piece.share(rows.nbytes);
  const auto size = static_cast<std::size_t>(bytes.end - bytes.begin);
  const std::int64_t live = launch.rows();
  for (std::int64_t r = 0; r < live; ++r) {
    if (!rows.holds(destinations[r]) || sources[r] == destinations[r]) continue;
    std::byte* destination = rows.at(destinations[r], bytes.begin);
    if (rows.holds(sources[r])) {
      std::memcpy(destination, rows.at(sources[r], bytes.begin), size);
    } else {
      std::memset(destination, 0, size);
    }
  }
}

}  // namespace helios
