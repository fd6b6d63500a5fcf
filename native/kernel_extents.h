// A kernel's part of check_launch: refuses what its launch lacks. Those that return a number tell
// the bytes of scratch that a worker needs; the others need none.
#pragma once

#include <cstdint>

#include "launch_checker.h"

namespace helios {

// layer_extents.cpp
void check_embed(const LaunchChecker& c);
void check_rms_norm(const LaunchChecker& c);
void check_linear(const LaunchChecker& c);
void check_linear_tuned(const LaunchChecker& c);
void check_tune_linear(const LaunchChecker& c);
void check_linear_silu_mul(const LaunchChecker& c);
void check_linear_silu_mul_tuned(const LaunchChecker& c);
void check_tune_linear_silu_mul(const LaunchChecker& c);
std::uint64_t check_rope_and_cache(const LaunchChecker& c);
std::uint64_t check_attention(const LaunchChecker& c);
std::uint64_t check_rope_and_cache_bf16(const LaunchChecker& c);
std::uint64_t check_attention_bf16(const LaunchChecker& c);
void check_select_last(const LaunchChecker& c);
void check_select_attending(const LaunchChecker& c);

// request_extents.cpp
void check_scatter_i32(const LaunchChecker& c);
void check_initialize_requests(const LaunchChecker& c);
void check_load_pending(const LaunchChecker& c);
std::uint64_t check_sample(const LaunchChecker& c);
void check_commit(const LaunchChecker& c);
void check_set_pending(const LaunchChecker& c);
void check_merge_pending(const LaunchChecker& c);
void check_slice_rows(const LaunchChecker& c);
std::uint64_t check_score(const LaunchChecker& c);
std::uint64_t check_score_ranked(const LaunchChecker& c);
void check_page_copy(const LaunchChecker& c, int plane, int saved);
void check_copy_rows(const LaunchChecker& c);
void check_initialize_sampling(const LaunchChecker& c);
std::uint64_t check_sample_processed(const LaunchChecker& c);
void check_count_sampled(const LaunchChecker& c);

}  // namespace helios
