"""Requests and two ways to run them on a ModelRuntime: alone, and crowded.

A small scheduler of the test's own, so that batch invariance is a statement about programs and
kernels. What it varies is what may not matter: lane order, slots, pages, the mix of lanes in a
round, whether prompts and answers share rounds, whether a prompt is scored, program capacities,
chunk sizes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from helios.runtime.geometry import Operation, ProgramInfo
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import (
    Alternatives,
    DeviceFinish,
    LaneAdmission,
    LaneExtras,
    LaneWork,
    SamplingParameters,
)
from tests.replaying import GENERATIONS, PACKED, run_round


@dataclass(frozen=True)
class Request:
    """What a client would ask for."""

    prompt: tuple[int, ...]
    sampling: SamplingParameters
    output_limit: int
    eos_ids: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What came back, bit for bit."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    alternatives: tuple[Alternatives, ...]
    finish: DeviceFinish


@dataclass
class _Running:
    request: Request
    slot: int
    generation: int
    pages: tuple[int, ...]
    consumed: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)
    finish: DeviceFinish = DeviceFinish.RUNNING

    @property
    def in_prompt(self) -> bool:
        return self.consumed < len(self.request.prompt)


class Crowd:
    """Runs requests together; `alone` is a crowd of one. Pages and slots are drawn at random."""

    def __init__(self, runtime: ModelRuntime, seed: int) -> None:
        self.rounds: Counter[Operation] = Counter()
        self._runtime = runtime
        self._random = random.Random(seed)
        self._free_pages = list(range(runtime.geometry.cache_pages))
        self._free_slots = list(range(runtime.geometry.request_slots))

    def alone(self, request: Request, chunk: int) -> Answer:
        """One request by itself, its prompt in chunks of `chunk` tokens."""
        return self.together([request], lambda: chunk, at_once=1)[0]

    def together(
        self, requests: list[Request], chunk: Callable[[], int], at_once: int
    ) -> list[Answer]:
        """All requests, arriving in random order, at most `at_once` of them running; `chunk`
        says how many tokens of a prompt a round takes."""
        waiting = list(enumerate(requests))
        self._random.shuffle(waiting)
        running: dict[int, _Running] = {}
        answers: dict[int, Answer] = {}
        while waiting or running:
            arriving = self._random.randint(0 if running else 1, 4)
            admitted = []
            while waiting and len(running) < at_once and len(admitted) < arriving:
                index, request = waiting.pop()
                running[index] = self._admit(request)
                admitted.append(running[index])
            if admitted:
                self._initialize(admitted)
            self._step(list(running.values()), chunk)
            for index, one in list(running.items()):
                if one.finish is not DeviceFinish.RUNNING:
                    answers[index] = Answer(
                        tuple(one.tokens),
                        tuple(one.logprobs),
                        tuple(one.alternatives),
                        one.finish,
                    )
                    self._free_pages.extend(one.pages)
                    self._free_slots.append(one.slot)
                    del running[index]
        return [answers[index] for index in range(len(requests))]

    def _admit(self, request: Request) -> _Running:
        self._random.shuffle(self._free_pages)
        self._random.shuffle(self._free_slots)
        tokens = len(request.prompt) + request.output_limit
        count = -(-tokens // self._runtime.geometry.page_tokens)
        pages, self._free_pages = tuple(self._free_pages[:count]), self._free_pages[count:]
        assert len(pages) == count, "the test's cache is too small for its crowd"
        return _Running(request, self._free_slots.pop(), next(GENERATIONS), pages)

    def _initialize(self, admitted: list[_Running]) -> None:
        lanes = [
            LaneWork(
                one.slot, one.generation, 0, (), False, (),
                LaneAdmission(
                    one.request.sampling, one.request.output_limit, 0, one.request.eos_ids
                ),
                extras=LaneExtras(history=one.request.prompt),
            )
            for one in admitted
        ]  # fmt: skip
        run_round(self._runtime, self._program(Operation.INITIALIZE, len(lanes)), lanes)

    def _step(self, running: list[_Running], chunk: Callable[[], int]) -> None:
        """One round of a kind that has work, picked at random."""
        prompts = [one for one in running if one.in_prompt]
        decoding = [one for one in running if not one.in_prompt]
        kinds = [Operation.PREFILL, Operation.SCORED_PREFILL] if prompts else []
        if decoding:
            kinds.append(Operation.DECODE)
        if prompts and decoding:
            kinds.append(Operation.MIXED)
        geometry = self._runtime.geometry
        kind = self._random.choice([kind for kind in kinds if geometry.of(kind)])
        if kind is Operation.DECODE:
            self._decode(decoding)
        elif kind is Operation.MIXED:
            self._mix(decoding, prompts, chunk)
        else:
            self._prefill(kind, prompts, chunk)

    def _prefill(
        self, operation: Operation, prompts: list[_Running], chunk: Callable[[], int]
    ) -> None:
        largest = self._runtime.geometry.of(operation)[-1]
        self._random.shuffle(prompts)
        lanes, taking, total = [], [], 0
        for one in prompts[: largest.batch_capacity]:
            tokens = one.request.prompt[one.consumed :][: chunk()]
            if total + len(tokens) > largest.packed_token_capacity:
                continue
            total += len(tokens)
            last = one.consumed + len(tokens) == len(one.request.prompt)
            targets = tokens if operation is Operation.SCORED_PREFILL else ()
            lanes.append(
                LaneWork(
                    one.slot, one.generation, one.consumed, tokens, last, one.pages, targets=targets
                )
            )
            taking.append(one)
        if lanes:
            self._finish_round(self._program(operation, len(lanes), total), lanes, taking)

    def _mix(
        self, decoding: list[_Running], prompts: list[_Running], chunk: Callable[[], int]
    ) -> None:
        largest = self._runtime.geometry.of(Operation.MIXED)[-1]
        self._random.shuffle(decoding)
        most = min(len(decoding), largest.batch_capacity - 1)
        taking = decoding[: self._random.randint(1, most)]
        one = self._random.choice(prompts)
        room = largest.packed_token_capacity - len(taking)
        tokens = one.request.prompt[one.consumed :][: min(chunk(), room)]
        last = one.consumed + len(tokens) == len(one.request.prompt)
        lanes = [
            *(LaneWork(o.slot, o.generation, o.consumed, (), True, o.pages) for o in taking),
            LaneWork(one.slot, one.generation, one.consumed, tokens, last, one.pages),
        ]
        total = len(taking) + len(tokens)
        program = self._program(Operation.MIXED, len(lanes), total)
        self._finish_round(program, lanes, [*taking, one])

    def _decode(self, decoding: list[_Running]) -> None:
        self._random.shuffle(decoding)
        taking = decoding[: self._random.randint(1, len(decoding))]
        lanes = [
            LaneWork(one.slot, one.generation, one.consumed, (), True, one.pages) for one in taking
        ]
        self._finish_round(self._program(Operation.DECODE, len(lanes)), lanes, taking)

    def _finish_round(
        self, program: ProgramInfo, lanes: list[LaneWork], taking: list[_Running]
    ) -> None:
        self.rounds[program.operation] += 1
        wanted = [one.request.sampling.top_logprobs for one in taking]
        completion = run_round(self._runtime, program, lanes, wanted)
        for one, done in zip(taking, completion.lanes, strict=True):
            assert (done.slot, done.generation) == (one.slot, one.generation)
            one.consumed = done.consumed
            one.tokens.extend(done.tokens)
            one.logprobs.extend(done.logprobs)
            one.alternatives.extend(done.alternatives)
            one.finish = done.finish

    def _program(self, operation: Operation, lanes: int, tokens: int = 1) -> ProgramInfo:
        """Any program that is large enough: its capacity may not matter either."""
        fitting = [
            program
            for program in self._runtime.geometry.of(operation)
            if program.batch_capacity >= lanes
            and (operation not in PACKED or program.packed_token_capacity >= tokens)
        ]
        return self._random.choice(fitting)
