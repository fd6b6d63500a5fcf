"""Load-time selection: which captured programs serve what the operator asks for, and in which
memory. Graphs come first; the cache is sized by what is left beside them.

Pure functions; used by `ModelRuntime` at load and by inspection before it.
"""

from __future__ import annotations

from typing import Final

from helios.contract.enums import Operation, ValueSource
from helios.contract.fields import refuse
from helios.contract.model import PreparedContract
from helios.dataclass import dataclass
from helios.runtime.capacities import (
    Capacities,
    beside_cache_nbytes,
    choose_cache_pages,
    choose_request_slots,
    choose_snapshots,
    choose_speculative_width,
    page_nbytes,
    plan_memory,
    state_row_nbytes,
)
from helios.runtime.checks.storage import page_table_width, pages_for
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.feedback import is_host_fed
from helios.runtime.geometry import Geometry, ProgramInfo
from helios.runtime.grammar_rules import takes_grammars
from helios.runtime.history import graphs_by_name, history_rules
from helios.runtime.manifest import LeadingCount, Manifest, Program
from helios.runtime.sampling_rules import sampling_rules
from helios.runtime.scoring_rules import scoring_rules
from helios.runtime.state_rows import StateRows, rows_per_request
from helios.runtime.tuning import required_producers

_REQUIRED: Final = (Operation.INITIALIZE, Operation.PREFILL, Operation.DECODE)
_SUPPORTED: Final = frozenset(
    {
        *_REQUIRED,
        Operation.RESTORE,
        Operation.SNAPSHOT,
        Operation.RESUME,
        Operation.SCORED_PREFILL,
        Operation.MIXED,
    }
)
# Lanes of a MIXED round at least: one that decodes, one that brings a prompt's chunk.
_MIXED_LANES: Final = 2
# What a graph must be fed to verify tokens that the host has copied from the request's history.
_COPIED: Final = (
    ValueSource.PROPOSAL_TOKEN,
    ValueSource.PROPOSAL_COUNT,
    ValueSource.PROPOSAL_GENERATION,
    ValueSource.PROPOSAL_ENDPOINT,
)


@dataclass(frozen=True)
class Selection:
    """What will be loaded: counts, programs in the manifest's order with the producers that they
    wait for, and every buffer's size. `snapshot_nbytes` is that of one snapshot, `cache_nbytes`
    that of pages and snapshots, `least_cache_nbytes` that of one context and of the snapshots that
    were asked for."""

    request_slots: int
    speculative_width: int
    programs: tuple[Program, ...]
    producers: tuple[Program, ...]
    cache_pages: int
    plan: MemoryPlan
    snapshots: int
    snapshot_nbytes: int
    cache_nbytes: int
    least_cache_nbytes: int


def select(
    contract: PreparedContract, manifest: Manifest, asked: Capacities, available_nbytes: int
) -> Selection:
    """The selection for what is asked, on a machine with so many bytes to spare. Raises
    ContractError where a captured variant or the memory for it is missing. Whether this Helios
    runs what was selected is `refuse_unsupported`'s."""
    slots = choose_request_slots(contract, asked.request_slots)
    width = choose_speculative_width(contract, asked.speculative_width)
    programs = choose_programs(manifest, slots, width)
    if asked.history_drafting:
        check_history_drafting(contract, programs)
    per_request = rows_per_request(contract, programs)
    free = available_nbytes - beside_cache_nbytes(manifest, slots, per_request)
    row = state_row_nbytes(manifest)
    takes_snapshots = any(program.operation is Operation.SNAPSHOT for program in programs)
    snapshot = per_request * row if takes_snapshots else 0
    snapshots = choose_snapshots(contract, manifest, slots, asked, available_nbytes, free, snapshot)
    pages = choose_cache_pages(
        contract, manifest, slots, asked, available_nbytes, free, snapshots * snapshot
    )
    page = page_nbytes(manifest)
    one_context = pages_for(contract.max_context_tokens, contract.model.cache.page_tokens)
    counts = {LeadingCount.REQUEST_SLOTS: slots, LeadingCount.CACHE_PAGES: pages}
    if row:
        counts[LeadingCount.SNAPSHOT_ROWS] = StateRows(slots, snapshots, per_request).count
    return Selection(
        request_slots=slots,
        speculative_width=width,
        programs=programs,
        producers=required_producers(manifest, programs),
        cache_pages=pages,
        plan=plan_memory(manifest, counts),
        snapshots=snapshots,
        snapshot_nbytes=snapshot,
        cache_nbytes=pages * page + snapshots * snapshot,
        least_cache_nbytes=one_context * page + (asked.snapshot_rows or 0) * snapshot,
    )


def choose_programs(
    manifest: Manifest, request_slots: int, speculative_width: int = 0
) -> tuple[Program, ...]:
    """The programs that serve, in the manifest's order. Of the DECODE programs, of the
    SPECULATIVE ones of each width up to the chosen, and of the MIXED ones of each number of packed
    tokens: all that are smaller than the slots and the smallest that covers them. MIXED ones need
    two slots, and needn't cover more. Of other operations, all."""
    for operation in _REQUIRED:
        if not any(program.operation is operation for program in manifest.programs):
            refuse("programs", f"the manifest has no {operation.name} program")
    largest = {
        (operation, width): _covering_batch(manifest, operation, width, request_slots)
        for operation, width in {
            (program.operation, program.token_capacity)
            for program in manifest.programs
            if program.operation is Operation.DECODE
            or (
                program.operation is Operation.SPECULATIVE
                and program.token_capacity <= speculative_width
            )
        }
    }
    mixed = _covering_mixed(manifest, request_slots)
    return tuple(
        program
        for program in manifest.programs
        if (
            program.batch_capacity <= mixed.get(program.packed_token_capacity, 0)
            if program.operation is Operation.MIXED
            else program.operation not in (Operation.DECODE, Operation.SPECULATIVE)
            or program.batch_capacity <= largest.get((program.operation, program.token_capacity), 0)
        )
    )


def _covering_mixed(manifest: Manifest, request_slots: int) -> dict[int, int]:
    """For each number of packed tokens, lanes of the largest MIXED program to select."""
    if request_slots < _MIXED_LANES:
        return {}
    batches: dict[int, list[int]] = {}
    for program in manifest.programs:
        if program.operation is Operation.MIXED:
            batches.setdefault(program.packed_token_capacity, []).append(program.batch_capacity)
    return {
        packed: min((lanes for lanes in found if lanes >= request_slots), default=max(found))
        for packed, found in batches.items()
    }


def _covering_batch(
    manifest: Manifest, operation: Operation, width: int, request_slots: int
) -> int:
    """Lanes of the smallest program of this kind that takes every slot."""
    covering = [
        program.batch_capacity
        for program in manifest.programs
        if program.operation is operation
        and program.token_capacity == width
        and program.batch_capacity >= request_slots
    ]
    if not covering:
        refuse(
            "programs",
            f"no {operation.name} program of width {width} takes {request_slots} lanes",
            "Ask for fewer request slots",
        )
    return min(covering)


def check_history_drafting(contract: PreparedContract, programs: tuple[Program, ...]) -> None:
    """Drafting from a request's history needs speculation that was learned, and graphs that take
    copied tokens. Raises ContractError naming the first graph that doesn't."""
    speculative = [p for p in programs if p.operation is Operation.SPECULATIVE]
    if not any(program.draft_tokens for program in speculative):
        refuse(
            "history drafting",
            "needs learned speculation, and no selected program drafts",
            "Start without it, or with a core and a speculative width that speculate",
        )
    wider = {program.name for program in speculative if program.token_capacity > 1}
    for index, graph in enumerate(contract.model.graphs):
        if graph.name not in wider:
            continue
        bound = {binding.source for binding in graph.bindings}
        missing = [source.name for source in _COPIED if source not in bound]
        if missing:
            refuse(
                f"model.graphs[{index}].bindings",
                f"history drafting needs {', '.join(missing)} (graph {graph.name})",
                "Start without history drafting",
            )


def refuse_unsupported(programs: tuple[Program, ...]) -> None:
    """Refuses selected programs that this Helios can't run."""
    for operation in sorted({program.operation for program in programs} - _SUPPORTED):
        remedy = ""
        if operation is Operation.SPECULATIVE:
            remedy = "Start with a speculative width of 0"
        refuse("programs", f"this Helios doesn't run {operation.name} programs yet", remedy)


def selected_geometry(
    contract: PreparedContract, manifest: Manifest, selection: Selection, *, kernel_path: str
) -> Geometry:
    """The geometry that a selection gives on a device."""
    graphs = graphs_by_name(contract)
    return Geometry(
        target=manifest.target,
        kernel_path=kernel_path,
        request_slots=selection.request_slots,
        cache_pages=selection.cache_pages,
        page_tokens=contract.model.cache.page_tokens,
        pages_per_request=page_table_width(manifest, contract),
        max_context_tokens=contract.max_context_tokens,
        vocabulary_tokens=contract.model.vocabulary.sampled_tokens,
        input_tokens=contract.model.input_vocabulary.input_tokens,
        frames=FRAMES,
        programs=tuple(
            program_info(i, program, is_host_fed(graphs[program.name]))
            for i, program in enumerate(selection.programs)
        ),
        cache_nbytes=selection.cache_pages * page_nbytes(manifest)
        + selection.snapshots * selection.snapshot_nbytes,
        speculative_width=selection.speculative_width,
        snapshot_rows=selection.snapshots,
        snapshot_nbytes=selection.snapshot_nbytes,
        history=history_rules(contract, manifest, selection.programs),
        sampling=sampling_rules(graphs[program.name] for program in selection.programs),
        scoring=scoring_rules(graphs[program.name] for program in selection.programs),
        grammars=takes_grammars(graphs[program.name] for program in selection.programs),
    )


def program_info(index: int, program: Program, host_fed: bool) -> ProgramInfo:
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
        host_fed=host_fed,
    )
