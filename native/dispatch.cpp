// The kernel tables behind dispatch.h. HELIOS_X86 is defined where the build has the two x86 sets.
#include "dispatch.h"

#include <stdexcept>

#include "kernels/host_kernels.h"
#include "kernels/kernels.h"

namespace helios {
namespace {

template <const LogitScans& Scans>
void run_sample_with(const Launch& launch, const Piece& piece) {
  run_sample(launch, piece, Scans);
}

template <const LogitScans& Scans>
void run_score_with(const Launch& launch, const Piece& piece) {
  run_score(launch, piece, Scans);
}

template <const LogitScans& Scans>
void run_score_ranked_with(const Launch& launch, const Piece& piece) {
  run_score_ranked(launch, piece, Scans);
}

template <const LogitScans& Scans>
void run_sample_processed_with(const Launch& launch, const Piece& piece) {
  run_sample_processed(launch, piece, Scans);
}

template <const LogitScans& Scans>
constexpr KernelTable make_table(KernelFunction embed, KernelFunction rms_norm,
                                 KernelFunction linear, KernelFunction linear_silu_mul,
                                 KernelFunction linear_tuned, KernelFunction linear_silu_mul_tuned,
                                 KernelFunction tune_linear, KernelFunction tune_linear_silu_mul,
                                 KernelFunction rope_and_cache, KernelFunction attention,
                                 KernelFunction rope_and_cache_bf16,
                                 KernelFunction attention_bf16) {
  KernelTable table{};
  const auto at = [&](KernelId id) -> KernelEntry& { return table[static_cast<std::size_t>(id)]; };
  at(KernelId::kScatterI32) = {run_scatter_i32, Cut::kNone};
  at(KernelId::kInitializeRequests) = {run_initialize_requests, Cut::kNone};
  at(KernelId::kLoadPending) = {run_load_pending, Cut::kNone};
  at(KernelId::kEmbed) = {embed, Cut::kEven};
  at(KernelId::kRmsNorm) = {rms_norm, Cut::kEven};
  at(KernelId::kLinear) = {linear, Cut::kByWeight};
  at(KernelId::kLinearSiluMul) = {linear_silu_mul, Cut::kByWeight};
  at(KernelId::kRopeAndCache) = {rope_and_cache, Cut::kEven};
  at(KernelId::kAttention) = {attention, Cut::kFine};
  at(KernelId::kSelectLast) = {run_select_last, Cut::kEven};
  at(KernelId::kSample) = {run_sample_with<Scans>, Cut::kEven};
  at(KernelId::kCommit) = {run_commit, Cut::kNone};
  at(KernelId::kLinearTuned) = {linear_tuned, Cut::kByWeight};
  at(KernelId::kLinearSiluMulTuned) = {linear_silu_mul_tuned, Cut::kByWeight};
  at(KernelId::kTuneLinear) = {tune_linear, Cut::kNone};
  at(KernelId::kTuneLinearSiluMul) = {tune_linear_silu_mul, Cut::kNone};
  at(KernelId::kSetPending) = {run_set_pending, Cut::kNone};
  at(KernelId::kMergePending) = {run_merge_pending, Cut::kNone};
  at(KernelId::kSliceRows) = {run_slice_rows, Cut::kNone};
  at(KernelId::kScore) = {run_score_with<Scans>, Cut::kEven};
  at(KernelId::kSavePage) = {run_save_page, Cut::kEven};
  at(KernelId::kLoadPage) = {run_load_page, Cut::kEven};
  at(KernelId::kCopyRows) = {run_copy_rows, Cut::kEven};
  at(KernelId::kInitializeSampling) = {run_initialize_sampling, Cut::kEven};
  at(KernelId::kSampleProcessed) = {run_sample_processed_with<Scans>, Cut::kEven};
  at(KernelId::kCountSampled) = {run_count_sampled, Cut::kNone};
  at(KernelId::kScoreRanked) = {run_score_ranked_with<Scans>, Cut::kEven};
  at(KernelId::kRopeAndCacheBf16) = {rope_and_cache_bf16, Cut::kEven};
  at(KernelId::kAttentionBf16) = {attention_bf16, Cut::kFine};
  at(KernelId::kSelectAttending) = {run_select_attending, Cut::kEven};
  return table;
}

#define HELIOS_TABLE(isa)                                                                   \
  make_table<isa::kLogitScans>(isa::run_embed, isa::run_rms_norm, isa::run_linear,          \
                               isa::run_linear_silu_mul, isa::run_linear_tuned,             \
                               isa::run_linear_silu_mul_tuned, isa::run_tune_linear,        \
                               isa::run_tune_linear_silu_mul, isa::run_rope_and_cache,      \
                               isa::run_attention, isa::run_rope_and_cache_bf16,            \
                               isa::run_attention_bf16)

constexpr KernelTable kPortable = HELIOS_TABLE(portable);
#ifdef HELIOS_X86
constexpr KernelTable kAvx512 = HELIOS_TABLE(avx512);
constexpr KernelTable kAvx2 = HELIOS_TABLE(avx2);

bool runs_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
#endif
#undef HELIOS_TABLE

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> sets;
#ifdef HELIOS_X86
  if (runs_avx512()) sets.emplace_back("avx512");
  if (runs_avx2()) sets.emplace_back("avx2");
#endif
  sets.emplace_back("portable");
  return sets;
}

const KernelTable& kernel_table(std::string_view instruction_set) {
  if (instruction_set == "portable") return kPortable;
#ifdef HELIOS_X86
  if (instruction_set == "avx512" && runs_avx512()) return kAvx512;
  if (instruction_set == "avx2" && runs_avx2()) return kAvx2;
#endif
  std::string known;
  for (const std::string& set : instruction_sets()) known += (known.empty() ? "" : ", ") + set;
  throw std::invalid_argument("instruction set \"" + std::string(instruction_set) +
                              "\" is unknown here; this machine runs: " + known);
}

}  // namespace helios
