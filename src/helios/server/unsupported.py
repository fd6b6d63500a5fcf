"""Fields that this server knows and can't honour.

They are OpenAI's, and those of other servers that clients of theirs send. Each would change the
answer, so a request that has one is refused by its name, unless the value says to do nothing.
One table for both endpoints; `validation` asks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

# Values that change nothing; null does so for every field.
_NEUTRAL: Final[Mapping[str, Sequence[Any]]] = {
    # how many answers, and which of them
    "best_of": [1],
    "use_beam_search": [False],
    "beam_width": [1],
    "num_beams": [1],
    "length_penalty": [1],
    "early_stopping": [False],
    "num_beam_groups": [1],
    "diversity_penalty": [0],
    "num_return_sequences": [1],
    # where an answer ends
    "stop_sequences": [[]],
    "stop_words": [[]],
    "stop_strings": [[]],
    "stop_regex": ["", []],
    "no_stop_trim": [False],
    "eos_token_id": [],
    "end_id": [],
    "max_time": [],
    "t_max_predict_ms": [0, -1],
    "n_indent": [0],
    "thinking_budget": [],
    "reasoning_budget": [-1],
    "repetition_detection": [],
    "include_stop_str_in_output": [False],
    "min_length": [0],
    "min_new_tokens": [0],
    "max_new_tokens": [],
    "max_length": [],
    "n_predict": [],
    "num_predict": [],
    # which tokens may come
    "do_sample": [True],
    "random_seed": [],
    "logits_processors": [[]],
    "custom_logit_processor": [],
    "custom_params": [{}],
    "vllm_xargs": [{}],
    "repeat_penalty": [1],
    "encoder_repetition_penalty": [1],
    "repetition_penalty_range": [0],
    "guidance_scale": [1],
    "negative_prompt": [""],
    "penalty_alpha": [0],
    "watermark": [False],
    "bad_words_ids": [[]],
    "suppress_tokens": [[]],
    "begin_suppress_tokens": [[]],
    "force_words_ids": [[]],
    "sequence_bias": [{}, []],
    "custom_token_bans": [""],
    "ban_eos_token": [False],
    "no_repeat_ngram_size": [0],
    "typical_p": [1],
    "top_a": [0],
    "tfs_z": [1],
    "tfs": [1],
    "top_n_sigma": [0, -1],
    "min_keep": [0],
    "samplers": [],
    "sampler_priority": [],
    "temperature_last": [False],
    "dynamic_temperature": [False],
    "adaptive_target": [-1],
    "epsilon_cutoff": [0],
    "eta_cutoff": [0],
    "xtc_probability": [0],
    "dry_multiplier": [0],
    "mirostat": [0],
    "mirostat_mode": [0],
    "dynatemp_range": [0],
    "smoothing_factor": [0],
    # which weights answer
    "lora": [[]],
    "lora_path": [],
    "adapter_id": [],
    # all of these at once, as other APIs nest them
    "parameters": [{}],
    "sampling_params": [{}],
    "options": [{}],
    # the form of an answer, and how it is made
    "guided_decoding": [],
    "grammar_string": [""],
    "format": [""],
    "functions": [[]],
    "function_call": ["none", "auto"],
    "modalities": [["text"]],
    "audio": [],
    "reasoning": [],
    "separate_reasoning": [True],
    "stream_reasoning": [True],
    "verbosity": [],
    "web_search_options": [],
    # what an answer contains
    "logprobs_mode": ["raw_logprobs"],
    "return_tokens_as_token_ids": [False],
    "return_full_text": [False],
    "details": [False],
    "decoder_input_details": [False],
    "top_n_tokens": [0],
    "n_probs": [0],
    "post_sampling_probs": [False],
    "return_tokens": [False],
    "response_fields": [[]],
    "return_logprob": [False],
    "return_hidden_states": [False],
    "return_routed_experts": [False],
    "skip_special_tokens": [True],
    "spaces_between_special_tokens": [True],
    # what the prompt is
    "suffix": [""],
    "system": ["", []],
    "tool_prompt": [],
    "input_ids": [],
    "input_embeds": [],
    "image_data": [[]],
    "session_params": [],
    "enable_thinking": [],
    "think": [],
    "safe_prompt": [False],
    "truncate": [],
    "transforms": [[]],
    "add_bos_token": [True],
    "n_discard": [0],
    "chat_template": [],
    "add_special_tokens": [True, False],  # which one an API can do `validation` knows
    "images": [[]],
    "prompt_embeds": [],
    "mm_processor_kwargs": [{}],
    "truncate_prompt_tokens": [],
    "truncation": ["disabled"],
}
# What chat completions alone can do. In a completions body these would be ignored although they
# change an answer.
_CHAT_ONLY: Final[Mapping[str, Sequence[Any]]] = {
    "tools": [[]],
    "tool_choice": ["none", "auto"],
    "parallel_tool_calls": [True, False],
    "documents": [[]],
    "reasoning_effort": [],
    "thinking": [],
    "thinking_token_budget": [],
    "include_reasoning": [True],
    "chat_template_kwargs": [{}],
    "add_generation_prompt": [True],
    "continue_final_message": [False],
}


def chat_fields(body: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a body that ask for something which only chat completions do."""
    for name, neutral in _CHAT_ONLY.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            yield name


def is_chat_field(name: str) -> bool:
    """Whether only chat completions have the field; a neutral value is accepted elsewhere."""
    return name in _CHAT_ONLY


def unsupported_fields(body: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a body that ask for something which isn't supported."""
    for name, value in body.items():
        neutral = _NEUTRAL.get(name)
        if neutral is not None and value is not None and value not in neutral:
            yield name


def is_unsupported(name: str) -> bool:
    """Whether the field is known; with a neutral value it is accepted."""
    return name in _NEUTRAL


def neutral_values(name: str) -> Sequence[Any] | None:
    """The values besides null that a known field may have, or None where the field isn't known or
    is supported."""
    return _NEUTRAL.get(name)
