"""What tests of several ranks on GPUs do, each in a process of its own that has the stand-in, with
two GPUs, for its driver. `test_cuda_device` runs them all, as those of `scenarios`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from helios.errors import ExecutionError
from helios.runtime import Capacities, DeviceOptions, NativeModel
from helios.runtime.devices.cuda import device as cuda_device
from helios.runtime.devices.cuda import draining
from helios.runtime.every_program import run_every_program
from helios.runtime.rank_group import RankGroup
from helios.runtime.rounds import Round
from tests.core.sample_core import KEY
from tests.ranked_cores import write_ranked_core
from tests.runtime.cuda.loaded import SMALL
from tests.runtime.test_model_runtime import (
    admitted,
    core_with_programs,
    next_token,
    prompt,
    run,
    step,
)
from tests.runtime.test_native_model import opened
from tests.standin_driver.control import Standin
from tests.standin_driver.cuda_core import write_cuda_core
from tests.standin_driver.cuda_manifest import TARGET
from tests.standin_driver.played import PlayedCudaDevice

SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


def load(options: DeviceOptions | None = None, capacities: Capacities = SMALL) -> NativeModel:
    """The sample core with two ranks."""
    cuda_device.CudaDevice = PlayedCudaDevice  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cpu = opened(core_with_programs(folder / "cpu"))
        one = opened(write_cuda_core(cpu, folder / "one", KEY))
        two = opened(write_ranked_core(one, folder / "two", KEY))
        return NativeModel.load(two, target=TARGET, options=options, capacities=capacities)


def group(model: NativeModel) -> RankGroup:
    assert isinstance(model.runtime, RankGroup)
    return model.runtime


@contextmanager
def nothing_left() -> Iterator[Standin]:
    """Nothing is done that the driver forbids, and no memory stays."""
    standin = Standin()
    yield standin
    assert standin.taken_nbytes == 0
    assert not standin.violations, standin.violations


@scenario
def two_gpus_give_the_reference_s_tokens() -> None:
    with nothing_left() as standin:
        model = load()
        runtime = group(model)
        first, second = (rank._device for rank in model.ranks)
        assert isinstance(first, PlayedCudaDevice)
        assert isinstance(second, PlayedCudaDevice)
        assert int(first._gpu.device) == 0
        assert int(second._gpu.device) == 1
        assert first._arenas is not None
        assert second._arenas is not None
        assert not set(first._arenas.addresses) & set(second._arenas.addresses)
        taken = standin.allocating_calls
        run(runtime, "initialize.b4", admitted(0), admitted(1))
        answer = run(runtime, "prefill.p8", prompt(0, (4, 9)), prompt(1, (7,)))
        assert [lane.tokens for lane in answer.lanes] == [(next_token(9),), (next_token(7),)]
        for rank in model.ranks:
            assert rank.read_buffer("in.tokens")[:3].tolist() == [4, 9, 7]
        token = next_token(9)
        for position in range(2, 5):
            lanes = run(runtime, "decode.b1", step(0, position)).lanes
            token = next_token(token)
            assert lanes[0].tokens == (token,)
        run_every_program(runtime)
        assert standin.allocating_calls == taken, "memory was taken while rounds ran"
        assert runtime.geometry.kernel_path == "cuda/sm_90"
        model.close()
        model.close()


@scenario
def pages_are_copied_beside_rounds_by_other_threads() -> None:
    with nothing_left():
        model = load()
        runtime = group(model)
        content, page = runtime.cache_content, 64
        nbytes = content.page_nbytes
        assert nbytes == 2 * page
        rows = np.random.default_rng(5).integers(0, 256, nbytes, np.uint8).tobytes()
        run(runtime, "initialize.b4", admitted(0))
        with ThreadPoolExecutor(1) as pool:
            for number in range(4):
                content.write_page(number, rows)
                sequence = runtime.submit(Round(1, (prompt(0, (4, 5), 1),)))
                assert bytes(pool.submit(content.read_page, number).result()) == rows
                assert runtime.wait(sequence, 1000)
                assert runtime.read(sequence).lanes[0].slot == 0
        assert bytes(model.ranks[1].cache_content.read_page(2)) == rows[page:]
        model.close()


@scenario
def rounds_run_in_a_thread_that_didn_t_load() -> None:
    """As the worker's does in the engine's process."""
    with nothing_left(), ThreadPoolExecutor(1) as pool:
        model = load()
        pool.submit(run, group(model), "initialize.b4", admitted(0)).result()
        answer = run(group(model), "prefill.p8", prompt(0, (4,)))
        assert answer.lanes[0].tokens == (next_token(4),)
        pool.submit(model.close).result()


@scenario
def too_few_gpus_are_refused_before_anything_is_taken() -> None:
    for ordinal, message in (
        (1, r"target cuda:sm_90: its 2 ranks need a GPU each, from GPU 1 on: 3 in all; .* sees 2"),
        (7, r"from GPU 7 on: 9 in all; the driver sees 2"),
    ):
        with pytest.raises(ExecutionError, match=message):
            load(DeviceOptions(ordinal=ordinal))
    assert Standin().allocating_calls == 0


@scenario
def one_gpu_is_too_few() -> None:
    with pytest.raises(ExecutionError, match=r"its 2 ranks need a GPU each; the driver sees 1\. "):
        load()
    assert Standin().allocating_calls == 0


def ends(model: NativeModel, message: str) -> None:
    """Every call raises the same from now on."""
    runtime = group(model)
    for call in (
        lambda: runtime.completed(2),
        lambda: runtime.wait(2, 1000),
        lambda: runtime.submit(Round(0, (admitted(1),))),
    ):
        with pytest.raises(ExecutionError, match=message):
            call()


def fail_on(rank: int, call: str, error: int, message: str) -> None:
    model = load()
    run(group(model), "initialize.b4", admitted(0))
    Standin().fail(f"{call}@{rank}", error)
    with pytest.raises(ExecutionError, match=message):
        run(group(model), "prefill.p8", prompt(0, (4,)))
    ends(model, message)
    model.close()
    model.close()


@scenario
def an_illegal_address_on_the_second_gpu_ends_both() -> None:
    fail_on(1, "run", 700, r"^rank 1, GPU, running round 2: CUDA_ERROR_ILLEGAL_ADDRESS")


@scenario
def an_illegal_address_on_the_first_gpu_ends_both() -> None:
    fail_on(0, "run", 700, r"^rank 0, GPU, running round 2: CUDA_ERROR_ILLEGAL_ADDRESS")


@scenario
def a_refused_launch_on_the_second_gpu_ends_both() -> None:
    message = r"^rank 1, round 2: .*submitting round 2: CUDA_ERROR_INVALID_VALUE"
    fail_on(1, "cuGraphLaunch", 1, message)


@scenario
def a_gpu_that_waits_for_one_that_failed_hides_nothing() -> None:
    model = load()
    run(group(model), "initialize.b4", admitted(0))
    standin = Standin()
    standin.pause(True, 0)
    standin.fail("run@1", 719)
    message = r"^rank 1, GPU, running round 2: CUDA_ERROR_LAUNCH_FAILED"
    with pytest.raises(ExecutionError, match=message):
        run(group(model), "prefill.p8", prompt(0, (4,)))
    ends(model, message)
    standin.pause(False, 0)
    model.close()


@scenario
def a_round_that_never_ends_on_one_gpu_ends_both() -> None:
    model = load(DeviceOptions(round_limit_s=0.1))
    run(group(model), "initialize.b4", admitted(0))
    Standin().fail("hang@1", 1)
    message = r"^rank 1, round 2: hasn't ended after 0\.1 s"
    with pytest.raises(ExecutionError, match=message):
        run(group(model), "prefill.p8", prompt(0, (4,)))
    ends(model, message)
    model.close()


class PlayedTime:
    """Stands for `time` where a device drains: sleeping takes no time of its own."""

    def __init__(self) -> None:
        self.began_ns = self.now_ns = time.monotonic_ns()

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    @property
    def slept_s(self) -> float:
        return (self.now_ns - self.began_ns) / 1e9


def slept_while_closing(model: NativeModel) -> float:
    """Seconds."""
    played = PlayedTime()
    draining.time = played  # type: ignore[assignment]
    model.close()
    return played.slept_s


def stuck(limit_s: float) -> NativeModel:
    """A round runs on both GPUs, and ends on none."""
    model = load(DeviceOptions(round_limit_s=limit_s))
    run(group(model), "initialize.b4", admitted(0))
    for device in range(2):
        Standin().pause(True, device)
    group(model).submit(Round(1, (prompt(0, (4,)),)))
    return model


def close_after_a_refused_launch(rank: int) -> None:
    model = stuck(limit_s=600)
    Standin().fail(f"cuGraphLaunch@{rank}", 2)
    message = rf"^rank {rank}, round 3: .*CUDA_ERROR_OUT_OF_MEMORY"
    with pytest.raises(ExecutionError, match=message):
        group(model).submit(Round(0, (admitted(1),)))
    ends(model, message)
    assert 4 < slept_while_closing(model) < 6
    assert not Standin().violations, Standin().violations


@scenario
def gpus_that_are_stuck_are_waited_for_briefly_once_one_has_failed() -> None:
    close_after_a_refused_launch(1)


@scenario
def gpus_that_are_stuck_are_waited_for_briefly_once_the_first_has_failed() -> None:
    close_after_a_refused_launch(0)


@scenario
def gpus_that_are_stuck_have_one_limit_together() -> None:
    assert 500 < slept_while_closing(stuck(limit_s=600)) < 700


@scenario
def a_gpu_that_can_t_load_is_named_and_both_are_given_back() -> None:
    with nothing_left() as standin:
        standin.fail("cuMemAlloc@1", 2, 2)
        with pytest.raises(ExecutionError, match=r"^rank 1, GPU memory for \w+: its \d+ bytes"):
            load()
        standin.fail("cuGraphInstantiate@1", 2, 4)
        with pytest.raises(ExecutionError, match=r"^rank 1, .*instantiating program"):
            load()
        standin.fail("cuDevicePrimaryCtxRetain@1", 46)
        with pytest.raises(ExecutionError, match=r"^rank 1, .*DEVICE_UNAVAILABLE"):
            load()


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
