"""Which captured programs serve the chosen capacities, and the geometry that results.

Pure functions; used by `ModelRuntime` at load and by inspection before it.
"""

from __future__ import annotations

from typing import Final

from helios.contract.enums import Operation
from helios.contract.fields import refuse
from helios.contract.model import PreparedContract
from helios.runtime.checks.storage import page_table_width
from helios.runtime.device import FRAMES
from helios.runtime.geometry import Geometry, ProgramInfo
from helios.runtime.manifest import Manifest, Program

_REQUIRED: Final = (Operation.INITIALIZE, Operation.PREFILL, Operation.DECODE)
_SUPPORTED: Final = frozenset(_REQUIRED)


def choose_programs(manifest: Manifest, request_slots: int) -> tuple[Program, ...]:
    """The programs that serve `request_slots`, in the manifest's order: of the DECODE programs
    all that are smaller than the slots and the smallest that covers them."""
    present = {program.operation for program in manifest.programs}
    for operation in _REQUIRED:
        if operation not in present:
            refuse("programs", f"the manifest has no {operation.name} program")
    for operation in sorted(present - _SUPPORTED):
        refuse("programs", f"this Helios doesn't run {operation.name} programs yet")
    covering = [
        program.batch_capacity
        for program in manifest.programs
        if program.operation is Operation.DECODE and program.batch_capacity >= request_slots
    ]
    if not covering:
        refuse(
            "programs",
            f"no DECODE program takes {request_slots} lanes",
            "Ask for fewer request slots",
        )
    largest = min(covering)
    chosen = tuple(
        program
        for program in manifest.programs
        if program.operation is not Operation.DECODE or program.batch_capacity <= largest
    )
    for program in chosen:
        if program.tuned:
            refuse(f"program {program.name}", "this Helios runs no startup tuning yet")
    return chosen


def selected_geometry(
    contract: PreparedContract,
    manifest: Manifest,
    programs: tuple[Program, ...],
    *,
    kernel_path: str,
    request_slots: int,
    cache_pages: int,
) -> Geometry:
    """The geometry of chosen programs and capacities."""
    return Geometry(
        target=manifest.target,
        kernel_path=kernel_path,
        request_slots=request_slots,
        cache_pages=cache_pages,
        page_tokens=contract.model.cache.page_tokens,
        pages_per_request=page_table_width(manifest, contract),
        max_context_tokens=contract.max_context_tokens,
        vocabulary_tokens=contract.model.vocabulary.sampled_tokens,
        input_tokens=contract.model.input_vocabulary.input_tokens,
        frames=FRAMES,
        programs=tuple(program_info(i, program) for i, program in enumerate(programs)),
    )


def program_info(index: int, program: Program) -> ProgramInfo:
    """The scheduler's view of a program."""
    return ProgramInfo(
        index=index,
        name=program.name,
        operation=program.operation,
        batch_capacity=program.batch_capacity,
        draft_tokens=program.draft_tokens,
        token_capacity=program.token_capacity,
        packed_token_capacity=program.packed_token_capacity,
        launches=len(program.launches),
    )
