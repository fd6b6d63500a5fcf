// Checked look-ups in the page table, shared by `rope_and_cache` and `attention`.
#pragma once

#include "../launch.h"
#include "vector.h"

namespace helios::HELIOS_ISA {

struct PageTable {
  const std::int32_t* entries;
  std::int64_t slots;
  std::int64_t pages_per_slot;
  std::int64_t page_count;  // of the smaller of the two planes

  // The page id of a slot's n-th page; -1 where slot, n or the id is out of range.
  HELIOS_INLINE std::int64_t page_of(std::int64_t slot, std::int64_t n) const {
    if (slot < 0 || slot >= slots || n < 0 || n >= pages_per_slot) return -1;
    const std::int32_t id = entries[slot * pages_per_slot + n];
    return id < 0 || id >= page_count ? -1 : id;
  }
};

// `heads_width` is the number of elements of one token in a plane.
inline PageTable page_table(const Launch& launch, int table, int k_plane, int v_plane,
                            std::int64_t heads_width, std::int64_t page_tokens,
                            std::int64_t table_pages) {
  const std::uint64_t smaller = launch.nbytes[k_plane] < launch.nbytes[v_plane]
                                    ? launch.nbytes[k_plane]
                                    : launch.nbytes[v_plane];
  const auto page_nbytes = static_cast<std::uint64_t>(2 * heads_width * page_tokens);
  return {launch.read<std::int32_t>(table),
          static_cast<std::int64_t>(launch.nbytes[table] / 4) / table_pages, table_pages,
          static_cast<std::int64_t>(smaller / page_nbytes)};
}

}  // namespace helios::HELIOS_ISA
