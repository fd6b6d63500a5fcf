"""The same numbers under the names that dashboards made for vLLM look for (`--vllm-metrics`).

Where vLLM means something a little different it is said in docs/metrics.md.
"""

from __future__ import annotations

from typing import Final

from helios.server.exposition import Family, counters, gauges, histogram
from helios.server.http_snapshot import HttpSnapshot
from helios.server.lifecycle import ServedModel
from helios.worker.messages import Statistics

_PREFIX: Final = "vllm:"

# vLLM's names and the keys in `Statistics`.
_COUNTERS: Final = (
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of accepted requests."),
    ("generation_tokens", "output_tokens", "Tokens generated."),
    ("num_preemptions", "preemptions", "Running requests that gave way to others."),
    ("prefix_cache_queries", "prefix_queried_tokens", "Tokens looked up in the prefix cache."),
    ("prefix_cache_hits", "prefix_reused_tokens", "Tokens found in the prefix cache."),
)
_WORKER_HISTOGRAMS: Final = (
    ("request_queue_time_seconds", "request_queue_seconds", "Time in the queue."),
    ("request_prefill_time_seconds", "request_prefill_seconds", "From admission to first token."),
)
_HTTP_HISTOGRAMS: Final = (
    ("time_to_first_token_seconds", "request_first_token_seconds", "Time to the first token."),
    ("inter_token_latency_seconds", "inter_token_seconds", "Time between tokens."),
    ("time_per_output_token_seconds", "inter_token_seconds", "Time between tokens (older name)."),
    ("e2e_request_latency_seconds", "request_end_to_end_seconds", "Time to the whole answer."),
    ("request_decode_time_seconds", "request_decode_seconds", "From first to last token."),
    ("request_prompt_tokens", "request_prompt_tokens", "Tokens of prompts."),
    ("request_generation_tokens", "request_output_tokens", "Tokens of answers."),
    (
        "request_max_num_generation_tokens",
        "request_output_limit_tokens",
        "Most tokens that answers may have.",
    ),
)
# vLLM's reasons, and which of ours each one is.
_REASONS: Final = {
    "stop": ("eos", "stop"),
    "length": ("limit",),
    "abort": ("cancelled",),
    "error": ("failed", "grammar"),
}


def vllm_families(
    snapshot: HttpSnapshot, statistics: Statistics | None, model: ServedModel
) -> list[Family]:
    """The HTTP processes' numbers, and the worker's if it has answered; the label is the served
    id."""
    labels = {"model_name": model.served_id}
    families = [
        histogram(_PREFIX + name, text, snapshot.histograms[ours], labels)
        for name, ours, text in _HTTP_HISTOGRAMS
    ]
    if statistics is None:
        return families
    counted, now, finished = statistics.counters, statistics.gauges, statistics.finished
    families += [
        counters(f"{_PREFIX}{name}_total", text, [(labels, counted[ours])])
        for name, ours, text in _COUNTERS
    ]
    families += [
        histogram(_PREFIX + name, text, statistics.histograms[ours], labels)
        for name, ours, text in _WORKER_HISTOGRAMS
    ]
    used = now["pages_used"] / max(model.ready.cache_pages, 1)
    config = {
        **labels,
        "block_size": str(model.ready.page_tokens),
        "num_gpu_blocks": str(model.ready.cache_pages),
        "enable_prefix_caching": str(model.ready.prefix_reuse),
    }
    return [
        *families,
        counters(
            f"{_PREFIX}request_success_total",
            "Requests that ended, by reason.",
            [
                ({**labels, "finished_reason": reason}, sum(finished[one] for one in ours))
                for reason, ours in _REASONS.items()
            ],
        ),
        gauges(
            f"{_PREFIX}num_requests_running",
            "Requests that hold a slot.",
            [(labels, now["requests_running"])],
        ),
        gauges(
            f"{_PREFIX}num_requests_waiting",
            "Requests that wait for a slot.",
            [(labels, now["requests_waiting"])],
        ),
        gauges(
            f"{_PREFIX}kv_cache_usage_perc",
            "Share of cache pages that requests hold, 0 to 1.",
            [(labels, used)],
        ),
        gauges(
            f"{_PREFIX}cache_config_info",
            "The attention cache, as labels; always 1.",
            [(config, 1)],
        ),
    ]
