"""Runs a catalogue launch's CUDA kernels in Triton's interpreter, over numpy arrays.

Started by `interpreted` as a process of its own, because Triton decides when it is imported
whether kernels are compiled or interpreted. Reads launches from standard input and answers each
with what the operands hold afterwards, or with a traceback.

Stricter than a GPU: an access outside every operand, a misaligned one, a write to an operand that
the catalogue only reads, a read or write of anything but weights before `gdc_wait` (of `settled`
arguments too, where the kernel before isn't done with them), a program that ends without it, and
counters that aren't zero at the end are errors. What differs from a GPU: programs run one after the
other, and matrix products sum in numpy's order.
"""

from __future__ import annotations

import itertools
import pickle
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter as base
from triton.runtime.interpreter import TensorHandle

from helios.kernels.catalogue import BY_NAME
from helios.runtime.manifest import DType
from ignition.kernels.cuda.launches import (
    At,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
    TensorMap,
)
from tests.ignition.cuda.interpreter_rules import current, install
from tests.ignition.cuda.lowered_cases import Launch, kernels_of
from tests.ignition.cuda.placed_memory import ALIGNMENT, POISON, Memory, Ran

Array = NDArray[Any]
# What nobody writes while a model serves, so that it may be read before `gdc_wait`.
WEIGHTS = {"weight", "table", "bias", "inverse_frequency", "q_norm", "k_norm"}


_launches: Sequence[Launch] = ()


def execute(
    lowering: str,
    launches: Sequence[Launch],
    arrays: Mapping[str, Array],
    unread: Collection[str],
    descending: bool,
) -> dict[str, Array]:
    """The arrays after the CUDA launches that `lowering` (`module:function`, a kernel's name or
    FUSION) makes of catalogue launches, whose operands name arrays. `descending` runs a grid's
    programs in the opposite order; nothing reads the arrays `unread` afterwards."""
    global _launches
    current.memory, _launches = Memory(), launches
    for launch in launches:
        for spec in BY_NAME[launch.kernel].operands:
            if spec.name in launch.operands:
                name = launch.operands[spec.name]
                weight = spec.name in WEIGHTS
                current.memory.place(name, arrays[name], writable="w" in spec.access, weight=weight)
    for cuda_kernel in kernels_of(lowering, launches, list(current.memory.places), unread):
        _run(cuda_kernel, descending)
    counters = current.memory.places.get("counters")
    assert counters is None or not counters.array.any(), "counters aren't zero after the launch"
    return {name: current.memory.places[name].array for name in arrays}


def _run(kernel: CudaKernel, descending: bool) -> None:
    request = kernel.request
    assert set(kernel.arguments) == set(request.arguments), "an argument is missing or unknown"
    _place_counters(kernel)
    arguments: dict[str, Any] = dict(request.constants)
    scope = base._patch_lang(request.function.fn)
    try:
        for name, kind in request.arguments.items():
            multiple = name in request.multiples_of_16
            arguments[name] = _argument(name, kind, kernel.arguments[name], multiple=multiple)
        function = request.function.rewrite()
        base.interpreter_builder.set_grid_dim(*kernel.grid)
        current.memory.now = Ran()
        indices: Iterable[tuple[int, ...]] = itertools.product(*(range(n) for n in kernel.grid))
        for index in reversed(list(indices)) if descending else indices:
            base.interpreter_builder.set_grid_idx(*index)
            current.memory.waited = not kernel.programmatic
            current.memory.settled = _settled(kernel)
            function(**arguments)
            assert current.memory.waited, f"program {index} of {request.name} ends without gdc_wait"
    finally:
        scope.restore()
        current.memory.waited = True
    current.memory.before = current.memory.now


def _settled(kernel: CudaKernel) -> frozenset[str]:
    """Names of the arrays that a kernel may read before it waits."""
    operands = [kernel.arguments[name] for name in kernel.settled]
    return frozenset(
        _launches[at.launch].operands[at.operand] for at in operands if isinstance(at, At)
    )


def _place_counters(kernel: CudaKernel) -> None:
    counts = [a.count for a in kernel.arguments.values() if isinstance(a, Counters)]
    if counts and "counters" not in current.memory.places:
        current.memory.place("counters", np.zeros(max(counts), np.int32), writable=True)
    for count in counts:
        assert current.memory.places["counters"].array.size >= count, (
            "give all kernels as many counters"
        )


def _argument(name: str, kind: str, value: Any, *, multiple: bool) -> Any:
    if isinstance(value, TensorMap):
        return _descriptor(kind, value)
    if kind.startswith("*"):
        address = _address(value)
        assert address % ALIGNMENT == 0
        pointer = tl.str_to_ty(kind, None)
        return tl.tensor(TensorHandle(np.array([address], np.uint64), pointer), pointer)
    if isinstance(value, RowsOf):
        place = current.memory.places[_launches[value.launch].operands[value.operand]]
        value = (place.end - place.start) // value.row_nbytes
    scalar = tl.str_to_ty(kind, None)
    assert isinstance(value, (int, float)), f"{name} is {value!r}, its type {kind}"
    assert not multiple or value % ALIGNMENT == 0, f"{name} = {value} isn't a multiple of 16"
    data = np.array([value]).astype(base._get_np_dtype(scalar))
    assert kind.startswith("f") or data[0] == value, f"{name} = {value} doesn't fit {kind}"
    return tl.tensor(TensorHandle(data, scalar), scalar)


def _address(value: Any) -> int:
    if isinstance(value, At):
        launch = _launches[value.launch]
        if launch.kernel in BY_NAME:  # transport is in no catalogue
            known = [spec.name for spec in BY_NAME[launch.kernel].operands]
            assert value.operand in known, f"{launch.kernel} has no operand {value.operand}"
        name = launch.operands.get(value.operand)
        return current.memory.places[name].start if name is not None else 0
    if isinstance(value, Counters):
        return current.memory.places["counters"].start
    assert isinstance(value, Scratch), f"{value!r} is no address"
    nbytes = DType(value.dtype).row_nbytes(int(np.prod(value.shape)))
    content = np.full(nbytes, POISON, np.uint8)
    return current.memory.place(f"scratch {value.role}", content, writable=True)


def _descriptor(kind: str, value: TensorMap) -> Any:
    found = re.fullmatch(r"tensordesc<(\w+)\[([0-9, ]+)\]>", kind)
    assert found is not None, kind
    block = [int(extent) for extent in found[2].split(",")]
    address = At(value.operand, value.launch)
    pointer = _argument(value.operand, f"*{found[1]}", address, multiple=False)
    place = current.memory.places[_launches[value.launch].operands[value.operand]]
    itemsize = pointer.dtype.element_ty.primitive_bitwidth // 8
    rows = (place.end - place.start) // itemsize // value.columns
    shape = [base._implicit_cvt(extent) for extent in (rows, value.columns)]
    return base.interpreter_semantic.make_tensor_descriptor(
        base=pointer, shape=shape, strides=[shape[1], tl.constexpr(1)],
        block_shape=[tl.constexpr(extent) for extent in block], padding_option="zero",
    )  # fmt: skip


def serve() -> None:
    """Answers launches until there are no more."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a kernel prints
    install()
    while True:
        try:
            lowering, launches, *rest = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = execute(lowering, [Launch(*launch) for launch in launches], *rest)
        except Exception:
            answer = traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    assert triton.knobs.runtime.interpret, "start with TRITON_INTERPRET=1"
    serve()
