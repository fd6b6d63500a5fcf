// `initialize_sampling`: what an admitted request brings for the processing of its logits.
// `count_sampled`: what sampled tokens change of it.
#include "sampling_rows.h"

#include <cstring>

#include "../catalogue.h"
#include "host_kernels.h"

namespace helios {
namespace {

// Elements before the first negative one.
std::int32_t ids_in(const std::int32_t* list, std::int32_t capacity) {
  return static_cast<std::int32_t>(
      std::find_if(list, list + capacity, [](std::int32_t id) { return id < 0; }) - list);
}

// Elements of the whole sequences, each a length and so many ids, before a length that isn't.
std::int32_t elements_of_sequences(const std::int32_t* list) {
  std::int32_t end = 0;
  while (end < kBadWordCapacity && list[end] > 0 && list[end] < kBadWordCapacity - end) {
    end += 1 + list[end];
  }
  return end;
}

bool excludes(const std::uint32_t* mask, std::int64_t vocab) {
  const std::int64_t whole = vocab / 32;
  for (std::int64_t word = 0; word < whole; ++word) {
    if (mask[word] != ~0u) return true;
  }
  const std::uint32_t rest = (1u << (vocab % 32)) - 1;
  return rest != 0 && (mask[whole] & rest) != rest;
}

SamplingRow row_of(const Launch& launch, std::int64_t r) {
  using namespace initialize_sampling;
  const auto* stops = launch.read<std::int32_t>(kStopIds) + r * kStopCapacity;
  const auto* biased = launch.read<std::int32_t>(kBiasTokens) + r * kBiasCapacity;
  const auto* words = launch.read<std::int32_t>(kBadWords) + r * kBadWordCapacity;
  SamplingRow row{};
  row.top_logprobs = launch.read<std::int32_t>(kTopLogprobs)[r];
  row.stops = ids_in(stops, kStopCapacity);
  row.biases = ids_in(biased, kBiasCapacity);
  row.bad_tokens = elements_of_sequences(words);
  return row;
}

}  // namespace

void run_initialize_sampling(const Launch& launch, const Piece& piece) {
  using namespace initialize_sampling;
  const std::int64_t vocab = launch.integer(kVocab);
  const std::int64_t words = mask_words(vocab);
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const Range columns = piece.share(vocab);
  const auto counts_nbytes = static_cast<std::size_t>(columns.end - columns.begin) * 4;
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    RequestState penalties{};
    penalties.repetition_penalty = launch.read<float>(kRepetitionPenalty)[r];
    penalties.presence_penalty = launch.read<float>(kPresencePenalty)[r];
    penalties.frequency_penalty = launch.read<float>(kFrequencyPenalty)[r];
    // Counts are cleared by all pieces, the rest is the first one's.
    if (counts_tokens(penalties)) {
      for (const int counts : {kTokenCounts, kOutputCounts}) {
        auto* row = row_of_slot<std::int32_t>(launch, counts, vocab, slots[r]);
        if (row != nullptr) std::memset(row + columns.begin, 0, counts_nbytes);
      }
    }
    if (piece.index != 0) continue;
    if (auto* state = row_of_slot<RequestState>(launch, kState, 1, slots[r])) {
      state->repetition_penalty = penalties.repetition_penalty;
      state->presence_penalty = penalties.presence_penalty;
      state->frequency_penalty = penalties.frequency_penalty;
      state->min_tokens = launch.read<std::int32_t>(kMinTokens)[r];
    }
    const std::uint32_t* mask = launch.read<std::uint32_t>(kMask) + r * words;
    auto* kept_mask = row_of_slot<std::uint32_t>(launch, kTokenMask, words, slots[r]);
    const bool masked = kept_mask != nullptr && excludes(mask, vocab);
    if (masked) std::memcpy(kept_mask, mask, static_cast<std::size_t>(words) * 4);
    auto* row = row_of_slot<SamplingRow>(launch, kSampling, 1, slots[r]);
    if (row == nullptr) continue;
    SamplingRow head = row_of(launch, r);
    head.masked = masked ? 1 : 0;
    // Lists that the head says nothing of are never read and keep their bytes.
    std::memcpy(row, &head, offsetof(SamplingRow, recent));
    const auto copy = [&](auto* to, int operand, std::int64_t capacity, std::int64_t count) {
      std::memcpy(to, launch.read<std::int32_t>(operand) + r * capacity,
                  static_cast<std::size_t>(count) * 4);
    };
    copy(row->stop_ids, kStopIds, kStopCapacity, head.stops);
    copy(row->bias_tokens, kBiasTokens, kBiasCapacity, head.biases);
    copy(row->bias, kBias, kBiasCapacity, head.biases);
    copy(row->bad_words, kBadWords, kBadWordCapacity, head.bad_tokens);
    if (head.bad_tokens > 0) copy(row->recent, kRecent, kRecentCapacity, kRecentCapacity);
  }
}

void run_count_sampled(const Launch& launch, const Piece& piece) {
  using namespace count_sampled;
  if (piece.index != 0) return;
  const std::int64_t vocab = launch.integer(kVocab);
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* generations = launch.read<std::int32_t>(kGeneration);
  const auto* sampled = launch.read<std::int32_t>(kSampled);
  const auto* tokens = launch.read<std::int32_t>(kTokens);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* state = row_of_slot<const RequestState>(launch, kState, 1, slots[r]);
    if (state == nullptr || state->generation != generations[r] || state->finished != 0) continue;
    if (sampled != nullptr && sampled[r] == 0) continue;
    if (tokens[r] < 0 || tokens[r] >= vocab) continue;
    if (counts_tokens(*state)) {
      for (const int counts : {kTokenCounts, kOutputCounts}) {
        auto* row = row_of_slot<std::uint32_t>(launch, counts, vocab, slots[r]);
        if (row != nullptr) ++row[tokens[r]];
      }
    }
    auto* row = row_of_slot<SamplingRow>(launch, kSampling, 1, slots[r]);
    if (row == nullptr || row->bad_tokens <= 0) continue;
    std::copy(row->recent + 1, row->recent + kRecentCapacity, row->recent);
    row->recent[kRecentCapacity - 1] = tokens[r];
  }
}

}  // namespace helios
