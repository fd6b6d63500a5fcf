// Products of activation rows with tiles of 16 outputs, a class a packing: those of floats here, the
// quantised ones in block_products.h and q6_k_products.h. A tile product keeps
// one accumulator a (row, output), lanes being outputs, and adds k in ascending order with one
// formula, so its bits don't depend on how many rows or tiles are computed together. The drivers
// in tile_driver.h choose those numbers.
#pragma once

#include "../layouts.h"
#include "vector.h"

namespace helios::HELIOS_ISA {

// A packed matrix. `tiles` is the number of tiles; planes follow each other over all of them.
struct TileMatrix {
  const std::byte* base;
  std::int64_t tiles;
  std::int64_t width;
  Packing packing;
};

// Activation rows that follow each other in memory.
struct ActivationRows {
  const std::byte* first;
  std::int64_t nbytes;  // of each
};

// Their addresses.
template <int Rows>
struct RowAddresses {
  const std::byte* row[Rows];

  HELIOS_INLINE explicit RowAddresses(const ActivationRows& rows) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) row[r] = rows.first + r * rows.nbytes;
  }
  HELIOS_INLINE const std::byte* at(int r) const { return row[r]; }
};

// Which of `count` shares of the tiles that come next a product asks for while it computes, so that
// they arrive from memory during the arithmetic of all row blocks and not of the first one alone.
struct Ahead {
  int index;
  int count;
  int tiles;  // from the first of the current tiles to the first of the next
};

template <int Rows, int Tiles>
using Sums = Floats[Rows][Tiles];

struct ProductF32 {
  static constexpr int kRows = kFloatRows;
  static constexpr int tiles(int rows) { return float_tiles(rows); }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead&,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const auto* w = reinterpret_cast<const float*>(matrix.base) + tile * matrix.width * 16;
    for (std::int64_t k = 0; k < matrix.width; ++k) {
      Floats x[Rows];
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        x[r] = broadcast(reinterpret_cast<const float*>(rows.at(r))[k]);
      }
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        const Floats weight = load(w + (t * matrix.width + k) * 16);
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) sums[r][t] = fused(weight, x[r], sums[r][t]);
      }
    }
  }
};

struct ProductF16 {
  static constexpr int kRows = kFloatRows;
  static constexpr int tiles(int rows) { return float_tiles(rows); }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead&,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const auto* w =
        reinterpret_cast<const std::uint16_t*>(matrix.base) + tile * matrix.width * 16;
    for (std::int64_t k = 0; k < matrix.width; ++k) {
      Floats x[Rows];
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        x[r] = broadcast(reinterpret_cast<const float*>(rows.at(r))[k]);
      }
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        const Floats weight = load_f16(w + (t * matrix.width + k) * 16);
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) sums[r][t] = fused(weight, x[r], sums[r][t]);
      }
    }
  }
};

// bf16 weights with f32 activations.
struct ProductBf16F32 {
  static constexpr int kRows = kFloatRows;
  static constexpr int tiles(int rows) { return float_tiles(rows); }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead&,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const auto* w =
        reinterpret_cast<const std::uint16_t*>(matrix.base) + tile * matrix.width * 16;
    for (std::int64_t k = 0; k < matrix.width; k += 2) {
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        const Pairs pair = load_pairs(w + (t * matrix.width + k) * 16);
        const Floats even = even_of(pair);
        const Floats odd = odd_of(pair);
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) {
          const auto* x = reinterpret_cast<const float*>(rows.at(r)) + k;
          sums[r][t] = fused(even, broadcast(x[0]), sums[r][t]);
          sums[r][t] = fused(odd, broadcast(x[1]), sums[r][t]);
        }
      }
    }
  }
};

// bf16 weights with bf16 activations.
struct ProductBf16 {
  static constexpr int kRows = kFloatRows;
  static constexpr int tiles(int rows) { return float_tiles(rows); }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead&,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const auto* w =
        reinterpret_cast<const std::uint16_t*>(matrix.base) + tile * matrix.width * 16;
    for (std::int64_t k = 0; k < matrix.width; k += 2) {
      Pairs pairs[Tiles];
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) pairs[t] = load_pairs(w + (t * matrix.width + k) * 16);
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const PairBroadcast x =
            broadcast_pair(reinterpret_cast<const std::uint16_t*>(rows.at(r)) + k);
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) sums[r][t] = dot_pairs(sums[r][t], pairs[t], x);
      }
    }
  }
};

}  // namespace helios::HELIOS_ISA
