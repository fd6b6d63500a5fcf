"""What tests of the cuda device do, each in a process of its own that has the stand-in for its
driver: `python -m tests.runtime.cuda.scenarios NAME`. `test_cuda_device` runs them all."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import numpy as np
import pytest

from helios.contract import decode
from helios.errors import ContractError, ExecutionError
from helios.runtime.capacities import Capacities
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cuda import device as cuda_device
from helios.runtime.devices.cuda import transfers
from helios.runtime.devices.opening import open_device
from helios.runtime.every_program import run_every_program
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import Completion, LaneWork, Round
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest, sample_weights
from tests.runtime.test_model_runtime import admitted, next_token, prompt, step
from tests.standin_driver.control import Standin
from tests.standin_driver.cubins import cubin
from tests.standin_driver.cuda_manifest import TARGET, TRANSPORT, WORK, as_cuda
from tests.standin_driver.played import PlayedCudaDevice

SCENARIOS: dict[str, Callable[[], None]] = {}
SMALL = Capacities(cache_nbytes=1 << 16)


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


def load(
    *,
    options: DeviceOptions | None = None,
    capacities: Capacities = SMALL,
    change: Callable[[dict[str, bytes]], None] | None = None,
    device: type[PlayedCudaDevice] = PlayedCudaDevice,
) -> tuple[ModelRuntime, PlayedCudaDevice]:
    message, modules = as_cuda(sample_manifest())
    if change is not None:
        change(modules)
    manifest = decode_manifest(message)
    played = device(TARGET, options or DeviceOptions(), manifest.cuda, modules)
    runtime = ModelRuntime.from_parts(
        decode(sample_contract()),
        message,
        sample_weights(),
        target=TARGET,
        capacities=capacities,
        device=played,
    )
    return runtime, played


def run(runtime: ModelRuntime, name: str, *lanes: LaneWork) -> Completion:
    program = next(p.index for p in runtime.geometry.programs if p.name == name)
    sequence = runtime.submit(Round(program, lanes))
    assert runtime.wait(sequence, 10_000)
    return runtime.read(sequence)


# ---------------------------------------------------------------- rounds


@scenario
def rounds_give_the_reference_s_tokens() -> None:
    runtime, device = load()
    assert runtime.geometry.kernel_path == "cuda/sm_90"
    taken = device.standin.allocating_calls
    run(runtime, "initialize.b4", admitted(0), admitted(1))
    first = run(runtime, "prefill.p8", prompt(0, (4, 9)), prompt(1, (7,)))
    assert [lane.tokens for lane in first.lanes] == [(next_token(9),), (next_token(7),)]
    token = next_token(9)
    for position in range(2, 5):
        lanes = run(runtime, "decode.b1", step(0, position)).lanes
        token = next_token(token)
        assert lanes[0].tokens == (token,)
    run_every_program(runtime)
    assert device.standin.allocating_calls == taken, "memory was taken while rounds ran"
    runtime.close()
    runtime.close()
    assert device.standin.taken_nbytes == 0
    assert not device.standin.violations, device.standin.violations


@scenario
def inputs_that_are_read_in_place_reach_their_frame() -> None:
    transfers.IN_PLACE_NBYTES = 12  # type: ignore[misc]
    rounds_give_the_reference_s_tokens()


@scenario
def two_rounds_wait_and_keep_their_frames() -> None:
    runtime, device = load()
    run(runtime, "initialize.b4", admitted(0), admitted(1))
    device.standin.pause(True)
    first = runtime.submit(Round(1, (prompt(0, (4,)),)))
    second = runtime.submit(Round(1, (prompt(1, (5,)),)))
    assert not runtime.can_submit()
    assert not runtime.wait(first, 1)
    assert not runtime.completed(first)
    with pytest.raises(ExecutionError, match="a round is still running"):
        runtime.read_buffer("logits")
    device.standin.pause(False)
    assert runtime.wait(second, 1000)
    assert runtime.read(first).lanes[0].tokens == (next_token(4),)
    assert runtime.read(second).lanes[0].tokens == (next_token(5),)
    runtime.close()
    assert not device.standin.violations, device.standin.violations


@scenario
def rounds_are_timed_on_the_host_s_clock() -> None:
    import time

    runtime, _ = load()
    last = 0
    for number in range(300):
        before = time.monotonic_ns()
        done = run(runtime, "initialize.b4", admitted(number % 4))
        assert before <= done.started_ns <= done.completed_ns <= time.monotonic_ns()
        assert last <= done.started_ns
        last = done.completed_ns
    assert runtime.timing(300) == (done.started_ns, done.completed_ns)
    for sequence in (44, 301):
        with pytest.raises(ExecutionError, match="not among the last 256"):
            runtime.timing(sequence)
    runtime.close()


@scenario
def rows_are_read_and_written() -> None:
    runtime, device = load()
    index = {buffer.name: i for i, buffer in enumerate(runtime._manifest.buffers)}
    plane = index["cache.k.0"]
    nbytes = device.row_nbytes(plane)
    assert nbytes == 2 * 4 * 4
    content = np.random.default_rng(3).integers(0, 256, 3 * nbytes, np.uint8)
    device.write_rows(plane, 2, content)
    back = np.zeros_like(content)
    device.read_rows(plane, 2, back)
    assert np.array_equal(back, content)
    around = np.zeros(5 * nbytes, np.uint8)
    device.read_rows(plane, 1, around)
    assert not around[:nbytes].any()
    assert not around[-nbytes:].any()
    strided = np.zeros(2 * nbytes, np.uint8)[::2]
    device.read_rows(plane, 3, strided)
    assert np.array_equal(strided, content[nbytes : 2 * nbytes])
    values = device.read_buffer(plane, 0)
    assert values.dtype == np.float32
    assert np.array_equal(
        values[2].reshape(-1), content[:nbytes].view(np.float16).astype(np.float32), equal_nan=True
    )
    page = runtime.cache_content.read_page(3)
    runtime.cache_content.write_page(1, page)
    assert bytes(runtime.cache_content.read_page(1)) == bytes(page)
    runtime.close()
    assert not device.standin.violations, device.standin.violations


@scenario
def weights_arrive_whole() -> None:
    from helios.runtime.devices.cuda import weights as uploading

    uploading.PIECE_NBYTES = 100  # type: ignore[misc]
    runtime, device = load()
    back = np.zeros(len(sample_weights()["weights"]), np.uint8)
    assert device._arenas is not None
    device._copy(back, device._arenas.resource_addresses["weights"], to_gpu=False)
    assert back.tobytes() == bytes(sample_weights()["weights"])
    runtime.close()


# ---------------------------------------------------------------- loading


@scenario
def memory_is_said_before_it_is_taken() -> None:
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "GPU memory" in record.getMessage():
                lines.append(f"{Standin().taken_nbytes} {record.getMessage()}")

    logging.getLogger("helios").addHandler(Listener())
    logging.getLogger("helios").setLevel(logging.INFO)
    runtime, _ = load()
    (line,) = lines
    assert line.startswith("0 GPU memory: "), line
    for part in ("cache 64.0 KiB", "weight 2.0 KiB", "1.00 GiB free on Stand-in"):
        assert part in line, line
    memory = runtime.memory
    assert memory["cache"] == 64 << 10
    assert memory["scratch"] > 0
    runtime.close()


@scenario
def the_cache_takes_its_share_of_what_is_free() -> None:
    runtime, _ = load(capacities=Capacities())
    free = 4 << 20  # STANDIN_MEMORY
    beside = sum(n for kind, n in runtime.memory.items() if kind not in ("cache", "scratch"))
    share = runtime.memory["cache"] / (free - beside)
    assert 0.89 < share <= 0.9, share
    runtime.close()
    half, _ = load(capacities=Capacities(cache_share=0.5))
    assert 0.49 < half.memory["cache"] / (free - beside) <= 0.5
    half.close()


@scenario
def a_model_that_the_gpu_has_no_room_for_is_refused() -> None:
    with pytest.raises(ContractError, match=r"cache size: 1\.00 TiB asked for, .* --cache-memory"):
        load(capacities=Capacities(cache_nbytes=1 << 40))
    assert Standin().taken_nbytes == 0


@scenario
def memory_that_isn_t_free_after_all_names_class_and_option() -> None:
    Standin().fail("cuMemAlloc", 2, 5)
    with pytest.raises(
        ExecutionError,
        match=r"GPU memory for cache: its 65536 bytes aren't free: \d+ are\. .*--cache-memory",
    ):
        load()
    assert Standin().taken_nbytes == 0


@scenario
def pinned_memory_that_can_t_be_had_is_named() -> None:
    Standin().fail("cuMemHostAlloc", 2)
    with pytest.raises(ExecutionError, match=r"the frames of rounds: .* can't be pinned.*ulimit"):
        load()
    assert Standin().taken_nbytes == 0


@scenario
def functions_that_take_other_parameters_are_refused() -> None:
    def shifted(modules: dict[str, bytes]) -> None:
        modules[TRANSPORT] = cubin({"stage": (8, 8, 8, 4), "record": (8,) * 7})

    with pytest.raises(ContractError, match=r"cuda\.stage: function 'stage' takes parameters"):
        load(change=shifted)

    def missing(modules: dict[str, bytes]) -> None:
        modules[WORK] = cubin({"another": (8,)})

    with pytest.raises(
        ContractError, match=r"program initialize\.b4, launch 0: module 'module\.work' has no"
    ):
        load(change=missing)

    def foreign(modules: dict[str, bytes]) -> None:
        modules[WORK] = cubin({"another": (8,)}, capability=80)

    with pytest.raises(ContractError, match=r"module 'module\.work': .*NO_BINARY_FOR_GPU"):
        load(change=foreign)

    def absent(modules: dict[str, bytes]) -> None:
        del modules[WORK]

    with pytest.raises(ContractError, match=r"module 'module\.work': is not among"):
        load(change=absent)
    assert Standin().taken_nbytes == 0
    assert not Standin().violations, Standin().violations


@scenario
def graphs_that_can_t_be_made_name_their_program() -> None:
    Standin().fail("cuGraphInstantiate", 2, 4)
    with pytest.raises(ExecutionError, match=r"instantiating program prefill\.p8.*OUT_OF_MEMORY"):
        load()
    Standin().fail("cuGraphAddNode", 1, 4)
    with pytest.raises(
        ExecutionError, match=r"building program prefill\.p8, node 0: .*\(function stage"
    ):
        load()
    assert Standin().taken_nbytes == 0
    assert not Standin().violations, Standin().violations


# ---------------------------------------------------------------- failures


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
    with pytest.raises(ExecutionError, match=r"copying weights: CUDA_ERROR_LAUNCH_FAILED"):
        load()


# ---------------------------------------------------------------- what may be missing


@scenario
def a_gpu_of_another_capability_is_refused() -> None:
    with pytest.raises(
        ExecutionError,
        match=r"cuda:sm_90 is for compute capability 9\.0, and GPU 0 \(Stand-in\) has 8\.0",
    ):
        load()


@scenario
def an_ordinal_without_a_gpu_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"there is no GPU 3; the driver sees 1\. .*--device"):
        load(options=DeviceOptions(ordinal=3))


@scenario
def a_machine_without_a_gpu_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"sees no GPU\. Look at nvidia-smi"):
        load()


@scenario
def a_machine_without_the_driver_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"there is no NVIDIA driver: libcuda\.so\.1"):
        cuda_device.CudaDevice(
            TARGET, DeviceOptions(), decode_manifest(as_cuda(sample_manifest())[0]).cuda, {}
        )


@scenario
def bindings_that_are_missing_or_of_another_version_are_named() -> None:
    import cuda.bindings

    from helios.runtime.devices.cuda.driver import bindings

    cuda.bindings.__version__ = "12.8.0"
    with pytest.raises(
        ExecutionError, match=r"cuda-bindings is 12\.8\.0, and this Helios calls 13"
    ):
        open_device(TARGET, DeviceOptions(), decode_manifest(as_cuda(sample_manifest())[0]).cuda)
    for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
        del sys.modules[name]
    sys.modules["cuda.bindings"] = None  # type: ignore[assignment]
    with pytest.raises(ExecutionError, match=r"pip install 'helios-serve\[cuda\]'"):
        bindings()


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
