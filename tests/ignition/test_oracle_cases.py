"""Which replayed tokens an oracle keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from helios.runtime.oracle import ReplayedToken
from ignition.preparation import oracle
from ignition.preparation.checkpoints import open_checkpoint


def replay(leads: list[float]) -> list[ReplayedToken]:
    return [ReplayedToken(100 + i, -0.01 * i, lead) for i, lead in enumerate(leads)]


def test_a_case_ends_before_the_first_unclear_token() -> None:
    case = oracle.clear_case([7, 8], replay([2, 0.5, 3, 1, 0.4999, 9]))
    assert case is not None
    assert list(case.prompt_tokens) == [7, 8]
    assert list(case.expected_tokens) == [100, 101, 102, 103]
    assert list(case.expected_logprobs) == pytest.approx([0, -0.01, -0.02, -0.03])
    assert case.smallest_lead == pytest.approx(0.5)


@pytest.mark.parametrize("leads", [[], [9, 9, 9], [9, 9, 9, 0.1, 9, 9], [0.1, 9, 9, 9, 9]])
def test_short_cases_are_dropped(leads: list[float]) -> None:
    assert oracle.clear_case([1], replay(leads)) is None


def test_nothing_is_replayed_after_an_unclear_token() -> None:
    asked = []

    def steps() -> Iterator[ReplayedToken]:
        for token in replay([1, 1, 1, 1, 0.1, 1]):
            asked.append(token)
            yield token

    assert oracle.clear_case([1], steps()) is not None
    assert len(asked) == 5


def test_prompts_are_plain_and_chat(checkpoint_folder: Callable[[str], Path]) -> None:
    checkpoint = open_checkpoint(checkpoint_folder("llama"))
    tokenizer = Tokenizer.from_buffer(checkpoint.tokenizer_json())
    texts = [
        tokenizer.decode(p, skip_special_tokens=False)
        for p in oracle.prompts(checkpoint, checkpoint.chat_template())
    ]
    chat = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    assert texts[0] == chat
    assert "1, 2, 3, 4, 5, 6, 7," in texts
