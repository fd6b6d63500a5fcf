// `rope_and_cache`: per-head norms, rotary embedding, and the new keys and values into their page.
#include "../catalogue.h"
#include "kernels.h"
#include "norm.h"
#include "paging.h"
#include "rotation.h"
#include "transpose.h"

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

constexpr std::int64_t kTurnedTokens = 8;

struct Cache {
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t page_tokens;
  std::uint16_t* k_plane;
  std::uint16_t* v_plane;

  HELIOS_INLINE std::int64_t base(std::int64_t page, std::int64_t head) const {
    return (page * heads + head) * head_dim * page_tokens;
  }
};

// Tokens that are stored together: beside each other in one page, in consecutive rows.
struct Run {
  const float* keys;  // of the first row's first head; the values follow all keys
  std::int64_t stride;
  std::int64_t page;
  std::int64_t index;
  std::int64_t count;
};

// A page holds its keys transposed.
void store_keys(const Cache& cache, const Run& run, std::int64_t head) {
  const float* keys = run.keys + head * cache.head_dim;
  std::uint16_t* out = cache.k_plane + cache.base(run.page, head) + run.index;
  std::int64_t d = 0;
  // Where there are enough tokens, sixteen elements of each are turned round in registers.
  if (run.count >= kTurnedTokens) {
    alignas(64) float block[kLanes * kLanes];
    for (; d + kLanes <= cache.head_dim; d += kLanes) {
      transpose_block(
          [&](int i) { return keys + (i < run.count ? i : 0) * run.stride + d; }, block, kLanes);
      for (int i = 0; i < kLanes; ++i) {
        store_f16_up_to(out + (d + i) * cache.page_tokens, load(block + i * kLanes), run.count);
      }
    }
  }
  for (std::int64_t r = 0; r < run.count; ++r) {
    for (std::int64_t e = d; e < cache.head_dim; e += kLanes) {
      const std::int64_t left = cache.head_dim - e;
      const std::int64_t count = left < kLanes ? left : std::int64_t{kLanes};
      std::uint16_t elements[kLanes];
      store_f16_up_to(elements, load_up_to(keys + r * run.stride + e, count), count);
      for (std::int64_t i = 0; i < count; ++i) {
        out[(e + i) * cache.page_tokens + r] = elements[i];
      }
    }
  }
}

void store_run(const Cache& cache, const Run& run) {
  for (std::int64_t h = 0; h < cache.heads; ++h) {
    store_keys(cache, run, h);
    const float* value = run.keys + (cache.heads + h) * cache.head_dim;
    std::uint16_t* out =
        cache.v_plane + cache.base(run.page, h) + run.index * cache.head_dim;
    for (std::int64_t r = 0; r < run.count; ++r, value += run.stride, out += cache.head_dim) {
      for (std::int64_t d = 0; d < cache.head_dim; d += kLanes) {
        const std::int64_t count = cache.head_dim - d;
        store_f16_up_to(out + d, load_up_to(value + d, count), count);
      }
    }
  }
}

}  // namespace

void run_rope_and_cache(const Launch& launch, const Piece& piece) {
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
  const Cache cache{kv_heads, head_dim, page_tokens, launch.write<std::uint16_t>(kKPlane),
                    launch.write<std::uint16_t>(kVPlane)};
  const PageTable table = page_table(launch, kPageTable, kKPlane, kVPlane, kv_heads * head_dim,
                                     page_tokens, launch.integer(kTablePages));
  auto* cosines = reinterpret_cast<float*>(piece.scratch);
  float* sines = cosines + half;

  const Range share = piece.share(launch.rows());
  Run run{nullptr, width, -1, 0, 0};
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
    if (run.count > 0 && run.count < kLanes && page == run.page &&
        index == run.index + run.count && keys == run.keys + run.count * width) {
      ++run.count;
      continue;
    }
    store_run(cache, run);
    run = {keys, width, page, index, 1};
  }
  store_run(cache, run);
}

}  // namespace helios::HELIOS_ISA
