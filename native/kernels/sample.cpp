// `sample`: greedy choice, or temperature, top_k, top_p, min_p and a position-keyed draw.
// `score`, `score_ranked`: the logprob of a given token, by the same arithmetic, and where it stands
// among the others. What all of them do with a row of logits is in logit_row.h.
#include <limits>

#include "../catalogue.h"
#include "../layouts.h"
#include "host_kernels.h"
#include "logit_row.h"
#include "sampling_rows.h"

namespace helios {

std::uint64_t sample_scratch_nbytes(std::int64_t vocab) {
  return static_cast<std::uint64_t>(LogitScratch(nullptr, vocab).nbytes);
}

void run_sample(const Launch& launch, const Piece& piece, const LogitScans& scans) {
  using namespace sample;
  const std::int64_t capacity = launch.integer(kCapacity);
  const std::int64_t vocab = launch.integer(kVocab);
  const std::int64_t stride = launch.integer(kStride);
  const auto* lanes = launch.read<std::int32_t>(kLane);
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* lengths = launch.read<std::int32_t>(kQueryLength);
  const auto* states = launch.read<RequestState>(kState);
  const auto slot_count =
      static_cast<std::int64_t>(launch.nbytes[kState] / sizeof(RequestState));
  const LogitScratch scratch(piece.scratch, vocab);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = piece.index; r < rows; r += piece.count) {
    const std::int64_t lane = lanes != nullptr ? lanes[r] : r;
    if (lane < 0 || lane >= capacity) continue;
    const std::int32_t slot = slots[lane];
    const RequestState state =
        slot >= 0 && slot < slot_count ? states[slot] : RequestState{};
    const LogitRow row(launch.read<float>(kLogits) + r * stride, vocab, scans, scratch);
    const std::int32_t length = lengths != nullptr ? lengths[lane] : 1;
    const std::int32_t token = row.choose(state, sampling_uniform(state, length));
    launch.write<std::int32_t>(kTokens)[lane] = token;
    launch.write<float>(kLogprobs)[lane] = row.logprob(token, row.log_sum());
  }
}

void run_score(const Launch& launch, const Piece& piece, const LogitScans& scans) {
  using namespace score;
  const std::int64_t vocab = launch.integer(kVocab);
  const std::int64_t stride = launch.integer(kStride);
  const auto* targets = launch.read<std::int32_t>(kTarget);
  const LogitScratch scratch(piece.scratch, vocab);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = piece.index; r < rows; r += piece.count) {
    float logprob = std::numeric_limits<float>::quiet_NaN();
    if (targets[r] >= 0 && targets[r] < vocab) {
      const LogitRow row(launch.read<float>(kLogits) + r * stride, vocab, scans, scratch);
      logprob = row.logprob(targets[r], row.log_sum());
    }
    launch.write<float>(kOut)[r] = logprob;
  }
}

void run_score_ranked(const Launch& launch, const Piece& piece, const LogitScans& scans) {
  using namespace score_ranked;
  const std::int64_t vocab = launch.integer(kVocab);
  const std::int64_t stride = launch.integer(kStride);
  const auto* targets = launch.read<std::int32_t>(kTarget);
  const auto* counts = launch.read<std::int32_t>(kWanted);
  const LogitScratch scratch(piece.scratch, vocab);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = piece.index; r < rows; r += piece.count) {
    auto* top_tokens = launch.write<std::int32_t>(kTopTokens) + r * kTopCapacity;
    auto* top_logprobs = launch.write<float>(kTopLogprobs) + r * kTopCapacity;
    const std::int64_t wanted = used(counts[r], kTopCapacity);
    const std::int32_t target = targets[r];
    if (target < 0 || target >= vocab) {
      launch.write<float>(kOut)[r] = std::numeric_limits<float>::quiet_NaN();
      launch.write<std::int32_t>(kRank)[r] = 0;
      if (wanted > 0) {
        std::fill_n(top_tokens, kTopCapacity, -1);
        std::fill_n(top_logprobs, kTopCapacity, 0.0f);
      }
      continue;
    }
    const LogitRow row(launch.read<float>(kLogits) + r * stride, vocab, scans, scratch);
    const double log_sum = row.log_sum();
    launch.write<float>(kOut)[r] = row.logprob(target, log_sum);
    launch.write<std::int32_t>(kRank)[r] = row.rank(target);
    if (wanted > 0) row.report_likeliest(wanted, log_sum, top_tokens, top_logprobs);
  }
}

}  // namespace helios
