"""What an execution manifest, a contract and weight resources must agree on.

The decoders have checked each alone; here names and extents are held against each other, once, at
load, before any memory is taken. Raises ContractError naming the contract's field or the program.
"""

from __future__ import annotations

from collections.abc import Mapping

from helios.contract.enums import Operation
from helios.contract.fields import refuse
from helios.contract.model import CacheContract, GraphContract, PreparedContract, StateView
from helios.runtime.manifest import (
    BufferClass,
    DeltaDestination,
    LeadingCount,
    Manifest,
    Program,
    StagedDestination,
)

_PERSISTENT = (BufferClass.STATE, BufferClass.CACHE, BufferClass.TUNED)


def check_manifest(manifest: Manifest, contract: PreparedContract) -> None:
    """Graphs against programs, bindings against transport, views and planes against buffers."""
    programs = {program.name: program for program in manifest.programs}
    graphs = {graph.name for graph in contract.model.graphs}
    for name in programs.keys() - graphs:
        refuse(f"program {name}", "the contract has no graph of this name")
    for index, graph in enumerate(contract.model.graphs):
        where = f"model.graphs[{index}]"
        program = programs.get(graph.name)
        if program is None:
            refuse(f"{where}.name", f"the manifest has no program {graph.name!r}")
        _check_graph(graph, program, where)
        _check_bindings(graph, program, manifest, where)
    for program in manifest.programs:
        _check_inputs(program, manifest)
    _check_tuning(manifest)
    for index, view in enumerate(contract.model.state_views):
        _check_state_view(view, manifest, f"model.state_views[{index}]")
    _check_cache(contract.model.cache, manifest)
    _check_extents(contract, manifest)


def check_weights(manifest: Manifest, nbytes: Mapping[str, int]) -> None:
    """Every WEIGHT buffer inside its resource; `nbytes` gives each resource's size."""
    for index, buffer in enumerate(manifest.buffers):
        if buffer.buffer_class is not BufferClass.WEIGHT:
            continue
        size = nbytes.get(buffer.resource)
        if size is None:
            refuse(f"buffers[{index}].resource", f"no weight resource {buffer.resource!r}")
        if buffer.offset + buffer.nbytes > size:
            refuse(
                f"buffers[{index}].offset",
                f"{buffer.name!r} ends at {buffer.offset + buffer.nbytes}, past the {size} bytes"
                f" of {buffer.resource!r}",
            )


def _check_graph(graph: GraphContract, program: Program, where: str) -> None:
    if graph.operation is not program.operation:
        refuse(
            f"{where}.operation",
            f"is {graph.operation.name}, but the program's is {program.operation.name}",
        )
    if {(access.view, access.mode) for access in graph.accesses} != set(program.accesses):
        refuse(f"{where}.accesses", "differ from the program's")
    if {(binding.buffer, binding.producer) for binding in graph.tuned_bindings} != set(
        program.tuned
    ):
        refuse(f"{where}.tuned_bindings", "differ from the program's")
    if graph.confidence_width not in (0, program.draft_tokens):
        refuse(
            f"{where}.confidence_width",
            f"is {graph.confidence_width}, but the program draws {program.draft_tokens}",
        )


def _check_bindings(graph: GraphContract, program: Program, manifest: Manifest, where: str) -> None:
    paths = [
        (f"{where}.bindings[{i}]", binding.destination) for i, binding in enumerate(graph.bindings)
    ]
    if graph.pending_token is not None and graph.pending_token.host_binding is not None:
        host = graph.pending_token.host_binding
        paths.append((f"{where}.pending_token.host_binding", host.destination))
    inputs = set(program.inputs)
    for path, destination in paths:
        if destination not in manifest.destinations:
            refuse(f"{path}.destination", f"no transport destination {destination!r}")
        if destination not in inputs:
            refuse(
                f"{path}.destination",
                f"{destination!r} is no input of the program {program.name!r}",
            )


def _check_inputs(program: Program, manifest: Manifest) -> None:
    """A program reads no staging but that of its inputs, and applies the deltas that it takes."""
    staged: set[int] = set()
    deltas: dict[int, str] = {}
    for name in program.inputs:
        destination = manifest.destinations[name]
        if isinstance(destination, StagedDestination):
            staged.add(destination.buffer)
        else:
            staged |= {destination.count, destination.index, destination.value}
            deltas[destination.target] = name
    scattered: set[int] = set()
    for number, launch in enumerate(program.launches):
        for position, operand in enumerate(launch.operands):
            if operand is None:
                continue
            buffer = manifest.buffers[operand.buffer]
            if buffer.buffer_class is BufferClass.INPUT and operand.buffer not in staged:
                refuse(
                    f"program {program.name}, launch {number}, operand {position}",
                    f"reads {buffer.name!r}, which belongs to no input of the program",
                )
        target = launch.operands[-1]
        if launch.kernel.name == "scatter_i32" and target is not None:
            scattered.add(target.buffer)
    for target_buffer, name in deltas.items():
        if target_buffer not in scattered:
            refuse(f"program {program.name}", f"never scatters its delta input {name!r}")


def _check_tuning(manifest: Manifest) -> None:
    producers = {program.name for program in manifest.tuning}
    for program in manifest.programs:
        for buffer, producer in program.tuned:
            index = manifest.buffer_index.get(buffer)
            if index is None or manifest.buffers[index].buffer_class is not BufferClass.TUNED:
                refuse(f"program {program.name}", f"{buffer!r} is no TUNED buffer")
            if producer not in producers:
                refuse(f"program {program.name}", f"no tuning program {producer!r}")


def _check_state_view(view: StateView, manifest: Manifest, where: str) -> None:
    index = manifest.buffer_index.get(view.buffer)
    if index is None:
        refuse(f"{where}.buffer", f"no buffer {view.buffer!r}")
    buffer = manifest.buffers[index]
    if buffer.buffer_class not in _PERSISTENT:
        refuse(f"{where}.buffer", f"{view.buffer!r} is {buffer.buffer_class.name}, not persistent")
    if buffer.leading is not LeadingCount.FIXED and view.row_stride != buffer.nbytes:
        refuse(f"{where}.row_stride", f"is {view.row_stride}, but a row has {buffer.nbytes} bytes")
    if view.byte_offset + view.byte_extent > buffer.nbytes:
        refuse(
            f"{where}.byte_extent",
            f"the view ends at {view.byte_offset + view.byte_extent}, past {buffer.nbytes} bytes",
        )


def _check_cache(cache: CacheContract, manifest: Manifest) -> None:
    for number, region in enumerate(cache.regions):
        for position, plane in enumerate(region.planes):
            index = manifest.buffer_index.get(plane)
            if index is None or manifest.buffers[index].buffer_class is not BufferClass.CACHE:
                refuse(
                    f"model.cache.regions[{number}].planes[{position}]",
                    f"{plane!r} is no CACHE buffer of the manifest",
                )
    for number, view in enumerate(cache.page_tables):
        if view.destination not in manifest.destinations:
            refuse(
                f"model.cache.page_tables[{number}].destination",
                f"no transport destination {view.destination!r}",
            )


def _check_extents(contract: PreparedContract, manifest: Manifest) -> None:
    """Captured extents and the page table's width against what the contract says of them."""
    captured = {
        program.packed_token_capacity
        for program in manifest.programs
        if program.operation is Operation.PREFILL
    }
    if captured != set(contract.prefill_extents):
        refuse(
            "prefill_extents",
            f"are {list(contract.prefill_extents)}, but the captured prefill programs have"
            f" {sorted(captured)}",
        )
    pages = pages_for(contract.max_context_tokens, contract.model.cache.page_tokens)
    width = page_table_width(manifest, contract)
    if width < pages:
        refuse(
            "max_context_tokens",
            f"{contract.max_context_tokens} tokens take {pages} pages, but a page table row has"
            f" {width}",
        )


def pages_for(tokens: int, page_tokens: int) -> int:
    """Pages that `tokens` tokens take."""
    return -(-tokens // page_tokens)


def page_table_width(manifest: Manifest, contract: PreparedContract) -> int:
    """Page ids that the narrowest page table holds for a slot."""
    widths = []
    for view in contract.model.cache.page_tables:
        destination = manifest.destinations[view.destination]
        index = (
            destination.target if isinstance(destination, DeltaDestination) else destination.buffer
        )
        widths.append(manifest.buffers[index].shape[-1])
    if not widths:
        refuse("model.cache.page_tables", "is empty")
    return min(widths)
