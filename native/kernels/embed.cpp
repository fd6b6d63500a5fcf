// `embed`: rows of a packed table, as f32. A token outside the vocabulary reads as zeros.
#include "../catalogue.h"
#include "../layouts.h"
#include "kernels.h"
#include "vector.h"

namespace helios::HELIOS_ISA {
namespace {

HELIOS_INLINE float half_at(const std::byte* plane, std::int64_t index) {
  alignas(64) std::uint16_t halves[kLanes] = {read_as<std::uint16_t>(plane + 2 * index)};
  alignas(64) float lanes[kLanes];
  store(lanes, load_f16(halves));
  return lanes[0];
}

// One row of a table of 32-wide blocks; `i` is the row's place in its tile.
void unpack_blocks(Packing packing, const std::byte* table, std::int64_t tiles,
                   std::int64_t tile, int i, std::int64_t width, float scale, float* out) {
  const std::int64_t blocks = width / kBlock;
  const bool nibbles = packing == Packing::kTile16Q4_0 || packing == Packing::kTile16Q4_1;
  const std::int64_t q_nbytes = nibbles ? 256 : 512;
  const std::byte* second = table + tiles * blocks * q_nbytes;
  const std::byte* third = second + tiles * blocks * 32;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t at = tile * blocks + b;
    const auto* q = reinterpret_cast<const std::uint8_t*>(table + at * q_nbytes) + 4 * i;
    float factor[2];  // of each half block
    float offset = 0.0f;
    int zero = 0;
    if (packing == Packing::kTile16Q6_K) {
      const float d = half_at(third, at * 16 + i);
      const auto* s = reinterpret_cast<const std::int8_t*>(second + at * 32);
      factor[0] = d * static_cast<float>(s[i]);
      factor[1] = d * static_cast<float>(s[16 + i]);
      zero = 32;
    } else {
      factor[0] = factor[1] = half_at(second, at * 16 + i);
      if (packing == Packing::kTile16Q4_1) offset = half_at(third, at * 16 + i);
      if (packing == Packing::kTile16Q4_0) zero = 8;
      if (packing == Packing::kTile16Q8_0) zero = 128;
    }
    for (int k = 0; k < kBlock; ++k) {
      const int half = k / 16;
      int value;
      if (nibbles) {
        const int both = q[64 * (k % 16 / 4) + k % 4];
        value = half == 0 ? both & 15 : both >> 4;
      } else {
        value = q[64 * (k / 4) + k % 4];
      }
      const float w = factor[half] * static_cast<float>(value - zero) + offset;
      out[b * kBlock + k] = w * scale;
    }
  }
}

// The same of a table whose blocks lie in pairs.
void unpack_pairs(const std::byte* table, std::int64_t tiles, std::int64_t tile, int i,
                  std::int64_t width, float scale, float* out) {
  const std::int64_t pairs = width / kPair;
  const float unit = read_as<float>(table + tiles * pairs * kPairNbytes +
                                    4 * (tile * kTileOutputs + i));
  const auto* flags = reinterpret_cast<const std::uint8_t*>(
                          table + tiles * (pairs * kPairNbytes + kTileOutputs * 4)) +
                      tile * flags_nbytes(pairs);
  // The vector of codes, and the output's place in it.
  const int half = i / 2 % 2;
  const int place = i / 4 * 2 + i % 2;
  for (std::int64_t k = 0; k < width; ++k) {
    const std::byte* pair = table + (tile * pairs + k / kPair) * kPairNbytes;
    const auto b = static_cast<int>(k / kBlock % 2);
    const auto in_block = static_cast<int>(k % kBlock);
    const int both = read_as<std::uint8_t>(pair + 128 * (in_block % 16 / 4) + 64 * half +
                                           8 * place + 4 * b + in_block % 4);
    const int code = in_block < 16 ? both & 15 : both >> 4;
    if (flags[k / kPair] != 0) {
      const float d = half_at(pair + 512 + 32 * b, i);
      const float m = half_at(pair + 576 + 32 * b, i);
      out[k] = (d * static_cast<float>(code) + m) * scale;
      continue;
    }
    const std::byte* scales = pair + 512 + 2 * (2 * i + b);
    const int value = read_as<std::int16_t>(scales) * (code - 8) +
                      read_as<std::int16_t>(scales + 64);
    out[k] = static_cast<float>(value) * unit * scale;
  }
}

void unpack_row(Packing packing, const std::byte* table, std::int64_t vocab, std::int64_t n,
                std::int64_t width, float scale, float* out) {
  const std::int64_t tiles = ceil_divide(vocab, kTileOutputs);
  const std::int64_t tile = n / kTileOutputs;
  const int i = static_cast<int>(n % kTileOutputs);
  if (packing == Packing::kTile16Q4Pairs) {
    unpack_pairs(table, tiles, tile, i, width, scale, out);
    return;
  }
  if (is_quantised(packing)) {
    unpack_blocks(packing, table, tiles, tile, i, width, scale, out);
    return;
  }
  for (std::int64_t k = 0; k < width; ++k) {
    const std::int64_t at = (tile * width + k) * kTileOutputs + i;
    float w;
    if (packing == Packing::kTile16F32) {
      w = read_as<float>(table + 4 * at);
    } else if (packing == Packing::kTile16F16) {
      w = half_at(table, at);
    } else {
      const std::int64_t pair = (tile * (width / 2) + k / 2) * kTileOutputs + i;
      w = bf16_to_float(read_as<std::uint16_t>(table + 2 * (2 * pair + k % 2)));
    }
    out[k] = w * scale;
  }
}

}  // namespace

void run_embed(const Launch& launch, const Piece& piece) {
  using namespace embed;
  const std::int64_t vocab = launch.integer(kVocab);
  const std::int64_t width = launch.integer(kWidth);
  const auto packing = static_cast<Packing>(launch.integer(kPacking));
  const auto* tokens = launch.read<std::int32_t>(kTokens);
  const Range share = piece.share(launch.rows());
  for (std::int64_t r = share.begin; r < share.end; ++r) {
    float* out = launch.write<float>(kOut) + r * width;
    if (tokens[r] < 0 || tokens[r] >= vocab) {
      for (std::int64_t k = 0; k < width; ++k) out[k] = 0.0f;
    } else {
      unpack_row(packing, launch.read<std::byte>(kTable), vocab, tokens[r], width,
                 launch.real(kScale), out);
    }
  }
}

}  // namespace helios::HELIOS_ISA
