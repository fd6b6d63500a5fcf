// Products of q8 pair rows with 4-bit tiles whose blocks lie in pairs. Both of a pair's scales, of
// weights and of activations, are integers: a sum becomes a float once for 64 products instead of
// once for 32, and the multipliers do 20 operations where blocks on their own take 22.
#pragma once

#include "block_products.h"
#include "pair_vectors.h"

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

HELIOS_INLINE Shorts scales_at(const std::uint8_t* at) {
  return load_shorts(reinterpret_cast<const std::int16_t*>(at));
}

// What a row has of one pair.
class PairOfRow {
 public:
  HELIOS_INLINE PairOfRow(const std::byte* row, std::int64_t width, std::int64_t pair)
      : row_(row, width), pair_(pair) {}

  HELIOS_INLINE Floats scale() const { return broadcast(row_.scales[pair_]); }
  HELIOS_INLINE Shorts shares() const { return broadcast_shorts(row_.shares + 2 * pair_); }
  HELIOS_INLINE Shorts sums() const { return broadcast_shorts(row_.sums + 2 * pair_); }

  // The sum of both blocks where scales are integers: d of both blocks by output, then m.
  HELIOS_INLINE Floats times_scales(Shorts shared, const std::uint8_t* at) const {
    return to_floats(
        dot_shorts(dot_shorts(zero_ints(), scales_at(at + 64), sums()), shared, scales_at(at)));
  }
  // The same where they are f16: d of the first block, d of the second, m of both.
  HELIOS_INLINE Floats times_halves(Shorts shared, const std::uint8_t* at) const {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(at);
    const Floats eight = broadcast(8.0f);
    Floats both = zeros();
    HELIOS_UNROLL
    for (int block = 0; block < 2; ++block) {
      const Floats d = load_f16(halves + 16 * block);
      const Floats m = load_f16(halves + 32 + 16 * block);
      const Floats sum = broadcast(static_cast<float>(row_.sums[2 * pair_ + block]));
      both = fused(d, block == 0 ? firsts_of(shared) : seconds_of(shared), both);
      both = fused(fused(d, eight, m), sum, both);
    }
    return both;
  }

 private:
  PairRow row_;
  std::int64_t pair_;
};

// Where the pairs of a tile and those after it lie.
struct PairTiles {
  std::int64_t width;
  std::int64_t pairs;
  const std::byte* first;
  const float* units;
  const std::uint8_t* flags;

  HELIOS_INLINE PairTiles(const TileMatrix& matrix, std::int64_t tile)
      : width(matrix.width), pairs(width / kPair), first(matrix.base + tile * pairs * kPairNbytes) {
    const std::byte* after = matrix.base + matrix.tiles * pairs * kPairNbytes;
    units = reinterpret_cast<const float*>(after) + tile * kTileOutputs;
    flags = reinterpret_cast<const std::uint8_t*>(after + matrix.tiles * kTileOutputs * 4) +
            tile * flags_nbytes(pairs);
  }

  // Other than 0 where a pair's scales are f16.
  HELIOS_INLINE int flag(int tile, std::int64_t p) const {
    return flags[tile * flags_nbytes(pairs) + p];
  }
  HELIOS_INLINE const std::uint8_t* pair(int tile, std::int64_t p) const {
    return reinterpret_cast<const std::uint8_t*>(first + (tile * pairs + p) * kPairNbytes);
  }
};

// w = unit (d (q - 8) + m), or d q + m with f16 d and m in the few pairs whose scales are no
// multiples of an output's unit. A vector of codes holds both blocks of eight outputs, so that the
// two sums of an output are neighbours: joined as int16 they meet its two scales in one instruction.
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

  // One pair of which a tile has f16 scales: seldom, so out of the way of the others.
  template <int Rows, int Tiles>
  static HELIOS_NOINLINE void add_floating(const PairTiles& tiles, std::int64_t p,
                                           const ActivationRows& all, Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const std::uint8_t* q[Tiles];
    const std::int8_t* x[Rows];
    CodeSums<Rows, Tiles> codes;
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) q[t] = tiles.pair(t, p);
    HELIOS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const PairRow row(rows.at(r), tiles.width);
      x[r] = row.q + p * kPair;
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) {
        codes[r][t][0] = codes[r][t][1] = broadcast_two(row.starts + 2 * p);
      }
    }
    add_codes<Rows, Tiles>(q, x, codes);
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) {
      const bool halves = tiles.flag(t, p) != 0;
      const Floats unit = load(tiles.units + t * kTileOutputs);
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const PairOfRow of_row(rows.at(r), tiles.width, p);
        const Shorts shared =
            times_fraction(join_neighbours(codes[r][t][0], codes[r][t][1]), of_row.shares());
        const Floats both = halves ? of_row.times_halves(shared, q[t] + 512) / unit
                                   : of_row.times_scales(shared, q[t] + 512);
        sums[r][t] = fused(both, of_row.scale(), sums[r][t]);
      }
    }
  }

  template <int Rows, int Tiles>
  static HELIOS_INLINE void add(const TileMatrix& matrix, std::int64_t tile,
                                const ActivationRows& all, const Ahead& ahead,
                                Sums<Rows, Tiles>& sums) {
    const RowAddresses<Rows> rows(all);
    const PairTiles tiles(matrix, tile);
    PlaneAhead<Rows, Tiles, kPairNbytes> next(tiles.first, tiles.pairs, ahead);
    for (std::int64_t p = 0; p < tiles.pairs; ++p) {
      next.ask();
      int floating = 0;
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) floating |= tiles.flag(t, p);
      if (floating != 0) [[unlikely]] {
        // A copy, so that the sums themselves stay in registers.
        Sums<Rows, Tiles> copy;
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) {
          HELIOS_UNROLL
          for (int t = 0; t < Tiles; ++t) copy[r][t] = sums[r][t];
        }
        add_floating<Rows, Tiles>(tiles, p, all, copy);
        HELIOS_UNROLL
        for (int r = 0; r < Rows; ++r) {
          HELIOS_UNROLL
          for (int t = 0; t < Tiles; ++t) sums[r][t] = copy[r][t];
        }
        continue;
      }
      const std::uint8_t* q[Tiles];
      const std::int8_t* x[Rows];
      CodeSums<Rows, Tiles> codes;
      HELIOS_UNROLL
      for (int t = 0; t < Tiles; ++t) q[t] = tiles.pair(t, p);
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
        d[t] = scales_at(q[t] + 512);
        m[t] = scales_at(q[t] + 576);
      }
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const PairOfRow of_row(rows.at(r), matrix.width, p);
        const Floats scale = of_row.scale();
        const Shorts share = of_row.shares();
        const Shorts sum = of_row.sums();
        HELIOS_UNROLL
        for (int t = 0; t < Tiles; ++t) {
          const Shorts joined = join_neighbours(codes[r][t][0], codes[r][t][1]);
          const Ints both = dot_shorts(dot_shorts(zero_ints(), m[t], sum),
                                       times_fraction(joined, share), d[t]);
          sums[r][t] = fused(to_floats(both), scale, sums[r][t]);
        }
      }
    }
    HELIOS_UNROLL
    for (int t = 0; t < Tiles; ++t) {
      const Floats unit = load(tiles.units + t * kTileOutputs);
      HELIOS_UNROLL
      for (int r = 0; r < Rows; ++r) sums[r][t] = sums[r][t] * unit;
    }
  }
};

}  // namespace helios::HELIOS_ISA
