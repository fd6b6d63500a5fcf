"""Arguments that depend on what was allocated, resolved without a driver."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest

from helios.contract import decode
from helios.contract.enums import AccessMode
from helios.errors import ContractError
from helios.runtime.capacities import Capacities
from helios.runtime.device import MemoryPlan
from helios.runtime.devices.cuda.arguments import ArgumentResolver, ParameterBlock, ResolvedNode
from helios.runtime.devices.cuda.functions import LoadedFunction
from helios.runtime.manifest import CudaRowCount, Operand
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.node_decoder import ARGUMENTS_LIMIT
from helios.runtime.selection import select
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest

MANIFEST = decode_manifest(sample_manifest())
PLAN = select(decode(sample_contract()), MANIFEST, Capacities(), 1 << 30).plan
PLANE = MANIFEST.buffer_index["cache.k.0"]
FUNCTION = LoadedFunction(None, "work", 128, 0, (4,), 0)


def resolved(plan: MemoryPlan, row_nbytes: int) -> int:
    gpu: Any = None  # no tensor map is made
    resolver = ArgumentResolver(gpu, plan, lambda buffer, frame: 0, frozenset())
    count = CudaRowCount(Operand(PLANE, 0, AccessMode.READ), row_nbytes)
    ((value,), _) = resolver.resolve(FUNCTION, (1, 1, 1), [count], programmatic=False).values
    return value


def with_plane(nbytes: int) -> MemoryPlan:
    buffers = list(PLAN.buffers)
    buffers[PLANE] = replace(buffers[PLANE], nbytes=nbytes)
    return replace(PLAN, buffers=tuple(buffers))


def test_as_many_slots_as_a_manifest_allows_have_room() -> None:
    block = ParameterBlock()
    maps = 5 * ARGUMENTS_LIMIT
    values = [*range(maps), 7, 9]  # and the hidden ones
    block.fill(ResolvedNode(FUNCTION, (1, 1, 1), (values, values), programmatic=True), 1)
    pointers = (ctypes.c_uint64 * len(values)).from_address(block.address)
    assert ctypes.c_uint64.from_address(pointers[maps - 1]).value == maps - 1
    assert ctypes.c_uint64.from_address(pointers[maps + 1]).value == 9


def test_rows_are_counted_in_what_was_allocated() -> None:
    assert resolved(with_plane(4096 + 31), 32) == 128
    assert resolved(with_plane((1 << 31) - 1), 1) == (1 << 31) - 1


def test_more_rows_than_an_i32_counts_are_refused() -> None:
    with pytest.raises(
        ContractError, match=r"buffer cache\.k\.0: holds 2147483648 rows of 32 bytes"
    ):
        resolved(with_plane(32 << 31), 32)
