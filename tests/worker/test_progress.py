"""How far the device has come, as the worker's client asks for it."""

from __future__ import annotations

import asyncio

import pytest

from helios.errors import ExecutionError
from helios.worker.messages import Progress
from tests.worker.test_client import gather, run, started


def test_progress_tells_of_work_and_counts() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            assert await client.progress() == Progress(working=False, launches=0, rounds=0)
            await gather(client, 1)
            after = await client.progress()
            assert not after.working
            assert after.launches >= after.rounds > 0
        with pytest.raises(ExecutionError):
            await client.progress()

    run(scenario())


def test_who_waits_for_progress_hears_that_the_worker_died() -> None:
    async def scenario() -> None:
        async with started("dies") as client:
            await client.ready()
            requests = [asyncio.create_task(gather(client, i)) for i in range(3)]

            async def asks_on() -> None:
                while True:
                    await client.progress()

            with pytest.raises(ExecutionError):
                await asks_on()
            await asyncio.gather(*requests, return_exceptions=True)

    run(scenario())
