"""What loading a core would take and run, as rows to print: from the manifest alone.

Pure functions over decoded data; nothing is allocated, no weight is touched. The command line
prints what these return.
"""

from __future__ import annotations

from collections import Counter

from helios.contract.model import PreparedContract
from helios.dataclass import dataclass
from helios.errors import ContractError
from helios.runtime.capacities import Capacities, page_nbytes
from helios.runtime.manifest import Launch, Manifest, Operand
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.selection import choose_programs, select
from helios.runtime.tuning import required_producers


@dataclass(frozen=True, slots=True)
class ClassMemory:
    """Memory of one buffer class. `nbytes` counts every frame's copy; the workspace is one arena
    that its buffers share."""

    buffer_class: str
    buffers: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Memory at given capacities. Weights are used in place from the core's file;
    `snapshot_nbytes` is that of one snapshot, 0 where the core takes none."""

    request_slots: int
    speculative_width: int
    cache_pages: int
    page_tokens: int
    page_nbytes: int
    snapshots: int
    snapshot_nbytes: int
    classes: tuple[ClassMemory, ...]

    @property
    def total_nbytes(self) -> int:
        """All classes together."""
        return sum(row.nbytes for row in self.classes)


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """One captured program; `selected` says whether it serves at the given capacities."""

    name: str
    operation: str
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    launches: int
    inputs: tuple[str, ...]
    completion: str
    selected: bool


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One launch: `operands` like `x=work.3[64:] r`, `attributes` like `capacity=8`; `nodes` like
    `project 36x1x1`, empty where the target has none."""

    index: int
    kernel: str
    operands: tuple[str, ...]
    attributes: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """One function of a cuda target, and in how many nodes it is launched."""

    function: str
    module: str
    threads: int
    shared_nbytes: int
    nodes: int


def memory_report(
    manifest: Manifest,
    contract: PreparedContract,
    capacities: Capacities,
    available_nbytes: int,
) -> MemoryReport:
    """What `ModelRuntime` would allocate on a machine with `available_nbytes` to spare. Raises
    ContractError as loading would."""
    check_manifest(manifest, contract)
    selection = select(contract, manifest, capacities, available_nbytes)
    counts: dict[str, int] = {}
    for planned in selection.plan.buffers:
        name = planned.buffer.buffer_class.name
        counts[name] = counts.get(name, 0) + 1
    return MemoryReport(
        request_slots=selection.request_slots,
        speculative_width=selection.speculative_width,
        cache_pages=selection.cache_pages,
        page_tokens=contract.model.cache.page_tokens,
        page_nbytes=page_nbytes(manifest),
        snapshots=selection.snapshots,
        snapshot_nbytes=selection.snapshot_nbytes,
        classes=tuple(
            ClassMemory(kind.name.lower(), counts[kind.name], nbytes)
            for kind, nbytes in sorted(selection.plan.nbytes_by_class().items())
        ),
    )


def program_rows(
    manifest: Manifest, request_slots: int, speculative_width: int = 0
) -> tuple[ProgramRow, ...]:
    """Every captured program in the manifest's order, then the tuning catalog."""
    chosen = choose_programs(manifest, request_slots, speculative_width)
    selected = {p.name for p in (*chosen, *required_producers(manifest, chosen))}
    return tuple(
        ProgramRow(
            name=program.name,
            operation=program.operation.name,
            batch_capacity=program.batch_capacity,
            draft_tokens=program.draft_tokens,
            token_capacity=program.token_capacity,
            packed_token_capacity=program.packed_token_capacity,
            launches=len(program.launches),
            inputs=program.inputs,
            completion=program.completion,
            selected=program.name in selected,
        )
        for program in (*manifest.programs, *manifest.tuning)
    )


def launch_rows(manifest: Manifest, program: str) -> tuple[LaunchRow, ...]:
    """The launches of one program, in order. Raises ContractError for an unknown name."""
    for candidate in (*manifest.programs, *manifest.tuning):
        if candidate.name == program:
            return tuple(
                LaunchRow(
                    index=index,
                    kernel=launch.kernel.name,
                    operands=_operands(manifest, launch),
                    attributes=_attributes(launch),
                    nodes=_nodes(manifest, launch),
                )
                for index, launch in enumerate(candidate.launches)
            )
    known = ", ".join(candidate.name for candidate in manifest.programs)
    raise ContractError("no program of this name", where=program, remedy=f"There are {known}")


def function_rows(manifest: Manifest) -> tuple[FunctionRow, ...]:
    """The functions of a cuda target in the manifest's order; none elsewhere."""
    if manifest.cuda is None:
        return ()
    used = Counter(
        node.function
        for program in (*manifest.programs, *manifest.tuning)
        for launch in program.launches
        for node in launch.nodes
    )
    return tuple(
        FunctionRow(
            function=function.function,
            module=function.module,
            threads=function.threads,
            shared_nbytes=function.shared_nbytes,
            nodes=used[number],
        )
        for number, function in enumerate(manifest.cuda.functions)
    )


def _nodes(manifest: Manifest, launch: Launch) -> tuple[str, ...]:
    if manifest.cuda is None:
        return ()
    functions = manifest.cuda.functions
    return tuple(
        f"{functions[node.function].function} {'x'.join(map(str, node.grid))}"
        for node in launch.nodes
    ) or ("with the next",)


def _operands(manifest: Manifest, launch: Launch) -> tuple[str, ...]:
    return tuple(
        f"{spec.name}={_operand(manifest, operand)} {spec.access}"
        for spec, operand in zip(launch.kernel.operands, launch.operands, strict=True)
        if operand is not None
    )


def _operand(manifest: Manifest, operand: Operand) -> str:
    name = manifest.buffers[operand.buffer].name
    return f"{name}[{operand.byte_offset}:]" if operand.byte_offset else name


def _attributes(launch: Launch) -> tuple[str, ...]:
    names = (*launch.kernel.integers, *launch.kernel.floats)
    values = (*launch.integers, *launch.floats)
    return tuple(f"{name}={value:g}" for name, value in zip(names, values, strict=True))
