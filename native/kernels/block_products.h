// Products of quantised rows with packings that have a scale (and a zero point or an offset) for each
// block of 32, and what q6_k_products.h shares with them: planes of a row, asking for weights ahead.
#pragma once

#include "tile_products.h"

namespace helios::HELIOS_ISA {

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

}  // namespace helios::HELIOS_ISA
