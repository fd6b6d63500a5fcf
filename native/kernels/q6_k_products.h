// Products of quantised rows with Q6_K tiles, whose blocks have a scale for each half.
#pragma once

#include "block_products.h"

namespace helios::HELIOS_ISA {

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
