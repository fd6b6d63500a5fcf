"""Prompts that are prepared are counted where they are: waiting, worked on, or gone."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from helios.server.preparations import Preparations


def test_who_waits_and_who_is_worked_on() -> None:
    async def main() -> None:
        counts = Preparations()
        begun, go_on = threading.Semaphore(0), threading.Event()

        def work() -> int:
            begun.release()
            go_on.wait()
            return 7

        with ThreadPoolExecutor(2) as threads:
            tasks = [asyncio.create_task(counts.run(threads, work)) for _ in range(5)]
            for _ in range(2):
                await asyncio.to_thread(begun.acquire)
            assert (counts.running, counts.waiting) == (2, 3)
            # One that waits goes away: nobody will work on it.
            tasks[4].cancel()
            await asyncio.wait([tasks[4]])
            assert (counts.running, counts.waiting) == (2, 2)
            # One that is worked on: its thread isn't free yet.
            tasks[0].cancel()
            await asyncio.wait([tasks[0]])
            assert (counts.running, counts.waiting) == (2, 2)
            go_on.set()
            assert await asyncio.gather(*tasks[1:4]) == [7] * 3
        assert (counts.running, counts.waiting) == (0, 0)
        assert counts.seconds().count == 4

    asyncio.run(main())


def test_work_that_fails_is_over_too() -> None:
    async def main() -> None:
        counts = Preparations()

        def work() -> None:
            raise ValueError("no such token")

        with ThreadPoolExecutor(1) as threads, pytest.raises(ValueError, match="no such token"):
            await counts.run(threads, work)
        assert (counts.running, counts.waiting) == (0, 0)
        assert counts.seconds().count == 1

    asyncio.run(main())
