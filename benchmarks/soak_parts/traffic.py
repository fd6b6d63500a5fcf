"""What the clients of a soak do, one after another each: ask, read slowly, leave, err, reset."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .cases import COMPLETIONS, Case, Choice, Content, content
from .wire import Answer, Client

_SHOWN = 5


@dataclass
class Tally:
    """What has happened. `problems` are what shouldn't have."""

    done: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    output_tokens: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """Exchanges that are over, however they went."""
        return sum(self.done.values())

    def blame(self, what: str) -> None:
        """Notes a problem."""
        self.problems.append(what)
        if len(self.problems) <= _SHOWN:
            print(f"PROBLEM: {what}", flush=True)


def bad_requests(model: str) -> list[tuple[str, object, int]]:
    """Paths, bodies, and the statuses that they must get."""
    prompt = {"model": model, "prompt": "hello"}
    chat = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    return [
        (COMPLETIONS, b"{", 400),
        (COMPLETIONS, b"\xff\xfe", 400),
        (COMPLETIONS, prompt | {"model": "another"}, 404),
        (COMPLETIONS, prompt | {"temperature": 3}, 400),
        (COMPLETIONS, prompt | {"max_tokens": 10**7}, 400),
        (COMPLETIONS, prompt | {"prompt": "x " * 200_000}, 400),
        (COMPLETIONS, prompt | {"prompt": [10**7]}, 400),
        (COMPLETIONS, prompt | {"stop": ["a", "b", "c", "d", "e"]}, 400),
        (COMPLETIONS, prompt | {"n": 1000}, 400),
        (COMPLETIONS, prompt | {"logit_bias": {"999999999": 1}}, 400),
        ("/v1/chat/completions", chat | {"return_token_timestamps": True}, 400),
        ("/v1/chat/completions", chat | {"messages": []}, 400),
        ("/v1/chat/completions", chat | {"messages": [{"role": "user", "content": "\ufdd0"}]}, 400),
        ("/abort", {"request_id": "nobody"}, 404),
        ("/nowhere", {}, 404),
    ]


class Traffic:
    """Clients over the cases, whose answers are known."""

    def __init__(
        self, client: Client, cases: Sequence[Case], expected: Sequence[Content], seed: int
    ) -> None:
        self.tally = Tally()
        self._client = client
        self._cases = cases
        self._expected = expected
        self._bad = bad_requests(cases[0].body["model"])
        self._ids = itertools.count()
        self._seed = seed
        self._kinds = {
            self._ask: 30,
            self._stream: 30,
            self._read_slowly: 6,
            self._leave: 18,
            self._abort: 4,
            self._err: 10,
            self._look: 5,
            self._reset: 0.1,
        }

    async def run(self, clients: int, until: asyncio.Event) -> None:
        """Lets so many clients go on until the event is set and their last exchange is over."""
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._one(random.Random(f"{self._seed} {number}"), until))

    async def _one(self, source: random.Random, until: asyncio.Event) -> None:
        acts, weights = list(self._kinds), list(self._kinds.values())
        while not until.is_set():
            (act,) = source.choices(acts, weights)
            try:
                await act(source)
            except Exception as error:
                self.tally.blame(f"{act.__name__}: {error!r}")
            self.tally.done[act.__name__.strip("_")] += 1

    # ------------------------------------------------------------ what they do

    async def _ask(self, source: random.Random) -> None:
        number = source.randrange(len(self._cases))
        case = self._cases[number]
        self._compare(number, await self._client.ask(case.path, case.body), stream=False)

    async def _stream(self, source: random.Random) -> None:
        number = source.randrange(len(self._cases))
        case = self._cases[number]
        self._compare(number, await self._client.ask(case.path, case.streamed()), stream=True)

    async def _read_slowly(self, source: random.Random) -> None:
        """The rest of the answer is read once some others have had theirs."""
        number = source.randrange(len(self._cases))
        case = self._cases[number]
        wanted = self.tally.requests + source.randrange(1, 40)

        async def pause() -> None:
            for _ in range(200):
                if self.tally.requests >= wanted:
                    return
                await asyncio.sleep(0.02)

        stream = source.random() < 0.7
        body = case.streamed() if stream else case.body
        answer = await self._client.ask(case.path, body, pause=pause)
        self._compare(number, answer, stream=stream)

    async def _leave(self, source: random.Random) -> None:
        case = source.choice(self._cases)
        body = case.streamed() if source.random() < 0.7 else case.body
        await self._client.leave(case.path, body, source)

    async def _abort(self, source: random.Random) -> None:
        """Ends a request by its id; its own answer is then part of the known one."""
        number = source.randrange(len(self._cases))
        case = self._cases[number]
        name = f"soak-{next(self._ids)}"

        async def abort() -> None:
            ended = await self._client.ask("/abort", {"request_id": name})
            if ended.status not in (200, 404):
                self.tally.blame(f"/abort: {ended.status} {ended.body[:200]!r}")

        answer = await self._client.ask(case.path, case.streamed(), request_id=name, pause=abort)
        if not self._is_refused(answer):
            got = content(answer, stream=True)
            for mine, known in zip(got[0], self._expected[number][0], strict=True):
                if mine != known and not _begins(known, mine):
                    self.tally.blame(f"{case.kind}, aborted: {mine!r:.200}, not {known!r:.200}")

    async def _err(self, source: random.Random) -> None:
        path, body, status = source.choice(self._bad)
        answer = await self._client.ask(path, body)
        if answer.status != status and not self._is_refused(answer):
            self.tally.blame(f"{path} {body!r:.80}: {answer.status}, not {status}")

    async def _look(self, source: random.Random) -> None:
        path = source.choice(("/health", "/ready", "/v1/models", "/metrics", "/version"))
        answer = await self._client.ask(path)
        if answer.status != 200:
            self.tally.blame(f"{path}: {answer.status} {answer.body[:200]!r}")

    async def _reset(self, source: random.Random) -> None:
        answer = await self._client.ask("/reset_prefix_cache", {})
        if answer.status != 200:
            self.tally.blame(f"/reset_prefix_cache: {answer.status} {answer.body[:200]!r}")

    # ------------------------------------------------------------ judgement

    def _is_refused(self, answer: Answer) -> bool:
        """Whether there was no permit, which is as it should be."""
        refused = answer.status == 429
        self.tally.refused += refused
        return refused

    def _compare(self, number: int, answer: Answer, *, stream: bool) -> None:
        if self._is_refused(answer):
            return
        case, expected = self._cases[number], self._expected[number]
        if answer.status != 200:
            self.tally.blame(f"{case.kind}: {answer.status} {answer.body[:200]!r}")
            return
        got = content(answer, stream=stream)
        self.tally.output_tokens += got[2]
        if got != expected:
            self.tally.blame(f"{case.kind}, stream {stream}: {got!r:.300}, not {expected!r:.300}")


def _begins(known: Choice, part: Choice) -> bool:
    """Whether `part` is how an aborted answer may end. Half a character is shown as such."""
    text, tokens, *_, finish = part
    return (
        finish == "abort"
        and known[0].startswith(text.rstrip("\ufffd"))
        and known[1][: len(tokens)] == tokens
    )
