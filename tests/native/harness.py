"""Runs single launches of the native library on memory between guard pages.

`run` copies every operand of a `Case` into a mapping of its own whose neighbours can't be touched,
executes the launch, and returns what the operands hold afterwards. A kernel that reaches outside an
operand ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np

from helios import _native
from helios.kernels.catalogue import BY_NAME
from tests.native.launches import Array as Array
from tests.native.launches import Case as Case

INSTRUCTION_SETS = _native.instruction_sets()
_NUMBERS = {name: number for number, (name, *_) in enumerate(_native.catalogue())}
PAGE = mmap.PAGESIZE

_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Placement(Enum):
    """Where an operand lies in its mapping."""

    BEFORE_GUARD = "before_guard"
    AFTER_GUARD = "after_guard"


class GuardedArray:
    """A copy of an array that touches an inaccessible page with its end or its beginning."""

    def __init__(self, source: Array, placement: Placement) -> None:
        inner = max(PAGE, -(-source.nbytes // PAGE) * PAGE)
        self._mapping = mmap.mmap(-1, inner + 2 * PAGE)
        holder = ctypes.c_char.from_buffer(self._mapping)
        base = ctypes.addressof(holder)
        del holder
        self.nbytes = source.nbytes
        offset = PAGE if placement is Placement.AFTER_GUARD else PAGE + inner - source.nbytes
        self.address = base + offset
        view = np.frombuffer(self._mapping, np.uint8, source.nbytes, offset)
        self.array = view.view(source.dtype).reshape(source.shape)
        self.array[...] = source
        for guard in (base, base + PAGE + inner):
            if _libc.mprotect(guard, PAGE, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect failed")


Launch = tuple[str, Mapping[str, tuple[int, int]], Mapping[str, int], Mapping[str, float]]


def add_program(
    replayer: _native.Replayer, launches: Sequence[Launch], owners: object = None
) -> int:
    """Registers launches whose operands are given as (address, nbytes) by name; `owners` is kept
    until the replayer is closed."""
    kernels: list[int] = []
    addresses: list[int] = []
    nbytes: list[int] = []
    integers: list[int] = []
    floats: list[float] = []
    operand_starts, integer_starts, float_starts = [0], [0], [0]
    for name, operands, attributes, reals in launches:
        spec = BY_NAME[name]
        kernels.append(_NUMBERS[name])
        for operand in spec.operands:
            address, size = operands.get(operand.name, (0, 0))
            addresses.append(address)
            nbytes.append(size)
        integers.extend(attributes[key] for key in spec.integers)
        floats.extend(reals[key] for key in spec.floats)
        operand_starts.append(len(addresses))
        integer_starts.append(len(integers))
        float_starts.append(len(floats))
    return replayer.add_program(
        np.array(kernels, np.int32),
        np.array(operand_starts, np.int32),
        np.array(addresses, np.uint64),
        np.array(nbytes, np.uint64),
        np.array(integer_starts, np.int32),
        np.array(integers, np.int64),
        np.array(float_starts, np.int32),
        np.array(floats, np.float64),
        owners,
    )


def run(
    case: Case,
    instruction_set: str,
    *,
    threads: int = 2,
    placement: Placement = Placement.BEFORE_GUARD,
) -> dict[str, Array]:
    """Executes one launch and returns every operand as it is afterwards."""
    memory = {
        name: GuardedArray(np.ascontiguousarray(array), placement)
        for name, array in case.operands.items()
    }
    replayer = _native.Replayer(threads, instruction_set)
    try:
        spans = {name: (guarded.address, guarded.nbytes) for name, guarded in memory.items()}
        program = add_program(replayer, [(case.kernel, spans, case.integers, case.floats)], memory)
        replayer.submit(program, 1)
        assert replayer.wait(1, 60_000)
    finally:
        replayer.close()
    return {name: guarded.array.copy() for name, guarded in memory.items()}
