// The kernels that read and write request state: `scatter_i32` (page-table deltas),
// `initialize_requests`, `set_pending`, `load_pending`, `merge_pending` and `commit`. Each is a few
// rows of bookkeeping, so the first piece does it all, in row order.
#include <algorithm>
#include <cstring>

#include "../catalogue.h"
#include "../layouts.h"
#include "host_kernels.h"

namespace helios {
namespace {

// The state row of a slot, or null where the slot is out of range.
RequestState* state_of(const Launch& launch, int operand, std::int32_t slot) {
  const std::uint64_t slots = launch.nbytes[operand] / sizeof(RequestState);
  if (slot < 0 || static_cast<std::uint64_t>(slot) >= slots) return nullptr;
  return launch.write<RequestState>(operand) + slot;
}

// Whether a lane goes on in its slot: its request is still there, and not finished.
bool runs(const RequestState* state, std::int32_t generation) {
  return state != nullptr && state->generation == generation && state->finished == 0;
}

bool is_eos(const RequestState& state, std::int32_t token) {
  for (const std::int32_t id : state.eos_ids) {
    if (id == token && id >= 0) return true;
  }
  return false;
}

}  // namespace

void run_scatter_i32(const Launch& launch, const Piece& piece) {
  using namespace scatter_i32;
  if (piece.index != 0) return;
  const auto* index = launch.read<std::int32_t>(kIndex);
  const auto* value = launch.read<std::int32_t>(kValue);
  auto* target = launch.write<std::int32_t>(kTarget);
  const std::uint64_t count = launch.nbytes[kTarget] / 4;
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    if (index[r] >= 0 && static_cast<std::uint64_t>(index[r]) < count) {
      target[index[r]] = value[r];
    }
  }
}

void run_initialize_requests(const Launch& launch, const Piece& piece) {
  using namespace initialize_requests;
  if (piece.index != 0) return;
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    RequestState* state = state_of(launch, kState, launch.read<std::int32_t>(kSlot)[r]);
    if (state == nullptr) continue;
    RequestState fresh{};
    fresh.consumed = launch.read<std::int32_t>(kConsumed)[r];
    fresh.emitted = launch.read<std::int32_t>(kEmitted)[r];
    fresh.output_limit = launch.read<std::int32_t>(kOutputLimit)[r];
    fresh.generation = launch.read<std::int32_t>(kGeneration)[r];
    fresh.seed_lo = launch.read<std::uint32_t>(kSeed)[2 * r];
    fresh.seed_hi = launch.read<std::uint32_t>(kSeed)[2 * r + 1];
    fresh.temperature = launch.read<float>(kTemperature)[r];
    fresh.top_p = launch.read<float>(kTopP)[r];
    fresh.min_p = launch.read<float>(kMinP)[r];
    fresh.top_k = launch.read<std::int32_t>(kTopK)[r];
    std::memcpy(fresh.eos_ids, launch.read<std::int32_t>(kEosIds) + r * kEosCapacity,
                sizeof fresh.eos_ids);
    *state = fresh;
  }
}

void run_load_pending(const Launch& launch, const Piece& piece) {
  using namespace load_pending;
  if (piece.index != 0) return;
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* generations = launch.read<std::int32_t>(kGeneration);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    const RequestState* state = state_of(launch, kState, slots[r]);
    const bool live = runs(state, generations[r]);
    launch.write<std::int32_t>(kTokens)[r] = live ? state->pending_token : 0;
    launch.write<std::int32_t>(kPositions)[r] = live ? state->consumed : -1;
  }
}

void run_set_pending(const Launch& launch, const Piece& piece) {
  using namespace set_pending;
  if (piece.index != 0) return;
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* generations = launch.read<std::int32_t>(kGeneration);
  const auto* tokens = launch.read<std::int32_t>(kToken);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    RequestState* state = state_of(launch, kState, slots[r]);
    if (runs(state, generations[r])) state->pending_token = tokens[r];
  }
}

void run_merge_pending(const Launch& launch, const Piece& piece) {
  using namespace merge_pending;
  if (piece.index != 0) return;
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* generations = launch.read<std::int32_t>(kGeneration);
  const auto* tokens = launch.read<std::int32_t>(kTokens);
  const auto* positions = launch.read<std::int32_t>(kPositions);
  auto* out_tokens = launch.write<std::int32_t>(kOutTokens);
  auto* out_positions = launch.write<std::int32_t>(kOutPositions);
  const std::int64_t decoding =
      std::min<std::int64_t>(*launch.read<std::int32_t>(kDecodeLanes), launch.integer(kLanes));
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    if (r >= decoding) {
      out_tokens[r] = tokens[r];
      out_positions[r] = positions[r];
      continue;
    }
    const RequestState* state = state_of(launch, kState, slots[r]);
    const bool live = runs(state, generations[r]);
    out_tokens[r] = live ? state->pending_token : 0;
    out_positions[r] = live ? state->consumed : -1;
  }
}

void run_commit(const Launch& launch, const Piece& piece) {
  using namespace commit;
  if (piece.index != 0) return;
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* generations = launch.read<std::int32_t>(kGeneration);
  const auto* lengths = launch.read<std::int32_t>(kQueryLength);
  const auto* sampled = launch.read<std::int32_t>(kSampled);
  const auto* tokens = launch.read<std::int32_t>(kTokens);
  const auto* logprobs = launch.read<float>(kLogprobs);
  const std::int64_t rows = launch.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    CompletionLane lane{};
    lane.slot = slots[r];
    lane.generation = generations[r];
    lane.draft_cursor = -1;
    lane.model_reserved = -1;
    std::int32_t token = -1;
    float logprob = 0.0f;
    RequestState* state = state_of(launch, kState, slots[r]);
    if (state == nullptr || state->generation != generations[r]) {
      lane.error = 1;
    } else if (state->finished != 0) {
      lane.error = 2;
    } else {
      // Unsigned, so that absurd lengths wrap instead of overflowing.
      const std::int32_t length = lengths != nullptr ? lengths[r] : 1;
      state->consumed = static_cast<std::int32_t>(static_cast<std::uint32_t>(state->consumed) +
                                                  static_cast<std::uint32_t>(length));
      if (sampled == nullptr || sampled[r] != 0) {
        token = tokens[r];
        logprob = logprobs[r];
        state->pending_token = token;
        state->emitted = static_cast<std::int32_t>(static_cast<std::uint32_t>(state->emitted) + 1);
        state->finished = is_eos(*state, token)                 ? 1
                          : state->emitted >= state->output_limit ? 2
                                                                  : 0;
        lane.emitted = 1;
        lane.finish = state->finished;
      }
    }
    if (state != nullptr) lane.consumed = state->consumed;
    launch.write<CompletionLane>(kLanes)[r] = lane;
    launch.write<std::int32_t>(kOutTokens)[r] = token;
    launch.write<float>(kOutLogprobs)[r] = logprob;
  }
}

}  // namespace helios
