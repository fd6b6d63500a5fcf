"""Geometries for the fake model: whichever programs, capacities and rules a test asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from helios.runtime.geometry import Geometry, HistoryRules, Operation, ProgramInfo
from helios.runtime.sampling_rules import SamplingRules
from helios.runtime.scoring_rules import ScoringRules

VOCABULARY = 23
NO_RULES = HistoryRules()
SAVES = (Operation.RESTORE, Operation.RESUME, Operation.SNAPSHOT)


def geometry(
    *,
    slots: int = 4,
    pages: int = 12,
    page_tokens: int = 4,
    context: int = 40,
    prefill: Sequence[tuple[int, int]] = ((4, 4), (16, 4)),
    decode: Sequence[int] = (1, 2, 4),
    initialize: Sequence[int] = (1, 4),
    mixed: Sequence[tuple[int, int]] = (),
    scored: Sequence[tuple[int, int]] = (),
    host_fed: Collection[Operation] = (),
    history: HistoryRules = NO_RULES,
    saves: Sequence[int] = (1, 4),
    rows: int = 8,
) -> Geometry:
    """A geometry with the given (P, B) of programs with prompts' chunks and B of the others. The
    programs of operations in `host_fed` take their pending tokens from the host. Where `history`
    restores, there are programs with B in `saves` for it, and so many snapshot `rows`."""
    programs: list[ProgramInfo] = []

    def add(name: str, operation: Operation, lanes: int, width: int, packed: int) -> None:
        number, fed = len(programs), operation in host_fed
        programs.append(
            ProgramInfo(number, name, operation, lanes, 0, width, packed, launches=3, host_fed=fed)
        )

    for lanes in initialize:
        add(f"initialize.b{lanes}", Operation.INITIALIZE, lanes, 0, 0)
    for packed, lanes in prefill:
        add(f"prefill.p{packed}", Operation.PREFILL, lanes, 1, packed)
    for lanes in decode:
        add(f"decode.b{lanes}", Operation.DECODE, lanes, 1, lanes)
    for packed, lanes in mixed:
        add(f"mixed.p{packed}", Operation.MIXED, lanes, 1, packed)
    for packed, lanes in scored:
        add(f"scored.p{packed}", Operation.SCORED_PREFILL, lanes, 1, packed)
    for operation in SAVES if history.restores else ():
        for lanes in saves:
            add(f"{operation.name.lower()}.b{lanes}", operation, lanes, 0, 0)
    return Geometry(
        target="fake",
        kernel_path="fake",
        request_slots=slots,
        cache_pages=pages,
        page_tokens=page_tokens,
        pages_per_request=-(-context // page_tokens),
        max_context_tokens=context,
        vocabulary_tokens=VOCABULARY,
        input_tokens=VOCABULARY,
        frames=2,
        programs=tuple(programs),
        snapshot_rows=rows if history.restores else 0,
        history=history,
        sampling=SamplingRules(*[True] * 6),
        scoring=ScoringRules(bool(scored), bool(scored)),
        grammars=True,
    )
