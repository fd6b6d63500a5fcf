"""What an execution manifest, a contract and weight resources must agree on.

The decoders have checked each alone; `checks` holds them against each other, a module a subject.
Here they run, once, at load, before any memory is taken. Every refusal is a ContractError that
names the field by its path and the graph or program that it belongs to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from helios.contract.fields import refuse
from helios.contract.model import PreparedContract
from helios.runtime.checks.bindings import check_bindings
from helios.runtime.checks.extents import (
    check_confidence,
    check_coverage,
    check_program_extents,
)
from helios.runtime.checks.graphs import check_graph, check_program, check_rankings
from helios.runtime.checks.launches import check_launches
from helios.runtime.checks.nodes import check_nodes
from helios.runtime.checks.places import graph_place, program_places
from helios.runtime.checks.storage import (
    check_cache,
    check_page_bindings,
    check_page_tables,
    check_state_views,
)
from helios.runtime.checks.tuning import check_tuned_bindings, check_tuning
from helios.runtime.checks.uses import uses_of
from helios.runtime.manifest import BufferClass, Manifest


def check_manifest(manifest: Manifest, contract: PreparedContract) -> None:
    """Everything that the contract says against everything that the manifest holds."""
    programs = {program.name: program for program in manifest.programs}
    graphs = {graph.name for graph in contract.model.graphs}
    uses = {program.name: uses_of(program) for program in (*manifest.programs, *manifest.tuning)}
    for at, program in program_places("programs", manifest.programs):
        if program.name not in graphs:
            at.refuse("name", "the contract has no graph of this name")
    check_state_views(contract, manifest)
    check_cache(contract, manifest)
    check_page_tables(contract, manifest)
    for index, graph in enumerate(contract.model.graphs):
        at = graph_place(index, graph)
        found = programs.get(graph.name)
        if found is None:
            at.refuse("name", f"the manifest has no program {graph.name!r}")
        check_graph(graph, found, at)
        check_tuned_bindings(graph, found, at)
        check_bindings(graph, found, at, manifest, contract)
        check_page_bindings(graph, at, contract)
        check_confidence(graph, found, at, manifest)
        check_rankings(graph, found, at, manifest)
    for at, program in program_places("programs", manifest.programs):
        check_program(program, uses[program.name], at, manifest, contract)
        check_program_extents(program, at, contract)
        check_launches(program, at, manifest, contract)
        check_nodes(program, at, manifest)
    for at, producer in program_places("tuning", manifest.tuning):
        check_launches(producer, at, manifest, contract)
        check_nodes(producer, at, manifest)
    check_tuning(manifest, uses)
    check_coverage(contract, manifest)


def check_modules(manifest: Manifest, modules: Collection[str]) -> None:
    """Every function in a module that the rank names; `modules` are their ids."""
    if manifest.cuda is None:
        return
    for index, function in enumerate(manifest.cuda.functions):
        if function.module not in modules:
            refuse(f"cuda.functions[{index}].module", f"no module {function.module!r}")


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
