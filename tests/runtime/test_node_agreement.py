"""Nodes against the launches whose work they do: a refusal names program, node and argument."""

from __future__ import annotations

import pytest

from helios.contract import decode
from helios.contract.enums import AccessMode
from helios.errors import ContractError
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import contract_pb2 as contract
from helios.schema import execution_pb2 as pb
from tests.contract.sample import sample_contract
from tests.runtime.sample_cuda import sample_cuda_manifest
from tests.runtime.test_node_decoding import (
    NODE,
    OPERANDS,
    PROGRAM,
    Change,
    argument,
    at,
    index_of,
    node,
)
from tests.standin_driver.cuda_manifest import MAP, ROW_COUNT


def check(change: Change) -> str:
    message = sample_cuda_manifest()
    change(message)
    manifest = decode_manifest(message)
    with pytest.raises(ContractError) as raised:
        check_manifest(manifest, decode(sample_contract()))
    return raised.value.where


def test_rows_are_counted_of_nothing_that_the_launch_does_not_name() -> None:
    def count(message: pb.ExecutionManifest) -> None:
        counted = argument(message, ROW_COUNT).row_count.buffer
        counted.buffer, counted.access = index_of(message, "page_table") + 1, AccessMode.READ
        argument(message, ROW_COUNT).row_count.row_nbytes = 4

    assert check(count) == at(ROW_COUNT, ".row_count.buffer.buffer")


def test_work_that_no_node_does_is_refused() -> None:
    launches = sample_cuda_manifest().programs[PROGRAM].launches
    last = len(launches) - 1
    where = check(lambda x: x.programs[PROGRAM].launches[last].ClearField("nodes"))
    assert where == f"programs[{PROGRAM}].launches[{last}].nodes"


def test_a_node_may_do_the_work_of_the_launches_before_it() -> None:
    """Their operands are then its own, until another node has done it."""

    def fuse(message: pb.ExecutionManifest) -> None:
        program = message.programs[PROGRAM]
        program.launches[1].nodes[0].arguments.extend(program.launches[0].nodes[0].arguments)
        program.launches[0].ClearField("nodes")

    message = sample_cuda_manifest()
    fuse(message)
    check_manifest(decode_manifest(message), decode(sample_contract()))

    def too_late(message: pb.ExecutionManifest) -> None:
        fuse(message)
        program = message.programs[PROGRAM]
        program.launches[2].nodes[0].arguments.extend(program.launches[1].nodes[0].arguments)

    assert check(too_late).startswith(f"programs[{PROGRAM}].launches[2].nodes[0].arguments[")


@pytest.mark.parametrize("name", ["request_state", "page_table", "completion.lanes", "in.emitted"])
def test_a_node_touches_nothing_that_its_launch_does_not(name: str) -> None:
    def add(message: pb.ExecutionManifest) -> None:
        operand = pb.Operand(buffer=index_of(message, name) + 1, access=contract.ACCESS_MODE_READ)
        node(message).arguments.add(buffer=operand)

    where = check(add)
    assert where == f"{NODE}.arguments[{OPERANDS + MAP + 1}].buffer.buffer"


def test_a_node_writes_nothing_that_its_launch_reads() -> None:
    def write(message: pb.ExecutionManifest) -> None:
        program = message.programs[PROGRAM]
        # load_pending reads the request state.
        position = next(
            number
            for number, operand in enumerate(program.launches[1].operands)
            if operand.buffer == index_of(message, "request_state") + 1
        )
        operand = program.launches[1].nodes[0].arguments[position].buffer
        assert operand.access == contract.ACCESS_MODE_READ
        operand.access = contract.ACCESS_MODE_WRITE

    assert check(write).startswith(f"programs[{PROGRAM}].launches[1].nodes[0].arguments[")
