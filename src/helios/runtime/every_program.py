"""Runs every selected program of a runtime once, with requests that mean nothing.

So that each launch of each program is executed, for the differ to compare: an oracle's requests
reach few programs. Nothing else may use the runtime meanwhile. `helios verify --replay` is the
caller, and tests are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as counting
from typing import Final

from helios.errors import ExecutionError
from helios.runtime.geometry import Operation, ProgramInfo
from helios.runtime.rounds import (
    LaneAdmission,
    LaneError,
    LaneExtras,
    LaneWork,
    Round,
    SamplingParameters,
)
from helios.runtime.served import ServedRuntime

_MOST_LANES: Final = 3
_MOST_PROMPT_TOKENS: Final = 5
# Later than programs of their kind: snapshots are taken before they are restored.
_LATE: Final = (Operation.RESTORE, Operation.RESUME)
# A generation a program. Schedulers count from 1 upwards, the oracle from 2³¹ downwards.
_GENERATIONS: Final = counting(2**30, -1)
_ROUND_TIMEOUT_MS: Final = 600_000
_LIKELIEST: Final = LaneExtras(scored_top_logprobs=3)
_SAMPLINGS: Final = (
    SamplingParameters(temperature=0.0),
    SamplingParameters(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=2**63 + 5),
    SamplingParameters(temperature=1.2, seed=3),
)


def run_every_program(runtime: ServedRuntime) -> None:
    """A round of each program that takes text. Raises ExecutionError where one fails, or where the
    cache can't hold a few tokens."""
    programs = sorted(runtime.geometry.programs, key=lambda p: p.operation in _LATE)
    for program in programs:
        _Exercise(runtime, program).run()


class _Exercise:
    """One program and the requests that it is given, each with a slot and pages of its own."""

    def __init__(self, runtime: ServedRuntime, program: ProgramInfo) -> None:
        geometry = runtime.geometry
        self._runtime = runtime
        self._geometry = geometry
        self._program = program
        self._admission = geometry.of(Operation.INITIALIZE)[-1]
        self._prefill = geometry.of(Operation.PREFILL)[-1]
        self._length = min(
            _MOST_PROMPT_TOKENS,
            self._prefill.packed_token_capacity,
            geometry.max_context_tokens - 1,
        )
        pages = -(-(self._length + 1) // geometry.page_tokens)
        self._lanes = min(
            geometry.request_slots,
            geometry.cache_pages // pages,
            program.batch_capacity,
            self._admission.batch_capacity,
            _MOST_LANES,
        )
        if not self._lanes:
            raise ExecutionError(
                f"{geometry.cache_pages} pages don't hold {self._length + 1} tokens",
                where=f"program {program.name}",
                remedy="Give the cache more memory",
            )
        self._pages = [tuple(range(n * pages, (n + 1) * pages)) for n in range(self._lanes)]
        self._generation = next(_GENERATIONS)

    def run(self) -> None:
        """Brings the lanes to where the program takes them, and runs it."""
        every = range(self._lanes)
        match self._program.operation:
            case Operation.INITIALIZE:
                self._submit(self._program, self._admitted(0))
            case Operation.PREFILL | Operation.SCORED_PREFILL:
                self._begin()
                length = min(self._length, self._program.packed_token_capacity // self._lanes)
                self._submit(self._program, [self._prompt(n, length) for n in every])
            case Operation.DECODE:
                self._begin(every)
                self._submit(self._program, [self._decoding(n) for n in every])
            case Operation.MIXED:
                *others, last = every
                self._begin(others)
                length = min(self._length, self._program.packed_token_capacity - len(others))
                lanes = [*(self._decoding(n) for n in others), self._prompt(last, length)]
                self._submit(self._program, lanes)
            case Operation.SNAPSHOT:
                self._begin(every)
                self._submit(self._program, [self._saved(n) for n in every])
            case Operation.RESTORE | Operation.RESUME:
                self._begin(every)  # so that what is restored isn't there already
                self._submit(self._program, self._admitted(self._length, restoring=True))

    def _begin(self, prompts: Sequence[int] = ()) -> None:
        """Begins all requests, and runs the prompts of some."""
        self._submit(self._admission, self._admitted(0))
        for n in prompts:
            self._submit(self._prefill, [self._prompt(n, self._length)])

    def _admitted(self, start: int, *, restoring: bool = False) -> list[LaneWork]:
        return [
            LaneWork(
                slot=n,
                generation=self._generation,
                start=start,
                tokens=(),
                sample=False,
                pages=self._pages[n] if restoring else (),
                admission=LaneAdmission(_SAMPLINGS[n], 2, 0, ()),
                restore_row=self._row(n) if restoring else -1,
                pending_token=self._token(n) if restoring else -1,
            )
            for n in range(self._lanes)
        ]

    def _prompt(self, n: int, length: int) -> LaneWork:
        tokens = tuple(self._token(n + 7 * i) for i in range(length))
        return LaneWork(
            slot=n,
            generation=self._generation,
            start=0,
            tokens=tokens,
            sample=True,
            pages=self._pages[n],
            targets=tokens[::-1],
            extras=_LIKELIEST if self._geometry.scoring.alternatives else None,
        )

    def _decoding(self, n: int) -> LaneWork:
        return LaneWork(n, self._generation, self._length, (), True, self._pages[n])

    def _saved(self, n: int) -> LaneWork:
        return LaneWork(
            n, self._generation, self._length, (), False, self._pages[n], snapshot_row=self._row(n)
        )

    def _row(self, n: int) -> int:
        return n if n < self._geometry.snapshot_rows else -1

    def _token(self, n: int) -> int:
        # Others in each program: a launch that writes nothing leaves what an earlier one wrote.
        return (3 * n + 11 * self._generation) % self._geometry.vocabulary_tokens

    def _submit(self, program: ProgramInfo, lanes: Sequence[LaneWork]) -> None:
        where = f"program {program.name}"
        sequence = self._runtime.submit(Round(program.index, tuple(lanes)))
        if not self._runtime.wait(sequence, _ROUND_TIMEOUT_MS):
            raise ExecutionError(
                f"didn't complete within {_ROUND_TIMEOUT_MS // 1000} s",
                where=where,
                remedy="Check that the machine isn't stalled",
            )
        for row in self._runtime.read(sequence).lanes:
            if row.error is not LaneError.NONE:
                raise ExecutionError(
                    f"refused a lane: {row.fault or row.error.name}",
                    where=where,
                    remedy="Nothing else may use the runtime meanwhile",
                )
