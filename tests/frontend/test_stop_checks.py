"""What may be asked of stops, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from helios.errors import RequestError
from helios.frontend.prepare import GenerationOptions
from helios.frontend.stop_checks import stop_conditions
from helios.frontend.stops import NO_STOPS, StopConditions
from tests.frontend.vocabularies import byte_level_frontend

PREPARER = byte_level_frontend().preparer
EXTENT = byte_level_frontend().contract.model.vocabulary.sampled_tokens


def conditions(**fields: Any) -> StopConditions:
    return PREPARER.prepare_completion("hello", GenerationOptions(**fields)).stops


@pytest.mark.clause("STOP-1")
def test_one_string_or_several_or_none() -> None:
    assert conditions(stop="x") == StopConditions(("x",))
    assert conditions(stop=["x", "yé"]) == StopConditions(("x", "yé"))
    assert conditions(stop=["a" * 1024] * 4).strings == ("a" * 1024,) * 4
    for nothing in (None, [], ()):
        assert conditions(stop=nothing) == NO_STOPS
        assert not conditions(stop=nothing)
        assert conditions(stop=nothing, stop_token_ids=[3])


@pytest.mark.clause("STOP-6")
def test_ids_are_sequences_of_one_token() -> None:
    assert conditions(stop_token_ids=[3, 4, 3]).sequences == ((3,), (4,))
    both = conditions(stop_token_ids=[3], stop_token_sequences=[[4, 5], [3]])
    assert both.sequences == ((3,), (4, 5))
    most = [[3] * 64] * 15 + [[EXTENT - 1] * 64]
    assert len(conditions(stop_token_sequences=most).sequences) == 2
    assert conditions(stop_token_ids=[], stop_token_sequences=[]) == NO_STOPS


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"stop": "a" * 4097}, "stop"),
    ({"stop": ["é" * 1024, "é" * 1024, "x"]}, "stop"),
    ({"stop": "\ud800"}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": [5]}, "stop"),
    ({"stop": "a", "stop_token_ids": [3]}, "stop"),
    ({"stop": ["a"], "stop_token_sequences": [[3]]}, "stop"),
]
REFUSED_TOKENS: list[tuple[dict[str, Any], str]] = [
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"stop_token_ids": [3, EXTENT]}, "stop_token_ids[1]"),
    ({"stop_token_ids": 3}, "stop_token_ids"),
    ({"stop_token_ids": [True]}, "stop_token_ids"),
    ({"stop_token_ids": ["a"]}, "stop_token_ids"),
    ({"stop_token_sequences": [3]}, "stop_token_sequences"),
    ({"stop_token_sequences": [[]]}, "stop_token_sequences[0]"),
    ({"stop_token_sequences": [[3]] * 17}, "stop_token_sequences"),
    ({"stop_token_sequences": [[3], [3] * 65]}, "stop_token_sequences[1]"),
    ({"stop_token_sequences": [[3], [EXTENT]]}, "stop_token_sequences[1][0]"),
]


def _refused(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(RequestError) as refused:
        conditions(**fields)
    assert refused.value.where == where


@pytest.mark.clause("STOP-1")
@pytest.mark.parametrize(("fields", "where"), REFUSED)
def test_strings_beyond_the_limits_are_refused(fields: dict[str, Any], where: str) -> None:
    _refused(fields, where)


@pytest.mark.clause("STOP-6")
@pytest.mark.parametrize(("fields", "where"), REFUSED_TOKENS)
def test_tokens_beyond_the_limits_are_refused(fields: dict[str, Any], where: str) -> None:
    _refused(fields, where)


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(RequestError, match="Give at most 4096 in all strings together"):
        stop_conditions("a" * 5000, None, None, sampled_tokens=9)
    with pytest.raises(RequestError, match="Leave out stop or stop_token_ids"):
        stop_conditions("a", [1], None, sampled_tokens=9)
