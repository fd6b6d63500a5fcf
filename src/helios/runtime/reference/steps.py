"""Programs cut into the steps that the differ runs one by one: a launch each, or on cuda targets
the launches whose work the same nodes do. `differ` is the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from helios.contract.enums import AccessMode
from helios.runtime.manifest import Launch, Operand, Program


def cut(program: Program) -> Iterator[tuple[int, tuple[Launch, ...]]]:
    """Steps: the number of their first launch, and their launches. On targets without nodes each
    launch is one; else those without nodes belong to the next that has some."""
    has_nodes = any(launch.nodes for launch in program.launches)
    first = 0
    for number, launch in enumerate(program.launches):
        if launch.nodes or not has_nodes:
            yield first, program.launches[first : number + 1]
            first = number + 1


def alone(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """Launches of a step whose first node waits for all before it: what it reads early was to be
    written before a launch that isn't there."""
    places = [place for place, launch in enumerate(launches) if launch.nodes]
    if not places:
        return launches
    first, *others = launches[places[0]].nodes
    patient = replace(launches[places[0]], nodes=(replace(first, programmatic=False), *others))
    return (*launches[: places[0]], patient, *launches[places[0] + 1 :])


def written(launches: Sequence[Launch]) -> set[int]:
    """Buffers that hold what a step wrote when it is over: where nodes do the work of several
    launches, what they don't write themselves isn't anywhere."""
    nodes = [node for launch in launches for node in launch.nodes]
    if not nodes:
        return {o.buffer for launch in launches for o in launch.operands if o is not None}
    return {
        argument.buffer
        for node in nodes
        for argument in node.arguments
        if isinstance(argument, Operand) and argument.access is not AccessMode.READ
    }
