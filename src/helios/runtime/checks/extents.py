"""Captured extents: each program's B, D, W and P by its operation, and that every width and batch
that the contract promises has a program. Called by `manifest_checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.contract.enums import Operation
from helios.contract.fields import refuse
from helios.contract.model import GraphContract, PreparedContract
from helios.runtime.checks.places import Place, program_places
from helios.runtime.manifest import Manifest, Program

_REQUIRED: Final = (Operation.INITIALIZE, Operation.PREFILL, Operation.DECODE)
_PROMPTS: Final = (Operation.PREFILL, Operation.SCORED_PREFILL)
# Operations that move state and consume no token.
_TRANSFERS: Final = (Operation.RESTORE, Operation.RESUME, Operation.SNAPSHOT)


def check_program_extents(program: Program, at: Place, contract: PreparedContract) -> None:
    """One program's four extents against its operation."""
    lanes, drawn = program.batch_capacity, program.draft_tokens
    width, packed = program.token_capacity, program.packed_token_capacity
    if program.operation is Operation.SPECULATIVE:
        if width not in contract.speculative_widths:
            at.refuse(
                "token_capacity",
                f"is {width}, but the contract's speculative widths are"
                f" {list(contract.speculative_widths)}",
            )
        if width == 1 and drawn:
            at.refuse("draft_tokens", f"is {drawn}, but a program of width 1 draws nothing")
        if not lanes <= packed <= lanes * width:
            at.refuse(
                "packed_token_capacity",
                f"is {packed}, not between {lanes} lanes and {lanes} times {width} tokens",
            )
        return
    if drawn:
        at.refuse("draft_tokens", f"is {drawn}, but {program.operation.name} draws nothing")
    if program.operation is Operation.DECODE:
        if width != 1:
            at.refuse("token_capacity", f"is {width}, but DECODE gives one token a lane")
        if packed != lanes:
            at.refuse("packed_token_capacity", f"is {packed}, but {lanes} lanes have a token each")
    if program.operation in _PROMPTS:
        if width < 1:
            at.refuse("token_capacity", f"is {width}, but {program.operation.name} samples a token")
        if packed < lanes:
            at.refuse("packed_token_capacity", f"is {packed}, but there are {lanes} lanes")
    if program.operation is Operation.MIXED:
        if width != 1:
            at.refuse("token_capacity", f"is {width}, but MIXED gives one token a lane")
        if lanes < 2:
            at.refuse("batch_capacity", f"is {lanes}, but MIXED takes a prompt beside what decodes")
        if packed < lanes:
            at.refuse("packed_token_capacity", f"is {packed}, but there are {lanes} lanes")
    if program.operation in _TRANSFERS:
        _check_transfer(program, at, contract)


def _check_transfer(program: Program, at: Place, contract: PreparedContract) -> None:
    operation = program.operation.name
    if program.batch_capacity > contract.max_active:
        at.refuse(
            "batch_capacity",
            f"is {program.batch_capacity}, but {contract.max_active} requests are active at most",
        )
    if program.token_capacity:
        at.refuse("token_capacity", f"is {program.token_capacity}, but {operation} samples nothing")
    if program.packed_token_capacity:
        at.refuse(
            "packed_token_capacity",
            f"is {program.packed_token_capacity}, but {operation} consumes nothing",
        )


def check_coverage(contract: PreparedContract, manifest: Manifest) -> None:
    """Every operation, prefill extent, speculative width and batch has its program."""
    placed = program_places("programs", manifest.programs)
    for operation in _REQUIRED:
        if not any(program.operation is operation for program in manifest.programs):
            refuse("programs", f"the manifest has no {operation.name} program")
    prefill = _of(placed, Operation.PREFILL)
    captured = {program.packed_token_capacity for _, program in prefill}
    if captured != set(contract.prefill_extents):
        refuse(
            "prefill_extents",
            f"are {list(contract.prefill_extents)}, but the captured PREFILL programs have"
            f" {sorted(captured)}",
        )
    _check_growing_batches(prefill)
    _check_batches(contract, manifest, 1, Operation.DECODE)
    for index, width in enumerate(contract.speculative_widths):
        _check_batches(contract, manifest, width, Operation.SPECULATIVE, index)


def check_confidence(graph: GraphContract, program: Program, at: Place, manifest: Manifest) -> None:
    """A graph that reports confidence has a record with room for it."""
    if not graph.confidence_width:
        return
    record = manifest.completions.get(program.completion)
    if record is None or record.proposal_confidence is None:
        at.refuse("confidence_width", "is set, but the completion record holds no confidence")
    columns = manifest.buffers[record.proposal_confidence].shape[-1]
    if columns < graph.confidence_width:
        at.refuse(
            "confidence_width", f"is {graph.confidence_width}, but the record holds {columns}"
        )


_Placed = tuple[Place, Program]


def _of(placed: Sequence[_Placed], operation: Operation) -> list[_Placed]:
    """An operation's programs, fewest packed tokens first."""
    found = [item for item in placed if item[1].operation is operation]
    return sorted(found, key=lambda item: item[1].packed_token_capacity)


def _check_growing_batches(placed: Sequence[_Placed]) -> None:
    """A program for more tokens takes at least as many lanes, so the largest fits every round."""
    lanes = 0
    for at, program in placed:
        if program.batch_capacity < lanes:
            at.refuse(
                "batch_capacity",
                f"is {program.batch_capacity}, but a program for fewer tokens takes {lanes} lanes",
            )
        lanes = program.batch_capacity


def _check_batches(
    contract: PreparedContract,
    manifest: Manifest,
    width: int,
    operation: Operation,
    index: int | None = None,
) -> None:
    """The captured concurrency fits the largest program of this operation and width."""
    batches = [
        program.batch_capacity
        for program in manifest.programs
        if program.operation is operation and program.token_capacity == width
    ]
    if index is not None and not batches:
        refuse(f"speculative_widths[{index}]", f"no SPECULATIVE program has width {width}")
    if max(batches, default=0) < contract.max_active:
        of_width = f" of width {width}" if index is not None else ""
        refuse(
            "max_active",
            f"is {contract.max_active}, but the {operation.name} programs{of_width} take"
            f" {max(batches, default=0)} lanes at most",
        )
