"""Rounds that fail over the stand-in driver: each ends in an error that stays."""

from __future__ import annotations

import pytest

from helios.errors import ExecutionError
from helios.runtime.device import DeviceOptions
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import Round
from tests.runtime.cuda.loaded import load, run, scenario
from tests.runtime.test_model_runtime import admitted, prompt
from tests.standin_driver.control import Standin
from tests.standin_driver.played import PlayedCudaDevice


def fails_for_good(runtime: ModelRuntime, device: PlayedCudaDevice, message: str) -> None:
    """Every later call raises the same, and closing comes to an end."""
    for call in (
        lambda: runtime.completed(2),
        lambda: runtime.wait(2, 1000),
        lambda: runtime.submit(Round(0, (admitted(1),))),
        lambda: runtime.cache_content.read_page(0),
    ):
        with pytest.raises(ExecutionError, match=message):
            call()
    runtime.close()
    runtime.close()


def fail_in_a_round(call: str, error: int, message: str) -> None:
    runtime, device = load()
    run(runtime, "initialize.b4", admitted(0))
    device.standin.fail(call, error)
    with pytest.raises(ExecutionError, match=message):
        run(runtime, "prefill.p8", prompt(0, (4,)))
    if call == "run":  # it was begun: nothing of it is given out
        with pytest.raises(ExecutionError, match=message):
            runtime.read(2)
    fails_for_good(runtime, device, message)


@scenario
def an_illegal_address_ends_in_an_error() -> None:
    fail_in_a_round(
        "run", 700, r"running round 2: CUDA_ERROR_ILLEGAL_ADDRESS: a kernel read or wrote memory"
    )


@scenario
def a_launch_failure_ends_in_an_error() -> None:
    fail_in_a_round("run", 719, r"running round 2: CUDA_ERROR_LAUNCH_FAILED.*Start again")


@scenario
def a_refused_launch_ends_in_an_error() -> None:
    fail_in_a_round("cuGraphLaunch", 1, r"submitting round 2: CUDA_ERROR_INVALID_VALUE")


@scenario
def a_result_without_a_name_ends_in_an_error_with_its_number() -> None:
    message = r"CUDA error 12345: no meaning is known\. Start again"
    fail_in_a_round("run", 12345, rf"running round 2: {message}")
    # Such an error of a round stays: the stand-in's context is over.
    with pytest.raises(ExecutionError, match=rf"opening a context: {message}"):
        load()


@scenario
def a_call_that_gives_a_result_without_a_name_fails_as_others_do() -> None:
    fail_in_a_round("cuGraphLaunch", 12345, r"submitting round 2: CUDA error 12345: no meaning")
    Standin().fail("cuMemAlloc", 12345)
    with pytest.raises(ExecutionError, match=r"CUDA error 12345: no meaning is known"):
        load()


@scenario
def a_lost_device_ends_in_an_error() -> None:
    fail_in_a_round("run", 46, r"CUDA_ERROR_DEVICE_UNAVAILABLE: another process holds the GPU")


@scenario
def a_round_that_never_ends_ends_in_an_error() -> None:
    runtime, device = load(options=DeviceOptions(round_limit_s=0.05))
    run(runtime, "initialize.b4", admitted(0))
    device.standin.fail("hang", 1)
    message = r"round 2: hasn't ended after"
    with pytest.raises(ExecutionError, match=message):
        run(runtime, "prefill.p8", prompt(0, (4,)))
    fails_for_good(runtime, device, message)
    # What a running kernel may still use stays.
    assert device.standin.taken_nbytes > 0
    assert not device.standin.violations, device.standin.violations


@scenario
def a_round_without_its_record_ends_in_an_error() -> None:
    runtime, device = load()
    device._rounds.clear()
    device.standin.on_round(lambda: None)
    # Where nobody releases anything.
    device._watch.word = memoryview(bytearray(8)).cast("q")
    runtime.submit(Round(0, (admitted(0),)))
    with pytest.raises(ExecutionError, match=r"ended without releasing its sequence"):
        runtime.wait(1, 1000)
    runtime.close()


@scenario
def an_error_while_weights_travel_ends_the_start() -> None:
    Standin().fail("cuMemcpyHtoDAsync", 719)
    with pytest.raises(ExecutionError, match=r"copying (weights|tables): CUDA_ERROR_LAUNCH"):
        load()
