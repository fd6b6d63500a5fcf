// Byte geometry of what kernels read and write: weight packings, activation rows, request state,
// completion rows. Holds numbers only, as docs/kernels.md gives them; the load-time checks and
// the kernels both take them from here.
#pragma once

#include <cstdint>

#include "inlining.h"

namespace helios {

inline constexpr int kTileOutputs = 16;
inline constexpr int kBlock = 32;
// Two neighbouring blocks, which share what is in floating point.
inline constexpr int kPair = 2 * kBlock;

// Numbers of the schema's `Packing` enum.
enum class Packing : std::int64_t {
  kTile16F32 = 2,
  kTile16F16 = 3,
  kTile16Bf16 = 4,
  kTile16Q8_0 = 5,
  kTile16Q4_0 = 6,
  kTile16Q4_1 = 7,
  kTile16Q6_K = 8,
  kTile16Q4Pairs = 9,
};

// Values of `format` attributes.
enum class Format : std::int64_t { kF32 = 0, kBf16 = 1, kQ8 = 2, kQ16 = 3, kQ8Pairs = 4 };

HELIOS_INLINE constexpr bool is_quantised(Format format) { return format >= Format::kQ8; }

HELIOS_INLINE constexpr bool is_quantised(Packing packing) { return packing >= Packing::kTile16Q8_0; }

HELIOS_INLINE constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What the width of a row or of a matrix is a multiple of.
HELIOS_INLINE constexpr std::int64_t width_multiple(Format format) {
  return format == Format::kQ8Pairs ? kPair : is_quantised(format) ? kBlock : 1;
}
HELIOS_INLINE constexpr std::int64_t width_multiple(Packing packing) {
  if (packing == Packing::kTile16Q4Pairs) return kPair;
  return is_quantised(packing) ? kBlock : packing == Packing::kTile16Bf16 ? 2 : 1;
}

// Bytes of a tile's codes, scales and minima of a pair of blocks.
inline constexpr std::int64_t kPairNbytes = 512 + 64 + 64;

// Bytes of a tile's flags: one a pair, up to a multiple of four.
HELIOS_INLINE constexpr std::int64_t flags_nbytes(std::int64_t pairs) {
  return ceil_divide(pairs, 4) * 4;
}

// Bytes of `width` weights of 16 outputs, all planes together. `width` is a multiple of what the
// packing asks for.
HELIOS_INLINE constexpr std::int64_t tile_nbytes(Packing packing, std::int64_t width) {
  const std::int64_t blocks = width / kBlock;
  switch (packing) {
    case Packing::kTile16F32: return width * kTileOutputs * 4;
    case Packing::kTile16F16: return width * kTileOutputs * 2;
    case Packing::kTile16Bf16: return width * kTileOutputs * 2;
    case Packing::kTile16Q8_0: return blocks * (512 + 32);
    case Packing::kTile16Q4_0: return blocks * (256 + 32);
    case Packing::kTile16Q4_1: return blocks * (256 + 32 + 32);
    case Packing::kTile16Q6_K: return blocks * (512 + 32 + 32);
    case Packing::kTile16Q4Pairs:
      return width / kPair * kPairNbytes + kTileOutputs * 4 + flags_nbytes(width / kPair);
  }
  return 0;
}

HELIOS_INLINE constexpr std::int64_t row_nbytes(Format format, std::int64_t width) {
  switch (format) {
    case Format::kF32: return 4 * width;
    case Format::kBf16: return 2 * width;
    case Format::kQ8: return width + 8 * (width / kBlock);
    case Format::kQ16: return 2 * width + 8 * (width / kBlock);
    case Format::kQ8Pairs: return width + 20 * (width / kPair);
  }
  return 0;
}

// Bytes of an element, by the number of the schema's `DType` enum; 0 for rows of blocks and for
// what is no type.
HELIOS_INLINE constexpr std::int64_t element_nbytes(std::int64_t dtype) {
  constexpr std::int64_t kSizes[] = {0, 1, 1, 4, 4, 8, 8, 2, 2, 4};
  return dtype < 0 || dtype > 9 ? 0 : kSizes[dtype];
}

inline constexpr int kEosCapacity = 16;

// One row of `request_state`.
struct RequestState {
  std::int32_t pending_token;
  std::int32_t consumed;
  std::int32_t emitted;
  std::int32_t output_limit;
  std::int32_t generation;
  std::int32_t finished;
  std::uint32_t seed_lo;
  std::uint32_t seed_hi;
  float temperature;
  float top_p;
  float min_p;
  std::int32_t top_k;
  // Zero in rows that no penalty or least length was given for: all of them off.
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  std::int32_t min_tokens;
  std::int32_t eos_ids[kEosCapacity];
};
static_assert(sizeof(RequestState) == 128);

inline constexpr int kRecentCapacity = 32;
inline constexpr int kStopCapacity = 64;
inline constexpr int kBiasCapacity = 512;
inline constexpr int kBadWordCapacity = 1024;
inline constexpr int kTopCapacity = 20;

// One row of `sampling_rows`: what few requests bring. A row of zeros asks for nothing.
struct SamplingRow {
  std::int32_t top_logprobs;
  std::int32_t stops;       // used elements of `stop_ids`
  std::int32_t biases;      // and of `bias_tokens` and `bias`
  std::int32_t bad_tokens;  // and of `bad_words`
  std::int32_t masked;      // 1 where the slot's row of `token_mask` excludes an id
  std::int32_t zero[11];
  std::int32_t recent[kRecentCapacity];  // the last output tokens, the latest last; -1 for none
  std::int32_t stop_ids[kStopCapacity];
  std::int32_t bias_tokens[kBiasCapacity];
  float bias[kBiasCapacity];
  std::int32_t bad_words[kBadWordCapacity];  // each a length and so many ids
};
static_assert(sizeof(SamplingRow) == 8640);

// Words of 32 bits, one bit a token.
HELIOS_INLINE constexpr std::int64_t mask_words(std::int64_t vocab) {
  return ceil_divide(vocab, 32);
}

// One row of the completion record's `lanes`.
struct CompletionLane {
  std::int32_t slot;
  std::int32_t generation;
  std::int32_t emitted;
  std::int32_t consumed;
  std::int32_t finish;
  std::int32_t draft_cursor;
  std::int32_t model_reserved;
  std::int32_t offered;
  std::int32_t accepted;
  std::int32_t error;
  std::int32_t zero[2];
};
static_assert(sizeof(CompletionLane) == 48);

}  // namespace helios
