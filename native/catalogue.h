// The kernel catalogue as data: names and orders of operands and attributes, and an enumeration
// of each so that code indexes by name. The same catalogue as src/helios/kernels/catalogue.py; a
// test compares them. Append-only. What a kernel computes is in kernels/.
#pragma once

#include <span>

namespace helios {

struct KernelSpec {
  const char* name;
  std::span<const char* const> operands;  // optional ones end in "?"
  std::span<const char* const> integers;
  std::span<const char* const> floats;
};

// A kernel's id is its index in the catalogue.
enum class KernelId : int {
  kScatterI32,
  kInitializeRequests,
  kLoadPending,
  kEmbed,
  kRmsNorm,
  kLinear,
  kLinearSiluMul,
  kRopeAndCache,
  kAttention,
  kSelectLast,
  kSample,
  kCommit,
  kLinearTuned,
  kLinearSiluMulTuned,
  kTuneLinear,
  kTuneLinearSiluMul,
  kSetPending,
  kMergePending,
  kSliceRows,
  kScore,
  kSavePage,
  kLoadPage,
  kCopyRows,
  kInitializeSampling,
  kSampleProcessed,
  kCountSampled,
  kScoreRanked,
  kRopeAndCacheBf16,
  kAttentionBf16,
  kSelectAttending,
};

inline constexpr int kKernelCount = 30;

std::span<const KernelSpec, kKernelCount> catalogue();

// Operand and attribute indices. `kRows` and `kCapacity` are 0 in every kernel; the tune_* kernels
// have no `kRows`, since they run over all `kCapacity` rows.
namespace scatter_i32 {
enum Operand { kRows, kIndex, kValue, kTarget };
enum Integer { kCapacity };
}  // namespace scatter_i32

namespace initialize_requests {
enum Operand {
  kRows, kSlot, kGeneration, kConsumed, kEmitted, kOutputLimit, kSeed, kTemperature, kTopK, kTopP,
  kMinP, kEosIds, kState,
};
enum Integer { kCapacity };
}  // namespace initialize_requests

namespace load_pending {
enum Operand { kRows, kSlot, kGeneration, kState, kTokens, kPositions };
enum Integer { kCapacity };
}  // namespace load_pending

namespace embed {
enum Operand { kRows, kTokens, kTable, kOut };
enum Integer { kCapacity, kVocab, kWidth, kPacking };
enum Float { kScale };
}  // namespace embed

namespace rms_norm {
enum Operand { kRows, kX, kWeight, kOut };
enum Integer { kCapacity, kWidth, kFormat };
enum Float { kEpsilon };
}  // namespace rms_norm

namespace linear {
enum Operand { kRows, kX, kWeight, kBias, kOut };
enum Integer { kCapacity, kWidth, kOutputs, kPacking, kFormat, kAccumulate };
}  // namespace linear

namespace linear_silu_mul {
enum Operand { kRows, kX, kWeight, kOut };
enum Integer { kCapacity, kWidth, kOutputs, kPacking, kFormat, kOutFormat };
}  // namespace linear_silu_mul

// The same operands and attributes as without tuning, and the tuning last.
namespace linear_tuned {
enum Operand { kRows, kX, kWeight, kBias, kOut, kTuning };
using Integer = linear::Integer;
}  // namespace linear_tuned

namespace linear_silu_mul_tuned {
enum Operand { kRows, kX, kWeight, kOut, kTuning };
using Integer = linear_silu_mul::Integer;
}  // namespace linear_silu_mul_tuned

namespace tune_linear {
enum Operand { kX, kWeight, kOut, kChoice };
enum Integer { kCapacity, kWidth, kOutputs, kPacking, kFormat };
}  // namespace tune_linear

namespace tune_linear_silu_mul {
enum Operand { kX, kWeight, kOut, kChoice };
enum Integer { kCapacity, kWidth, kOutputs, kPacking, kFormat, kOutFormat };
}  // namespace tune_linear_silu_mul

namespace rope_and_cache {
enum Operand {
  kRows, kQkv, kPositions, kSlot, kPageTable, kInverseFrequency, kQNorm, kKNorm, kKPlane, kVPlane,
};
enum Integer { kCapacity, kQHeads, kKvHeads, kHeadDim, kPageTokens, kTablePages };
enum Float { kEpsilon, kAttentionFactor };
}  // namespace rope_and_cache
namespace rope_and_cache_bf16 = rope_and_cache;

namespace attention {
enum Operand { kRows, kQkv, kPositions, kSlot, kPageTable, kKPlane, kVPlane, kOut };
enum Integer {
  kCapacity, kQHeads, kKvHeads, kHeadDim, kPageTokens, kTablePages, kWindow, kFormat,
};
enum Float { kScale };
}  // namespace attention
namespace attention_bf16 = attention;

namespace select_last {
enum Operand { kRows, kQueryLength, kSample, kX, kSelectedRows, kSelectedLane, kOut };
enum Integer { kCapacity, kPackedCapacity, kWidth };
}  // namespace select_last

namespace sample {
enum Operand { kRows, kLane, kSlot, kQueryLength, kState, kLogits, kTokens, kLogprobs };
enum Integer { kCapacity, kVocab, kStride };
}  // namespace sample

namespace commit {
enum Operand {
  kRows, kSlot, kGeneration, kQueryLength, kSampled, kTokens, kLogprobs, kState, kLanes,
  kOutTokens, kOutLogprobs,
};
enum Integer { kCapacity };
}  // namespace commit

namespace set_pending {
enum Operand { kRows, kSlot, kGeneration, kToken, kState };
enum Integer { kCapacity };
}  // namespace set_pending

namespace merge_pending {
enum Operand {
  kRows, kDecodeLanes, kSlot, kGeneration, kState, kTokens, kPositions, kOutTokens, kOutPositions,
};
enum Integer { kCapacity, kLanes };
}  // namespace merge_pending

namespace slice_rows {
enum Operand { kRows, kOut };
enum Integer { kCapacity, kStart, kLimit };
}  // namespace slice_rows

namespace score {
enum Operand { kRows, kTarget, kLogits, kOut };
enum Integer { kCapacity, kVocab, kStride };
}  // namespace score

namespace save_page {
enum Operand { kRows, kSlot, kEndpoint, kRow, kPageTable, kPlane, kSaved };
enum Integer { kCapacity, kPageTokens, kTablePages, kElements, kDtype };
}  // namespace save_page

namespace load_page {
enum Operand { kRows, kSlot, kEndpoint, kRow, kPageTable, kSaved, kPlane };
using Integer = save_page::Integer;
}  // namespace load_page

namespace copy_rows {
enum Operand { kRows, kSource, kDestination, kBuffer };
enum Integer { kCapacity, kElements, kDtype };
}  // namespace copy_rows

namespace initialize_sampling {
enum Operand {
  kRows, kSlot, kRepetitionPenalty, kPresencePenalty, kFrequencyPenalty, kMinTokens, kTopLogprobs,
  kStopIds, kBiasTokens, kBias, kBadWords, kRecent, kMask, kState, kSampling, kTokenCounts,
  kOutputCounts, kTokenMask,
};
enum Integer { kCapacity, kVocab };
}  // namespace initialize_sampling

namespace sample_processed {
enum Operand {
  kRows, kLane, kSlot, kQueryLength, kState, kSampling, kTokenCounts, kOutputCounts, kTokenMask,
  kGrammarMask, kLogits, kTokens, kLogprobs, kTopTokens, kTopLogprobs,
};
enum Integer { kCapacity, kVocab, kStride };
}  // namespace sample_processed

namespace count_sampled {
enum Operand {
  kRows, kSlot, kGeneration, kSampled, kTokens, kState, kSampling, kTokenCounts, kOutputCounts,
};
enum Integer { kCapacity, kVocab };
}  // namespace count_sampled

namespace score_ranked {
enum Operand { kRows, kTarget, kWanted, kLogits, kOut, kRank, kTopTokens, kTopLogprobs };
enum Integer { kCapacity, kVocab, kStride };
}  // namespace score_ranked

namespace select_attending {
enum Operand {
  kRows, kQueryLength, kSample, kX, kQueries, kPositions, kSlot, kSelectedRows, kSelectedLane, kOut,
  kOutQueries, kOutPositions, kOutSlot,
};
enum Integer { kCapacity, kPackedCapacity, kWidth, kElements, kDtype };
}  // namespace select_attending

}  // namespace helios
