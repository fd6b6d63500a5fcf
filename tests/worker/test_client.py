"""The asyncio client against real worker processes: service, cancellation, death, the end."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helios.errors import CoreError, ExecutionError, HeliosError
from helios.worker.client import ModelClient, RequestEvent
from helios.worker.launch import launch
from helios.worker.messages import FailedEvent, Finish, RejectedEvent, TokensEvent
from helios.worker.options import WorkerOptions
from tests.scheduler.driving import request
from tests.scheduler.fake_model import alone
from tests.worker.test_model_worker import submit

OPTIONS = WorkerOptions(core="nowhere", accept="tests")
FAKE_WORKER = Path(__file__).with_name("fake_worker.py")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


@asynccontextmanager
async def started(mode: str) -> AsyncIterator[ModelClient]:
    command = (sys.executable, str(FAKE_WORKER), mode)
    client = await ModelClient.attach(launch(OPTIONS, command=command))
    try:
        yield client
    finally:
        await client.close()


async def gather(client: ModelClient, request_id: int, limit: int = 6) -> list[RequestEvent]:
    one = request(request_id, prompt=3, limit=limit)
    return [event async for event in client.submit(submit(one))]


def tokens_of(events: list[RequestEvent]) -> list[int]:
    return [token for event in events if isinstance(event, TokensEvent) for token in event.tokens]


def test_broken_books_are_known_and_requests_go_on() -> None:
    async def scenario() -> None:
        async with started("unsound") as client:
            await client.ready()
            assert tokens_of(await gather(client, 1)) == alone(request(1, prompt=3, limit=6))[0]
            assert client.unsound == "a page is lost"
            assert client.failure is None

    run(scenario())


def test_a_reset_is_over_when_it_returns() -> None:
    async def scenario() -> None:
        async with started("reuses") as client:
            await client.ready()

            async def reused(request_id: int) -> set[int]:
                one = submit(request(request_id, (3, 1, 4, 1, 5, 9), 6))
                return {
                    event.reused_prompt_tokens
                    async for event in client.submit(one)
                    if isinstance(event, TokensEvent)
                }

            assert [await reused(1), await reused(2)] == [{0}, {5}]
            await asyncio.gather(client.reset_prefix_cache(), client.reset_prefix_cache())
            assert [await reused(3), await reused(4)] == [{0}, {5}]

    run(scenario())


def test_a_dead_worker_resets_nothing() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            client._process.send_signal(signal.SIGSTOP)
            reset = asyncio.ensure_future(client.reset_prefix_cache())
            await asyncio.sleep(0)
            client._process.kill()
            with pytest.raises(ExecutionError, match="status -9"):
                await reset
            with pytest.raises(ExecutionError, match="status -9"):
                await client.reset_prefix_cache()

    run(scenario())


def test_many_requests_at_once() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            assert (await client.ready()).page_tokens == 4
            answers = await asyncio.gather(*(gather(client, i) for i in range(40)))
            for i, events in enumerate(answers):
                assert tokens_of(events) == alone(request(i, prompt=3, limit=6))[0]
                assert isinstance(events[-1], TokensEvent)
                assert events[-1].finish == Finish.LIMIT
            statistics = await client.statistics()
            assert statistics.finished["limit"] == 40
            assert statistics.gauges["slots_used"] == 0
        assert isinstance(client.failure, ExecutionError)
        assert "status 0" in str(client.failure)

    run(scenario())


def test_a_rejection_is_the_only_event() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            (event,) = await gather(client, 1, limit=100)
            assert isinstance(event, RejectedEvent)
            assert "context" in event.message

    run(scenario())


def test_closing_the_iterator_cancels() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            async with aclosing(client.submit(submit(request(1, prompt=3, limit=36)))) as events:
                await anext(events)
            # The worker may have run to the limit before the message came.
            finished = (await client.statistics()).finished
            assert finished["cancelled"] + finished["limit"] == 1
            assert tokens_of(await gather(client, 2)) == alone(request(2, prompt=3, limit=6))[0]

    run(scenario())


def test_a_dropped_iterator_cancels() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            events = client.submit(submit(request(1, prompt=3, limit=36)))
            await anext(events)
            del events
            gc.collect()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            finished = (await client.statistics()).finished
            assert finished["cancelled"] + finished["limit"] == 1
            assert not client._requests

    run(scenario())


def test_cancel_ends_the_iterator() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            reading = asyncio.create_task(gather(client, 1, limit=36))
            await asyncio.sleep(0)
            client.cancel(1)
            last = (await reading)[-1]
            assert isinstance(last, TokensEvent)
            assert last.finish in (Finish.CANCELLED, Finish.LIMIT)

    run(scenario())


def test_cancelling_all_ends_every_request_though_the_worker_is_stuck() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            client._process.send_signal(signal.SIGSTOP)
            reading = asyncio.gather(*(gather(client, i, limit=36) for i in range(3)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            client.cancel_all()
            for events in [*await reading, await gather(client, 9)]:
                assert [getattr(event, "finish", None) for event in events] == [Finish.CANCELLED]
            assert not client._requests
        assert "status -9" in str(client.failure)

    run(scenario())


def test_a_worker_that_cant_start_says_why() -> None:
    async def scenario() -> None:
        async with started("no_core") as client:
            with pytest.raises(CoreError, match=r"demo\.core: is no folder"):
                await client.ready()
            assert isinstance(client.failure, CoreError)
            with pytest.raises(CoreError):
                await gather(client, 1)
            with pytest.raises(CoreError):
                await client.statistics()

    run(scenario())


def test_a_worker_that_dies_fails_every_pending_request() -> None:
    async def scenario() -> None:
        async with started("dies") as client:
            await client.ready()
            answers = await asyncio.gather(
                *(gather(client, i) for i in range(5)), return_exceptions=True
            )
            assert len(answers) == 5
            for answer in answers:
                assert isinstance(answer, ExecutionError)
                assert "status 7" in str(answer)
            assert client.failure is not None

    run(scenario())


def test_a_failing_device_is_told_to_every_request() -> None:
    async def scenario() -> None:
        async with started("breaks") as client:
            await client.ready()
            for events in await asyncio.gather(*(gather(client, i) for i in range(5))):
                assert isinstance(events[-1], FailedEvent)
                assert "the program broke" in events[-1].message

    run(scenario())


def test_a_failed_device_is_known_before_its_worker_has_ended() -> None:
    async def scenario() -> None:
        async with started("breaks and stays") as client:
            await client.ready()
            await gather(client, 1)
            assert "the program broke" in str(client.failure)
            assert client._process.poll() is None
            with pytest.raises(ExecutionError, match="the program broke"):
                await client.statistics()
            client._process.kill()
        assert "the program broke" in str(client.failure)

    run(scenario())


def test_a_refused_core_is_known_before_its_worker_has_ended() -> None:
    """As where a driver still starts beside it."""

    async def scenario() -> None:
        async with started("no_core and stays") as client:
            with pytest.raises(CoreError, match="is no folder"):
                await asyncio.wait_for(client.ready(), 20)
            assert client._process.poll() is None
            await client.close(drain_timeout_s=600)
            assert client._process.returncode == -signal.SIGKILL

    run(scenario())


def test_garbage_from_the_worker_is_a_typed_failure() -> None:
    async def scenario() -> None:
        async with started("garbage") as client:
            with pytest.raises(HeliosError, match="no batch"):
                await client.ready()

    run(scenario())


def test_a_worker_that_still_loads_can_be_closed() -> None:
    async def scenario() -> None:
        async with started("loading") as client:
            pass
        with pytest.raises(ExecutionError):
            await client.ready()

    run(scenario())


def test_closing_cancels_pending_requests() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            reading = asyncio.create_task(gather(client, 1, limit=36))
            await asyncio.sleep(0)
        last = (await reading)[-1]
        assert isinstance(last, TokensEvent)
        assert last.finish in (Finish.CANCELLED, Finish.LIMIT)

    run(scenario())


def test_a_worker_ends_when_its_client_vanishes() -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            reading = asyncio.create_task(gather(client, 1, limit=36))
            await asyncio.sleep(0)
            client._writer.close()
            assert await asyncio.to_thread(client._process.wait) == 0
            await asyncio.gather(reading, return_exceptions=True)

    run(scenario())


@pytest.mark.clause("HTTP-6")
def test_a_worker_is_waited_for_until_its_device_has_drained() -> None:
    """It stands still when it is told to end, as if its round took long, and isn't killed."""

    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            client._process.send_signal(signal.SIGSTOP)
            closing = asyncio.create_task(client.close(drain_timeout_s=600))
            assert not (await asyncio.wait({closing}, timeout=0.1))[0]
            client._process.send_signal(signal.SIGCONT)
            await closing
            assert client._process.returncode == 0

    run(scenario())


@pytest.mark.parametrize("hurry", [False, True])
def test_a_stuck_worker_is_killed_after_its_time_or_in_a_hurry(hurry: bool) -> None:
    async def scenario() -> None:
        async with started("serves") as client:
            await client.ready()
            client._process.send_signal(signal.SIGSTOP)
            hurried = asyncio.Event()
            closing = asyncio.create_task(client.close(600 if hurry else 0.05, hurried))
            if hurry:
                hurried.set()
            await closing
            assert client._process.returncode == -signal.SIGKILL

    run(scenario())


def test_the_real_process_refuses_a_missing_core() -> None:
    async def scenario() -> None:
        client = await ModelClient.attach(launch(OPTIONS))
        with pytest.raises(CoreError, match="nowhere"):
            await client.ready()
        await client.close()

    run(scenario())
