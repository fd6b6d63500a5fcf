"""From what a client says to sampling parameters: defaults, ranges, texts as tokens, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helios.contract.enums import Operation
from helios.errors import RequestError
from helios.frontend.bootstrap import Frontend
from helios.frontend.options import GenerationOptions
from helios.frontend.sampling import unapplied_recommendations
from helios.runtime.rounds import SamplingParameters
from helios.runtime.sampling_rules import PLAIN, SamplingRules, sampling_fault, sampling_rules
from tests.frontend.sampling_cores import EVERYTHING, SOURCES, V, feeding, frontend
from tests.frontend.vocabularies import EOS_ID, prepared_contract

FULL = frontend(*SOURCES)


def resolve(front: Frontend = FULL, **options: Any) -> SamplingParameters:
    return front.preparer.prepare_completion([5], GenerationOptions(**options)).sampling


def test_what_a_core_applies_follows_from_what_its_programs_are_fed() -> None:
    contract = prepared_contract({})
    assert sampling_rules(feeding(contract).model.graphs) == PLAIN
    assert sampling_rules(feeding(contract, *SOURCES).model.graphs) == EVERYTHING
    one = sampling_rules(feeding(contract, V.LOGIT_BIAS, V.LOGIT_BIAS_TOKEN).model.graphs)
    assert one == SamplingRules(logit_bias=True)
    assert sampling_rules(feeding(contract, V.LOGIT_BIAS).model.graphs) == PLAIN
    assert sampling_rules([]) == PLAIN


def test_every_program_that_takes_up_requests_must_be_fed() -> None:
    contract = feeding(prepared_contract({}), *SOURCES)
    graphs = list(contract.model.graphs)
    initialize = next(g for g in graphs if g.operation is Operation.INITIALIZE)
    graphs.append(replace(initialize, name="other", operation=Operation.RESUME, bindings=()))
    assert sampling_rules(graphs) == PLAIN


def test_nothing_is_asked_of_the_logits_by_default() -> None:
    sampling = resolve(seed=3)
    assert sampling == SamplingParameters(temperature=1.0, seed=3)
    assert not sampling.looks_back


def test_every_parameter_arrives() -> None:
    sampling = resolve(
        seed=-1, repetition_penalty=1.5, presence_penalty=-2, frequency_penalty=0.5, min_tokens=3,
        logit_bias={"7": 100, 9: -0.5}, allowed_token_ids=[7, 9, 11], bad_words=[[4, 5]],
        top_logprobs=20,
    )  # fmt: skip
    assert sampling == SamplingParameters(
        temperature=1.0, seed=2**64 - 1, repetition_penalty=1.5, presence_penalty=-2.0,
        frequency_penalty=0.5, min_tokens=3, logit_bias=((7, 100.0), (9, -0.5)),
        allowed_tokens=(7, 9, 11), bad_words=((4, 5),), top_logprobs=20,
    )  # fmt: skip
    assert sampling.looks_back


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("repetition_penalty", 1.2), ("presence_penalty", 0.1), ("frequency_penalty", -0.1)],
)
def test_penalties_need_the_tokens_so_far(parameter: str, value: float) -> None:
    assert resolve(**{parameter: value}).penalises


@pytest.mark.clause("FRONT-16")
def test_recommended_penalties_hold_where_programs_apply_them_and_requests_win() -> None:
    recommended = {"repetition_penalty": 1.125, "presence_penalty": 0.5}
    full, plain = frontend(*SOURCES, **recommended), frontend(**recommended)
    assert resolve(full).repetition_penalty == 1.125
    assert resolve(full, repetition_penalty=1.0).repetition_penalty == 1.0
    assert resolve(full, presence_penalty=0.0).presence_penalty == 0.0
    # Programs from before there were penalties: as if nothing had been recommended.
    assert resolve(plain).repetition_penalty == 1.0
    defaults = plain.contract.defaults.sampling
    assert unapplied_recommendations(defaults, PLAIN) == (
        "repetition_penalty 1.125",
        "presence_penalty 0.5",
    )
    assert unapplied_recommendations(defaults, EVERYTHING) == ()
    neutral = prepared_contract({"repetition_penalty": 1.0, "temperature": 0.5})
    assert unapplied_recommendations(neutral.defaults.sampling, PLAIN) == ()


def test_bad_words_are_their_tokens_with_and_without_a_space() -> None:
    encode = FULL.tokenizer.encode
    words = resolve(bad_words=["hello", " hello", "wo", [1, 2], "hello"]).bad_words
    assert words == tuple(
        dict.fromkeys(
            [*map(tuple, (encode("hello"), encode(" hello"), encode("wo"), encode(" wo"))), (1, 2)]
        )
    )


def test_ignoring_the_end_leaves_no_end() -> None:
    prepare = FULL.preparer.prepare_completion
    assert prepare([5], GenerationOptions(ignore_eos=True)).eos_ids == ()
    assert prepare([5], GenerationOptions(ignore_eos=False)).eos_ids == (EOS_ID,)


LAST = FULL.contract.model.vocabulary.sampled_tokens
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"repetition_penalty": 0}, "repetition_penalty", "above 0"),
    ({"repetition_penalty": -1}, "repetition_penalty", "0 to 100"),
    ({"repetition_penalty": float("nan")}, "repetition_penalty", "out of range"),
    ({"repetition_penalty": 101}, "repetition_penalty", "out of range"),
    ({"presence_penalty": 2.1}, "presence_penalty", "-2 to 2"),
    ({"frequency_penalty": -2.1}, "frequency_penalty", "-2 to 2"),
    ({"frequency_penalty": float("inf")}, "frequency_penalty", "out of range"),
    ({"min_tokens": -1}, "min_tokens", "0 to"),
    ({"min_tokens": 6, "max_tokens": 5}, "min_tokens", "0 to 5"),
    ({"logit_bias": {5: 100.5}}, "logit_bias", "-100 to 100"),
    ({"logit_bias": {5: float("nan")}}, "logit_bias", "-100 to 100"),
    ({"logit_bias": {"a": 1}}, "logit_bias", "no token id"),
    ({"logit_bias": {"5": 1, 5: 2}}, "logit_bias", "twice"),
    ({"logit_bias": {-1: 1}}, "logit_bias", "token id -1"),
    ({"logit_bias": {LAST: 1}}, "logit_bias", f"token id {LAST}"),
    ({"allowed_token_ids": []}, "allowed_token_ids", "empty"),
    ({"allowed_token_ids": [LAST]}, "allowed_token_ids", f"token id {LAST}"),
    ({"bad_words": [" "]}, "bad_words[0]", "blank"),
    ({"bad_words": ["x", ""]}, "bad_words[1]", "blank"),
    ({"bad_words": [[]]}, "bad_words", "0 tokens"),
    ({"bad_words": [[1] * 34]}, "bad_words", "34 tokens"),
    ({"bad_words": [[n // 200, n % 200] for n in range(342)]}, "bad_words", "together"),
    ({"bad_words": [[5], [6]], "allowed_token_ids": [6, 5]}, "bad_words", "every token"),
    ({"top_logprobs": 21}, "top_logprobs", "at most 20"),
    ({"top_logprobs": -1}, "top_logprobs", "at most 20"),
    ({"logit_bias": [1]}, "logit_bias", "not an object"),
    ({"logit_bias": {1: "2"}}, "logit_bias", "not an object"),
    ({"allowed_token_ids": "12"}, "allowed_token_ids", "not a list"),
    ({"allowed_token_ids": [1.5]}, "allowed_token_ids", "not a list"),
    ({"bad_words": "word"}, "bad_words", "not a list"),
    ({"bad_words": [5]}, "bad_words", "not a list"),
    ({"ignore_eos": 1}, "ignore_eos", "not true or false"),
    ({"min_tokens": 1.5}, "min_tokens", "not an integer"),
    ({"presence_penalty": "1"}, "presence_penalty", "not a number"),
]


@pytest.mark.parametrize(
    ("options", "field", "match"), REFUSED, ids=[f"{r[1]}-{i}" for i, r in enumerate(REFUSED)]
)
def test_what_can_t_be_names_the_field(options: dict[str, Any], field: str, match: str) -> None:
    with pytest.raises(RequestError, match=match) as caught:
        resolve(**options)
    assert caught.value.where == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"presence_penalty": 0.1}, "presence_penalty"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"logit_bias": {5: 1}}, "logit_bias"),
        ({"allowed_token_ids": [5]}, "allowed_token_ids"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"top_logprobs": 1}, "top_logprobs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_core_s_programs_lack_is_refused_and_neutral_values_aren_t(
    options: dict[str, Any], field: str
) -> None:
    plain = frontend()
    with pytest.raises(RequestError, match="this core's programs don't apply it") as caught:
        resolve(plain, **options)
    assert caught.value.where == field
    resolve(
        plain, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0, min_tokens=0,
        logit_bias={}, bad_words=[], top_logprobs=0,
    )  # fmt: skip


def test_a_word_may_be_as_long_as_the_device_remembers_and_one_more() -> None:
    assert len(resolve(bad_words=[[1] * 33]).bad_words[0]) == 33


def test_there_may_be_300_biases_and_more() -> None:
    count = min(LAST, 512)
    assert len(resolve(logit_bias=dict.fromkeys(range(count), -1.0)).logit_bias) == count


def test_more_than_a_slot_holds_is_refused() -> None:
    biases = SamplingParameters(logit_bias=tuple((token, 1.0) for token in range(513)))
    fault = sampling_fault(biases, EVERYTHING, 1000)
    assert fault is not None
    assert (fault.parameter, fault.what) == ("logit_bias", "has 513 tokens")
    stops = SamplingParameters(min_tokens=1, stop_ids=tuple(range(65)))
    fault = sampling_fault(stops, EVERYTHING, 1000)
    assert fault is not None
    assert fault.parameter == "stop_token_ids"
    # Without a least length the device isn't told of them.
    assert sampling_fault(replace(stops, min_tokens=0), EVERYTHING, 1000) is None
