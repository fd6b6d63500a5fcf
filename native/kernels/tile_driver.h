// Runs tile products over all rows of an activation matrix: splits rows into blocks and outputs
// into groups of up to four tiles, divides both over the pool's workers, and hands each block of
// sums to an epilogue. Called by `linear` and `linear_silu_mul`; which blocking is fastest is what
// their `tune_*` kernels measure.
#pragma once

#include "../launch.h"
#include "block_products.h"
#include "pair_products.h"
#include "q6_k_products.h"
#include "tile_products.h"

namespace helios::HELIOS_ISA {

// Tiles that are divided over workers together: four, or the epilogue's unit where that is more.
inline constexpr int kGroupTiles = 4;
inline constexpr int kMaximumTiles = 8;
inline constexpr int kMaximumRows = 8;
// Rows that are finished together where an epilogue takes many tiles: these would leave the nearest
// cache before the next row block.
inline constexpr int kFinishRows = 16;

// Where a row block's sums go: tile after tile from `at`, rows `stride` floats apart; written, or
// added to what is there.
struct SumRows {
  float* at;
  std::int64_t stride;
  bool accumulate;
};

// Sums of one row block or more and a group of tiles: [row][tile][output].
struct alignas(64) GroupSums {
  float at[kFinishRows][kMaximumTiles][kTileOutputs];

  HELIOS_INLINE SumRows rows() { return {at[0][0], kMaximumTiles * kTileOutputs, false}; }
};

using MultiplyFunction = void (*)(const TileMatrix&, std::int64_t tile, const ActivationRows& rows,
                                  const Ahead& ahead, const SumRows& out);

// One packing's products: by number of rows, for 1, 2 and 4 tiles; null where a packing takes
// several smaller steps instead.
struct TileProduct {
  int maximum_rows;
  MultiplyFunction by_tiles[kMaximumRows + 1][3];
};

template <class Product, int Rows, int Tiles>
void multiply(const TileMatrix& matrix, std::int64_t tile, const ActivationRows& rows,
              const Ahead& ahead, const SumRows& out) {
  Sums<Rows, Tiles> sums;
  HELIOS_UNROLL
  for (int r = 0; r < Rows; ++r) {
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) sums[r][t] = zeros();
  }
  Product::template add<Rows, Tiles>(matrix, tile, rows, ahead, sums);
  if (out.accumulate) {
    HELIOS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        sums[r][t] = load(out.at + r * out.stride + t * kTileOutputs) + sums[r][t];
      }
    }
  }
  HELIOS_UNROLL
  for (int r = 0; r < Rows; ++r) {
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) store(out.at + r * out.stride + t * kTileOutputs, sums[r][t]);
  }
}

template <class Product, int Rows>
constexpr void fill_rows(TileProduct& table) {
  constexpr int kTiles = Product::tiles(Rows);
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
    case Packing::kTile16Q4Pairs: return kTileProduct<ProductPairs>;
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

// The widest step, as a power of two, in which a product takes `tiles` tiles of `rows` rows.
HELIOS_INLINE int widest_step(const TileProduct& product, int rows, int tiles) {
  int step = tiles >= 4 ? 2 : tiles >= 2 ? 1 : 0;
  while (product.by_tiles[rows][step] == nullptr) --step;
  return step;
}

// Rows from which on a pass over the matrix is divided over rows as well as outputs: with this many,
// loading a group's weights again for each chunk costs little, and pieces come out even.
inline constexpr std::int64_t kChunkRows = 64;
// Weights of at most so many bytes are read again for each chunk of rows, so that a worker meets few
// rows, and those that it wrote in the launch before; of more, all rows pass over a group at a time.
inline constexpr std::int64_t kNearNbytes = 2 << 20;

// Runs an epilogue for all row blocks and tiles of this piece's share: for each first
// `epilogue.begin(first_row, rows, first_tile, tiles, sums)`, which says where the sums go and may
// ask for that memory; then, with the same arguments, `epilogue.finish`. Blocks start at multiples
// of `unit` tiles (1, 2, 4 or 8) and hold at least `unit`, at most a group; so small that the
// processor writes one block's outputs while it computes the next.
template <class Epilogue>
HELIOS_INLINE void for_each_group(const TileProduct& product, const TileMatrix& matrix,
                                  const ActivationMatrix& x, int unit, const Piece& piece,
                                  const Blocking& blocking, const Epilogue& epilogue) {
  const int group = unit > kGroupTiles ? unit : kGroupTiles;
  GroupSums sums;
  // One block of rows, tiles [tile, tile + tiles).
  const auto block = [&](std::int64_t row, int rows, std::int64_t tile, int tiles,
                         const Ahead& ahead) {
    const SumRows out = epilogue.begin(row, rows, tile, tiles, sums);
    const ActivationRows those{x.base + row * x.row_nbytes, x.row_nbytes};
    for (int t = 0; t < tiles;) {
      const int step = widest_step(product, rows, blocking.wide ? tiles - t : 1);
      product.by_tiles[rows][step](matrix, tile + t, those, ahead,
                                   {out.at + t * kTileOutputs, out.stride, out.accumulate});
      t += 1 << step;
    }
    epilogue.finish(row, rows, tile, tiles, sums);
  };
  // All tiles of a wide epilogue and any rows: a few tiles at a time meet the row blocks that are
  // finished together.
  const auto run_wide = [&](std::int64_t tile, int tiles, std::int64_t row, std::int64_t end_row) {
    while (row < end_row) {
      const std::int64_t left = end_row - row;
      const std::int64_t parts = ceil_divide(left, kFinishRows);
      const int rows = static_cast<int>(ceil_divide(left, parts));
      const int blocks = static_cast<int>(ceil_divide(rows, blocking.rows));
      const SumRows out = epilogue.begin(row, rows, tile, tiles, sums);
      const int step = widest_step(product, rows / blocks, blocking.wide ? tiles : 1);
      const int some = 1 << step;
      for (int t = 0; t < tiles; t += some) {
        int first = 0;
        for (int i = 0; i < blocks; ++i) {
          const int count = rows / blocks + (i < rows % blocks ? 1 : 0);
          const ActivationRows those{x.base + (row + first) * x.row_nbytes, x.row_nbytes};
          float* at = out.at + first * out.stride + t * kTileOutputs;
          for (int u = 0; u < some;) {
            const int narrower = widest_step(product, count, blocking.wide ? some - u : 1);
            product.by_tiles[count][narrower](matrix, tile + t + u, those, {i, blocks, some},
                                              {at + u * kTileOutputs, out.stride, false});
            u += 1 << narrower;
          }
          first += count;
        }
      }
      epilogue.finish(row, rows, tile, tiles, sums);
      row += rows;
    }
  };
  // Up to a group of tiles and any rows, in row blocks of even size. All rows pass over the tiles
  // of one step before the next one, so that its weights are read from the nearest cache.
  const auto run = [&](std::int64_t tile, std::int64_t end_tile, std::int64_t row,
                       std::int64_t end_row) {
    if (unit > kGroupTiles) {
      run_wide(tile, static_cast<int>(end_tile - tile), row, end_row);
      return;
    }
    const std::int64_t rows = end_row - row;
    const std::int64_t blocks = ceil_divide(rows, blocking.rows);
    const int least = static_cast<int>(rows / blocks);
    const std::int64_t larger = rows % blocks;
    while (tile < end_tile) {
      const int left = static_cast<int>(end_tile - tile);
      // The smallest blocks take the widest steps.
      const int widest = 1 << widest_step(product, least, blocking.wide ? left : 1);
      const int least_tiles = unit > kPassTiles ? unit : left < kPassTiles ? left : kPassTiles;
      const int tiles = widest > least_tiles ? widest : least_tiles;
      std::int64_t first = row;
      for (std::int64_t i = 0; i < blocks; ++i) {
        const int count = least + (i < larger ? 1 : 0);
        block(first, count, tile, tiles, {static_cast<int>(i), static_cast<int>(blocks), tiles});
        first += count;
      }
      tile += tiles;
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
      for (std::int64_t tile = share.begin * step; tile < end; tile += group) {
        run(tile, smaller(tile + group, end), first, first + rows);
      }
      return;
    }
    const std::int64_t chunks = ceil_divide(rows, kChunkRows);
    const std::int64_t groups = ceil_divide(matrix.tiles, group);
    const bool by_rows = matrix.tiles * tile_nbytes(matrix.packing, matrix.width) <= kNearNbytes;
    const Range share = piece.share(groups * chunks);
    for (std::int64_t item = share.begin; item < share.end; ++item) {
      const std::int64_t tile = (by_rows ? item % groups : item / chunks) * group;
      const std::int64_t chunk = by_rows ? item / groups : item % chunks;
      run(tile, smaller(tile + group, matrix.tiles), first + rows * chunk / chunks,
          first + rows * (chunk + 1) / chunks);
    }
  };
  const std::int64_t panel = blocking.panel > 0 ? blocking.panel : x.rows;
  for (std::int64_t first = 0; first < x.rows; first += panel) {
    pass(first, smaller(panel, x.rows - first));
  }
}

}  // namespace helios::HELIOS_ISA
