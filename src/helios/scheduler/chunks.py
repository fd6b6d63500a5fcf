"""How large a chunk of prompts may be that runs beside running outputs.

A pure function of what programs cost: the most tokens that are predicted to take no longer than
they may, or the least that make headway. `Turns` is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.dataclass import dataclass
from helios.runtime.geometry import ProgramInfo
from helios.scheduler.costs import CostLine, CostModel


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt tokens for one round of `program`; `ns` is what the round is predicted to take, 0
    where nothing is known, `fits` whether that is within the limit."""

    program: ProgramInfo
    tokens: int
    ns: float
    fits: bool


def chunk_within(
    costs: CostModel,
    programs: Sequence[ProgramInfo],
    limit_ns: float,
    *,
    least: int,
    most: int,
    beside: int = 0,
) -> Chunk:
    """The largest chunk, in the smallest program that holds it beside `beside` other tokens, of
    a round that takes at most `limit_ns`. Where not even `least` tokens do, or no program has been
    measured, the chunk is of `least` tokens and doesn't fit. `programs` are one operation's, the
    smallest first; the last holds `least`. One that hasn't been measured is taken for as costly as
    its neighbour."""
    least = min(least, most)
    best: Chunk | None = None
    smaller = 0
    for program, line in zip(programs, _lines(costs, programs), strict=True):
        top = min(program.packed_token_capacity - beside, most)
        if top < least:
            continue
        if line is None:
            return Chunk(program, least, 0.0, fits=False)
        tokens = line.tokens_within(limit_ns, beside + top) - beside
        if best is None and tokens < least:
            return Chunk(program, least, line.at(beside + least), fits=False)
        if tokens <= smaller:
            break
        best = Chunk(program, tokens, line.at(beside + tokens), fits=True)
        if tokens < top or top == most:
            break
        smaller = top
    assert best is not None, "no program holds the least chunk"
    return best


def _lines(costs: CostModel, programs: Sequence[ProgramInfo]) -> list[CostLine | None]:
    """Each program's costs, or those of the next smaller program that has been measured, or else
    of the next larger one; all None where none has."""
    lines = [costs.line(program.index) for program in programs]
    known = next((line for line in lines if line is not None), None)
    for number, line in enumerate(lines):
        known = lines[number] = line or known
    return lines
