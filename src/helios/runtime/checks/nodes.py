"""Nodes of cuda programs against the launches whose work they do.

Everything else that is checked of a program (which state it writes, what it tells the host) is read
off its launches, so a node may touch nothing that they don't name but scratch and counters. Called
by `manifest_checks`.
"""

from __future__ import annotations

from typing import Final

from helios.contract.enums import AccessMode
from helios.runtime.checks.places import Place
from helios.runtime.manifest import (
    BufferClass,
    CudaNode,
    CudaRowCount,
    CudaTensorMap,
    Launch,
    Manifest,
    Operand,
    Program,
)

# What only nodes name, and scratch, which holds nothing that outlives a round.
_FREE: Final = (BufferClass.WORKSPACE, BufferClass.COUNTER)


def check_nodes(program: Program, at: Place, manifest: Manifest) -> None:
    """Every launch's work is done, and by nodes that keep to its operands and to those of the
    launches before it whose work they do as well."""
    if manifest.cuda is None:
        return
    pending: list[Launch] = []
    for number, launch in enumerate(program.launches):
        pending.append(launch)
        if not launch.nodes:
            continue
        named = _named(pending)
        for position, node in enumerate(launch.nodes):
            _check_node(node, named, at, f"launches[{number}].nodes[{position}]", manifest)
        pending = []
    if pending:
        at.refuse(
            f"launches[{len(program.launches) - 1}].nodes", "are missing: nothing does its work"
        )


def _named(launches: list[Launch]) -> set[tuple[int, AccessMode]]:
    """(buffer, access) that these launches allow; who may do both may do either."""
    allowed: set[tuple[int, AccessMode]] = set()
    for launch in launches:
        for operand in launch.operands:
            if operand is None:
                continue
            allowed.add((operand.buffer, operand.access))
            if operand.access is AccessMode.READ_WRITE:
                allowed.add((operand.buffer, AccessMode.READ))
                allowed.add((operand.buffer, AccessMode.WRITE))
    return allowed


def _check_node(
    node: CudaNode,
    named: set[tuple[int, AccessMode]],
    at: Place,
    where: str,
    manifest: Manifest,
) -> None:
    for position, argument in enumerate(node.arguments):
        if isinstance(argument, Operand):
            operand, field = argument, "buffer"
        elif isinstance(argument, CudaTensorMap):
            operand, field = argument.buffer, "tensor_map.buffer"
        elif isinstance(argument, CudaRowCount):
            operand, field = argument.buffer, "row_count.buffer"
        else:
            continue
        buffer = manifest.buffers[operand.buffer]
        if buffer.buffer_class in _FREE or (operand.buffer, operand.access) in named:
            continue
        at.refuse(
            f"{where}.arguments[{position}].{field}.buffer",
            f"{operand.access.name} of {buffer.name!r}, which the launch doesn't name so",
        )
