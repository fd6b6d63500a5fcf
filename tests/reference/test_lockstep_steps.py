"""How the differ cuts programs of cuda targets, whose nodes may do the work of several launches."""

from __future__ import annotations

from dataclasses import replace

from helios.contract.enums import AccessMode
from helios.runtime.manifest import CudaNode, Launch, Operand
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.reference.steps import cut, written
from tests.runtime.sample_manifest import sample_manifest

PROGRAM = decode_manifest(sample_manifest()).programs[1]
READ, WRITE = AccessMode.READ, AccessMode.WRITE


def with_nodes(launch: Launch, *arguments: Operand) -> Launch:
    node = CudaNode(0, (1, 1, 1), tuple(arguments), programmatic=True)
    return replace(launch, nodes=(node,))


def test_without_nodes_each_launch_is_a_step() -> None:
    steps = list(cut(PROGRAM))
    assert steps == [(i, (launch,)) for i, launch in enumerate(PROGRAM.launches)]
    launch = PROGRAM.launches[0]
    assert written([launch]) == {o.buffer for o in launch.operands if o is not None}


def test_launches_without_nodes_go_with_the_next_that_has_some() -> None:
    first, second, third, *_ = PROGRAM.launches
    out = Operand(5, 0, WRITE)
    fused = with_nodes(third, Operand(4, 0, READ), out)
    program = replace(PROGRAM, launches=(with_nodes(first), second, fused))
    steps = list(cut(program))
    assert [(index, len(launches)) for index, launches in steps] == [(0, 1), (1, 2)]
    assert written(steps[1][1]) == {out.buffer}
