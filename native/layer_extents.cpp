// The checks of what a forward pass launches, a function a kernel.
#include "kernel_extents.h"
#include "kernels/attention_bf16.h"

namespace helios {

void check_embed(const LaunchChecker& c) {
  using namespace embed;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  c.require(kTokens, rows, 4);
  c.weight(kTable, c.packing(kPacking, kWidth), c.count(kVocab), width);
  c.require(kOut, Wide(rows) * Wide(width), 4);
}

void check_rms_norm(const LaunchChecker& c) {
  using namespace rms_norm;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  c.activation(kX, rows, Format::kF32, width);
  c.require(kWeight, width, 4);
  c.activation(kOut, rows, c.format(kFormat, kWidth), width);
}

void check_linear(const LaunchChecker& c) {
  using namespace linear;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  const std::int64_t outputs = c.count(kOutputs);
  const Packing packing = c.packing(kPacking, kWidth);
  c.activation_fits(kFormat, packing);
  c.activation(kX, rows, c.format(kFormat, kWidth), width);
  c.choice(kAccumulate, 0, 1);
  c.weight(kWeight, packing, outputs, width);
  c.require(kBias, outputs, 4);
  c.activation(kOut, rows, Format::kF32, outputs);
}

void check_linear_tuned(const LaunchChecker& c) {
  check_linear(c);
  c.require(linear_tuned::kTuning, 1, 4);
}

void check_tune_linear(const LaunchChecker& c) {
  using namespace tune_linear;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  const std::int64_t outputs = c.count(kOutputs);
  const Packing packing = c.packing(kPacking, kWidth);
  c.activation_fits(kFormat, packing);
  c.activation(kX, rows, c.format(kFormat, kWidth), width);
  c.weight(kWeight, packing, outputs, width);
  c.activation(kOut, rows, Format::kF32, outputs);
  c.require(kChoice, 1, 4);
}

void check_linear_silu_mul(const LaunchChecker& c) {
  using namespace linear_silu_mul;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  const std::int64_t outputs = c.multiple(kOutputs, kTileOutputs);
  const Packing packing = c.packing(kPacking, kWidth);
  c.activation_fits(kFormat, packing);
  c.activation(kX, rows, c.format(kFormat, kWidth), width);
  c.weight(kWeight, packing, 2 * outputs, width);
  c.activation(kOut, rows, c.format(kOutFormat, kOutputs), outputs);
}

void check_linear_silu_mul_tuned(const LaunchChecker& c) {
  check_linear_silu_mul(c);
  c.require(linear_silu_mul_tuned::kTuning, 1, 4);
}

void check_tune_linear_silu_mul(const LaunchChecker& c) {
  using namespace tune_linear_silu_mul;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  const std::int64_t outputs = c.multiple(kOutputs, kTileOutputs);
  const Packing packing = c.packing(kPacking, kWidth);
  c.activation_fits(kFormat, packing);
  c.activation(kX, rows, c.format(kFormat, kWidth), width);
  c.weight(kWeight, packing, 2 * outputs, width);
  c.activation(kOut, rows, c.format(kOutFormat, kOutputs), outputs);
  c.require(kChoice, 1, 4);
}

namespace {

// Shared by the two kernels that work on heads: extents of the row, and of the planes at least one
// page. Widths are bounded so that index arithmetic stays within 64 bits.
struct Heads {
  std::int64_t rows;
  std::int64_t q_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_tokens;
};

template <class Operand>
Heads check_heads(const LaunchChecker& c, Operand qkv, Operand k_plane, Operand v_plane,
                  Operand page_table) {
  const Heads h{c.count(0), c.count(1), c.count(2), c.multiple(3, 2), c.count(4)};
  const std::int64_t table_pages = c.count(5);
  if (h.q_heads % h.kv_heads != 0) c.refuse(1, "must be a multiple of kv_heads");
  if (h.head_dim > 4096) c.refuse(3, "must not exceed 4096");
  if (h.page_tokens > 4096) c.refuse(4, "must not exceed 4096");
  c.require(qkv, Wide(h.rows) * Wide(h.q_heads + 2 * h.kv_heads) * Wide(h.head_dim), 4);
  const Wide page = Wide(h.kv_heads) * Wide(h.head_dim) * Wide(h.page_tokens);
  c.require(k_plane, page, 2);
  c.require(v_plane, page, 2);
  c.require(page_table, Wide(table_pages), 4);
  return h;
}

// Planes of pairs: whole ones, aligned as such.
template <class Operand>
void check_pairs(const LaunchChecker& c, Operand k_plane, Operand v_plane) {
  c.multiple(rope_and_cache_bf16::kPageTokens, 2);
  c.require(k_plane, 1, 4);
  c.require(v_plane, 1, 4);
}

}  // namespace

std::uint64_t check_rope_and_cache(const LaunchChecker& c) {
  using namespace rope_and_cache;
  const Heads h = check_heads(c, kQkv, kKPlane, kVPlane, kPageTable);
  c.require(kPositions, h.rows, 4);
  c.require(kSlot, h.rows, 4);
  c.require(kInverseFrequency, h.head_dim / 2, 4);
  c.require(kQNorm, h.head_dim, 4);
  c.require(kKNorm, h.head_dim, 4);
  return c.scratch(static_cast<std::uint64_t>(h.head_dim) * sizeof(float));
}

std::uint64_t check_rope_and_cache_bf16(const LaunchChecker& c) {
  check_pairs(c, rope_and_cache_bf16::kKPlane, rope_and_cache_bf16::kVPlane);
  return check_rope_and_cache(c);
}

namespace {

// Everything but the scratch.
Heads check_attending(const LaunchChecker& c) {
  using namespace attention;
  const Heads h = check_heads(c, kQkv, kKPlane, kVPlane, kPageTable);
  c.require(kPositions, h.rows, 4);
  c.require(kSlot, h.rows, 4);
  c.count(kWindow, 0);
  const auto format = static_cast<Format>(c.choice(kFormat, 0, 4));
  const std::int64_t heads = h.q_heads / h.kv_heads;
  if (heads * h.head_dim % width_multiple(format) != 0) {
    c.refuse(kHeadDim, "times the query heads of a key head must be a multiple of " +
                           std::to_string(width_multiple(format)) +
                           (format == Format::kQ8Pairs ? " for q8 pairs" : " for q8"));
  }
  c.activation(kOut, h.rows, format, h.q_heads * h.head_dim);
  return h;
}

}  // namespace

std::uint64_t check_attention(const LaunchChecker& c) {
  const Heads h = check_attending(c);
  const AttentionScratch scratch(h.q_heads / h.kv_heads, h.head_dim, h.page_tokens);
  return c.scratch(static_cast<std::uint64_t>(scratch.floats) * sizeof(float));
}

std::uint64_t check_attention_bf16(const LaunchChecker& c) {
  check_pairs(c, attention_bf16::kKPlane, attention_bf16::kVPlane);
  const Heads h = check_attending(c);
  const Bf16AttentionScratch scratch(h.q_heads / h.kv_heads, h.head_dim, h.page_tokens);
  return c.scratch(static_cast<std::uint64_t>(scratch.floats) * sizeof(float));
}

void check_select_last(const LaunchChecker& c) {
  using namespace select_last;
  const std::int64_t lanes = c.count(kCapacity);
  const std::int64_t packed = c.count(kPackedCapacity);
  const std::int64_t width = c.count(kWidth);
  c.require(kQueryLength, lanes, 4);
  c.require(kSample, lanes, 4);
  c.require(kX, Wide(packed) * Wide(width), 4);
  c.require(kSelectedRows, 1, 4);
  c.require(kSelectedLane, lanes, 4);
  c.require(kOut, Wide(lanes) * Wide(width), 4);
}

void check_select_attending(const LaunchChecker& c) {
  using namespace select_attending;
  const std::int64_t lanes = c.count(kCapacity);
  const std::int64_t packed = c.count(kPackedCapacity);
  const std::int64_t width = c.count(kWidth);
  const std::int64_t elements = c.count(kElements);
  const auto size = static_cast<int>(element_nbytes(c.choice(kDtype, 1, 9)));
  c.require(kQueryLength, lanes, 4);
  c.require(kSample, lanes, 4);
  c.require(kX, Wide(packed) * Wide(width), 4);
  c.require(kQueries, Wide(packed) * Wide(elements), size);
  c.require(kPositions, packed, 4);
  c.require(kSlot, packed, 4);
  c.require(kSelectedRows, 1, 4);
  c.require(kSelectedLane, lanes, 4);
  c.require(kOut, Wide(lanes) * Wide(width), 4);
  c.require(kOutQueries, Wide(lanes) * Wide(elements), size);
  c.require(kOutPositions, lanes, 4);
  c.require(kOutSlot, lanes, 4);
}

}  // namespace helios
