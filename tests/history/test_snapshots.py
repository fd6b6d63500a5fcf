"""SNAPSHOT, RESTORE and RESUME: what was saved at an endpoint goes on as if nothing had happened,
bit for bit, wherever in a page the endpoint lies and whatever has happened to the page since."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helios.runtime.model_runtime import ModelRuntime
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS
from tests.history.story import SEEDED, Teller, Told
from tests.model_parts import capture_tiny

PAGE = 32
PROMPT = tuple(random.Random(5).randrange(3, TOKENS) for _ in range(2 * PAGE + 2))
NOISE = tuple(random.Random(6).randrange(3, TOKENS) for _ in range(3 * PAGE))
STEPS = 5
# Where in the second page the endpoint lies; that of a whole page needs no snapshot.
OFFSETS = range(1, PAGE)


@pytest.fixture(
    scope="module",
    params=[
        ("llama", WeightStorage.BF16, "cpu"),
        ("mistral", WeightStorage.INT8, "cpu"),
    ],
    ids=lambda param: param[0],
)
def teller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Teller]:
    variant, storage, target = request.param
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), variant, storage)
    runtime = parts.load(target, threads=2, request_slots=4, cache_tokens=16 * PAGE, snapshots=6)
    yield Teller(runtime)
    runtime.close()


@pytest.fixture(scope="module")
def uninterrupted(teller: Teller) -> Told:
    """The whole prompt, then a few tokens."""
    told = Told(0, (15, 3, 8))
    teller.begin(told)
    teller.prefill(told, PROMPT)
    teller.decode(told, steps=STEPS)
    return told


def publish(teller: Teller, endpoint: int, row: int) -> tuple[int, ...]:
    """Runs the prompt up to some tokens past an endpoint, saves the endpoint, and lets another
    request overwrite the page that holds it. Returns the pages that stay as they are."""
    author = Told(1, (2, 7, 4))
    teller.begin(author)
    teller.prefill(author, PROMPT[: endpoint + 1], sample=False)
    teller.snapshot((author, endpoint, row))
    whole = endpoint // PAGE
    vandal = Told(2, author.pages[whole:])
    teller.begin(vandal)
    teller.prefill(vandal, NOISE[: len(vandal.pages) * PAGE])
    return author.pages[:whole]


def check(told: Told, expected: Told) -> None:
    assert told.tokens == expected.tokens
    assert told.logprobs == expected.logprobs


@pytest.mark.clause("CACHE-2", "CACHE-7")
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_restored_request_goes_on_as_it_would_have(
    teller: Teller, uninterrupted: Told, offset: int
) -> None:
    endpoint, row = PAGE + offset, offset % 6
    shared = publish(teller, endpoint, row)
    told = Told(3, (*shared, 10, 11))
    teller.restore((told, endpoint, row))
    teller.prefill(told, PROMPT[endpoint:])
    teller.decode(told, steps=STEPS)
    check(told, uninterrupted)


@pytest.mark.clause("CACHE-7")
@pytest.mark.parametrize("offset", [*OFFSETS, PAGE, PAGE + 1])
def test_resuming_is_prefill_of_the_token_that_is_left(teller: Teller, offset: int) -> None:
    endpoint, row = PAGE + offset, offset % 6
    prompt = PROMPT[: endpoint + 1]
    expected = Told(0, (15, 3, 8))
    teller.begin(expected)
    teller.prefill(expected, prompt)
    teller.decode(expected, steps=STEPS)
    shared = publish(teller, endpoint, row)
    told = Told(3, (*shared, 10, 11)[:3])
    teller.resume(told, endpoint, row if endpoint % PAGE else -1, prompt[-1])
    teller.decode(told, steps=STEPS + 1)
    check(told, expected)


def test_a_resumed_request_goes_on_after_what_it_had_said(
    teller: Teller, uninterrupted: Told
) -> None:
    """As after a preemption: the last token said is the one to decode from."""
    author = Told(1, (2, 7, 4))
    teller.begin(author)
    teller.prefill(author, PROMPT)
    teller.decode(author, steps=2)
    teller.snapshot((author, author.consumed, 0))
    told = Told(0, (2, 7, 9), tokens=author.tokens, logprobs=author.logprobs)
    teller.resume(told, author.consumed, 0, author.tokens[-1], emitted=len(author.tokens))
    teller.decode(told, steps=STEPS - 2)
    check(told, uninterrupted)


@pytest.mark.clause("BIND-5")
@pytest.mark.parametrize("said", [1, 2, 4])
def test_a_resumed_request_counts_what_it_had_said(teller: Teller, said: int) -> None:
    """Penalties and bad words look at prompt and output as if nothing had happened."""
    sampling = replace(
        SEEDED, repetition_penalty=1.4, presence_penalty=1.5, frequency_penalty=5.0, top_k=9
    )
    plain = Told(0, (15, 3, 8), sampling, history=PROMPT)
    teller.begin(plain)
    teller.prefill(plain, PROMPT)
    teller.decode(plain, steps=STEPS)
    first, second = plain.tokens[said - 1 : said + 1]
    sampling = replace(sampling, bad_words=((first, second),))
    expected = Told(0, (15, 3, 8), sampling, history=PROMPT)
    teller.begin(expected)
    teller.prefill(expected, PROMPT)
    teller.decode(expected, steps=STEPS)
    assert expected.tokens[:said] == plain.tokens[:said]
    assert expected.tokens[said] != second
    author = Told(1, (2, 7, 4), sampling, history=PROMPT)
    teller.begin(author)
    teller.prefill(author, PROMPT)
    teller.decode(author, steps=said - 1)
    teller.snapshot((author, author.consumed, 0))
    told = Told(3, (2, 7, 9), sampling, tokens=author.tokens, logprobs=author.logprobs)
    told.history = (*PROMPT, *author.tokens)
    teller.resume(told, author.consumed, 0, author.tokens[-1], emitted=said)
    teller.decode(told, steps=STEPS + 1 - said)
    check(told, expected)


def test_several_lanes_are_saved_and_restored_in_one_round(
    teller: Teller, uninterrupted: Told
) -> None:
    endpoints = (PAGE + 7, 2 * PAGE, PAGE + 19, PAGE + 30)
    authors = [Told(slot, (2 * slot, 2 * slot + 1)) for slot in range(4)]
    teller.begin(*authors)
    for author, endpoint in zip(authors, endpoints, strict=True):
        teller.prefill(author, PROMPT[:endpoint], sample=False)
    rows = (4, -1, 0, 2)
    teller.snapshot(*zip(authors, endpoints, rows, strict=True))
    vandals = [Told(author.slot, author.pages[1:]) for author in (authors[0], *authors[2:])]
    teller.begin(*vandals)
    for vandal in vandals:
        teller.prefill(vandal, NOISE[:PAGE])
    told = [
        Told(3 - i, (*author.pages[: endpoint // PAGE], *(8 + 2 * i, 9 + 2 * i))[:3])
        for i, (author, endpoint) in enumerate(zip(authors, endpoints, strict=True))
    ]
    teller.restore(*zip(told, endpoints, rows, strict=True))
    for one in told:
        teller.prefill(one, PROMPT[one.consumed :])
    teller.decode(*told, steps=STEPS)
    for one in told:
        check(one, uninterrupted)


@pytest.mark.parametrize("offset", [1, 17, 31])
def test_the_reference_restores_too(tmp_path: Path, offset: int) -> None:
    parts = capture_tiny(tmp_path, "qwen3")
    runtime = parts.load("reference", request_slots=4, cache_tokens=16 * PAGE, snapshots=6)
    teller, endpoint = Teller(runtime), PAGE + offset
    expected = Told(0, (15, 3, 8))
    teller.begin(expected)
    teller.prefill(expected, PROMPT)
    teller.decode(expected, steps=2)
    restored, resumed = (Told(3, (*publish(teller, endpoint, row), 9 + row, 11)) for row in (0, 1))
    teller.restore((restored, endpoint, 0))
    teller.prefill(restored, PROMPT[endpoint:])
    teller.decode(restored, steps=2)
    assert restored.tokens == expected.tokens
    assert restored.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    teller.resume(resumed, endpoint, 1, PROMPT[endpoint])
    teller.decode(resumed)
    told = Told(0, (15, 3, 8))
    teller.begin(told)
    teller.prefill(told, PROMPT[: endpoint + 1])
    assert resumed.tokens == told.tokens
    assert resumed.logprobs == pytest.approx(told.logprobs, abs=1e-4)
    runtime.close()


def test_a_snapshot_changes_nothing_but_its_row(teller: Teller) -> None:
    runtime = teller.runtime
    author = Told(1, (2, 7, 4))
    teller.begin(author)
    teller.prefill(author, PROMPT[: PAGE + 5])
    before = {name: runtime.read_buffer(name) for name in names(runtime)}
    teller.snapshot((author, PAGE + 5, 3))
    live = runtime.geometry.request_slots
    for name, content in before.items():
        after = runtime.read_buffer(name)
        if name.startswith("saved."):
            page = runtime.read_buffer(f"cache.{name.removeprefix('saved.')}")[7]
            assert np.array_equal(after[live + 3], page)
            after[live + 3] = content[live + 3]
        assert np.array_equal(after, content), name


def names(runtime: ModelRuntime) -> list[str]:
    planes = [f"{plane}.{layer}" for plane in "kv" for layer in (0, 1)]
    copies = [f"{kind}.{plane}" for kind in ("cache", "saved") for plane in planes]
    return ["request_state", "page_table", *copies]


def test_the_geometry_says_what_can_be_reused(teller: Teller) -> None:
    geometry = teller.runtime.geometry
    assert geometry.snapshot_rows == 6
    rules = geometry.history
    assert rules.starts_at_pages
    assert rules.restores
    assert rules.names_endpoint
    assert rules.record_tokens == 1
    fed = {program.operation.name for program in geometry.programs if program.host_fed}
    assert fed == {"RESUME"}
