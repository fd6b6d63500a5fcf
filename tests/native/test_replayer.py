"""Queueing, completion, timing and the end of the replayer's threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from helios import _native
from tests.native.harness import INSTRUCTION_SETS, GuardedArray, Launch, Placement, add_program

Memory = dict[str, GuardedArray]


def scatter_to(target: GuardedArray, value: int, index: int = 0) -> tuple[Launch, Memory]:
    """A launch that stores one number, and the memory that it needs."""
    arrays = {
        "rows": np.array([1], np.int32),
        "index": np.array([index], np.int32),
        "value": np.array([value], np.int32),
    }
    memory = {name: GuardedArray(a, Placement.BEFORE_GUARD) for name, a in arrays.items()}
    memory["target"] = target
    spans = {name: (guarded.address, guarded.nbytes) for name, guarded in memory.items()}
    return ("scatter_i32", spans, {"capacity": 1}, {}), memory


@pytest.fixture
def target() -> GuardedArray:
    return GuardedArray(np.zeros(4, np.int32), Placement.BEFORE_GUARD)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_submissions_run_one_after_the_other(target: GuardedArray, threads: int) -> None:
    replayer = _native.Replayer(threads, "portable")
    for value in range(20):
        launch, memory = scatter_to(target, value)
        assert add_program(replayer, [launch], memory) == value
    for sequence in range(1, 201):
        replayer.submit(sequence % 20, sequence)
    assert replayer.wait(200, 60_000)
    assert replayer.completed() == 200
    assert replayer.launches() == 200
    assert target.array[0] == 200 % 20
    starts_and_ends = [replayer.timing(sequence) for sequence in range(1, 201)]
    flat = [moment for pair in starts_and_ends for moment in pair]
    assert flat == sorted(flat)
    replayer.close()


def test_launches_of_a_program_run_in_order(target: GuardedArray) -> None:
    replayer = _native.Replayer(2, INSTRUCTION_SETS[0])
    launches, memories = zip(*(scatter_to(target, value) for value in range(50)), strict=True)
    replayer.submit(add_program(replayer, launches, memories), 1)
    assert replayer.wait(1, 60_000)
    assert target.array[0] == 49
    assert replayer.launches() == 50
    replayer.close()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_launches_read_what_those_before_them_wrote(threads: int) -> None:
    # Two launches in turn, each cut into pieces: a -= b turned by one column, b += a turned back.
    # They make three pairs of a and b, then the same three negated, over and over: a piece that
    # began early or ran twice would show for good. The queue goes round more than once.
    width, rows, rounds = 256, 12, 100
    turned = np.roll(np.eye(width, dtype=np.float32), 1, axis=0)
    rng = np.random.default_rng(0)
    first = rng.integers(-1000, 1000, (2, rows, width)).astype(np.float32)
    arrays = {
        "rows": np.array([rows], np.int32),
        "a": first[0],
        "b": first[1],
        # Tiles of sixteen outputs: [tile][width][output].
        "turn": -turned.T.reshape(width, -1, 16).swapaxes(0, 1),
        "back": turned.reshape(width, -1, 16).swapaxes(0, 1),
    }
    memory = {name: GuardedArray(a, Placement.BEFORE_GUARD) for name, a in arrays.items()}
    spans = {name: (guarded.address, guarded.nbytes) for name, guarded in memory.items()}
    integers = {"capacity": rows, "width": width, "outputs": width, "packing": 2, "format": 0}

    def add(out: str, x: str, weight: str) -> Launch:
        operands = {"rows": spans["rows"], "x": spans[x], "weight": spans[weight]}
        return ("linear", {**operands, "out": spans[out]}, {**integers, "accumulate": 1}, {})

    pair = [add("a", "b", "turn"), add("b", "a", "back")]
    replayer = _native.Replayer(threads, INSTRUCTION_SETS[0])
    programs = [add_program(replayer, pair * count, memory) for count in (1, 9)]
    a, b = first
    sequence = 0
    for _ in range(rounds):
        for program, count in zip(programs, (1, 9), strict=True):
            for _ in range(3):
                sequence += 1
                replayer.submit(program, sequence)
                for _ in range(count):
                    a = a - np.roll(b, 1, axis=1)
                    b = b + np.roll(a, -1, axis=1)
        assert replayer.wait(sequence, 60_000)
        np.testing.assert_array_equal(memory["a"].array, a)
        np.testing.assert_array_equal(memory["b"].array, b)
    replayer.close()


def test_launches_are_counted_while_a_program_runs(target: GuardedArray) -> None:
    count = 200_000
    replayer = _native.Replayer(1, "portable")
    launch, memory = scatter_to(target, 1)
    program = add_program(replayer, [launch] * count, memory)
    seen: set[int] = set()
    # Whoever looks may be kept from it until a program is over, but hardly every time.
    for sequence in range(1, 101):
        replayer.submit(program, sequence)
        while replayer.completed() < sequence:
            seen.add(replayer.launches() - (sequence - 1) * count)
        assert replayer.launches() == sequence * count
        if seen - {0, count}:
            break
    assert seen - {0, count}
    assert all(0 <= launches <= count for launches in seen)
    replayer.close()


def test_timing_is_on_the_monotonic_clock(target: GuardedArray) -> None:
    replayer = _native.Replayer(2, "portable")
    launch, memory = scatter_to(target, 1)
    program = add_program(replayer, [launch], memory)
    before = time.monotonic_ns()
    for sequence in range(1, 301):
        replayer.submit(program, sequence)
        assert replayer.wait(sequence, 60_000)
    after = time.monotonic_ns()
    start, end = replayer.timing(300)
    assert before <= start <= end <= after
    replayer.timing(45)
    for unknown in (0, 44, 301):
        with pytest.raises(ValueError, match="isn't one of the last 256"):
            replayer.timing(unknown)
    replayer.close()


def test_an_empty_program_completes() -> None:
    replayer = _native.Replayer(2, "portable")
    replayer.submit(add_program(replayer, []), 1)
    assert replayer.wait(1, 60_000)
    replayer.close()


def test_waiting_for_what_never_comes_times_out() -> None:
    replayer = _native.Replayer(1, "portable")
    assert not replayer.wait(1, 1)
    assert replayer.wait(0, 0)
    replayer.close()


def test_misuse_is_refused(target: GuardedArray) -> None:
    with pytest.raises(ValueError, match="threads must lie between 1 and 1024, 0 given"):
        _native.Replayer(0, "portable")
    with pytest.raises(ValueError, match='instruction set "sse9" is unknown here'):
        _native.Replayer(1, "sse9")
    replayer = _native.Replayer(1, "portable")
    launch, memory = scatter_to(target, 1)
    program = add_program(replayer, [launch], memory)
    with pytest.raises(ValueError, match="program 1 isn't registered"):
        replayer.submit(1, 1)
    with pytest.raises(ValueError, match="sequence 1 comes next, 2 given"):
        replayer.submit(program, 2)
    replayer.close()
    replayer.close()
    with pytest.raises(RuntimeError, match="closed"):
        replayer.submit(program, 1)


def test_a_full_queue_is_refused_until_something_completes(target: GuardedArray) -> None:
    replayer = _native.Replayer(2, "portable")
    launch, memory = scatter_to(target, 1)
    program = add_program(replayer, [launch] * 5000, memory)
    sequence = 0
    refusal = ""
    while not refusal:
        try:
            replayer.submit(program, sequence + 1)
            sequence += 1
        except RuntimeError as error:
            refusal = str(error)
    assert "256 submissions are outstanding" in refusal
    assert sequence >= 256
    assert replayer.wait(sequence, 60_000)
    replayer.submit(program, sequence + 1)
    replayer.close()
    assert replayer.completed() == sequence + 1


WITHOUT_MEMORY_FOR_SCRATCH = """
import resource
import numpy as np
from helios import _native
from tests.native.cases import EVERY_KERNEL
from tests.native.harness import add_program

case = EVERY_KERNEL["sample_greedy"](np.random.default_rng(1))
spans = dict.fromkeys(case.operands, (4096, 2**48))
replayer = _native.Replayer(2, "portable")
large = {**case.integers, "vocab": 1 << 22, "stride": 1 << 22}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), used + (100 << 20)))
try:
    add_program(replayer, [(case.kernel, spans, large, case.floats)])
except RuntimeError as error:
    print(error)
replayer.submit(add_program(replayer, []), 1)
print(replayer.wait(1, 60_000), replayer.scratch_nbytes())
"""


@pytest.mark.skipif(
    any(name in os.environ.get("LD_PRELOAD", "") for name in ("libasan", "libtsan")),
    reason="a limit of the address space leaves no room for the sanitizer's shadow memory",
)
def test_scratch_that_cant_be_had_is_an_error_before_anything_runs() -> None:
    done = run_python(WITHOUT_MEMORY_FOR_SCRATCH)
    first, second = done.stdout.splitlines()
    assert first.startswith("no memory for ")
    assert first.endswith(" bytes of scratch for each of 2 threads")
    assert (done.returncode, second, done.stderr) == (0, "True 0", "")


def test_no_program_is_added_while_one_runs(target: GuardedArray) -> None:
    replayer = _native.Replayer(2, "portable")
    launch, memory = scatter_to(target, 1)
    program = add_program(replayer, [launch] * 50_000, memory)
    for sequence in range(1, 101):
        replayer.submit(program, sequence)
    with pytest.raises(RuntimeError, match="while a submission is outstanding"):
        add_program(replayer, [])
    assert replayer.wait(100, 60_000)
    assert add_program(replayer, []) == 1
    replayer.close()


def test_broken_launch_lists_are_refused() -> None:
    replayer = _native.Replayer(1, "portable")
    none = np.zeros(0, np.int64)

    def add(kernels: list[int], operand_starts: list[int], addresses: int = 0) -> None:
        replayer.add_program(
            np.array(kernels, np.int32),
            np.array(operand_starts, np.int32),
            np.zeros(addresses, np.uint64),
            np.zeros(addresses, np.uint64),
            np.zeros(len(kernels) + 1, np.int32),
            none,
            np.zeros(len(kernels) + 1, np.int32),
            np.zeros(0, np.float64),
        )

    count = len(_native.catalogue())
    with pytest.raises(ValueError, match=f"kernel {count} isn't in the catalogue"):
        add([count], [0, 0])
    with pytest.raises(ValueError, match="kernel -1 isn't in the catalogue"):
        add([-1], [0, 0])
    with pytest.raises(ValueError, match=r"launch 0 \(scatter_i32\): 4 operands expected, 3"):
        add([0], [0, 3], 3)
    with pytest.raises(ValueError, match=r"launch 0 \(scatter_i32\): 1 integers expected, 0"):
        add([0], [0, 4], 4)
    for starts in ([0], [1, 4], [0, 5], [4, 0], [0, 4, 4]):
        with pytest.raises(ValueError, match="operand_starts must ascend"):
            add([0], starts, 4)
    replayer.close()


def test_closing_finishes_what_is_queued(target: GuardedArray) -> None:
    replayer = _native.Replayer(2, "portable")
    launch, memory = scatter_to(target, 77)
    program = add_program(replayer, [launch] * 1000, memory)
    for sequence in range(1, 101):
        replayer.submit(program, sequence)
    replayer.close()
    assert replayer.completed() == 100
    assert replayer.launches() == 100_000
    assert target.array[0] == 77


# The list of owners is older than what refers to it, so the collector empties it first.
GARBAGE_WITH_WORK_QUEUED = """
import gc
import numpy as np
from helios import _native
from tests.native.test_replayer import scatter_to
from tests.native.harness import GuardedArray, Placement, add_program

class Holder:
    pass

def leave_garbage():
    owners = []
    holder = Holder()
    holder.itself, holder.owners = holder, owners
    holder.replayer = _native.Replayer(2, "portable")
    launch, memory = scatter_to(GuardedArray(np.zeros(4, np.int32), Placement.BEFORE_GUARD), 1)
    owners.append(memory)
    program = add_program(holder.replayer, [launch] * 20000, owners)
    for sequence in range(1, 101):
        holder.replayer.submit(program, sequence)

gc.disable()
leave_garbage()
gc.collect()
print("collected")
"""


def test_what_owns_the_memory_outlives_the_threads() -> None:
    done = run_python(GARBAGE_WITH_WORK_QUEUED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "collected\n", "")


def test_what_owns_the_memory_is_let_go_when_the_replayer_is_closed(target: GuardedArray) -> None:
    replayer = _native.Replayer(1, "portable")
    launch, memory = scatter_to(target, 1)
    kept = weakref.ref(memory["value"])
    replayer.submit(add_program(replayer, [launch], memory), 1)
    del memory
    assert kept() is not None
    replayer.close()
    assert kept() is None


def test_several_threads_may_close(target: GuardedArray) -> None:
    replayer = _native.Replayer(2, "portable")
    launch, memory = scatter_to(target, 3)
    program = add_program(replayer, [launch] * 1000, memory)
    for sequence in range(1, 101):
        replayer.submit(program, sequence)
    with ThreadPoolExecutor(8) as pool:
        completed = pool.map(lambda _: (replayer.close(), replayer.completed())[1], range(8))
    assert list(completed) == [100] * 8


LEAVES_WITH_WORK_QUEUED = """
import numpy as np
from helios import _native
from tests.native.test_replayer import scatter_to
from tests.native.harness import GuardedArray, Placement, add_program

target = GuardedArray(np.zeros(4, np.int32), Placement.BEFORE_GUARD)
launch, memory = scatter_to(target, 1)
replayer = _native.Replayer(2, "portable")
program = add_program(replayer, [launch] * 20000, memory)
for sequence in range(1, 101):
    replayer.submit(program, sequence)
print("leaving")
"""


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    return subprocess.run(
        [sys.executable, "-c", source],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_interpreter_can_end_with_work_queued() -> None:
    done = run_python(LEAVES_WITH_WORK_QUEUED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


def test_threads_have_names() -> None:
    replayer = _native.Replayer(2, "portable")
    replayer.submit(add_program(replayer, []), 1)
    assert replayer.wait(1, 60_000)
    names = {
        task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()
    }
    assert {"helios-pool-0", "helios-pool-1"} <= names
    replayer.close()


IN_A_FORK = """
import os
from helios import _native
from tests.native.harness import add_program

replayer = _native.Replayer(2, "portable")
program = add_program(replayer, [])
replayer.submit(program, 1)
assert replayer.wait(1, 60_000)
child = os.fork()
if child == 0:
    for call in (lambda: replayer.submit(program, 2), lambda: replayer.wait(1, 1),
                 replayer.completed, lambda: add_program(replayer, [])):
        try:
            call()
        except RuntimeError as error:
            assert f"belongs to process {os.getppid()}, of which" in str(error)
        else:
            raise AssertionError("worked in a fork")
    replayer.close()
    del replayer
    raise SystemExit(7)  # through the interpreter's own end
_, status = os.waitpid(child, 0)
replayer.submit(program, 2)
print(os.waitstatus_to_exitcode(status), replayer.wait(2, 60_000))
"""


def test_a_fork_can_neither_use_a_replayer_nor_hang_on_it() -> None:
    done = run_python(IN_A_FORK)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 True\n", "")
