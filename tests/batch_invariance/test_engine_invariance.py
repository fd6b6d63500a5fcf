"""Batch invariance through the whole engine: 32 clients at once, in random order, against each
request by itself. Scheduler, pages and frames are the real ones here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.engine import Engine, Generation
from helios.frontend.prepare import GenerationOptions
from helios.generations import whole
from helios.runtime.rounds import SamplingParameters
from helios.scheduler import SchedulerOptions
from helios.worker.messages import Finish
from ignition.preparation.prepare import Options, prepare
from tests.batch_invariance.driving import Request
from tests.batch_invariance.test_batch_invariance import processed, random_requests
from tests.checkpoints import TOKENS, write_huggingface
from tests.silence import Silent

NAMESPACE = "tests"
PAGE_NBYTES = 1 << 13
LONG = 90


def prepared(folder: Path, variant: str) -> Path:
    options = Options(
        namespace=NAMESPACE, served_id="tiny", max_active=16, prefill=(32, 128), max_context=128
    )
    checkpoint = write_huggingface(folder / "checkpoint", variant)
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    prepare(checkpoint, folder / "core", options, key, Silent())
    return folder / "core"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("invariance"), "mistral")


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return random_requests(19)


def options_of(request: Request, *, ignore_eos: bool = False) -> GenerationOptions:
    sampling = request.sampling
    return GenerationOptions(
        max_tokens=request.output_limit,
        temperature=sampling.temperature,
        top_k=sampling.top_k or None,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        min_tokens=sampling.min_tokens,
        logit_bias=dict(sampling.logit_bias),
        allowed_token_ids=sampling.allowed_tokens,
        bad_words=sampling.bad_words,
        top_logprobs=sampling.top_logprobs,
        ignore_eos=ignore_eos,
    )


def ask(engine: Engine, request: Request, *, ignore_eos: bool = False) -> Generation:
    options = options_of(request, ignore_eos=ignore_eos)
    return engine.generate([list(request.prompt)], options)[0]


def ask_at_once(engine: Engine, requests: Sequence[Request]) -> list[Generation]:
    """All of them arrive before the next round is planned; they don't end before their limits."""
    prepare = engine.frontend.preparer.prepare_completion
    pending = engine._worker.submit(
        [prepare(list(one.prompt), options_of(one, ignore_eos=True)) for one in requests]
    )
    return [whole(one.prepared.prompt_tokens, engine._deltas(one)) for one in pending]


@pytest.fixture(scope="module")
def alone(core: Path, requests: list[Request]) -> list[Generation]:
    scheduler = SchedulerOptions(frames_in_flight=1)
    with Engine.open(core, accept=NAMESPACE, threads=1, scheduler=scheduler) as engine:
        return [ask(engine, request) for request in requests]


@pytest.mark.parametrize(("chunk", "threads"), [(None, 2), (5, 2), (9, 1)])
def test_a_crowd_of_clients_changes_no_bit(
    core: Path,
    requests: list[Request],
    alone: list[Generation],
    chunk: int | None,
    threads: int,
) -> None:
    order = list(range(len(requests)))
    random.Random(chunk).shuffle(order)
    scheduler = SchedulerOptions(prefill_chunk_tokens=chunk)
    with (
        Engine.open(core, accept=NAMESPACE, threads=threads, scheduler=scheduler) as engine,
        ThreadPoolExecutor(len(requests)) as clients,
    ):
        answers = {index: clients.submit(ask, engine, requests[index]) for index in order}
        together = [answers[index].result() for index in range(len(requests))]
    assert together == alone


def test_the_answers_are_of_all_kinds(alone: list[Generation]) -> None:
    assert len({answer.tokens for answer in alone}) > len(alone) * 3 // 4
    assert {answer.finish for answer in alone} >= {Finish.LIMIT}


@pytest.fixture(scope="module")
def whole_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that keeps its whole context."""
    return prepared(tmp_path_factory.mktemp("whole"), "llama")


@pytest.mark.clause("BIND-5")
@pytest.mark.parametrize("snapshots", [0, 2])
def test_preempted_requests_go_on_with_counts_and_words_as_they_were(
    whole_core: Path, snapshots: int
) -> None:
    """Pairs of long answers, against each by itself. The cache has pages for one whole request and
    a part of another, so the younger one of each pair gives way exactly once, however rounds and
    clients are timed: both are admitted at once, for their prompts; neither can end while the
    other holds what it then needs; and who gave way needs more to come back than there is until
    the other one has ended."""
    source = random.Random(3)
    requests = []
    for index in range(8):
        sampling = SamplingParameters(temperature=0.9 * (index % 2), seed=index)
        prompt = tuple(source.randrange(3, TOKENS) for _ in range(5 + index))
        sampling = replace(processed(source, sampling, LONG), allowed_tokens=None)
        requests.append(Request(prompt, sampling, LONG, ()))
    with Engine.open(whole_core, accept=NAMESPACE, threads=1) as engine:
        alone = [ask(engine, request, ignore_eos=True) for request in requests]
    assert {answer.finish for answer in alone} == {Finish.LIMIT}
    few = (4 + snapshots) * PAGE_NBYTES
    with Engine.open(
        whole_core, accept=NAMESPACE, threads=2, cache_nbytes=few, snapshots=snapshots
    ) as engine:
        info = engine.info
        for first in range(0, len(requests), 2):
            pair = requests[first : first + 2]
            stored = [len(one.prompt) + LONG - 1 for one in pair]
            needed = [-(-tokens // info.page_tokens) for tokens in stored]
            assert 2 * 2 <= info.cache_pages <= sum(needed) - 2
            before = engine.statistics().counters["preemptions"]
            assert ask_at_once(engine, pair) == alone[first : first + 2]
            assert engine.statistics().counters["preemptions"] - before == 1


def test_choices_are_what_their_seeds_get_alone_and_compute_the_prompt_once(core: Path) -> None:
    with Engine.open(core, accept=NAMESPACE, threads=2) as engine:
        prompt = [5 + i % 300 for i in range(70)]
        options = GenerationOptions(max_tokens=12, seed=2**64 - 2, frequency_penalty=0.5)
        before = engine.statistics().counters["prefilled_tokens"]
        choices = engine.choices(prompt, 6, options)
        assert engine.statistics().counters["prefilled_tokens"] - before == len(prompt)
        fresh = SchedulerOptions(prefix_reuse=False)
    assert len({choice.tokens for choice in choices}) > 3
    with Engine.open(core, accept=NAMESPACE, threads=1, scheduler=fresh) as engine:
        for index, choice in enumerate(choices):
            seed = (2**64 - 2 + index) % 2**64
            assert engine.generate([prompt], replace(options, seed=seed)) == [choice]
