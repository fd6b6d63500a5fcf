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

// A launch's operands, and what it does to one row.
template <class Cache>
class Rope {
 public:
  Rope(const Launch& launch, const Piece& piece)
      : launch_(launch),
        q_heads_(launch.integer(kQHeads)),
        kv_heads_(launch.integer(kKvHeads)),
        head_dim_(launch.integer(kHeadDim)),
        page_tokens_(launch.integer(kPageTokens)),
        width_((q_heads_ + 2 * kv_heads_) * head_dim_),
        cache_{{kv_heads_, head_dim_, page_tokens_, launch.write<std::uint16_t>(kKPlane),
                launch.write<std::uint16_t>(kVPlane)}},
        table_(page_table(launch, kPageTable, kKPlane, kVPlane, kv_heads_ * head_dim_,
                          page_tokens_, launch.integer(kTablePages))),
        cosines_(reinterpret_cast<float*>(piece.scratch)),
        sines_(cosines_ + head_dim_ / 2) {}

  // Rows one after the other; tokens beside each other are stored together.
  void run_rows(Range rows) {
    TokenRun tokens{nullptr, width_, -1, 0, 0};
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      if (!turn(r)) continue;
      for (std::int64_t h = 0; h < kv_heads_; ++h) rotate_group(r, h);
      const TokenRun own = place(r);
      if (own.page < 0) continue;
      if (tokens.count > 0 && tokens.count < kLanes && own.page == tokens.page &&
          own.index == tokens.index + tokens.count &&
          own.keys == tokens.keys + tokens.count * width_) {
        ++tokens.count;
        continue;
      }
      store(tokens);
      tokens = own;
    }
    store(tokens);
  }

  // One key/value head of a row after the other, with its query heads.
  void run_heads(Range items) {
    for (std::int64_t i = items.begin; i < items.end; ++i) {
      const std::int64_t row = i / kv_heads_;
      const std::int64_t head = i % kv_heads_;
      if (!turn(row)) continue;
      rotate_group(row, head);
      const TokenRun own = place(row);
      if (own.page >= 0) cache_.store(own, head);
    }
  }

  std::int64_t kv_heads() const { return kv_heads_; }

 private:
  static constexpr auto kQkv = rope_and_cache::kQkv;
  static constexpr auto kPageTable = rope_and_cache::kPageTable;
  static constexpr auto kKPlane = rope_and_cache::kKPlane;
  static constexpr auto kVPlane = rope_and_cache::kVPlane;
  static constexpr auto kQHeads = rope_and_cache::kQHeads;
  static constexpr auto kKvHeads = rope_and_cache::kKvHeads;
  static constexpr auto kHeadDim = rope_and_cache::kHeadDim;
  static constexpr auto kPageTokens = rope_and_cache::kPageTokens;
  static constexpr auto kTablePages = rope_and_cache::kTablePages;

  float* row(std::int64_t r) const { return launch_.write<float>(kQkv) + r * width_; }
  std::int32_t position(std::int64_t r) const {
    return launch_.read<std::int32_t>(rope_and_cache::kPositions)[r];
  }

  // Computes a row's angles, unless they are there; false where the row is inert.
  bool turn(std::int64_t r) {
    const std::int32_t now = position(r);
    if (now < 0) return false;
    if (now != turned_) {
      rotations(now, launch_.read<float>(rope_and_cache::kInverseFrequency), head_dim_ / 2,
                launch_.real(rope_and_cache::kAttentionFactor), cosines_, sines_);
      turned_ = now;
    }
    return true;
  }

  void rotate_head(std::int64_t r, std::int64_t head, int norm) const {
    float* at = row(r) + head * head_dim_;
    const auto* weight = launch_.read<float>(norm);
    if (weight != nullptr) {
      normalise(at, head_dim_, weight, launch_.real(rope_and_cache::kEpsilon));
    }
    rotate(at, head_dim_ / 2, cosines_, sines_);
  }

  // The query heads of a key/value head, and its key.
  void rotate_group(std::int64_t r, std::int64_t kv_head) const {
    const std::int64_t heads = q_heads_ / kv_heads_;
    for (std::int64_t h = kv_head * heads; h < (kv_head + 1) * heads; ++h) {
      rotate_head(r, h, rope_and_cache::kQNorm);
    }
    rotate_head(r, q_heads_ + kv_head, rope_and_cache::kKNorm);
  }

  // Where a row's token goes; page -1 where it has no place.
  TokenRun place(std::int64_t r) const {
    const std::int32_t slot = launch_.read<std::int32_t>(rope_and_cache::kSlot)[r];
    const std::int64_t page = table_.page_of(slot, position(r) / page_tokens_);
    return {row(r) + q_heads_ * head_dim_, width_, page, position(r) % page_tokens_, 1};
  }

  void store(const TokenRun& tokens) const {
    if (tokens.count == 0) return;
    for (std::int64_t h = 0; h < kv_heads_; ++h) cache_.store(tokens, h);
  }

  const Launch& launch_;
  std::int64_t q_heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  std::int64_t page_tokens_;
  std::int64_t width_;
  Cache cache_;
  PageTable table_;
  float* cosines_;
  float* sines_;
  std::int32_t turned_ = -1;
};

template <class Cache>
void run(const Launch& launch, const Piece& piece) {
  Rope<Cache> rope(launch, piece);
  const std::int64_t rows = launch.rows();
  // Of few rows the heads are divided: a row alone would leave all workers but one idle.
  if (rows < 2 * piece.count) {
    rope.run_heads(piece.share(rows * rope.kv_heads()));
  } else {
    rope.run_rows(piece.share(rows));
  }
}

}  // namespace

void run_rope_and_cache(const Launch& launch, const Piece& piece) {
  run<F16Cache>(launch, piece);
}

void run_rope_and_cache_bf16(const Launch& launch, const Piece& piece) {
  run<PairCache>(launch, piece);
}

}  // namespace helios::HELIOS_ISA
