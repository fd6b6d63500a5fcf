"""Rounds over the stand-in driver: what they compute, move and are given, and their end."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from helios.errors import ExecutionError
from helios.runtime.devices.cuda import transfers
from helios.runtime.every_program import run_every_program
from helios.runtime.manifest import Operand
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import Round
from tests.runtime.cuda.loaded import load, run, scenario
from tests.runtime.sample_manifest import sample_weights
from tests.runtime.test_model_runtime import admitted, next_token, prompt, step
from tests.standin_driver.played import PlayedCudaDevice


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
    nodes_are_given_what_the_manifest_says()


@scenario
def a_round_is_one_launch_and_takes_nothing() -> None:
    runtime, device = load()
    run(runtime, "initialize.b4", admitted(0))
    run(runtime, "prefill.p8", prompt(0, (4, 9)))
    standin = device.standin
    taken, memory = standin.allocating_calls, standin.taken_nbytes
    standin.forget_calls()
    for position in range(2, 12):
        run(runtime, "decode.b1", step(0, position))
    calls = {name: count for name, count in standin.calls.items() if name.startswith("cu")}
    calls.pop("cuStreamQuery", None)  # where a round takes long
    assert calls == {"cuGraphLaunch": 10}, calls
    assert (standin.allocating_calls, standin.taken_nbytes) == (taken, memory)
    runtime.close()
    assert not standin.violations, standin.violations


@scenario
def other_threads_run_while_a_launch_lasts() -> None:
    runtime, device = load()
    standin = device.standin
    standin.block(True)
    ended = threading.Event()

    def let_go() -> None:
        while not standin.waiting and not ended.is_set():
            pass
        standin.block(False)

    other = threading.Thread(target=let_go)
    other.start()
    run(runtime, "initialize.b4", admitted(0))
    ended.set()
    other.join()
    runtime.close()
    assert not standin.violations, standin.violations


@scenario
def nodes_are_given_what_the_manifest_says() -> None:
    runtime, device = load()
    run(runtime, "initialize.b4", admitted(0))
    run(runtime, "prefill.p8", prompt(0, (4, 9)))
    _check_nodes(runtime, device, "prefill.p8")
    run(runtime, "decode.b1", step(0, 2))
    _check_nodes(runtime, device, "decode.b1")
    runtime.close()


def _check_nodes(runtime: ModelRuntime, device: PlayedCudaDevice, name: str) -> None:
    """The graph that ran last: a program's nodes between stage and record."""
    program = next(p for p in runtime._manifest.programs if p.name == name)
    assert device._arenas is not None
    assert device._frames is not None
    frame = runtime._submitted % 2
    addresses = device._arenas.addresses
    buffers = {buffer.name: index for index, buffer in enumerate(runtime._manifest.buffers)}
    nodes = [node for launch in program.launches for node in launch.nodes]
    for number, node in enumerate(nodes, 1):
        given = device.standin.parameters(number)
        if number == 1:  # one argument of every kind, behind the operands
            *given, count, tensor, rows, columns, stride, one, _, _ = given
            *given, int32, int64, float32 = given
            *given, counters, scratch = given
            word = partial(int.from_bytes, byteorder="little")
            assert word(counters) == addresses[buffers["counters"]]
            assert word(scratch) == addresses[buffers["scratch"]] + 64
            assert (len(int32), word(int32)) == (4, (1 << 32) - 1)
            assert (len(int64), word(int64)) == (8, 1 << 40)
            assert float32 == np.float32(0.5).tobytes()
            assert word(count) == 8  # of 64 bytes each
            assert word(tensor[:8]) == addresses[buffers["scratch"]]
            assert [word(part) for part in (rows, columns, stride, one)] == [8, 32, 32, 1]
        for operand, content in zip(node.arguments, given, strict=False):
            expected = 0
            if isinstance(operand, Operand):
                expected = addresses[operand.buffer]
                if operand.buffer in device._in_place:
                    expected = device._frames.address(operand.buffer, frame)
                expected += operand.byte_offset
            assert int.from_bytes(content, "little") == expected, (name, number, operand)
        assert device.standin.programmatic(number) is node.programmatic, (name, number)
    assert not device.standin.parameters(len(nodes) + 2)


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


@scenario
def closing_waits_for_the_rounds_that_run() -> None:
    runtime, device = load()
    run(runtime, "initialize.b4", admitted(0), admitted(1))
    standin = device.standin
    standin.pause(True)
    runtime.submit(Round(1, (prompt(0, (4,)),)))
    runtime.submit(Round(1, (prompt(1, (5,)),)))
    taken, rounds = standin.taken_nbytes, standin.rounds
    standin.forget_calls()
    closing = threading.Thread(target=runtime.close)
    closing.start()
    while standin.calls.get("cuStreamQuery", 0) < 3:
        closing.join(0.001)
        assert closing.is_alive(), "closed while rounds were queued"
    assert standin.taken_nbytes == taken
    standin.pause(False)
    closing.join()
    assert standin.rounds == rounds + 2
    assert standin.taken_nbytes == 0
    assert not standin.violations, standin.violations
