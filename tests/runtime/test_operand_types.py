"""Every operand of the catalogue has a type, the one that Ignition records against."""

from __future__ import annotations

import pytest

from helios.kernels.catalogue import BY_NAME, CATALOGUE, KernelSpec
from helios.kernels.operand_types import DTYPE, FORMAT, OPERAND_TYPES, OUT_FORMAT, PACKING
from helios.runtime.manifest import DType
from helios.schema import execution_pb2 as pb
from ignition.capture.extents import needs

# Attributes that suit every kernel; packing and formats are told apart below.
ATTRIBUTES = {
    "capacity": 4, "packed_capacity": 8, "vocab": 64, "stride": 64, "width": 64, "outputs": 64,
    "accumulate": 0, "q_heads": 4, "kv_heads": 2, "head_dim": 32, "page_tokens": 32,
    "table_pages": 4, "window": 0, "packing": pb.PACKING_TILE16_Q8_0, "format": 2, "out_format": 3,
    "lanes": 4, "start": 0, "limit": 4, "elements": 96, "dtype": pb.DTYPE_BF16,
    "lane_capacity": 4, "block": 16, "blocks": 4,
}  # fmt: skip


def test_every_kernel_and_operand_has_a_type() -> None:
    assert OPERAND_TYPES.keys() == BY_NAME.keys()
    for spec in CATALOGUE:
        assert OPERAND_TYPES[spec.name].keys() == {operand.name for operand in spec.operands}
        for kind in OPERAND_TYPES[spec.name].values():
            if kind in (FORMAT, OUT_FORMAT, PACKING, DTYPE):
                assert kind in spec.integers
            else:
                assert kind.upper() in DType.__members__


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_types_are_those_that_ignition_records_against(spec: KernelSpec) -> None:
    needed = needs(spec.name, ATTRIBUTES)
    for operand in spec.operands:
        need, kind = needed[operand.name], OPERAND_TYPES[spec.name][operand.name]
        if kind == PACKING:
            assert (need.dtype, need.packing) == (None, pb.PACKING_TILE16_Q8_0)
            continue
        assert need.packing == pb.PACKING_PLAIN
        expected = {FORMAT: "ACT_Q8", OUT_FORMAT: "ACT_Q16", DTYPE: "BF16"}.get(kind, kind.upper())
        assert need.dtype is not None
        assert pb.DType.Name(need.dtype) == f"DTYPE_{expected}"
