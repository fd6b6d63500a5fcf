// Products of activation rows with tiles of 16 outputs, a class a packing. A tile product keeps
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

// An activation row of `Planes` int8 planes: q8 has one, q16 two (high bytes, then low bytes).
template <int Planes>
struct QuantisedRow {
  const std::int8_t* q;
  const float* scales;
  const float* sums;

  HELIOS_INLINE QuantisedRow(const std::byte* row, std::int64_t width)
      : q(reinterpret_cast<const std::int8_t*>(row)),
        scales(reinterpret_cast<const float*>(row + Planes * width)),
        sums(scales + width / kBlock) {}
};

// Asks for the next tiles' blocks of one or more planes, a block at a time. A single row asks for what
// comes a fixed distance on: with little arithmetic a weight, the hardware's own prefetching leaves
// half of the memory's bandwidth unused.
template <int Rows, int Tiles, std::int64_t BlockNbytes>
class PlaneAhead {
 public:
  // `at` is the first of the current tiles, each of `blocks` blocks.
  HELIOS_INLINE PlaneAhead(const std::byte* at, std::int64_t blocks, const Ahead& ahead) {
    if constexpr (Rows == 1) {
      at_ = at + kDistance;
    } else {
      lines_ = (kLines + ahead.count - 1) / ahead.count;
      at_ = at + ahead.tiles * blocks * BlockNbytes + ahead.index * blocks * lines_ * 64;
    }
  }

  HELIOS_INLINE void ask() {
    if constexpr (Rows == 1) {
      for (int i = 0; i < kLines; ++i) prefetch(at_ + 64 * i);
      at_ += 64 * kLines;
    } else {
      for (int i = 0; i < lines_; ++i, at_ += 64) prefetch(at_);
    }
  }

 private:
  static constexpr std::int64_t kDistance = 4096;
  static constexpr int kLines = static_cast<int>(Tiles * BlockNbytes / 64);

  const std::byte* at_;
  int lines_;
};

// The planes of all rows at one block: row r's are at r * Planes.
template <int Planes, int Rows>
HELIOS_INLINE void block_planes(const RowAddresses<Rows>& rows, std::int64_t width,
                                std::int64_t block, const std::int8_t* (&x)[Rows * Planes]) {
  HELIOS_UNROLL
  for (int r = 0; r < Rows; ++r) {
    HELIOS_UNROLL
    for (int p = 0; p < Planes; ++p) {
      x[r * Planes + p] =
          QuantisedRow<Planes>(rows.at(r), width).q + p * width + block * kBlock;
    }
  }
}

// A row's exact product from those of its planes.
template <int Planes>
HELIOS_INLINE Ints joined(const Ints* planes) {
  if constexpr (Planes == 1) {
    return planes[0];
  } else {
    return times_256(planes[0]) + planes[1];
  }
}

// Exact integer products of one block for 4-bit weights: each byte plane holds two groups of k. Few
// rows and tiles get an accumulator for each group, so that there are enough independent ones.
template <int Rows, int Tiles>
HELIOS_INLINE void nibble_products(const std::uint8_t* const (&q)[Tiles],
                                   const std::int8_t* const (&x)[Rows],
                                   Ints (&products)[Rows][Tiles]) {
  constexpr bool kApart = Rows * Tiles < 8;
  Ints apart[Rows][Tiles];
  HELIOS_UNROLL
  for (int r = 0; r < Rows; ++r) {
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) products[r][t] = apart[r][t] = zero_ints();
  }
  HELIOS_UNROLL
  for (int g = 0; g < 4; ++g) {
    Bytes low[Tiles], high[Tiles];
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) {
      const Bytes both = load_bytes(q[t] + 64 * g);
      low[t] = low_nibbles(both);
      high[t] = high_nibbles(both);
    }
    HELIOS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const Quad x_low = broadcast_quad(x[r] + 4 * g);
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        products[r][t] = dot_small_bytes(products[r][t], low[t], x_low);
      }
      const Quad x_high = broadcast_quad(x[r] + 16 + 4 * g);
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        Ints& sum = kApart ? apart[r][t] : products[r][t];
        sum = dot_small_bytes(sum, high[t], x_high);
      }
    }
  }
  if constexpr (kApart) {
    HELIOS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) products[r][t] = products[r][t] + apart[r][t];
    }
  }
}

// Shared by the packings with a scale (and a zero point or an offset) for each block of 32:
// w = d (q - zero) or w = d q + m.
template <class Layout, int Planes>
struct ProductBlocks {
  static constexpr int kRows = kQuantisedRows < Planes ? 1 : kQuantisedRows / Planes;
  static constexpr int tiles(int rows) { return quantised_tiles(rows); }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead& ahead,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const std::int64_t blocks = matrix.width / kBlock;
    const auto* q_plane = reinterpret_cast<const std::uint8_t*>(matrix.base);
    const std::byte* d_plane = matrix.base + matrix.tiles * blocks * Layout::kBlockNbytes;
    const std::byte* m_plane = d_plane + matrix.tiles * blocks * 32;
    PlaneAhead<Rows, Tiles, Layout::kBlockNbytes> next(
        matrix.base + tile * blocks * Layout::kBlockNbytes, blocks, ahead);
    // Of the small planes, one a row block.
    const std::byte* next_scales = (Layout::kHasOffset && ahead.index % 2 == 1 ? m_plane : d_plane) +
                                   (tile + ahead.tiles) * blocks * 32;
    for (std::int64_t b = 0; b < blocks; ++b) {
      next.ask();
      if constexpr (Rows > 1) prefetch(next_scales + b * Tiles * 32);
      const std::uint8_t* q[Tiles];
      const std::int8_t* x[Rows * Planes];
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        q[t] = q_plane + ((tile + t) * blocks + b) * Layout::kBlockNbytes;
      }
      block_planes<Planes, Rows>(rows, matrix.width, b, x);
      Ints products[Rows * Planes][Tiles];
      Layout::template products<Rows * Planes, Tiles>(q, x, products);
      const auto of_tile = [&](const std::byte* plane, int t) {
        return load_f16(
            reinterpret_cast<const std::uint16_t*>(plane + ((tile + t) * blocks + b) * 32));
      };
      // Where registers are few m is loaded when it is needed.
      constexpr bool kEarly = Layout::kHasOffset && Tiles > 1;
      Floats d[Tiles], m[Tiles];
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        d[t] = of_tile(d_plane, t);
        if constexpr (kEarly) m[t] = of_tile(m_plane, t);
      }
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const QuantisedRow<Planes> row(rows.at(r), matrix.width);
        const Floats scale = broadcast(row.scales[b]);
        const Floats offset = broadcast(
            Layout::kHasOffset ? row.sums[b] : -static_cast<float>(Layout::kZero) * row.sums[b]);
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) {
          Ints planes[Planes];
          HELIOS_UNROLL
          for (int p = 0; p < Planes; ++p) planes[p] = products[r * Planes + p][t];
          const Floats product = to_floats(joined<Planes>(planes));
          if constexpr (Layout::kHasOffset) {
            sums[r][t] = fused(d[t], product * scale, sums[r][t]);
            const Floats of_offset = kEarly ? m[t] : of_tile(m_plane, t);
            sums[r][t] = fused(of_offset, offset, sums[r][t]);
          } else {
            sums[r][t] = fused(d[t], fused(product, scale, offset), sums[r][t]);
          }
        }
      }
    }
  }
};

struct LayoutQ4_0 {
  static constexpr std::int64_t kBlockNbytes = 256;
  static constexpr bool kHasOffset = false;
  static constexpr int kZero = 8;

  template <int Rows, int Tiles>
  static HELIOS_INLINE void products(const std::uint8_t* const (&q)[Tiles],
                                     const std::int8_t* const (&x)[Rows],
                                     Ints (&out)[Rows][Tiles]) {
    nibble_products<Rows, Tiles>(q, x, out);
  }
};

struct LayoutQ4_1 : LayoutQ4_0 {
  static constexpr bool kHasOffset = true;
};

struct LayoutQ8_0 {
  static constexpr std::int64_t kBlockNbytes = 512;
  static constexpr bool kHasOffset = false;
  static constexpr int kZero = 128;

  template <int Rows, int Tiles>
  static HELIOS_INLINE void products(const std::uint8_t* const (&q)[Tiles],
                                     const std::int8_t* const (&x)[Rows],
                                     Ints (&out)[Rows][Tiles]) {
    HELIOS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) out[r][t] = zero_ints();
    }
    HELIOS_UNROLL
    for (int g = 0; g < 8; ++g) {
      Bytes w[Tiles];
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) w[t] = load_bytes(q[t] + 64 * g);
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const Quad quad = broadcast_quad(x[r] + 4 * g);
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) out[r][t] = dot_bytes(out[r][t], w[t], quad);
      }
    }
  }
};

// w = d s (q - 32) with a scale s for each half block. With q8 both half-block products times
// their scales are integers below 2^24, so their f32 sum is exact.
template <int Planes>
struct ProductQ6_K {
  static constexpr int kRows = kQuantisedRows < Planes ? 1 : kQuantisedRows / Planes;
  static constexpr int tiles(int rows) { return quantised_tiles(rows); }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead& ahead,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    constexpr int kPlanes = Rows * Planes;
    const std::int64_t blocks = matrix.width / kBlock;
    const auto* q_plane = reinterpret_cast<const std::uint8_t*>(matrix.base);
    const std::byte* s_plane = matrix.base + matrix.tiles * blocks * 512;
    const std::byte* d_plane = s_plane + matrix.tiles * blocks * 32;
    const Bytes zero_point = broadcast_byte(32);
    PlaneAhead<Rows, Tiles, 512> next(matrix.base + tile * blocks * 512, blocks, ahead);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int8_t* x[kPlanes];
      block_planes<Planes, Rows>(rows, matrix.width, b, x);
      next.ask();
      Floats block[Rows][Tiles];
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) block[r][t] = zeros();
      }
      for (int half = 0; half < 2; ++half) {
        Ints products[kPlanes][Tiles];
        Ints zeros_of_plane[kPlanes];
        HELIOS_UNROLL
        for (int p = 0; p < kPlanes; ++p) {
          zeros_of_plane[p] = zero_ints();
          HELIOS_UNROLL
          for (int t = 0; t < Tiles; ++t) products[p][t] = zero_ints();
        }
        HELIOS_UNROLL
        for (int g = 4 * half; g < 4 * half + 4; ++g) {
          Bytes w[Tiles];
          HELIOS_UNROLL
          for (int t = 0; t < Tiles; ++t) {
            w[t] = load_bytes(q_plane + ((tile + t) * blocks + b) * 512 + 64 * g);
          }
          HELIOS_UNROLL
          for (int p = 0; p < kPlanes; ++p) {
            const Quad quad = broadcast_quad(x[p] + 4 * g);
            zeros_of_plane[p] = dot_small_bytes(zeros_of_plane[p], zero_point, quad);
            HELIOS_UNROLL
            for (int t = 0; t < Tiles; ++t) {
              products[p][t] = dot_small_bytes(products[p][t], w[t], quad);
            }
          }
        }
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) {
          const Floats s = load_int8(reinterpret_cast<const std::int8_t*>(
              s_plane + ((tile + t) * blocks + b) * 32 + 16 * half));
          HELIOS_UNROLL
          for (int r = 0; r < Rows; ++r) {
            Ints planes[Planes];
            HELIOS_UNROLL
            for (int p = 0; p < Planes; ++p) {
              planes[p] = products[r * Planes + p][t] - zeros_of_plane[r * Planes + p];
            }
            const Floats scaled = to_floats(joined<Planes>(planes)) * s;
            block[r][t] = block[r][t] + scaled;
          }
        }
      }
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        const Floats d = load_f16(reinterpret_cast<const std::uint16_t*>(
            d_plane + ((tile + t) * blocks + b) * 32));
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) {
          const Floats scale =
              broadcast(QuantisedRow<Planes>(rows.at(r), matrix.width).scales[b]);
          sums[r][t] = fused(d, block[r][t] * scale, sums[r][t]);
        }
      }
    }
  }
};

}  // namespace helios::HELIOS_ISA
