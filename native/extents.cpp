// The checks behind extents.h, a function a kernel.
#include "extents.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/host_kernels.h"
#include "layouts.h"

namespace helios {
namespace {

// Sizes in bytes that saturate instead of wrapping.
__extension__ typedef unsigned __int128 Wide;

class Checker {
 public:
  Checker(std::int64_t index, KernelId kernel, const Launch& launch)
      : index_(index), spec_(catalogue()[static_cast<std::size_t>(kernel)]), launch_(launch) {
    require(0, 1, 4);
    count(0);
  }

  // An attribute that counts something: `low` to 2^31 - 1.
  std::int64_t count(int attribute, std::int64_t low = 1) const {
    const std::int64_t value = launch_.integer(attribute);
    if (value < low || value > std::numeric_limits<std::int32_t>::max()) {
      refuse(attribute, "must lie between " + std::to_string(low) + " and 2147483647");
    }
    return value;
  }

  std::int64_t choice(int attribute, std::int64_t low, std::int64_t high) const {
    const std::int64_t value = launch_.integer(attribute);
    if (value < low || value > high) {
      refuse(attribute,
             "must lie between " + std::to_string(low) + " and " + std::to_string(high));
    }
    return value;
  }

  std::int64_t multiple(int attribute, std::int64_t of) const {
    const std::int64_t value = count(attribute);
    if (value % of != 0) refuse(attribute, "must be a multiple of " + std::to_string(of));
    return value;
  }

  Format format(int attribute, int width_attribute) const {
    const auto value = static_cast<Format>(choice(attribute, 0, 3));
    if (is_quantised(value)) multiple(width_attribute, kBlock);
    return value;
  }

  Packing packing(int attribute, int width_attribute) const {
    const auto value = static_cast<Packing>(choice(attribute, 2, 8));
    if (is_quantised(value)) multiple(width_attribute, kBlock);
    if (value == Packing::kTile16Bf16) multiple(width_attribute, 2);
    return value;
  }

  bool present(int operand) const { return launch_.addresses[operand] != 0; }

  // `elements` elements of `size` bytes, aligned to `size`.
  void require(int operand, Wide elements, int size) const {
    if (!present(operand)) {
      const std::string_view name = spec_.operands[operand];
      if (name.ends_with('?')) return;
      fail("operand \"" + std::string(name) + "\" is absent but needed");
    }
    require_nbytes(operand, elements * static_cast<unsigned>(size), size);
  }

  void require_nbytes(int operand, Wide needed, int alignment) const {
    if (needed > launch_.nbytes[operand]) {
      const auto most = std::numeric_limits<std::uint64_t>::max();
      const auto shown = needed > most ? most : static_cast<std::uint64_t>(needed);
      fail("operand " + quoted(operand) + " needs " + std::to_string(shown) + " bytes, " +
           std::to_string(launch_.nbytes[operand]) + " given");
    }
    if (launch_.addresses[operand] % static_cast<unsigned>(alignment) != 0) {
      fail("operand " + quoted(operand) + " must be aligned to " + std::to_string(alignment) +
           " bytes");
    }
  }

  void activation(int operand, std::int64_t rows, Format format, std::int64_t width) const {
    if (!present(operand)) require(operand, 1, 4);
    require_nbytes(operand, Wide(rows) * static_cast<Wide>(row_nbytes(format, width)),
                   format == Format::kBf16 ? 2 : 4);
  }

  void weight(int operand, Packing packing, std::int64_t outputs, std::int64_t width) const {
    if (!present(operand)) require(operand, 1, 4);
    const Wide tiles = static_cast<Wide>(ceil_divide(outputs, kTileOutputs));
    require_nbytes(operand, tiles * static_cast<Wide>(tile_nbytes(packing, width)),
                   packing == Packing::kTile16F32 ? 4 : 2);
  }

  // The format that a packing's products take.
  void activation_fits(int attribute, Packing packing) const {
    const auto format = static_cast<Format>(launch_.integer(attribute));
    const bool fits = is_quantised(packing)              ? is_quantised(format)
                      : packing == Packing::kTile16Bf16 ? !is_quantised(format)
                                                         : format == Format::kF32;
    if (!fits) refuse(attribute, "doesn't go with the packing");
  }

  std::uint64_t scratch(std::uint64_t nbytes) const {
    if (nbytes > kScratchLimitNbytes) {
      fail("needs " + std::to_string(nbytes) + " bytes of scratch a worker, the limit is " +
           std::to_string(kScratchLimitNbytes));
    }
    return nbytes;
  }

  [[noreturn]] void refuse(int attribute, const std::string& why) const {
    fail("attribute \"" + std::string(spec_.integers[attribute]) + "\" is " +
         std::to_string(launch_.integer(attribute)) + ", " + why);
  }

 private:
  std::string quoted(int operand) const {
    return "\"" + std::string(spec_.operands[operand]) + "\"";
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("launch " + std::to_string(index_) + " (" + spec_.name +
                                "): " + what);
  }

  std::int64_t index_;
  const KernelSpec& spec_;
  const Launch& launch_;
};

void check_scatter_i32(const Checker& c) {
  using namespace scatter_i32;
  const std::int64_t rows = c.count(kCapacity);
  c.require(kIndex, rows, 4);
  c.require(kValue, rows, 4);
  c.require(kTarget, 0, 4);
}

void check_initialize_requests(const Checker& c) {
  using namespace initialize_requests;
  const std::int64_t rows = c.count(kCapacity);
  for (int operand = kSlot; operand < kState; ++operand) {
    const int columns = operand == kSeed ? 2 : operand == kEosIds ? kEosCapacity : 1;
    c.require(operand, Wide(rows) * static_cast<Wide>(columns), 4);
  }
  c.require(kState, 0, 4);
}

void check_load_pending(const Checker& c) {
  using namespace load_pending;
  const std::int64_t rows = c.count(kCapacity);
  for (const int operand : {kSlot, kGeneration, kTokens, kPositions}) c.require(operand, rows, 4);
  c.require(kState, 0, 4);
}

void check_embed(const Checker& c) {
  using namespace embed;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  c.require(kTokens, rows, 4);
  c.weight(kTable, c.packing(kPacking, kWidth), c.count(kVocab), width);
  c.require(kOut, Wide(rows) * Wide(width), 4);
}

void check_rms_norm(const Checker& c) {
  using namespace rms_norm;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t width = c.count(kWidth);
  c.activation(kX, rows, Format::kF32, width);
  c.require(kWeight, width, 4);
  c.activation(kOut, rows, c.format(kFormat, kWidth), width);
}

void check_linear(const Checker& c) {
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

void check_linear_tuned(const Checker& c) {
  check_linear(c);
  c.require(linear_tuned::kTuning, 1, 4);
}

void check_tune_linear(const Checker& c) {
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

void check_linear_silu_mul(const Checker& c) {
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

void check_linear_silu_mul_tuned(const Checker& c) {
  check_linear_silu_mul(c);
  c.require(linear_silu_mul_tuned::kTuning, 1, 4);
}

void check_tune_linear_silu_mul(const Checker& c) {
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
Heads check_heads(const Checker& c, Operand qkv, Operand k_plane, Operand v_plane,
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

std::uint64_t check_rope_and_cache(const Checker& c) {
  using namespace rope_and_cache;
  const Heads h = check_heads(c, kQkv, kKPlane, kVPlane, kPageTable);
  c.require(kPositions, h.rows, 4);
  c.require(kSlot, h.rows, 4);
  c.require(kInverseFrequency, h.head_dim / 2, 4);
  c.require(kQNorm, h.head_dim, 4);
  c.require(kKNorm, h.head_dim, 4);
  return c.scratch(static_cast<std::uint64_t>(h.head_dim) * sizeof(float));
}

std::uint64_t check_attention(const Checker& c) {
  using namespace attention;
  const Heads h = check_heads(c, kQkv, kKPlane, kVPlane, kPageTable);
  c.require(kPositions, h.rows, 4);
  c.require(kSlot, h.rows, 4);
  c.count(kWindow, 0);
  const auto format = static_cast<Format>(c.choice(kFormat, 0, 3));
  const std::int64_t heads = h.q_heads / h.kv_heads;
  if (is_quantised(format) && heads * h.head_dim % kBlock != 0) {
    c.refuse(kHeadDim, "times the query heads of a key head must be a multiple of 32 for q8");
  }
  c.activation(kOut, h.rows, format, h.q_heads * h.head_dim);
  const AttentionScratch scratch(heads, h.head_dim, h.page_tokens);
  return c.scratch(static_cast<std::uint64_t>(scratch.floats) * sizeof(float));
}

void check_select_last(const Checker& c) {
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

std::uint64_t check_sample(const Checker& c) {
  using namespace sample;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t vocab = c.count(kVocab);
  const std::int64_t stride = c.count(kStride);
  if (stride < vocab) c.refuse(kStride, "must be at least vocab");
  for (const int operand : {kLane, kSlot, kQueryLength, kTokens, kLogprobs}) {
    c.require(operand, rows, 4);
  }
  c.require(kState, 0, 4);
  c.require(kLogits, Wide(rows) * Wide(stride), 4);
  return c.scratch(sample_scratch_nbytes(vocab));
}

void check_commit(const Checker& c) {
  using namespace commit;
  const std::int64_t rows = c.count(kCapacity);
  for (const int operand : {kSlot, kGeneration, kQueryLength, kSampled, kTokens, kLogprobs,
                            kOutTokens, kOutLogprobs}) {
    c.require(operand, rows, 4);
  }
  c.require(kState, 0, 4);
  c.require(kLanes, Wide(rows) * 12, 4);
}

void check_set_pending(const Checker& c) {
  using namespace set_pending;
  const std::int64_t rows = c.count(kCapacity);
  for (const int operand : {kSlot, kGeneration, kToken}) c.require(operand, rows, 4);
  c.require(kState, 0, 4);
}

void check_merge_pending(const Checker& c) {
  using namespace merge_pending;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t lanes = c.count(kLanes);
  c.require(kDecodeLanes, 1, 4);
  c.require(kSlot, lanes, 4);
  c.require(kGeneration, lanes, 4);
  c.require(kState, 0, 4);
  for (const int operand : {kTokens, kPositions, kOutTokens, kOutPositions}) {
    c.require(operand, rows, 4);
  }
}

void check_slice_rows(const Checker& c) {
  using namespace slice_rows;
  c.count(kStart, 0);
  c.count(kLimit);
  c.require(kOut, 1, 4);
}

std::uint64_t check_score(const Checker& c) {
  using namespace score;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t vocab = c.count(kVocab);
  const std::int64_t stride = c.count(kStride);
  if (stride < vocab) c.refuse(kStride, "must be at least vocab");
  c.require(kTarget, rows, 4);
  c.require(kLogits, Wide(rows) * Wide(stride), 4);
  c.require(kOut, rows, 4);
  return c.scratch(sample_scratch_nbytes(vocab));
}

std::uint64_t check_score_ranked(const Checker& c) {
  using namespace score_ranked;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t vocab = c.count(kVocab);
  const std::int64_t stride = c.count(kStride);
  if (stride < vocab) c.refuse(kStride, "must be at least vocab");
  for (const int operand : {kTarget, kWanted, kOut, kRank}) c.require(operand, rows, 4);
  c.require(kLogits, Wide(rows) * Wide(stride), 4);
  for (const int operand : {kTopTokens, kTopLogprobs}) {
    c.require(operand, Wide(rows) * kTopCapacity, 4);
  }
  return c.scratch(sample_scratch_nbytes(vocab));
}

// Copies of a page to and from a saved row: at least one page and one row of each.
void check_page_copy(const Checker& c, int plane, int saved) {
  using namespace save_page;
  const std::int64_t rows = c.count(kCapacity);
  c.count(kPageTokens);
  const std::int64_t table_pages = c.count(kTablePages);
  const std::int64_t elements = c.count(kElements);
  const auto size = static_cast<int>(element_nbytes(c.choice(kDtype, 1, 9)));
  for (const int operand : {kSlot, kEndpoint, kRow}) c.require(operand, rows, 4);
  c.require(kPageTable, table_pages, 4);
  c.require(plane, elements, size);
  c.require(saved, elements, size);
}

void check_copy_rows(const Checker& c) {
  using namespace copy_rows;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t elements = c.count(kElements);
  const auto size = static_cast<int>(element_nbytes(c.choice(kDtype, 1, 9)));
  c.require(kSource, rows, 4);
  c.require(kDestination, rows, 4);
  c.require(kBuffer, elements, size);
}

void check_initialize_sampling(const Checker& c) {
  using namespace initialize_sampling;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t vocab = c.count(kVocab);
  const auto require_rows = [&](int operand, std::int64_t columns) {
    c.require(operand, Wide(rows) * Wide(columns), 4);
  };
  for (int operand = kSlot; operand <= kTopLogprobs; ++operand) require_rows(operand, 1);
  require_rows(kStopIds, kStopCapacity);
  require_rows(kBiasTokens, kBiasCapacity);
  require_rows(kBias, kBiasCapacity);
  require_rows(kBadWords, kBadWordCapacity);
  require_rows(kRecent, kRecentCapacity);
  require_rows(kMask, mask_words(vocab));
  for (int operand = kState; operand <= kTokenMask; ++operand) c.require(operand, 0, 4);
}

std::uint64_t check_sample_processed(const Checker& c) {
  using namespace sample_processed;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t vocab = c.count(kVocab);
  const std::int64_t stride = c.count(kStride);
  if (stride < vocab) c.refuse(kStride, "must be at least vocab");
  for (const int operand : {kLane, kSlot, kQueryLength, kTokens, kLogprobs}) {
    c.require(operand, rows, 4);
  }
  for (int operand = kState; operand <= kTokenMask; ++operand) c.require(operand, 0, 4);
  c.require(kGrammarMask, Wide(rows) * Wide(mask_words(vocab)), 4);
  c.require(kLogits, Wide(rows) * Wide(stride), 4);
  c.require(kTopTokens, Wide(rows) * kTopCapacity, 4);
  c.require(kTopLogprobs, Wide(rows) * kTopCapacity, 4);
  return c.scratch(processed_scratch_nbytes(vocab));
}

void check_count_sampled(const Checker& c) {
  using namespace count_sampled;
  const std::int64_t rows = c.count(kCapacity);
  c.count(kVocab);
  for (int operand = kSlot; operand <= kTokens; ++operand) c.require(operand, rows, 4);
  for (int operand = kState; operand <= kOutputCounts; ++operand) c.require(operand, 0, 4);
}

}  // namespace

std::uint64_t check_launch(std::int64_t index, KernelId kernel, const Launch& launch) {
  const Checker checker(index, kernel, launch);
  switch (kernel) {
    case KernelId::kScatterI32: check_scatter_i32(checker); return 0;
    case KernelId::kInitializeRequests: check_initialize_requests(checker); return 0;
    case KernelId::kLoadPending: check_load_pending(checker); return 0;
    case KernelId::kEmbed: check_embed(checker); return 0;
    case KernelId::kRmsNorm: check_rms_norm(checker); return 0;
    case KernelId::kLinear: check_linear(checker); return 0;
    case KernelId::kLinearSiluMul: check_linear_silu_mul(checker); return 0;
    case KernelId::kRopeAndCache: return check_rope_and_cache(checker);
    case KernelId::kAttention: return check_attention(checker);
    case KernelId::kSelectLast: check_select_last(checker); return 0;
    case KernelId::kSample: return check_sample(checker);
    case KernelId::kCommit: check_commit(checker); return 0;
    case KernelId::kLinearTuned: check_linear_tuned(checker); return 0;
    case KernelId::kLinearSiluMulTuned: check_linear_silu_mul_tuned(checker); return 0;
    case KernelId::kTuneLinear: check_tune_linear(checker); return 0;
    case KernelId::kTuneLinearSiluMul: check_tune_linear_silu_mul(checker); return 0;
    case KernelId::kSetPending: check_set_pending(checker); return 0;
    case KernelId::kMergePending: check_merge_pending(checker); return 0;
    case KernelId::kSliceRows: check_slice_rows(checker); return 0;
    case KernelId::kScore: return check_score(checker);
    case KernelId::kSavePage:
      check_page_copy(checker, save_page::kPlane, save_page::kSaved);
      return 0;
    case KernelId::kLoadPage:
      check_page_copy(checker, load_page::kPlane, load_page::kSaved);
      return 0;
    case KernelId::kCopyRows: check_copy_rows(checker); return 0;
    case KernelId::kInitializeSampling: check_initialize_sampling(checker); return 0;
    case KernelId::kSampleProcessed: return check_sample_processed(checker);
    case KernelId::kCountSampled: check_count_sampled(checker); return 0;
    case KernelId::kScoreRanked: return check_score_ranked(checker);
  }
  return 0;
}

}  // namespace helios
