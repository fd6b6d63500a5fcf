// How new keys and values are stored in the pages of a cache: as f16, or as pairs of bf16. Used by
// rope_and_cache.cpp alone.
#pragma once

#include "transpose.h"
#include "vector.h"

namespace helios::HELIOS_ISA {

// From so many tokens on, sixteen elements of each are turned round in registers.
inline constexpr std::int64_t kTurnedTokens = 8;

// Tokens that are stored together: beside each other in one page, in consecutive rows, at most 16.
struct TokenRun {
  const float* keys;  // of the first row's first head; the values follow all keys
  std::int64_t stride;
  std::int64_t page;
  std::int64_t index;
  std::int64_t count;
};

struct CachePlanes {
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t page_tokens;
  std::uint16_t* k_plane;
  std::uint16_t* v_plane;

  HELIOS_INLINE std::int64_t base(const TokenRun& run, std::int64_t head) const {
    return (run.page * heads + head) * head_dim * page_tokens;
  }
  HELIOS_INLINE const float* key(const TokenRun& run, std::int64_t head) const {
    return run.keys + head * head_dim;
  }
  HELIOS_INLINE const float* value(const TokenRun& run, std::int64_t head) const {
    return run.keys + (heads + head) * head_dim;
  }
};

// Keys [head_dim][page_tokens], values [page_tokens][head_dim], f16.
struct F16Cache : CachePlanes {
  void store(const TokenRun& run, std::int64_t head) const {
    store_keys(key(run, head), run, k_plane + base(run, head) + run.index);
    const float* from = value(run, head);
    std::uint16_t* out = v_plane + base(run, head) + run.index * head_dim;
    for (std::int64_t r = 0; r < run.count; ++r, from += run.stride, out += head_dim) {
      for (std::int64_t d = 0; d < head_dim; d += kLanes) {
        const std::int64_t count = head_dim - d;
        store_f16_up_to(out + d, load_up_to(from + d, count), count);
      }
    }
  }

  void store_keys(const float* keys, const TokenRun& run, std::uint16_t* out) const {
    std::int64_t d = 0;
    if (run.count >= kTurnedTokens) {
      alignas(64) float block[kLanes * kLanes];
      for (; d + kLanes <= head_dim; d += kLanes) {
        transpose_block(
            [&](int i) { return keys + (i < run.count ? i : 0) * run.stride + d; }, block, kLanes);
        for (int i = 0; i < kLanes; ++i) {
          store_f16_up_to(out + (d + i) * page_tokens, load(block + i * kLanes), run.count);
        }
      }
    }
    for (std::int64_t r = 0; r < run.count; ++r) {
      for (std::int64_t e = d; e < head_dim; e += kLanes) {
        const std::int64_t left = head_dim - e;
        const std::int64_t count = left < kLanes ? left : std::int64_t{kLanes};
        std::uint16_t elements[kLanes];
        store_f16_up_to(elements, load_up_to(keys + r * run.stride + e, count), count);
        for (std::int64_t i = 0; i < count; ++i) out[(e + i) * page_tokens + r] = elements[i];
      }
    }
  }
};

// Keys [head_dim / 2][page_tokens][2], values [page_tokens / 2][head_dim][2], bf16.
struct PairCache : CachePlanes {
  void store(const TokenRun& run, std::int64_t head) const {
    store_keys(key(run, head), run, k_plane + base(run, head) + 2 * run.index);
    store_values(value(run, head), run, v_plane + base(run, head));
  }

  void store_keys(const float* keys, const TokenRun& run, std::uint16_t* out) const {
    std::int64_t d = 0;
    if (run.count >= kTurnedTokens) {
      // 32 elements of a token are sixteen pairs, which are turned round as if they were floats.
      alignas(64) std::uint16_t rows[2 * kLanes * kLanes] = {};
      alignas(64) float block[kLanes * kLanes];
      for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
        for (std::int64_t r = 0; r < run.count; ++r) {
          std::uint16_t* row = rows + 2 * r * kLanes;
          store_bf16(row, load(keys + r * run.stride + d));
          store_bf16(row + kLanes, load(keys + r * run.stride + d + kLanes));
        }
        transpose_block(
            [&](int i) {
              return reinterpret_cast<const float*>(rows + 2 * (i < run.count ? i : 0) * kLanes);
            },
            block, kLanes);
        for (int i = 0; i < kLanes; ++i) {
          auto* to = reinterpret_cast<float*>(out + (d + 2 * i) * page_tokens);
          store_up_to(to, load(block + i * kLanes), run.count);
        }
      }
    }
    for (std::int64_t r = 0; r < run.count; ++r) {
      for (std::int64_t e = d; e < head_dim; e += kLanes) {
        const std::int64_t left = head_dim - e;
        const std::int64_t count = left < kLanes ? left : std::int64_t{kLanes};
        std::uint16_t elements[kLanes];
        store_bf16_up_to(elements, load_up_to(keys + r * run.stride + e, count), count);
        for (std::int64_t i = 0; i < count; i += 2) {
          __builtin_memcpy(out + (e + i) * page_tokens + 2 * r, elements + i, 4);
        }
      }
    }
  }

  void store_values(const float* values, const TokenRun& run, std::uint16_t* out) const {
    for (std::int64_t r = 0; r < run.count; ++r, values += run.stride) {
      const std::int64_t token = run.index + r;
      std::uint16_t* pair = out + (token - token % 2) * head_dim;
      // Both tokens of a pair at once, else the one's halves of it: the other's may be another
      // thread's.
      const bool both = token % 2 == 0 && r + 1 < run.count;
      for (std::int64_t d = 0; d < head_dim; d += kLanes) {
        const std::int64_t left = head_dim - d;
        const std::int64_t count = left < kLanes ? left : std::int64_t{kLanes};
        std::uint16_t elements[kLanes];
        store_bf16_up_to(elements, load_up_to(values + d, count), count);
        if (both) {
          std::uint16_t odd[kLanes];
          store_bf16_up_to(odd, load_up_to(values + run.stride + d, count), count);
          for (std::int64_t i = 0; i < count; ++i) {
            pair[2 * (d + i)] = elements[i];
            pair[2 * (d + i) + 1] = odd[i];
          }
        } else {
          for (std::int64_t i = 0; i < count; ++i) pair[2 * (d + i) + token % 2] = elements[i];
        }
      }
      if (both) {
        ++r;
        values += run.stride;
      }
    }
  }
};

}  // namespace helios::HELIOS_ISA
