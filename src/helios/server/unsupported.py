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
    # where an answer ends
    "stop_sequences": [[]],
    "include_stop_str_in_output": [False],
    "min_length": [0],
    "min_new_tokens": [0],
    "max_new_tokens": [],
    "max_length": [],
    "n_predict": [],
    "num_predict": [],
    # which tokens may come
    "logits_processors": [[]],
    "repeat_penalty": [1],
    "no_repeat_ngram_size": [0],
    "typical_p": [1],
    "top_a": [0],
    "tfs_z": [1],
    "epsilon_cutoff": [0],
    "eta_cutoff": [0],
    "xtc_probability": [0],
    "dry_multiplier": [0],
    "mirostat": [0],
    "mirostat_mode": [0],
    "dynatemp_range": [0],
    "smoothing_factor": [0],
    # how an answer is made
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
    "skip_special_tokens": [True],
    "spaces_between_special_tokens": [True],
    # what the prompt is
    "suffix": [""],
    "chat_template": [],
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
