// A row of logits as sampling reads it: greedy choice, draws under temperature, top_k, top_p and
// min_p, logprobs, the likeliest tokens.
//
// Vector passes come from the instruction set's LogitScans. The order (logit descending, id
// ascending) is only ever made for as many candidates as somebody asks for: block maxima bound the
// n-th largest logit from below, and only what reaches that bound is collected.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "../layouts.h"
#include "../philox.h"
#include "kernels.h"

namespace helios {

struct LogitCandidate {
  float logit;
  std::int32_t id;
};

// The random number of the token that a lane samples after consuming `length` more.
inline double sampling_uniform(const RequestState& state, std::int32_t length) {
  if (!(state.temperature > 0.0f)) return 0.0;
  const std::uint32_t position =
      static_cast<std::uint32_t>(state.consumed) + static_cast<std::uint32_t>(length);
  return philox_uniform(state.seed_lo, state.seed_hi, position, 0);
}

// Views of a piece's scratch for a vocabulary.
struct LogitScratch {
  float* maxima;          // of each block (kernels.h)
  float* sorted_maxima;
  double* block_sums;     // of each block of kSumBlock weights
  float* weights;         // one a candidate, or one block of the vocabulary
  float* gathered;        // candidate logits, for the vector weights
  LogitCandidate* candidates;
  std::int64_t nbytes;

  LogitScratch(std::byte* base, std::int64_t vocab) {
    std::int64_t used = 0;
    const auto take = [&](std::int64_t size) {
      std::byte* at = base == nullptr ? nullptr : base + used;
      used += padded(size);
      return at;
    };
    const std::int64_t blocks = block_count(vocab);
    maxima = reinterpret_cast<float*>(take(blocks * 4));
    sorted_maxima = reinterpret_cast<float*>(take(blocks * 4));
    block_sums =
        reinterpret_cast<double*>(take(ceil_divide(vocab, LogitScans::kSumBlock) * 8));
    weights = reinterpret_cast<float*>(take(std::max(vocab, LogitScans::kSumBlock) * 4));
    gathered = reinterpret_cast<float*>(take(vocab * 4));
    candidates = reinterpret_cast<LogitCandidate*>(take(vocab * 8));
    nbytes = used;
  }

  static constexpr std::int64_t block_count(std::int64_t vocab) {
    return ceil_divide(vocab, LogitScans::kMaximumGroup) * LogitScans::kMaximumStride;
  }
  static constexpr std::int64_t padded(std::int64_t nbytes) { return (nbytes + 63) / 64 * 64; }
};

// One row at a time uses a scratch: a later row of the same scratch ends what an earlier one can
// be asked, but for its logprobs.
class LogitRow {
 public:
  LogitRow(const float* logits, std::int64_t vocab, const LogitScans& scans,
           const LogitScratch& scratch)
      : logits_(logits), vocab_(vocab), scans_(scans), scratch_(scratch) {
    blocks_ = LogitScratch::block_count(vocab);
    scans_.block_maxima(logits, vocab, scratch_.maxima);
    largest_ = *std::max_element(scratch_.maxima, scratch_.maxima + blocks_);
  }

  // Whether no logit is above -infinity.
  bool is_empty() const { return largest_ == -std::numeric_limits<float>::infinity(); }

  // The token that the state's parameters choose, with u in [0, 1) where they draw.
  std::int32_t choose(const RequestState& state, double u) const {
    return state.temperature > 0.0f ? draw(state, u) : greedy();
  }

  // First id of the largest logit; NaN never wins, 0 where nothing does.
  std::int32_t greedy() const {
    std::int64_t first = vocab_;
    for (std::int64_t b = 0; b < blocks_; ++b) {
      if (scratch_.maxima[b] != largest_) continue;
      for_block(b, [&](std::int64_t i) {
        if (logits_[i] == largest_) first = std::min(first, i);
      });
    }
    return first < vocab_ ? static_cast<std::int32_t>(first) : 0;
  }

  // What every token's logprob subtracts beside the largest logit.
  double log_sum() const { return std::log(scans_.sum_exponentials(logits_, vocab_, largest_)); }

  float logprob(std::int32_t token, double log_sum) const {
    return static_cast<float>(static_cast<double>(logits_[token]) -
                              static_cast<double>(largest_) - log_sum);
  }

  std::int32_t draw(const RequestState& state, double u) const {
    const float least = state.min_p > 0.0f ? state.min_p : 0.0f;
    const bool ordered = state.top_k > 0 || state.top_p < 1.0f;
    return ordered ? draw_from_prefix(state, least, u)
                   : draw_from_all(state.temperature, least, u);
  }

  // The first `wanted` candidates of the order, in it; fewer where logits are NaN.
  std::span<const LogitCandidate> likeliest(std::int64_t wanted) const {
    return {scratch_.candidates,
            static_cast<std::size_t>(order_candidates(std::min(wanted, vocab_)))};
  }

  // The first `wanted` tokens of the order and their logprobs into rows of kTopCapacity, then -1
  // and 0 to the end.
  void report_likeliest(std::int64_t wanted, double log_sum, std::int32_t* tokens,
                        float* logprobs) const {
    std::fill_n(tokens, kTopCapacity, -1);
    std::fill_n(logprobs, kTopCapacity, 0.0f);
    for (const LogitCandidate& candidate : likeliest(wanted)) {
      *tokens++ = candidate.id;
      *logprobs++ = logprob(candidate.id, log_sum);
    }
  }

  // The place of a token in the order, from 1.
  std::int32_t rank(std::int32_t token) const {
    const float own = logits_[token];
    std::int32_t before = 0;
    for (std::int64_t i = 0; i < token; ++i) before += logits_[i] >= own;
    for (std::int64_t i = token + 1; i < vocab_; ++i) before += logits_[i] > own;
    return before + 1;
  }

 private:
  static constexpr std::int64_t kFirstCandidates = 128;

  static bool before(const LogitCandidate& a, const LogitCandidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  // Calls `visit` with the index of every logit of a block of maxima.
  template <class Visit>
  void for_block(std::int64_t block, const Visit& visit) const {
    constexpr std::int64_t kStride = LogitScans::kMaximumStride;
    const std::int64_t group = block / kStride * LogitScans::kMaximumGroup;
    const std::int64_t end = std::min(group + LogitScans::kMaximumGroup, vocab_);
    for (std::int64_t i = group + block % kStride; i < end; i += kStride) visit(i);
  }

  // No order needed: sums over blocks find the block, a walk through it the token.
  std::int32_t draw_from_all(float temperature, float least, double u) const {
    constexpr std::int64_t kSumBlock = LogitScans::kSumBlock;
    const std::int64_t blocks = ceil_divide(vocab_, kSumBlock);
    scans_.block_weights(logits_, vocab_, temperature, largest_, least, scratch_.block_sums);
    double total = 0.0;
    for (std::int64_t b = 0; b < blocks; ++b) total += scratch_.block_sums[b];
    const double target = u * total;
    std::int64_t chosen = -1;  // the block that the target falls into, or the last with weight
    double before_chosen = 0.0;
    double running = 0.0;
    for (std::int64_t b = 0; b < blocks && !(running > target); ++b) {
      if (scratch_.block_sums[b] <= 0.0) continue;
      chosen = b;
      before_chosen = running;
      running += scratch_.block_sums[b];
    }
    if (chosen < 0) return greedy();
    const std::int64_t begin = chosen * kSumBlock;
    const std::int64_t count = std::min(kSumBlock, vocab_ - begin);
    scans_.weights(logits_ + begin, count, temperature, largest_, least, scratch_.weights);
    std::int64_t token = begin;
    running = before_chosen;
    for (std::int64_t i = 0; i < count && !(running > target); ++i) {
      if (scratch_.weights[i] <= 0.0f) continue;
      token = begin + i;
      running += static_cast<double>(scratch_.weights[i]);
    }
    return static_cast<std::int32_t>(token);
  }

  // The prefix of the order that top_k and top_p keep, less what min_p drops.
  std::int32_t draw_from_prefix(const RequestState& state, float least, double u) const {
    const bool limited = state.top_k > 0 && state.top_k < vocab_;
    const bool nucleus = state.top_p < 1.0f;
    double whole = 0.0;
    if (nucleus && !limited) {
      const std::int64_t blocks = ceil_divide(vocab_, LogitScans::kSumBlock);
      scans_.block_weights(logits_, vocab_, state.temperature, largest_, 0.0f,
                           scratch_.block_sums);
      for (std::int64_t b = 0; b < blocks; ++b) whole += scratch_.block_sums[b];
    }
    std::int64_t wanted = limited ? state.top_k : nucleus ? kFirstCandidates : vocab_;
    while (true) {
      const std::int64_t found = order_candidates(std::min(wanted, vocab_));
      weigh_candidates(found, state.temperature);
      if (limited) {
        whole = 0.0;
        for (std::int64_t i = 0; i < found; ++i) whole += scratch_.weights[i];
      }
      std::int64_t kept = found;
      bool reached = !nucleus;
      double running = 0.0;
      for (std::int64_t i = 0; nucleus && i < found; ++i) {
        running += scratch_.weights[i];
        if (running >= static_cast<double>(state.top_p) * whole) {
          kept = i + 1;
          reached = true;
          break;
        }
      }
      if (reached || limited || wanted >= vocab_) return pick(kept, least, u);
      wanted *= 8;
    }
  }

  // Makes the first `wanted` candidates of the order; fewer where logits are NaN.
  std::int64_t order_candidates(std::int64_t wanted) const {
    float bound = -std::numeric_limits<float>::infinity();
    if (wanted <= blocks_) {
      std::copy_n(scratch_.maxima, blocks_, scratch_.sorted_maxima);
      std::nth_element(scratch_.sorted_maxima, scratch_.sorted_maxima + (wanted - 1),
                       scratch_.sorted_maxima + blocks_, std::greater<float>());
      bound = scratch_.sorted_maxima[wanted - 1];
    }
    std::int64_t found = 0;
    for (std::int64_t b = 0; b < blocks_; ++b) {
      if (!(scratch_.maxima[b] >= bound)) continue;
      for_block(b, [&](std::int64_t i) {
        if (logits_[i] >= bound) {
          scratch_.candidates[found++] = {logits_[i], static_cast<std::int32_t>(i)};
        }
      });
    }
    LogitCandidate* first = scratch_.candidates;
    if (wanted < found) {
      std::nth_element(first, first + wanted, first + found, before);
      found = wanted;
    }
    std::sort(first, first + found, before);
    return found;
  }

  void weigh_candidates(std::int64_t count, float temperature) const {
    for (std::int64_t i = 0; i < count; ++i) {
      scratch_.gathered[i] = scratch_.candidates[i].logit;
    }
    scans_.weights(scratch_.gathered, count, temperature, largest_, 0.0f, scratch_.weights);
  }

  // Draws from the first `kept` candidates, in id order.
  std::int32_t pick(std::int64_t kept, float least, double u) const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < kept; ++i) {
      const float weight = scratch_.weights[i];
      if (weight > 0.0f && !(weight < least)) {
        // Weights ride in the logit's place while ids are put in order.
        scratch_.candidates[count++] = {weight, scratch_.candidates[i].id};
      }
    }
    if (count == 0) return greedy();
    LogitCandidate* first = scratch_.candidates;
    std::sort(first, first + count,
              [](const LogitCandidate& a, const LogitCandidate& b) { return a.id < b.id; });
    double total = 0.0;
    for (std::int64_t i = 0; i < count; ++i) total += first[i].logit;
    double running = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      running += first[i].logit;
      if (running > u * total) return first[i].id;
    }
    return first[count - 1].id;
  }

  const float* logits_;
  std::int64_t vocab_;
  const LogitScans& scans_;
  const LogitScratch& scratch_;
  std::int64_t blocks_;
  float largest_;
};

}  // namespace helios
