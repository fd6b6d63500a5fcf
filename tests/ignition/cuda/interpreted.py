"""Launches of the CUDA target as tests run them without a GPU: interpreted, and compiled.

`run` gives a case of `tests.native` to Triton's interpreter (`interpreter`) and returns what its
operands hold afterwards; `compiled` compiles what the lowering asks for. Both need Triton: a test
module that uses them begins with `pytest.importorskip("triton", reason=WITHOUT_TRITON)`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.native.harness import Array, Case
from tests.native.reference import by_reference

if TYPE_CHECKING:
    from ignition.kernels.cuda.compile import CompiledKernel
    from ignition.kernels.cuda.launches import CudaKernel

WITHOUT_TRITON = "the extra cuda-prepare isn't installed: no kernel of the CUDA target was run"
ELSEWHERE = "HELIOS_CUDA_TESTS"
ROOT = Path(__file__).parents[3]


@cache
def _interpreter() -> subprocess.Popen[bytes]:
    """The process that interprets, one a test process."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path), str(ROOT / "src")])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ignition.cuda.interpreter"],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin is not None
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.wait()


def run(case: Case, *, lowering: str | None = None, descending: bool = False) -> dict[str, Array]:
    """Every operand after the launches of the case's lowering, or of another one
    (`module:function`). Programs of a grid run in ascending order, or in descending.

    Raises AssertionError with the interpreter's traceback for whatever went wrong there.
    """
    return _execute(lowering or case.kernel, [case], (), descending)[0]


def run_fused(
    cases: Sequence[Case],
    *,
    lowering: str = "fusion",
    unread: Sequence[Array] = (),
    descending: bool = False,
) -> list[dict[str, Array]]:
    """The operands of consecutive launches after the first fusion that fits them, or after another
    one (`module:function`). One array that is several operands is one buffer; nothing reads the
    arrays `unread` afterwards."""
    return _execute(lowering, cases, unread, descending)


def run_in_turn(cases: Sequence[Case], *, descending: bool = False) -> list[dict[str, Array]]:
    """The operands of consecutive launches, each by its own lowering, which is told what the launch
    before it doesn't write."""
    return _execute("in turn", cases, (), descending)


def _execute(
    lowering: str, cases: Sequence[Case], unread: Sequence[Array], descending: bool
) -> list[dict[str, Array]]:
    names: dict[int, str] = {}
    arrays: dict[str, Array] = {}
    launches = []
    for number, case in enumerate(cases):
        operands = {}
        for operand, array in case.operands.items():
            name = operand if number == 0 else f"{operand} of launch {number}"
            operands[operand] = names.setdefault(id(array), name)
            arrays[operands[operand]] = array
        launches.append((case.kernel, dict(case.integers), dict(case.floats), operands))
    unread_names = [names[id(array)] for array in unread]
    after = _elsewhere(lowering, launches, arrays, unread_names)
    if after is None:
        after = _answer((lowering, launches, arrays, unread_names, descending))
    return [{operand: after[name] for operand, name in launch[3].items()} for launch in launches]


def _elsewhere(
    lowering: str, launches: Sequence[Any], arrays: dict[str, Array], unread: Sequence[str]
) -> dict[str, Array] | None:
    """The arrays after the launches on a GPU, where HELIOS_CUDA_TESTS is `gpu:FOLDER` (of compiled
    kernels). With `collect:FOLDER` the kernels are noted there, and nothing is interpreted."""
    where, _, folder = os.environ.get(ELSEWHERE, "").partition(":")
    if not where:
        return None
    from tests.ignition.cuda import carried_kernels, on_gpu
    from tests.ignition.cuda.lowered_cases import Launch, kernels_of

    described = [Launch(*launch) for launch in launches]
    if where == "gpu":
        return on_gpu.execute(Path(folder), lowering, described, arrays, unread)
    assert where == "collect", f"{ELSEWHERE} is neither gpu nor collect"
    for kernel in kernels_of(lowering, described, list(arrays), unread):
        carried_kernels.collect(Path(folder), kernel.request)
    return _by_reference(described, arrays)


def _by_reference(launches: Sequence[Any], arrays: dict[str, Array]) -> dict[str, Array]:
    """What the reference leaves, so that a test goes on to its next launch; the arrays as they are
    where its operands aren't plain values."""
    from helios.kernels.operand_types import OPERAND_TYPES

    after = {name: array.copy() for name, array in arrays.items()}
    plain = {"i32", "u32", "u8", "f32", "dtype"}
    for launch in launches:
        if plain >= set(OPERAND_TYPES[launch.kernel].values()):
            operands = {operand: after[name] for operand, name in launch.operands.items()}
            done = by_reference(Case(launch.kernel, operands, launch.integers, launch.floats))
            after |= {name: done[operand] for operand, name in launch.operands.items()}
    return after


def _answer(request: object) -> dict[str, Array]:
    process = _interpreter()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(request, process.stdin)
        process.stdin.flush()
        answer: Any = pickle.load(process.stdout)
    except (EOFError, BrokenPipeError) as error:
        _interpreter.cache_clear()
        raise AssertionError(f"the interpreter ended, status {process.wait()}") from error
    if isinstance(answer, str):
        raise AssertionError(answer)
    assert isinstance(answer, dict)
    return answer


def lowered(case: Case, *, architecture: str = "sm_90") -> list[CudaKernel]:
    """What the lowering makes of the case's launch."""
    from ignition.kernels.cuda.launches import ARCHITECTURES, CatalogueLaunch
    from ignition.kernels.cuda.lowerings import LOWERINGS

    launch = CatalogueLaunch(
        case.kernel, case.integers, case.floats, frozenset(case.operands),
        ARCHITECTURES[architecture],
    )  # fmt: skip
    return list(LOWERINGS[case.kernel](launch))


def fused(cases: Sequence[Case], *, unread: Sequence[Array] = ()) -> list[CudaKernel] | None:
    """What the first fusion that fits makes of consecutive launches, None where none does. One
    array that is several operands is one buffer; nothing reads the arrays `unread` afterwards."""
    from ignition.kernels.cuda.launches import ARCHITECTURES, CatalogueLaunch, NeighbouringLaunch
    from ignition.kernels.cuda.lowerings import FUSIONS

    numbers: dict[int, int] = {}
    unread_places = frozenset((numbers.setdefault(id(array), len(numbers)), 0) for array in unread)
    neighbours = []
    for case in cases:
        launch = CatalogueLaunch(
            case.kernel, case.integers, case.floats, frozenset(case.operands),
            ARCHITECTURES["sm_90"],
        )  # fmt: skip
        places = {
            name: (numbers.setdefault(id(array), len(numbers)), 0)
            for name, array in case.operands.items()
        }
        neighbours.append(NeighbouringLaunch(launch, places, unread_places))
    for fusion in FUSIONS:
        if tuple(fusion.kernels) == tuple(case.kernel for case in cases):
            kernels = fusion.lower(neighbours)
            if kernels is not None:
                return list(kernels)
    return None


_compiled: dict[tuple[str, str], CompiledKernel] = {}


def compiled(case: Case, *, architecture: str = "sm_90") -> list[CompiledKernel]:
    """Every kernel of the case's launch, compiled; equal requests once a process."""
    if ELSEWHERE in os.environ:
        pytest.skip("what is compiled is looked at where it is compiled")
    from ignition.kernels.cuda.compile import compile

    found = []
    for kernel in lowered(case, architecture=architecture):
        key = (kernel.request.name, architecture)
        if key not in _compiled:
            _compiled[key] = compile(kernel.request, architecture)
        found.append(_compiled[key])
    return found


def resources(kernel: CompiledKernel) -> dict[str, int]:
    """What the assembler says of a cubin: `REG` registers a thread, `STACK` bytes of spilled
    registers and local arrays, `SHARED` bytes."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.cubin)
        file.flush()
        listing = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    lines = listing.splitlines()
    at = next(i for i, line in enumerate(lines) if f"Function {kernel.function}:" in line)
    return {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", lines[at + 1])}
