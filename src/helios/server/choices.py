"""The choices of one request: each a request to the model with a seed of its own.

`merged` interleaves their steps as they come; who drops it cancels all of them. Pulling is the
reader's: a choice that isn't read waits in the worker client's queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from helios.frontend.output import OutputPipeline
from helios.frontend.prepare import PreparedRequest
from helios.server.lifecycle import ServedModel
from helios.server.observation import Observation, Step
from helios.worker.messages import Submit


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice on its way: its number, what the model is asked, and how its text is made."""

    index: int
    submit: Submit
    pipeline: OutputPipeline


def begin_choices(
    requests: Sequence[PreparedRequest],
    model: ServedModel,
    request_ids: Iterator[int],
    observation: Observation,
) -> list[Choice]:
    """The choices of requests with the same prompt; the first one computes it for the others."""
    found: list[Choice] = []
    for index, prepared in enumerate(requests):
        submit = Submit.of(
            next(request_ids),
            prepared,
            observed=observation.token_ids,
            timed=observation.timed,
            sibling_of=found[0].submit.request_id if found else None,
        )
        found.append(Choice(index, submit, model.frontend.output(prepared)))
    return found


async def merged(streams: Sequence[AsyncGenerator[Step, None]]) -> AsyncGenerator[Step, None]:
    """The steps of all streams as they come, each stream's in order. The first error ends it."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for step in only:
                yield step
        return
    waiting = {_next(stream): stream for stream in streams}
    try:
        while waiting:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in waiting if task.done()]:
                stream = waiting.pop(task)
                step = task.result()
                if step.finish is None:
                    waiting[_next(stream)] = stream
                yield step
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


def _next(stream: AsyncGenerator[Step, None]) -> asyncio.Task[Step]:
    async def step() -> Step:
        return await anext(stream)

    return asyncio.ensure_future(step())
