"""The oracle: does this runtime give the tokens and log-probabilities that the core promises?

`greedy_replay` drives a runtime with one request, outside any scheduler; Ignition records oracles
with it (on the reference target), `check_oracle` holds a runtime against a recorded one. The
server calls it before the scheduler starts, `helios verify` at any time. It uses slot 0 and the
first pages, and needs the runtime for itself while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count as counting
from typing import Final

import numpy as np

from helios.dataclass import dataclass
from helios.errors import ExecutionError
from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.rounds import (
    Completion,
    LaneAdmission,
    LaneError,
    LaneWork,
    Round,
    SamplingParameters,
)
from helios.runtime.served import ServedRuntime
from helios.schema import core_pb2

LOGITS_BUFFER: Final = "logits"
_SLOT: Final = 0
# A generation a replay, since its pages start anew. Schedulers count from 1 upwards, so none of
# theirs meets these.
_GENERATIONS: Final = counting(2**31 - 1, -1)
_ROUND_TIMEOUT_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class ReplayedToken:
    """A greedy token, its log-probability, and how far (in nats) it leads the second best."""

    token: int
    logprob: float
    lead: float


def greedy_replay(
    runtime: ServedRuntime, prompt_tokens: Sequence[int], count: int
) -> list[ReplayedToken]:
    """The `count` greedy tokens after a prompt, end-of-sequence tokens ignored. Raises
    ExecutionError where the request can't fit the runtime, a round fails or logits aren't
    finite."""
    return list(greedy_steps(runtime, prompt_tokens, count))


def greedy_steps(
    runtime: ServedRuntime, prompt_tokens: Sequence[int], count: int
) -> Iterator[ReplayedToken]:
    """As `greedy_replay`, a token at a time: a round runs only when its token is asked for."""
    vocabulary = runtime.geometry.vocabulary_tokens
    for token, logprob in _greedy(runtime, prompt_tokens, count):
        logits = np.asarray(runtime.read_buffer(LOGITS_BUFFER))[0, :vocabulary]
        if not np.isfinite(logits).all():
            raise ExecutionError(
                "the model computes logits that aren't finite numbers",
                where=f"a replay on {runtime.geometry.kernel_path}",
                remedy="The weights are damaged, or too large for the model: fetch them again",
            )
        second, best = np.partition(logits, -2)[-2:]
        yield ReplayedToken(token, logprob, float(best - second))


def check_oracle(runtime: ServedRuntime, oracle: core_pb2.Oracle, cases: int | None = None) -> None:
    """Replays the first `cases` cases of an oracle (all by default). Raises ExecutionError that
    names the first token or log-probability that isn't the expected one."""
    for index, case in enumerate(oracle.cases[:cases]):
        if len(case.expected_tokens) != len(case.expected_logprobs):
            raise ExecutionError(
                f"{len(case.expected_tokens)} tokens are expected with"
                f" {len(case.expected_logprobs)} log-probabilities",
                where=f"oracle case {index}",
                remedy="The core is damaged: prepare it again",
            )
        expected = zip(case.expected_tokens, case.expected_logprobs, strict=True)
        replay = _greedy(runtime, case.prompt_tokens, len(case.expected_tokens))
        for place, ((want, want_logprob), (got, got_logprob)) in enumerate(
            zip(expected, replay, strict=True)
        ):
            where = f"oracle case {index}, token {place}, on {runtime.geometry.kernel_path}"
            if got != want:
                raise ExecutionError(
                    f"expected token {want}, got {got}", where=where, remedy=_MISMATCH_REMEDY
                )
            if not abs(got_logprob - want_logprob) <= oracle.logprob_tolerance:
                raise ExecutionError(
                    f"expected log-probability {want_logprob:.5f} of token {want}, got"
                    f" {got_logprob:.5f} (tolerance {oracle.logprob_tolerance:g})",
                    where=where,
                    remedy=_MISMATCH_REMEDY,
                )


_MISMATCH_REMEDY: Final = (
    "The core or the machine computes something else than was prepared: check the core with"
    " `helios verify`, then prepare it again"
)


def _greedy(
    runtime: ServedRuntime, prompt: Sequence[int], count: int
) -> Iterator[tuple[int, float]]:
    """Runs INITIALIZE, the prompt in chunks and `count - 1` DECODE rounds; yields each token as
    its round completes, while nothing is in flight."""
    if not prompt or count < 1:
        raise ExecutionError(
            f"a replay needs a prompt and a count, not {len(prompt)} tokens and {count}",
            where="oracle",
            remedy="Prepare the core again",
        )
    geometry = runtime.geometry
    generation = next(_GENERATIONS)
    pages = _pages(geometry, len(prompt) + count)
    admission = LaneAdmission(
        sampling=SamplingParameters(temperature=0.0), output_limit=count, emitted=0, eos_ids=()
    )
    _run(runtime, geometry.of(Operation.INITIALIZE)[0], LaneWork(
        slot=_SLOT, generation=generation, start=0, tokens=(), sample=False, pages=(),
        admission=admission,
    ))  # fmt: skip
    start = 0
    while start < len(prompt):
        program = _prefill_program(geometry, len(prompt) - start)
        chunk = tuple(prompt[start : start + program.packed_token_capacity])
        last = start + len(chunk) == len(prompt)
        completion = _run(runtime, program, LaneWork(
            slot=_SLOT, generation=generation, start=start, tokens=chunk, sample=last, pages=pages,
        ))  # fmt: skip
        start += len(chunk)
    yield _token(completion)
    decode = geometry.of(Operation.DECODE)[0]
    for step in range(count - 1):
        completion = _run(runtime, decode, LaneWork(
            slot=_SLOT, generation=generation, start=len(prompt) + step, tokens=(), sample=True,
            pages=pages,
        ))  # fmt: skip
        yield _token(completion)


def _prefill_program(geometry: Geometry, tokens: int) -> ProgramInfo:
    """The smallest prefill program that takes `tokens` at once, or the largest there is."""
    programs = geometry.of(Operation.PREFILL)
    fitting = [program for program in programs if program.packed_token_capacity >= tokens]
    return fitting[0] if fitting else programs[-1]


def _pages(geometry: Geometry, tokens: int) -> tuple[int, ...]:
    """The first pages, enough for `tokens`. Raises ExecutionError where the cache has fewer."""
    needed = -(-tokens // geometry.page_tokens)
    if tokens > geometry.max_context_tokens or needed > geometry.cache_pages:
        raise ExecutionError(
            f"a replay of {tokens} tokens doesn't fit a context of {geometry.max_context_tokens}"
            f" tokens and {geometry.cache_pages} cache pages of {geometry.page_tokens}",
            where="oracle",
            remedy="Give the cache more memory, or skip the oracle with --no-oracle",
        )
    return tuple(range(needed))


def _run(runtime: ServedRuntime, program: ProgramInfo, lane: LaneWork) -> Completion:
    """Submits a one-lane round and waits for it."""
    sequence = runtime.submit(Round(program.index, (lane,)))
    if not runtime.wait(sequence, _ROUND_TIMEOUT_MS):
        raise ExecutionError(
            f"program {program.name} didn't complete within {_ROUND_TIMEOUT_MS // 1000} s",
            where="oracle",
            remedy="Check that the machine isn't stalled",
        )
    completion = runtime.read(sequence)
    for row in completion.lanes:
        if row.error is not LaneError.NONE:
            raise ExecutionError(
                f"program {program.name} refused its lane: {row.fault or row.error.name}",
                where="oracle",
                remedy="Nothing else may use the runtime during a replay",
            )
    return completion


def _token(completion: Completion) -> tuple[int, float]:
    (lane,) = completion.lanes
    if len(lane.tokens) != 1:
        raise ExecutionError(
            f"a sampling round emitted {len(lane.tokens)} tokens instead of one",
            where="oracle",
            remedy="Prepare the core again",
        )
    return lane.tokens[0], lane.logprobs[0]
