// Runs tile products over all rows of an activation matrix: splits rows into blocks and outputs
// into groups of up to four tiles, divides both over the pool's workers, and hands each block of
// sums to an epilogue. Called by `linear` and `linear_silu_mul`; which blocking is fastest is what
// their `tune_*` kernels measure.
#pragma once

#include "../launch.h"
#include "tile_products.h"

namespace helios::HELIOS_ISA {

inline constexpr int kGroupTiles = 4;
inline constexpr int kMaximumRows = 8;

// Sums of a row block and a group of tiles: [row][tile][output].
struct alignas(64) GroupSums {
  float at[kMaximumRows][kGroupTiles][kTileOutputs];
};

using MultiplyFunction = void (*)(const TileMatrix&, std::int64_t tile,
                                  const std::byte* const* rows, GroupSums& sums, int first);

// One packing's products: by number of rows, for 1, 2 and 4 tiles; null where a packing takes
// several smaller steps instead.
struct TileProduct {
  int maximum_rows;
  MultiplyFunction by_tiles[kMaximumRows + 1][3];
};

template <class Product, int Rows, int Tiles>
void multiply(const TileMatrix& matrix, std::int64_t tile, const std::byte* const* rows,
              GroupSums& out, int first) {
  Sums<Rows, Tiles> sums;
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) sums[r][t] = zeros();
  }
  Product::template add<Rows, Tiles>(matrix, tile, rows, sums);
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) store(out.at[r][first + t], sums[r][t]);
  }
}

template <class Product, int Rows>
constexpr void fill_rows(TileProduct& table) {
  constexpr int kTiles = Rows == 1 ? Product::kSingleRowTiles : Product::kTiles;
  table.by_tiles[Rows][0] = multiply<Product, Rows, 1>;
  if constexpr (kTiles >= 2) table.by_tiles[Rows][1] = multiply<Product, Rows, 2>;
  if constexpr (kTiles >= 4) table.by_tiles[Rows][2] = multiply<Product, Rows, 4>;
  if constexpr (Rows > 1) fill_rows<Product, Rows - 1>(table);
}

template <class Product>
constexpr TileProduct make_tile_product() {
  TileProduct table{};
  table.maximum_rows = Product::kRows;
  fill_rows<Product, Product::kRows>(table);
  return table;
}

template <class Product>
inline constexpr TileProduct kTileProduct = make_tile_product<Product>();

template <int Planes>
const TileProduct& quantised_product(Packing packing) {
  switch (packing) {
    case Packing::kTile16Q8_0: return kTileProduct<ProductBlocks<LayoutQ8_0, Planes>>;
    case Packing::kTile16Q4_0: return kTileProduct<ProductBlocks<LayoutQ4_0, Planes>>;
    case Packing::kTile16Q4_1: return kTileProduct<ProductBlocks<LayoutQ4_1, Planes>>;
    default: return kTileProduct<ProductQ6_K<Planes>>;
  }
}

inline const TileProduct& tile_product(Packing packing, Format format) {
  switch (packing) {
    case Packing::kTile16F32: return kTileProduct<ProductF32>;
    case Packing::kTile16F16: return kTileProduct<ProductF16>;
    case Packing::kTile16Bf16:
      return format == Format::kBf16 ? kTileProduct<ProductBf16> : kTileProduct<ProductBf16F32>;
    default:
      return format == Format::kQ8 ? quantised_product<1>(packing) : quantised_product<2>(packing);
  }
}

struct ActivationMatrix {
  const std::byte* base;
  std::int64_t rows;
  std::int64_t row_nbytes;
};

// How a product walks a matrix. Bits don't depend on it (tile_products.h), speed does: on the shape,
// the number of rows and the machine.
struct Blocking {
  int rows;            // rows computed together
  bool wide;           // several tiles computed together where the product can, else one
  std::int64_t panel;  // rows that pass over the matrix together; 0: all
};

// The blockings that a `tuning` operand can name, as docs/kernels.md numbers them. Append-only; what
// is out of range means 0.
inline constexpr std::int32_t kBlockings = 6;

HELIOS_INLINE Blocking blocking(const TileProduct& product, std::int32_t choice) {
  const int most = product.maximum_rows;
  switch (choice) {
    case 1: return {most, false, 0};
    case 2: return {most > 1 ? most / 2 : 1, true, 0};
    case 3: return {1, true, 0};
    case 4: return {most, true, 32};
    case 5: return {most, true, 128};
    default: return {most, true, 0};
  }
}

// One row block and one group of tiles, in the widest steps that packing and blocking have.
HELIOS_INLINE void multiply_group(const TileProduct& product, const TileMatrix& matrix,
                                  const std::byte* const* rows, int row_count, bool wide,
                                  std::int64_t tile, int tiles, GroupSums& sums) {
  const MultiplyFunction* by_tiles = product.by_tiles[row_count];
  int t = 0;
  for (int step = wide ? 2 : 0; step >= 0; --step) {
    if (by_tiles[step] == nullptr) continue;
    for (; t + (1 << step) <= tiles; t += 1 << step) {
      by_tiles[step](matrix, tile + t, rows, sums, t);
    }
  }
}

// Rows from which on a pass over the matrix is divided over rows as well as outputs: with this many,
// loading a group's weights again for each chunk costs little, and pieces come out even.
inline constexpr std::int64_t kChunkRows = 64;

// Calls `epilogue(first_row, rows, first_tile, tiles, sums)` for every row block and group of
// tiles of this piece's share. Groups start at multiples of `unit` tiles (1, 2 or 4) and hold up
// to kGroupTiles.
template <class Epilogue>
HELIOS_INLINE void for_each_group(const TileProduct& product, const TileMatrix& matrix,
                                  const ActivationMatrix& x, int unit, const Piece& piece,
                                  const Blocking& blocking, const Epilogue& epilogue) {
  GroupSums sums;
  const auto run = [&](std::int64_t tile, std::int64_t end_tile, std::int64_t row,
                       std::int64_t end_row) {
    const int tiles = static_cast<int>(end_tile - tile);
    for (; row < end_row; row += blocking.rows) {
      const int rows = static_cast<int>(
          end_row - row < blocking.rows ? end_row - row : std::int64_t{blocking.rows});
      const std::byte* pointers[kMaximumRows];
      for (int r = 0; r < rows; ++r) pointers[r] = x.base + (row + r) * x.row_nbytes;
      multiply_group(product, matrix, pointers, rows, blocking.wide, tile, tiles, sums);
      epilogue(row, rows, tile, tiles, sums);
    }
  };
  const auto smaller = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };

  // One pass over the matrix.
  const auto pass = [&](std::int64_t first, std::int64_t rows) {
    if (rows <= kChunkRows) {
      // Several rows at a time need two tiles for each step to keep the multipliers busy.
      const int step = rows > 1 && unit < 2 ? 2 : unit;
      const Range share = piece.share(ceil_divide(matrix.tiles, step));
      const std::int64_t end = smaller(share.end * step, matrix.tiles);
      for (std::int64_t tile = share.begin * step; tile < end; tile += kGroupTiles) {
        run(tile, smaller(tile + kGroupTiles, end), first, first + rows);
      }
      return;
    }
    const std::int64_t row_blocks = ceil_divide(rows, blocking.rows);
    const std::int64_t chunks = ceil_divide(rows, kChunkRows);
    const Range share = piece.share(ceil_divide(matrix.tiles, kGroupTiles) * chunks);
    for (std::int64_t item = share.begin; item < share.end; ++item) {
      const std::int64_t tile = item / chunks * kGroupTiles;
      const std::int64_t chunk = item % chunks;
      run(tile, smaller(tile + kGroupTiles, matrix.tiles),
          first + row_blocks * chunk / chunks * blocking.rows,
          first + smaller(row_blocks * (chunk + 1) / chunks * blocking.rows, rows));
    }
  };
  const std::int64_t panel = blocking.panel > 0 ? blocking.panel : x.rows;
  for (std::int64_t first = 0; first < x.rows; first += panel) {
    pass(first, smaller(panel, x.rows - first));
  }
}

}  // namespace helios::HELIOS_ISA
