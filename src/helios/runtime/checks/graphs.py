"""A graph of the contract against its captured program: operation, state, inputs, completion.

What a program does to memory is read off its launches and held against what graph and program
declare. Called by `manifest_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helios.contract.enums import Operation, ValueSource
from helios.contract.model import GraphContract, PreparedContract, StateView
from helios.runtime.checks.places import Place
from helios.runtime.checks.uses import Use
from helios.runtime.manifest import (
    BufferClass,
    CompletionRecord,
    Manifest,
    Program,
    StagedDestination,
)

# Operations whose lanes report to the host what became of them.
_REPORTING: Final = (
    Operation.PREFILL,
    Operation.SCORED_PREFILL,
    Operation.DECODE,
    Operation.SPECULATIVE,
    Operation.MIXED,
)
# Operations of which nothing but the fence is waited for.
_SILENT: Final = (Operation.RESTORE, Operation.RESUME, Operation.SNAPSHOT)
_SCATTER: Final = "scatter_i32"


def check_graph(graph: GraphContract, program: Program, at: Place) -> None:
    """What both declare, word for word."""
    if graph.operation is not program.operation:
        at.refuse(
            "operation", f"is {graph.operation.name}, but the program's is {program.operation.name}"
        )
    declared = {access.view: access.mode for access in graph.accesses}
    captured = dict(program.accesses)
    for number, access in enumerate(graph.accesses):
        mode = captured.get(access.view)
        if mode is not access.mode:
            what = "not there" if mode is None else mode.name
            at.refuse(
                f"accesses[{number}].mode",
                f"is {access.mode.name} for {access.view!r}, but the program's is {what}",
            )
    for view in captured.keys() - declared.keys():
        at.refuse("accesses", f"lack {view!r}, which the program has")
    if graph.confidence_width not in (0, program.draft_tokens):
        at.refuse(
            "confidence_width",
            f"is {graph.confidence_width}, but the program draws {program.draft_tokens}",
        )


def check_rankings(graph: GraphContract, program: Program, at: Place, manifest: Manifest) -> None:
    """A graph that is told how many of the likeliest tokens are wanted where it scores has a record
    with room for them."""
    for number, binding in enumerate(graph.bindings):
        if binding.source is not ValueSource.SCORED_TOP_LOGPROBS:
            continue
        record = manifest.completions.get(program.completion)
        if record is not None and record.score_top_tokens is None:
            at.refuse(
                f"bindings[{number}].source",
                "is SCORED_TOP_LOGPROBS, but the program's record has no score_top_tokens",
            )


def check_program(
    program: Program,
    uses: tuple[Use, ...],
    at: Place,
    manifest: Manifest,
    contract: PreparedContract,
) -> None:
    """What the launches do against what the program declares."""
    _check_inputs(program, uses, at, manifest)
    _check_state(program, uses, at, manifest, contract)
    _check_completion(program, uses, at, manifest)


def _check_inputs(program: Program, uses: tuple[Use, ...], at: Place, manifest: Manifest) -> None:
    """A program reads no staging but that of its inputs, and applies the deltas that it takes."""
    staged: set[int] = set()
    deltas: dict[int, int] = {}
    for number, name in enumerate(program.inputs):
        destination = manifest.destinations[name]
        if isinstance(destination, StagedDestination):
            staged.add(destination.buffer)
        else:
            staged |= {destination.count, destination.index, destination.value}
            deltas[destination.target] = number
    for use in uses:
        buffer = manifest.buffers[use.buffer]
        if buffer.buffer_class is BufferClass.INPUT and use.buffer not in staged:
            at.refuse(
                use.field,
                f"reads {buffer.name!r}, which belongs to no input of the program",
            )
    scattered = {
        launch.operands[-1].buffer
        for launch in program.launches
        if launch.kernel.name == _SCATTER and launch.operands[-1] is not None
    }
    for target, number in deltas.items():
        if target not in scattered:
            at.refuse(f"inputs[{number}]", f"{program.inputs[number]!r} is never scattered")


def _check_state(
    program: Program,
    uses: tuple[Use, ...],
    at: Place,
    manifest: Manifest,
    contract: PreparedContract,
) -> None:
    """STATE buffers are touched as the accesses say, each in a view of its own buffer."""
    views: Mapping[str, StateView] = {view.name: view for view in contract.model.state_views}
    readable: set[int] = set()
    writable: dict[int, int] = {}
    for number, (name, mode) in enumerate(program.accesses):
        view = views.get(name)
        buffer = manifest.buffer_index.get(view.buffer) if view is not None else None
        if buffer is None:
            at.refuse(f"accesses[{number}].view", f"the contract has no state view {name!r}")
        if mode.reads:
            readable.add(buffer)
        if mode.writes:
            writable[buffer] = number
    written: set[int] = set()
    for use in uses:
        touched = manifest.buffers[use.buffer]
        if touched.buffer_class is not BufferClass.STATE:
            continue
        if use.access.writes:
            written.add(use.buffer)
            if use.buffer not in writable:
                at.refuse(
                    use.field,
                    f"writes {touched.name!r}, but no access declares a view of it as written",
                )
        if use.access.reads and use.buffer not in readable:
            at.refuse(
                use.field, f"reads {touched.name!r}, but no access declares a view of it as read"
            )
    for index, number in writable.items():
        if index not in written and manifest.buffers[index].buffer_class is BufferClass.STATE:
            at.refuse(
                f"accesses[{number}].mode",
                f"declares a write to {manifest.buffers[index].name!r}, which no launch writes",
            )


def _scores(program: Program, record: CompletionRecord, at: Place, manifest: Manifest) -> int:
    """The record's scores, of which there is one for each packed token."""
    if record.scores is None:
        at.refuse("completion", f"{program.completion!r} has no scores")
    found = manifest.buffers[record.scores].shape[0]
    if found < program.packed_token_capacity:
        at.refuse(
            "packed_token_capacity",
            f"is {program.packed_token_capacity}, but {program.completion!r} has {found} scores",
        )
    return record.scores


def _check_completion(
    program: Program, uses: tuple[Use, ...], at: Place, manifest: Manifest
) -> None:
    """A reporting program writes its whole record and no other."""
    if not program.completion:
        if program.operation in _REPORTING:
            at.refuse("completion", f"is missing: {program.operation.name} reports to the host")
        expected: dict[int, str] = {}
    else:
        if program.operation in _SILENT:
            at.refuse("completion", f"is set, but {program.operation.name} reports nothing")
        record = manifest.completions[program.completion]
        expected = {record.lanes: "lanes", record.tokens: "tokens", record.logprobs: "logprobs"}
        for part in ("top_tokens", "top_logprobs"):
            if (buffer := getattr(record, part)) is not None:
                expected[buffer] = part
        if record.proposal_confidence is not None and program.draft_tokens:
            expected[record.proposal_confidence] = "proposal_confidence"
        if program.operation is Operation.SCORED_PREFILL:
            expected[_scores(program, record, at, manifest)] = "scores"
            for part in ("score_ranks", "score_top_tokens", "score_top_logprobs"):
                if (buffer := getattr(record, part)) is not None:
                    expected[buffer] = part
        columns = manifest.buffers[record.tokens].shape[1]
        if columns < program.token_capacity:
            at.refuse(
                "token_capacity",
                f"is {program.token_capacity}, but a row of {program.completion!r} has {columns}",
            )
    written: set[int] = set()
    for use in uses:
        buffer = manifest.buffers[use.buffer]
        if buffer.buffer_class is not BufferClass.COMPLETION:
            continue
        if use.buffer not in expected:
            at.refuse(
                use.field,
                f"touches {buffer.name!r}, which is no part of the program's completion record",
            )
        if use.access.writes:
            written.add(use.buffer)
    for index, part in expected.items():
        if index not in written:
            at.refuse("completion", f"{part} of {program.completion!r} are never written")
