// `sample_processed`: as `sample`, of logits that the request's bias, penalties and masks have
// changed; logprobs and the likeliest tokens are those of the raw ones.
//
// A lane that asks for nothing of this goes the way that `sample` goes. The others have their
// logits copied to scratch and changed there, in the order that docs/kernels.md gives.
#include <limits>

#include "../catalogue.h"
#include "host_kernels.h"
#include "logit_row.h"
#include "sampling_rows.h"

namespace helios {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// What one lane's logits are processed with; null for what it doesn't use.
struct Processing {
  const RequestState* state = nullptr;
  const SamplingRow* row = nullptr;
  const std::int32_t* token_counts = nullptr;
  const std::int32_t* output_counts = nullptr;
  const std::uint32_t* masks[2] = {};

  bool penalises() const { return token_counts != nullptr && output_counts != nullptr; }
  bool awaits_least() const { return state->emitted < state->min_tokens; }
  bool changes_nothing() const {
    return !penalises() && masks[0] == nullptr && masks[1] == nullptr && !awaits_least() &&
           (row == nullptr || (row->biases <= 0 && row->bad_tokens <= 0));
  }
};

class Processed {
 public:
  Processed(const float* raw, float* logits, std::int64_t vocab, const Processing& with)
      : logits_(logits), vocab_(vocab), with_(with) {
    std::copy_n(raw, vocab, logits);
  }

  void add_bias() {
    const SamplingRow* row = with_.row;
    if (row == nullptr) return;
    const std::int64_t count = used(row->biases, kBiasCapacity);
    for (std::int64_t i = 0; i < count; ++i) {
      if (holds(row->bias_tokens[i])) logits_[row->bias_tokens[i]] += row->bias[i];
    }
  }

  void penalise(const LogitScans& scans) {
    if (!with_.penalises()) return;
    const RequestState& state = *with_.state;
    scans.penalise(logits_, with_.token_counts, with_.output_counts, vocab_, repetition_of(state),
                   state.frequency_penalty, state.presence_penalty);
  }

  void mask() {
    for (const std::uint32_t* words : with_.masks) {
      if (words != nullptr) keep(words);
    }
  }

  // What depends on the output so far.
  void exclude() {
    if (with_.awaits_least()) {
      for (const std::int32_t id : with_.state->eos_ids) exclude(id);
    }
    const SamplingRow* row = with_.row;
    if (row == nullptr) return;
    if (with_.awaits_least()) {
      const std::int64_t count = used(row->stops, kStopCapacity);
      for (std::int64_t i = 0; i < count; ++i) exclude(row->stop_ids[i]);
    }
    const std::int64_t end = used(row->bad_tokens, kBadWordCapacity);
    for (std::int64_t at = 0; at < end;) {
      const std::int64_t length = row->bad_words[at];
      if (length < 1 || length > end - at - 1) return;
      const std::int32_t* word = row->bad_words + at + 1;
      if (follows(*row, word, length - 1)) exclude(word[length - 1]);
      at += 1 + length;
    }
  }

 private:
  bool holds(std::int32_t id) const { return id >= 0 && id < vocab_; }
  void exclude(std::int32_t id) {
    if (holds(id)) logits_[id] = kExcluded;
  }

  // Whether the last output tokens are these.
  static bool follows(const SamplingRow& row, const std::int32_t* tokens, std::int64_t count) {
    return count <= kRecentCapacity &&
           std::equal(tokens, tokens + count, row.recent + kRecentCapacity - count);
  }

  void keep(const std::uint32_t* words) {
    for (std::int64_t first = 0; first < vocab_; first += 32) {
      std::uint32_t excluded = ~words[first / 32];
      const std::int64_t live = std::min<std::int64_t>(32, vocab_ - first);
      if (live < 32) excluded &= (1u << live) - 1;
      if (excluded == ~0u) {
        std::fill_n(logits_ + first, 32, kExcluded);
        continue;
      }
      for (; excluded != 0; excluded &= excluded - 1) {
        logits_[first + __builtin_ctz(excluded)] = kExcluded;
      }
    }
  }

  float* logits_;
  std::int64_t vocab_;
  const Processing& with_;
};

// Whether a mask excludes none of the tokens, as that of a lane without a grammar. Words are joined
// first, so that all of them are looked at at once.
bool allows_all(const std::uint32_t* words, std::int64_t vocab) {
  std::uint32_t all = ~0u;
  for (std::int64_t word = 0; word < vocab / 32; ++word) all &= words[word];
  const std::int64_t rest = vocab % 32;
  if (rest != 0) all &= words[vocab / 32] | ~((1u << rest) - 1);
  return all == ~0u;
}

// The lane's choice of its processed logits. Where nothing is left, bad words and the least length
// give way.
std::int32_t choose(const float* raw, float* processed, std::int64_t vocab,
                    const LogitScans& scans, const LogitScratch& scratch, const Processing& with,
                    double u) {
  for (const bool excluding : {true, false}) {
    Processed logits(raw, processed, vocab, with);
    logits.add_bias();
    logits.penalise(scans);
    logits.mask();
    if (excluding) logits.exclude();
    const LogitRow row(processed, vocab, scans, scratch);
    if (!excluding || !row.is_empty()) return row.choose(*with.state, u);
  }
  return 0;
}

}  // namespace

std::uint64_t processed_scratch_nbytes(std::int64_t vocab) {
  return sample_scratch_nbytes(vocab) +
         static_cast<std::uint64_t>(LogitScratch::padded(vocab * 4));
}

void run_sample_processed(const Launch& launch, const Piece& piece, const LogitScans& scans) {
  using namespace sample_processed;
  const std::int64_t capacity = launch.integer(kCapacity);
  const std::int64_t vocab = launch.integer(kVocab);
  const std::int64_t stride = launch.integer(kStride);
  const std::int64_t words = mask_words(vocab);
  const auto* lanes = launch.read<std::int32_t>(kLane);
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* lengths = launch.read<std::int32_t>(kQueryLength);
  const auto* grammar = launch.read<std::uint32_t>(kGrammarMask);
  const LogitScratch scratch(piece.scratch, vocab);
  auto* processed = reinterpret_cast<float*>(piece.scratch + scratch.nbytes);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = piece.index; r < rows; r += piece.count) {
    const std::int64_t lane = lanes != nullptr ? lanes[r] : r;
    if (lane < 0 || lane >= capacity) continue;
    const std::int32_t slot = slots[lane];
    const auto* held = row_of_slot<const RequestState>(launch, kState, 1, slot);
    const RequestState state = held != nullptr ? *held : RequestState{};
    const auto* row = row_of_slot<const SamplingRow>(launch, kSampling, 1, slot);
    Processing with{&state, row};
    if (counts_tokens(state)) {
      with.token_counts = row_of_slot<const std::int32_t>(launch, kTokenCounts, vocab, slot);
      with.output_counts = row_of_slot<const std::int32_t>(launch, kOutputCounts, vocab, slot);
    }
    if (row != nullptr && row->masked != 0) {
      with.masks[0] = row_of_slot<const std::uint32_t>(launch, kTokenMask, words, slot);
    }
    if (grammar != nullptr && !allows_all(grammar + lane * words, vocab)) {
      with.masks[1] = grammar + lane * words;
    }

    const float* logits = launch.read<float>(kLogits) + r * stride;
    const LogitRow raw(logits, vocab, scans, scratch);
    const double log_sum = raw.log_sum();
    const std::int64_t wanted = row != nullptr ? used(row->top_logprobs, kTopCapacity) : 0;
    if (wanted > 0) {
      raw.report_likeliest(wanted, log_sum,
                           launch.write<std::int32_t>(kTopTokens) + lane * kTopCapacity,
                           launch.write<float>(kTopLogprobs) + lane * kTopCapacity);
    }
    const std::int32_t length = lengths != nullptr ? lengths[lane] : 1;
    const double u = sampling_uniform(state, length);
    const std::int32_t token =
        with.changes_nothing() ? raw.choose(state, u)
                               : choose(logits, processed, vocab, scans, scratch, with, u);
    launch.write<std::int32_t>(kTokens)[lane] = token;
    launch.write<float>(kLogprobs)[lane] = raw.logprob(token, log_sum);
  }
}

}  // namespace helios
