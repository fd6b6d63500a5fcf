// `rope_and_cache` and `rope_and_cache_bf16`: per-head norms, rotary embedding, and the new keys and values into their page.
#include "../catalogue.h"
#include "cached_pages.h"
#include "kernels.h"
#include "norm.h"
#include "paging.h"
#include "rotation.h"

namespace helios::HELIOS_ISA {
namespace {

// Rotates the two halves of a head in place.
HELIOS_INLINE void rotate(float* head, std::int64_t half, const float* cosines,
                          const float* sines) {
  for (std::int64_t i = 0; i < half; i += kLanes) {
    const std::int64_t count = half - i;
    const Floats x = load_up_to(head + i, count);
    const Floats y = load_up_to(head + half + i, count);
    const Floats c = load_up_to(cosines + i, count);
    const Floats s = load_up_to(sines + i, count);
    store_up_to(head + i, x * c - y * s, count);
    store_up_to(head + half + i, y * c + x * s, count);
  }
}

HELIOS_INLINE void normalise(float* head, std::int64_t head_dim, const float* weight,
                             float epsilon) {
  const float factor = rms_factor(head, head_dim, epsilon);
  for (std::int64_t i = 0; i < head_dim; i += kLanes) {
    const std::int64_t count = head_dim - i;
    const Floats scaled = load_up_to(head + i, count) * broadcast(factor);
    store_up_to(head + i, scaled * load_up_to(weight + i, count), count);
  }
}

template <class Cache>
void run(const Launch& launch, const Piece& piece) {
  using namespace rope_and_cache;
  const std::int64_t q_heads = launch.integer(kQHeads);
  const std::int64_t kv_heads = launch.integer(kKvHeads);
  const std::int64_t head_dim = launch.integer(kHeadDim);
  const std::int64_t page_tokens = launch.integer(kPageTokens);
  const std::int64_t half = head_dim / 2;
  const std::int64_t width = (q_heads + 2 * kv_heads) * head_dim;
  const float epsilon = launch.real(kEpsilon);
  const float factor = launch.real(kAttentionFactor);
  const auto* positions = launch.read<std::int32_t>(kPositions);
  const auto* slots = launch.read<std::int32_t>(kSlot);
  const auto* q_norm = launch.read<float>(kQNorm);
  const auto* k_norm = launch.read<float>(kKNorm);
  const Cache cache{{kv_heads, head_dim, page_tokens, launch.write<std::uint16_t>(kKPlane),
                     launch.write<std::uint16_t>(kVPlane)}};
  const PageTable table = page_table(launch, kPageTable, kKPlane, kVPlane, kv_heads * head_dim,
                                     page_tokens, launch.integer(kTablePages));
  auto* cosines = reinterpret_cast<float*>(piece.scratch);
  float* sines = cosines + half;

  const Range share = piece.share(launch.rows());
  TokenRun tokens{nullptr, width, -1, 0, 0};
  for (std::int64_t r = share.begin; r < share.end; ++r) {
    float* row = launch.write<float>(kQkv) + r * width;
    const std::int32_t position = positions[r];
    if (position < 0) continue;
    rotations(position, launch.read<float>(kInverseFrequency), half, factor, cosines, sines);
    for (std::int64_t h = 0; h < q_heads + kv_heads; ++h) {
      const float* norm = h < q_heads ? q_norm : k_norm;
      if (norm != nullptr) normalise(row + h * head_dim, head_dim, norm, epsilon);
      rotate(row + h * head_dim, half, cosines, sines);
    }
    const std::int64_t page = table.page_of(slots[r], position / page_tokens);
    if (page < 0) continue;
    const std::int64_t index = position % page_tokens;
    const float* keys = row + q_heads * head_dim;
    if (tokens.count > 0 && tokens.count < kLanes && page == tokens.page &&
        index == tokens.index + tokens.count && keys == tokens.keys + tokens.count * width) {
      ++tokens.count;
      continue;
    }
    cache.store(tokens);
    tokens = {keys, width, page, index, 1};
  }
  cache.store(tokens);
}

}  // namespace

void run_rope_and_cache(const Launch& launch, const Piece& piece) {
  run<F16Cache>(launch, piece);
}

void run_rope_and_cache_bf16(const Launch& launch, const Piece& piece) {
  run<PairCache>(launch, piece);
}

}  // namespace helios::HELIOS_ISA
