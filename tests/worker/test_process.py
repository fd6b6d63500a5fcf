"""The worker process on a real core, driven by the client."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from helios.engine import Engine
from helios.errors import CoreError, ExecutionError, HeliosError
from helios.frontend.prepare import GenerationOptions
from helios.worker.client import ModelClient
from helios.worker.launch import launch
from helios.worker.messages import Sampling, Submit, TokensEvent
from helios.worker.options import WorkerOptions
from tests.engine.conftest import tiny_core

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
