// check_launch: which kernel's check a launch is held against.
#include "extents.h"

#include "kernel_extents.h"

namespace helios {

std::uint64_t check_launch(std::int64_t index, KernelId kernel, const Launch& launch) {
  const LaunchChecker checker(index, kernel, launch);
  switch (kernel) {
    case KernelId::kScatterI32: check_scatter_i32(checker); return 0;
    case KernelId::kInitializeRequests: check_initialize_requests(checker); return 0;
    case KernelId::kLoadPending: check_load_pending(checker); return 0;
    case KernelId::kEmbed: check_embed(checker); return 0;
    case KernelId::kRmsNorm: check_rms_norm(checker); return 0;
    case KernelId::kLinear: check_linear(checker); return 0;
    case KernelId::kLinearSiluMul: check_linear_silu_mul(checker); return 0;
    case KernelId::kRopeAndCache: return check_rope_and_cache(checker);
    case KernelId::kAttention: return check_attention(checker);
    case KernelId::kSelectLast: check_select_last(checker); return 0;
    case KernelId::kSample: return check_sample(checker);
    case KernelId::kCommit: check_commit(checker); return 0;
    case KernelId::kLinearTuned: check_linear_tuned(checker); return 0;
    case KernelId::kLinearSiluMulTuned: check_linear_silu_mul_tuned(checker); return 0;
    case KernelId::kTuneLinear: check_tune_linear(checker); return 0;
    case KernelId::kTuneLinearSiluMul: check_tune_linear_silu_mul(checker); return 0;
    case KernelId::kSetPending: check_set_pending(checker); return 0;
    case KernelId::kMergePending: check_merge_pending(checker); return 0;
    case KernelId::kSliceRows: check_slice_rows(checker); return 0;
    case KernelId::kScore: return check_score(checker);
    case KernelId::kSavePage:
      check_page_copy(checker, save_page::kPlane, save_page::kSaved);
      return 0;
    case KernelId::kLoadPage:
      check_page_copy(checker, load_page::kPlane, load_page::kSaved);
      return 0;
    case KernelId::kCopyRows: check_copy_rows(checker); return 0;
    case KernelId::kInitializeSampling: check_initialize_sampling(checker); return 0;
    case KernelId::kSampleProcessed: return check_sample_processed(checker);
    case KernelId::kCountSampled: check_count_sampled(checker); return 0;
    case KernelId::kScoreRanked: return check_score_ranked(checker);
    case KernelId::kRopeAndCacheBf16: return check_rope_and_cache_bf16(checker);
    case KernelId::kAttentionBf16: return check_attention_bf16(checker);
    case KernelId::kSelectAttending: check_select_attending(checker); return 0;
  }
  return 0;
}

}  // namespace helios
