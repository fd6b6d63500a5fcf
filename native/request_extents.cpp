// The checks of what moves and samples requests, a function a kernel.
#include "kernel_extents.h"
#include "kernels/host_kernels.h"

namespace helios {

void check_scatter_i32(const LaunchChecker& c) {
  using namespace scatter_i32;
  const std::int64_t rows = c.count(kCapacity);
  c.require(kIndex, rows, 4);
  c.require(kValue, rows, 4);
  c.require(kTarget, 0, 4);
}

void check_initialize_requests(const LaunchChecker& c) {
  using namespace initialize_requests;
  const std::int64_t rows = c.count(kCapacity);
  for (int operand = kSlot; operand < kState; ++operand) {
    const int columns = operand == kSeed ? 2 : operand == kEosIds ? kEosCapacity : 1;
    c.require(operand, Wide(rows) * static_cast<Wide>(columns), 4);
  }
  c.require(kState, 0, 4);
}

void check_load_pending(const LaunchChecker& c) {
  using namespace load_pending;
  const std::int64_t rows = c.count(kCapacity);
  for (const int operand : {kSlot, kGeneration, kTokens, kPositions}) c.require(operand, rows, 4);
  c.require(kState, 0, 4);
}

std::uint64_t check_sample(const LaunchChecker& c) {
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

void check_commit(const LaunchChecker& c) {
  using namespace commit;
  const std::int64_t rows = c.count(kCapacity);
  for (const int operand : {kSlot, kGeneration, kQueryLength, kSampled, kTokens, kLogprobs,
                            kOutTokens, kOutLogprobs}) {
    c.require(operand, rows, 4);
  }
  c.require(kState, 0, 4);
  c.require(kLanes, Wide(rows) * 12, 4);
}

void check_set_pending(const LaunchChecker& c) {
  using namespace set_pending;
  const std::int64_t rows = c.count(kCapacity);
  for (const int operand : {kSlot, kGeneration, kToken}) c.require(operand, rows, 4);
  c.require(kState, 0, 4);
}

void check_merge_pending(const LaunchChecker& c) {
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

void check_slice_rows(const LaunchChecker& c) {
  using namespace slice_rows;
  c.count(kStart, 0);
  c.count(kLimit);
  c.require(kOut, 1, 4);
}

std::uint64_t check_score(const LaunchChecker& c) {
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

std::uint64_t check_score_ranked(const LaunchChecker& c) {
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
void check_page_copy(const LaunchChecker& c, int plane, int saved) {
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

void check_copy_rows(const LaunchChecker& c) {
  using namespace copy_rows;
  const std::int64_t rows = c.count(kCapacity);
  const std::int64_t elements = c.count(kElements);
  const auto size = static_cast<int>(element_nbytes(c.choice(kDtype, 1, 9)));
  c.require(kSource, rows, 4);
  c.require(kDestination, rows, 4);
  c.require(kBuffer, elements, size);
}

void check_initialize_sampling(const LaunchChecker& c) {
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

std::uint64_t check_sample_processed(const LaunchChecker& c) {
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

void check_count_sampled(const LaunchChecker& c) {
  using namespace count_sampled;
  const std::int64_t rows = c.count(kCapacity);
  c.count(kVocab);
  for (int operand = kSlot; operand <= kTokens; ++operand) c.require(operand, rows, 4);
  for (int operand = kState; operand <= kOutputCounts; ++operand) c.require(operand, 0, 4);
}

}  // namespace helios
