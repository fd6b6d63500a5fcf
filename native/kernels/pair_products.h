// Products of q8 pair rows with 4-bit tiles whose blocks lie in pairs. Both of a pair's scales, of
// weights and of activations, are integers: a sum becomes a float once for 64 products instead of
// once for 32, and the multipliers do 20 operations where blocks on their own take 22.
#pragma once

#include "block_products.h"

namespace helios::HELIOS_ISA {

// An activation row in the format q8 pairs.
struct PairRow {
  const std::int8_t* q;
  const float* scales;
  const std::int16_t* shares;
  const std::int16_t* sums;
  const std::int32_t* starts;

  HELIOS_INLINE PairRow(const std::byte* row, std::int64_t width)
      : q(reinterpret_cast<const std::int8_t*>(row)),
        scales(reinterpret_cast<const float*>(row + width)),
        shares(reinterpret_cast<const std::int16_t*>(scales + width / kPair)),
        sums(shares + 2 * (width / kPair)),
        starts(reinterpret_cast<const std::int32_t*>(sums + 2 * (width / kPair))) {}
};

// w = unit (d (q - 8) + m). A vector of codes holds both blocks of eight outputs, so that the two
// sums of an output are neighbours: joined as int16 they meet its two scales in one instruction.
struct ProductPairs {
  static constexpr int kRows = kPairRows;
  static constexpr int tiles(int rows) { return pair_tiles(rows); }

  // The sums of the codes of both halves of a tile: [0] outputs 0, 1, 4, 5, ..., [1] 2, 3, 6, 7, ....
  template <int Rows, int Tiles>
  using CodeSums = Ints[Rows][Tiles][2];

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add_codes(const std::uint8_t* const (&q)[Tiles],
                                      const std::int8_t* const (&x)[Rows],
                                      CodeSums<Rows, Tiles>& sums) {
    HELIOS_UNROLL
    for (int g = 0; g < 4; ++g) {
      HELIOS_UNROLL
      for (int high = 0; high < 2; ++high) {
        Bytes w[Tiles][2];
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) {
          HELIOS_UNROLL
          for (int half = 0; half < 2; ++half) {
            const Bytes both = load_bytes(q[t] + 128 * g + 64 * half);
            w[t][half] = high ? high_nibbles(both) : low_nibbles(both);
          }
        }
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) {
          const Octet eight = broadcast_octet(x[r] + 8 * (g + 4 * high));
          HELIOS_UNROLL
          for (int t = 0; t < Tiles; ++t) {
            HELIOS_UNROLL
            for (int half = 0; half < 2; ++half) {
              sums[r][t][half] = dot_small_bytes(sums[r][t][half], w[t][half], eight);
            }
          }
        }
      }
    }
  }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead& ahead,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const std::int64_t pairs = matrix.width / kPair;
    const std::byte* first = matrix.base + tile * pairs * kPairNbytes;
    PlaneAhead<Rows, Tiles, kPairNbytes> next(first, pairs, ahead);
    for (std::int64_t p = 0; p < pairs; ++p) {
      next.ask();
      const std::uint8_t* q[Tiles];
      const std::int8_t* x[Rows];
      CodeSums<Rows, Tiles> codes;
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        q[t] = reinterpret_cast<const std::uint8_t*>(first + (t * pairs + p) * kPairNbytes);
      }
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const PairRow row(rows.at(r), matrix.width);
        x[r] = row.q + p * kPair;
        // Codes from 0 to 15 stand for -8 to 7: a sum begins with what that takes off.
        const Ints start = broadcast_two(row.starts + 2 * p);
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) codes[r][t][0] = codes[r][t][1] = start;
      }
      add_codes<Rows, Tiles>(q, x, codes);
      Shorts d[Tiles], m[Tiles];
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        const auto* scales = reinterpret_cast<const std::int16_t*>(q[t] + 512);
        d[t] = load_shorts(scales);
        m[t] = load_shorts(scales + 32);
      }
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const PairRow row(rows.at(r), matrix.width);
        const Floats scale = broadcast(row.scales[p]);
        const Shorts share = broadcast_shorts(row.shares + 2 * p);
        const Shorts sum = broadcast_shorts(row.sums + 2 * p);
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) {
          const Shorts joined = join_neighbours(codes[r][t][0], codes[r][t][1]);
          const Ints both = dot_shorts(dot_shorts(zero_ints(), m[t], sum),
                                       times_fraction(joined, share), d[t]);
          sums[r][t] = fused(to_floats(both), scale, sums[r][t]);
        }
      }
    }
    const auto* units =
        reinterpret_cast<const float*>(matrix.base + matrix.tiles * pairs * kPairNbytes);
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) {
      const Floats unit = load(units + (tile + t) * kTileOutputs);
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) sums[r][t] = sums[r][t] * unit;
    }
  }
};

}  // namespace helios::HELIOS_ISA
