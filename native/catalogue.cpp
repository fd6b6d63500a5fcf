// The tables behind catalogue.h.
#include "catalogue.h"

namespace helios {
namespace {

using Names = const char* const[];

constexpr Names kCapacityOnly = {"capacity"};

constexpr Names kScatterOperands = {"rows", "index", "value", "target"};

constexpr Names kInitializeOperands = {"rows",         "slot",    "generation",  "consumed",
                                       "emitted",      "output_limit", "seed",   "temperature",
                                       "top_k",        "top_p",   "min_p",       "eos_ids",
                                       "state"};

constexpr Names kLoadPendingOperands = {"rows",  "slot",   "generation",
                                        "state", "tokens", "positions"};

constexpr Names kEmbedOperands = {"rows", "tokens", "table", "out"};
constexpr Names kEmbedIntegers = {"capacity", "vocab", "width", "packing"};
constexpr Names kEmbedFloats = {"scale"};

constexpr Names kRmsNormOperands = {"rows", "x", "weight", "out"};
constexpr Names kRmsNormIntegers = {"capacity", "width", "format"};
constexpr Names kRmsNormFloats = {"epsilon"};

constexpr Names kLinearOperands = {"rows", "x", "weight", "bias?", "out"};
constexpr Names kLinearIntegers = {"capacity", "width",  "outputs",
                                   "packing",  "format", "accumulate"};

constexpr Names kSiluOperands = {"rows", "x", "weight", "out"};
constexpr Names kSiluIntegers = {"capacity", "width",  "outputs",
                                 "packing",  "format", "out_format"};

constexpr Names kRopeOperands = {"rows",       "qkv",     "positions",
                                 "slot",       "page_table", "inverse_frequency",
                                 "q_norm?",    "k_norm?", "k_plane",
                                 "v_plane"};
constexpr Names kRopeIntegers = {"capacity", "q_heads",     "kv_heads",
                                 "head_dim", "page_tokens", "table_pages"};
constexpr Names kRopeFloats = {"epsilon", "attention_factor"};

constexpr Names kAttentionOperands = {"rows",       "qkv",     "positions", "slot",
                                      "page_table", "k_plane", "v_plane",   "out"};
constexpr Names kAttentionIntegers = {"capacity",    "q_heads",     "kv_heads", "head_dim",
                                      "page_tokens", "table_pages", "window",   "format"};
constexpr Names kAttentionFloats = {"scale"};

constexpr Names kSelectOperands = {"rows",          "query_length",  "sample", "x",
                                   "selected_rows", "selected_lane", "out"};
constexpr Names kSelectIntegers = {"capacity", "packed_capacity", "width"};

constexpr Names kSampleOperands = {"rows",  "lane?",  "slot",   "query_length?",
                                   "state", "logits", "tokens", "logprobs"};
constexpr Names kSampleIntegers = {"capacity", "vocab", "stride"};

constexpr Names kCommitOperands = {"rows",       "slot",     "generation", "query_length?",
                                   "sampled?",   "tokens",   "logprobs",   "state",
                                   "lanes",      "out_tokens", "out_logprobs"};

constexpr Names kLinearTunedOperands = {"rows", "x", "weight", "bias?", "out", "tuning"};
constexpr Names kSiluTunedOperands = {"rows", "x", "weight", "out", "tuning"};
constexpr Names kTuneOperands = {"x", "weight", "out", "choice"};
constexpr Names kTuneLinearIntegers = {"capacity", "width", "outputs", "packing", "format"};

constexpr Names kSetPendingOperands = {"rows", "slot", "generation", "token", "state"};

constexpr Names kMergePendingOperands = {"rows",   "decode_lanes", "slot",       "generation",
                                         "state",  "tokens",       "positions",  "out_tokens",
                                         "out_positions"};
constexpr Names kMergePendingIntegers = {"capacity", "lanes"};

constexpr Names kSliceRowsOperands = {"rows", "out"};
constexpr Names kSliceRowsIntegers = {"capacity", "start", "limit"};

constexpr Names kScoreOperands = {"rows", "target", "logits", "out"};

constexpr Names kSavePageOperands = {"rows",       "slot",  "endpoint", "row",
                                     "page_table", "plane", "saved"};
constexpr Names kLoadPageOperands = {"rows",       "slot",  "endpoint", "row",
                                     "page_table", "saved", "plane"};
constexpr Names kPageIntegers = {"capacity", "page_tokens", "table_pages", "elements", "dtype"};

constexpr Names kCopyRowsOperands = {"rows", "source", "destination", "buffer"};
constexpr Names kCopyRowsIntegers = {"capacity", "elements", "dtype"};

constexpr Names kInitializeSamplingOperands = {
    "rows",         "slot",          "repetition_penalty", "presence_penalty", "frequency_penalty",
    "min_tokens",   "top_logprobs",  "stop_ids",           "bias_tokens",      "bias",
    "bad_words",    "recent",        "mask",               "state",            "sampling",
    "token_counts", "output_counts", "token_mask"};
constexpr Names kCountsIntegers = {"capacity", "vocab"};

constexpr Names kSampleProcessedOperands = {
    "rows",          "lane?",      "slot",          "query_length?", "state",
    "sampling",      "token_counts", "output_counts", "token_mask",  "grammar_mask?",
    "logits",        "tokens",     "logprobs",      "top_tokens",    "top_logprobs"};

constexpr Names kCountSampledOperands = {"rows",     "slot",         "generation",
                                         "sampled?", "tokens",       "state",
                                         "sampling", "token_counts", "output_counts"};

constexpr Names kScoreRankedOperands = {"rows", "target", "wanted",     "logits",
                                        "out",  "rank",   "top_tokens", "top_logprobs"};

constexpr Names kSelectAttendingOperands = {
    "rows",          "query_length", "sample",      "x",             "queries",
    "positions",     "slot",         "selected_rows", "selected_lane", "out",
    "out_queries",   "out_positions", "out_slot"};
constexpr Names kSelectAttendingIntegers = {"capacity", "packed_capacity", "width", "elements",
                                            "dtype"};

constexpr KernelSpec kCatalogue[] = {
    {"scatter_i32", kScatterOperands, kCapacityOnly, {}},
    {"initialize_requests", kInitializeOperands, kCapacityOnly, {}},
    {"load_pending", kLoadPendingOperands, kCapacityOnly, {}},
    {"embed", kEmbedOperands, kEmbedIntegers, kEmbedFloats},
    {"rms_norm", kRmsNormOperands, kRmsNormIntegers, kRmsNormFloats},
    {"linear", kLinearOperands, kLinearIntegers, {}},
    {"linear_silu_mul", kSiluOperands, kSiluIntegers, {}},
    {"rope_and_cache", kRopeOperands, kRopeIntegers, kRopeFloats},
    {"attention", kAttentionOperands, kAttentionIntegers, kAttentionFloats},
    {"select_last", kSelectOperands, kSelectIntegers, {}},
    {"sample", kSampleOperands, kSampleIntegers, {}},
    {"commit", kCommitOperands, kCapacityOnly, {}},
    {"linear_tuned", kLinearTunedOperands, kLinearIntegers, {}},
    {"linear_silu_mul_tuned", kSiluTunedOperands, kSiluIntegers, {}},
    {"tune_linear", kTuneOperands, kTuneLinearIntegers, {}},
    {"tune_linear_silu_mul", kTuneOperands, kSiluIntegers, {}},
    {"set_pending", kSetPendingOperands, kCapacityOnly, {}},
    {"merge_pending", kMergePendingOperands, kMergePendingIntegers, {}},
    {"slice_rows", kSliceRowsOperands, kSliceRowsIntegers, {}},
    {"score", kScoreOperands, kSampleIntegers, {}},
    {"save_page", kSavePageOperands, kPageIntegers, {}},
    {"load_page", kLoadPageOperands, kPageIntegers, {}},
    {"copy_rows", kCopyRowsOperands, kCopyRowsIntegers, {}},
    {"initialize_sampling", kInitializeSamplingOperands, kCountsIntegers, {}},
    {"sample_processed", kSampleProcessedOperands, kSampleIntegers, {}},
    {"count_sampled", kCountSampledOperands, kCountsIntegers, {}},
    {"score_ranked", kScoreRankedOperands, kSampleIntegers, {}},
    {"rope_and_cache_bf16", kRopeOperands, kRopeIntegers, kRopeFloats},
    {"attention_bf16", kAttentionOperands, kAttentionIntegers, kAttentionFloats},
    {"select_attending", kSelectAttendingOperands, kSelectAttendingIntegers, {}},
};
static_assert(std::size(kCatalogue) == kKernelCount);

}  // namespace

std::span<const KernelSpec, kKernelCount> catalogue() { return kCatalogue; }

}  // namespace helios
