"""Batch invariance through the whole engine: 32 clients at once, in random order, against each
request by itself. Scheduler, pages and frames are the real ones here."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.engine import Engine, Generation
from helios.frontend.prepare import GenerationOptions
from helios.scheduler import SchedulerOptions
from helios.worker.messages import Finish
from ignition.preparation.prepare import Options, prepare
from tests.batch_invariance.driving import Request
from tests.batch_invariance.test_batch_invariance import random_requests
from tests.checkpoints import write_huggingface
from tests.silence import Silent

NAMESPACE = "tests"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("invariance")
    options = Options(
        namespace=NAMESPACE, served_id="tiny", max_active=16, prefill=(32, 128), max_context=128
    )
    checkpoint = write_huggingface(folder / "checkpoint", "mistral")
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    prepare(checkpoint, folder / "core", options, key, Silent())
    return folder / "core"


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return random_requests(19)


def ask(engine: Engine, request: Request) -> Generation:
    sampling = request.sampling
    options = GenerationOptions(
        max_tokens=request.output_limit,
        temperature=sampling.temperature,
        top_k=sampling.top_k or None,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
    )
    return engine.generate([list(request.prompt)], options)[0]


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
