"""Launches against the sizes of what they name: every operand holds what its kernel touches.

Sizes are known once the runtime has chosen its counts. The native library checks the same when it
takes a program; devices that run compiled functions, whose code nobody can look into, come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from helios.contract.fields import INT32_MAX
from helios.errors import ContractError
from helios.kernels.catalogue import ActivationFormat
from helios.kernels.operand_extents import OPERAND_EXTENTS, resolved
from helios.kernels.operand_types import DTYPE, FORMAT, OPERAND_TYPES, OUT_FORMAT, PACKING
from helios.runtime.device import MemoryPlan
from helios.runtime.manifest import DType, Launch, Operand, Packing, Program, packed_nbytes

# Attributes that may be zero; every other one that sizes follow from counts something.
_MAY_BE_NONE: Final = frozenset({"lane_capacity"})
_REMEDY: Final = "Prepare the core again"


def check_launch_extents(programs: Sequence[Program], plan: MemoryPlan) -> None:
    """Raises ContractError naming the program, launch and operand, or attribute, that can't be."""
    held = [planned.nbytes for planned in plan.buffers]
    # Layers repeat launches, so what each needs is found once.
    known: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
    for program in programs:
        for number, launch in enumerate(program.launches):
            key = (launch.kernel.name, launch.integers)
            needed = known.get(key)
            if needed is None:
                try:
                    needed = known[key] = operand_nbytes(launch)
                except ValueError as error:
                    _refuse(program, number, launch, str(error))
            for operand, least in zip(launch.operands, needed, strict=True):
                if operand is not None and held[operand.buffer] - operand.byte_offset < least:
                    position = list(zip(launch.operands, needed, strict=True)).index(
                        (operand, least)
                    )
                    why = _short(launch, position, operand, least, plan)
                    _refuse(program, number, launch, why)


def operand_nbytes(launch: Launch) -> tuple[int, ...]:
    """Bytes that each operand of a launch has at the least, absent ones included. Raises ValueError
    for attributes that no extents follow from."""
    kernel = launch.kernel
    attributes = dict(zip(kernel.integers, launch.integers, strict=True))
    extents, types = OPERAND_EXTENTS[kernel.name], OPERAND_TYPES[kernel.name]
    for name in {factor for one in extents.values() for factor in one} & attributes.keys():
        low = 0 if name in _MAY_BE_NONE else 1
        if not low <= attributes[name] <= INT32_MAX:
            raise ValueError(f"attribute {name!r} is {attributes[name]}, not {low} to {INT32_MAX}")
    if attributes.get("stride", 0) < attributes.get("vocab", 0) and "stride" in attributes:
        raise ValueError(f"attribute 'stride' is {attributes['stride']}, less than vocab")
    nbytes = []
    for spec in kernel.operands:
        rows, width = resolved(extents[spec.name], attributes)
        nbytes.append(_nbytes(types[spec.name], attributes, rows, width))
    return tuple(nbytes)


def _nbytes(kind: str, attributes: dict[str, int], rows: int, width: int) -> int:
    if kind in (FORMAT, OUT_FORMAT):
        form = ActivationFormat(attributes[kind])
        _check_width(width, form.width_multiple, form.name)
        return rows * form.row_nbytes(width)
    if kind == PACKING:
        packing = Packing(attributes[PACKING])
        if packing is Packing.PLAIN:
            raise ValueError(f"attribute {PACKING!r} is {packing}, which no matrix has")
        _check_width(width, packing.width_multiple, packing.name)
        return packed_nbytes(packing, rows, width)
    dtype = DType(attributes[DTYPE]) if kind == DTYPE else DType[kind.upper()]
    return rows * dtype.row_nbytes(width)


def _check_width(width: int, multiple: int, layout: str) -> None:
    if width % multiple:
        raise ValueError(
            f"rows of {width} aren't kept as {layout}: it takes multiples of {multiple}"
        )


def _short(launch: Launch, position: int, operand: Operand, least: int, plan: MemoryPlan) -> str:
    planned = plan.buffers[operand.buffer]
    name = launch.kernel.operands[position].name
    has = max(planned.nbytes - operand.byte_offset, 0)
    return (
        f"operand {name!r} needs {least} bytes, {planned.buffer.name!r} has {has} from byte"
        f" {operand.byte_offset} on"
    )


def _refuse(program: Program, number: int, launch: Launch, why: str) -> NoReturn:
    raise ContractError(
        f"{launch.kernel.name}: {why}",
        where=f"program {program.name}, launch {number}",
        remedy=_REMEDY,
    )
