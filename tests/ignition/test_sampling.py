"""Sampling recommendations as text, and over those of a checkpoint."""

from __future__ import annotations

import pytest

from helios.errors import ContractError
from ignition.preparation.checkpoints.checkpoint import GenerationDefaults
from ignition.preparation.sampling import parse, text_of


def test_text_and_back() -> None:
    given = GenerationDefaults(temperature=0.2, top_k=40, max_output_tokens=7)
    assert parse("temperature=0.2,top_k=40,max_output_tokens=7") == given
    assert parse(text_of(given)) == given
    assert parse("") == GenerationDefaults()


@pytest.mark.parametrize("text", ["temperature", "top_k=0.5", "heat=1", "top_p=much"])
def test_nonsense_is_named(text: str) -> None:
    with pytest.raises(ContractError, match=r"--sampling: .*is no recommendation"):
        parse(text)


def test_given_ones_win_and_others_stay() -> None:
    checkpoint = GenerationDefaults(temperature=0.6, top_p=0.95)
    merged = GenerationDefaults(temperature=0.2, top_k=0).over(checkpoint)
    assert merged == GenerationDefaults(temperature=0.2, top_k=0, top_p=0.95)
