"""The worker process on a real core, driven by the client."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from helios.engine import Engine
from helios.errors import CoreError, ExecutionError, HeliosError
from helios.frontend.prepare import GenerationOptions
from helios.worker import process
from helios.worker.channel import BatchDecoder, encode_batch
from helios.worker.client import ModelClient
from helios.worker.launch import launch
from helios.worker.messages import (
    Sampling,
    Submit,
    TokensEvent,
    WorkerFailed,
    WorkerReady,
)
from helios.worker.options import WorkerOptions
from helios.worker.peer_messages import ToProcess
from tests.engine.conftest import tiny_core
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, geometry
from tests.worker.test_model_worker import submit

__all__ = ["tiny_core"]

PROMPT = [5, 9, 2, 7, 40]


async def tokens(client: ModelClient, request_id: int, limit: int) -> list[int]:
    greedy = Sampling(0.0, 0, 1.0, 0.0, 0)
    got: list[int] = []
    async for event in client.submit(Submit(request_id, PROMPT, limit, greedy, [])):
        assert isinstance(event, TokensEvent)
        got += event.tokens
    return got


def test_the_process_serves_what_the_engine_generates(tiny_core: Path) -> None:
    async def scenario() -> list[list[int]]:
        client = await ModelClient.attach(
            launch(WorkerOptions(core=str(tiny_core), accept="tests", threads=1))
        )
        try:
            ready = await client.ready()
            phases = {name for name in ready.startup_ms if "." not in name}
            assert phases == {"import", "open", "load", "oracle"}
            parts = {name for name in ready.startup_ms if name.startswith("load.")}
            assert parts >= {"load.manifest", "load.weights", "load.programs"}
            assert ready.request_slots == 6
            client._process.send_signal(signal.SIGINT)
            client._process.send_signal(signal.SIGTERM)
            return await asyncio.gather(*(tokens(client, i, 12) for i in range(8)))
        finally:
            await client.close()

    answers = asyncio.run(asyncio.wait_for(scenario(), 120))
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        options = GenerationOptions(max_tokens=12, temperature=0.0)
        expected = engine.generate([PROMPT], options)[0].tokens
    assert len(expected) == 12, "the comparison needs a prompt that runs to its limit"
    assert answers == [list(expected)] * 8


@pytest.mark.parametrize("options", [("/cores/\udcff", "tests"), ("/cores/a", "tests\udcff")])
def test_options_that_are_no_unicode_are_refused(options: tuple[str, str]) -> None:
    with pytest.raises(HeliosError, match=r"'.*\\udcff' is no UTF-8"):
        launch(WorkerOptions(core=options[0], accept=options[1]))


def test_a_killed_worker_is_a_typed_error(tiny_core: Path) -> None:
    async def scenario() -> None:
        client = await ModelClient.attach(
            launch(WorkerOptions(core=str(tiny_core), accept="tests", threads=1, oracle=False))
        )
        await client.ready()
        client._process.kill()
        with pytest.raises(ExecutionError, match="status -9"):
            await tokens(client, 1, 200)
        assert client.failure is not None
        await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_core_that_isnt_accepted_is_told_to_the_client(tiny_core: Path) -> None:
    async def scenario() -> None:
        client = await ModelClient.attach(
            launch(WorkerOptions(core=str(tiny_core), accept="somebody"))
        )
        with pytest.raises(CoreError, match="tests"):
            await client.ready()
        await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


class StuckModel:
    """What a model is to its worker, that fails and then doesn't close before it may."""

    startup_ms: ClassVar[dict[str, float]] = {}
    scheduler = tier = None
    origin_ns = 0

    def __init__(self, options: WorkerOptions) -> None:
        self.runtime = FakeModel(geometry())
        self.runtime.breaks_at = 1
        self.may_close = threading.Event()

    def ready_message(self) -> WorkerReady:
        return WorkerReady("fake", 8, 0, 64, 1 << 16, 4, 40, 16, {})

    def open_token_bytes(self) -> None:
        raise AssertionError("nobody asks")

    open_vocabulary = open_token_bytes

    def close(self) -> None:
        assert self.may_close.wait(30)


def test_a_failed_worker_leaves_its_client_before_its_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with what the client hadn't read yet."""
    models: list[StuckModel] = []

    def load(options: WorkerOptions) -> StuckModel:
        models.append(StuckModel(options))
        return models[0]

    monkeypatch.setattr(process, "load_model", load)
    ours, theirs = socket.socketpair()
    channel = process.open_channel(theirs, [])
    ours.sendall(encode_batch([submit(request(1, prompt=3, limit=6))]))
    options = WorkerOptions(core="/fake", accept="tests")
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(process._serve, channel, options, 0.0)
        decoder: BatchDecoder[ToProcess] = BatchDecoder(ToProcess)
        ours.settimeout(10)
        heard: list[ToProcess] = []
        try:
            while received := ours.recv(1 << 16):
                heard += decoder.feed(received)
            assert not serving.done()
        finally:
            ours.close()
            models[0].may_close.set()
        assert serving.result() == 1
    channel.close()
    assert isinstance(heard[-1], WorkerFailed)
