// `sample`: greedy choice, or temperature, top_k, top_p, min_p and a position-keyed draw.
// `score`: the logprob of a given token, by the same arithmetic. What both do with a row of logits
// is in logit_row.h.
#include <limits>

#include "../catalogue.h"
#include "../layouts.h"
#include "host_kernels.h"
#include "logit_row.h"

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

}  // namespace helios
