// Declarations of the kernels that are compiled once for each instruction set, and the table that
// collects them. Kernels without vector work are declared in host_kernels.h.
#pragma once

#include "../launch.h"

namespace helios {

// Vector passes over a row of logits, used by `sample`, whose logic is compiled once.
struct LogitScans {
  static constexpr std::int64_t kSumBlock = 1024;
  // Logits i with equal i / kMaximumGroup and i % kMaximumStride make a block of maxima: 16 blocks
  // a group, found without a step across lanes.
  static constexpr std::int64_t kMaximumGroup = 256;
  static constexpr std::int64_t kMaximumStride = 16;

  // Largest value of each block, of all groups in order; NaN counts as -infinity.
  void (*block_maxima)(const float* logits, std::int64_t count, float* maxima);
  // Sum of e^(logit - largest) in f64; NaN where a logit is.
  double (*sum_exponentials)(const float* logits, std::int64_t count, float largest);
  // Weights e^(logit / temperature - largest / temperature), 0 where below `least` or NaN.
  void (*weights)(const float* logits, std::int64_t count, float temperature, float largest,
                  float least, float* out);
  // f64 sums of those weights over blocks of kSumBlock.
  void (*block_weights)(const float* logits, std::int64_t count, float temperature,
                        float largest, float least, double* sums);
  // Divides positive and multiplies other logits of counted tokens by `repetition`, then takes off
  // `frequency` times the output count and `presence` where there is one.
  void (*penalise)(float* logits, const std::int32_t* counts, const std::int32_t* outputs,
                   std::int64_t count, float repetition, float frequency, float presence);
};

#define HELIOS_DECLARE_KERNELS(isa)                              \
  namespace isa {                                                \
  void run_embed(const Launch&, const Piece&);                   \
  void run_rms_norm(const Launch&, const Piece&);                \
  void run_linear(const Launch&, const Piece&);                  \
  void run_linear_silu_mul(const Launch&, const Piece&);         \
  void run_linear_tuned(const Launch&, const Piece&);            \
  void run_linear_silu_mul_tuned(const Launch&, const Piece&);   \
  void run_tune_linear(const Launch&, const Piece&);             \
  void run_tune_linear_silu_mul(const Launch&, const Piece&);    \
  void run_rope_and_cache(const Launch&, const Piece&);          \
  void run_attention(const Launch&, const Piece&);               \
  void run_rope_and_cache_bf16(const Launch&, const Piece&);     \
  void run_attention_bf16(const Launch&, const Piece&);          \
  extern const LogitScans kLogitScans;                           \
  }

HELIOS_DECLARE_KERNELS(avx512)
HELIOS_DECLARE_KERNELS(avx2)
HELIOS_DECLARE_KERNELS(portable)
#undef HELIOS_DECLARE_KERNELS

}  // namespace helios
