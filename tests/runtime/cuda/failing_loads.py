"""What tests of a start that fails do, each in a process of its own that has the stand-in for its
driver: `python -m tests.runtime.cuda.failing_loads NAME`. `test_cuda_device` runs them all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from helios.errors import ContractError, ExecutionError, HeliosError
from helios.runtime.device import DeviceOptions, MemoryPlan
from helios.runtime.devices.cuda import weights as uploading
from helios.runtime.devices.cuda.driver import DriverError
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.manifest import Program
from helios.runtime.model_runtime import ModelRuntime
from tests.runtime.cuda.loaded import load, run
from tests.runtime.test_model_runtime import admitted
from tests.standin_driver import played
from tests.standin_driver.control import Standin

SCENARIOS: dict[str, Callable[[], None]] = {}
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700
# Calls that a start makes, as the stand-in knows them.
CALLS = (
    *("cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate", "cuStreamSynchronize"),
    *("cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuMemGetInfo", "cuMemAlloc"),
    *("cuMemHostAlloc", "cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuModuleLoadData"),
    *("cuModuleGetFunction", "cuFuncGetParamInfo", "cuFuncSetAttribute"),
    *("cuTensorMapEncodeTiled", "cuGraphCreate", "cuGraphAddNode", "cuGraphKernelNodeSetParams"),
    *("cuGraphInstantiate", "cuGraphUpload", "cuGraphLaunch"),
)


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


def attempt(call: str, error: int, number: int) -> HeliosError | ModelRuntime:
    """What comes of a start in which the `number`th call gives an error."""
    Standin().fail(call, error, number)
    try:
        runtime, _ = load()
    except HeliosError as failure:
        return failure
    finally:
        Standin().fail("", 0, 0)
    return runtime


@scenario
def whatever_call_fails_the_start_leaves_nothing() -> None:
    standin = Standin()
    for call in CALLS:
        for number in count(1):
            outcome = attempt(call, OUT_OF_MEMORY, number)
            if isinstance(outcome, ModelRuntime):
                outcome.close()
                break
            # None of them is the core's fault.
            assert isinstance(outcome, ExecutionError), (call, number, outcome)
            assert standin.held == 0, (call, number, standin.held)
        assert number > 1, f"{call} isn't called"
    assert standin.held == 0
    assert not standin.violations, standin.violations


@scenario
def weights_that_fail_in_a_foreign_way_leave_nothing() -> None:
    def lose(*_: object) -> None:
        raise ZeroDivisionError("of another library")

    uploading.upload = lose
    with pytest.raises(ZeroDivisionError) as alone:
        load()
    assert alone.value.__context__ is None, "closing found nothing else"
    assert Standin().held == 0
    failure = attempt("cuGraphInstantiate", OUT_OF_MEMORY, 1)
    assert isinstance(failure, DriverError), failure
    assert failure.__context__ is None, failure.__context__
    assert Standin().held == 0
    assert not Standin().violations, Standin().violations


@scenario
def the_first_thread_of_weights_to_fail_is_the_one_that_is_told() -> None:
    """First in time, though another thread has begun before; which gets nothing more to carry."""
    both = threading.Barrier(2)
    threads: dict[int, threading.Thread] = {}
    carried: list[object] = []

    def carry(gpu: Gpu, take: Callable[[], object], own: Sequence[NDArray[np.uint8]]) -> None:
        place = own[0].ctypes.data
        threads[place] = threading.current_thread()
        both.wait(10)
        if place == max(threads):
            raise ZeroDivisionError("first")
        threads[max(threads)].join(10)
        carried.append(take())
        raise ValueError("its consequence")

    uploading._carry, uploading._THREADS, uploading.PIECE_NBYTES = carry, 2, 64  # type: ignore
    with pytest.raises(ZeroDivisionError):
        load()
    assert carried == [None]
    assert Standin().held == 0


@scenario
def modules_that_find_no_memory_are_not_said_to_be_wrong() -> None:
    for call in ("cuModuleLoadData", "cuModuleGetFunction"):
        failure = attempt(call, OUT_OF_MEMORY, 1)
        assert isinstance(failure, DriverError), failure
        assert "free the GPU's memory" in str(failure)
        assert "Prepare" not in str(failure)
    assert isinstance(attempt("cuModuleLoadData", ILLEGAL_ADDRESS, 1), DriverError)
    assert isinstance(attempt("cuModuleLoadData", 200, 1), ContractError)


class SlowToBegin(played.PlayedCudaDevice):
    """Its first round hasn't run when somebody looks at it for the first time."""

    def load(self, programs: Sequence[Program]) -> None:
        self.standin.pause(True)
        super().load(programs)

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        super().allocate(plan, weights)
        look = self._watch.look

        def then_run(now_ns: int) -> None:
            look(now_ns)
            self.standin.pause(False)

        self._watch.look = then_run  # type: ignore[method-assign]


@scenario
def a_first_round_that_takes_its_time_is_waited_for() -> None:
    runtime, device = load(device=SlowToBegin)
    run(runtime, "initialize.b4", admitted(0))
    runtime.close()
    assert not device.standin.violations, device.standin.violations


@scenario
def a_first_round_that_never_ends_ends_the_start() -> None:
    Standin().fail("hang", 1)
    with pytest.raises(ExecutionError, match=r"round 1 of calibration: hasn't ended after 0\.05 s"):
        load(options=DeviceOptions(round_limit_s=0.05))


@scenario
def a_driver_that_is_too_old_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"is one of CUDA 12\.4\. Install driver 580"):
        load()


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
