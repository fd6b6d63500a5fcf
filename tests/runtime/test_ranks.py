"""A core with two ranks, loaded: each rank's resources and memory, rounds in step, what one rank's
failure makes of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from helios.core import OpenedCore
from helios.errors import ContractError, CoreError, ExecutionError
from helios.runtime import Capacities, DeviceOptions, NativeModel
from helios.runtime.device import AvailableMemory, MemoryPlan
from helios.runtime.devices.null import NullDevice
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rank_group import RankGroup, difference
from helios.runtime.rounds import Completion, DeviceFinish, LaneCompletion, LaneError, Round
from helios.schema import execution_pb2
from tests.core.sample_core import KEY
from tests.ranked_cores import ChangeManifest, write_ranked_core
from tests.runtime.test_model_runtime import (
    SECOND_MS,
    admitted,
    core_with_programs,
    next_token,
    prompt,
    step,
)
from tests.runtime.test_native_model import opened

ONE_THREAD = DeviceOptions(threads=1)
SMALL = Capacities(cache_nbytes=24 * 64)
WriteCore = Callable[..., OpenedCore]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> OpenedCore:
    return opened(core_with_programs(tmp_path_factory.mktemp("one") / "core"))


@pytest.fixture
def ranked(core: OpenedCore, tmp_path: Path) -> WriteCore:
    """Writes the core with several ranks and opens it."""

    def written(**changes: object) -> OpenedCore:
        return opened(write_ranked_core(core, tmp_path / "ranked", KEY, **changes))  # type: ignore[arg-type]

    return written


def run(runtime: ModelRuntime | RankGroup, name: str, *lanes: object) -> Completion:
    program = next(p.index for p in runtime.geometry.programs if p.name == name)
    sequence = runtime.submit(Round(program, lanes))  # type: ignore[arg-type]
    assert runtime.wait(sequence, SECOND_MS)
    return runtime.read(sequence)


def told(runtime: ModelRuntime | RankGroup) -> list[tuple[LaneCompletion, ...]]:
    """What a few requests get."""
    return [
        run(runtime, "initialize.b4", admitted(0), admitted(3, eos=(next_token(6),))).lanes,
        run(runtime, "prefill.p8", prompt(0, (4, 5, 6)), prompt(3, (6,))).lanes,
        run(runtime, "decode.b2", step(3, 1), step(0, 3)).lanes,
        run(runtime, "initialize.b4", admitted(3, 2, limit=1)).lanes,
        run(runtime, "prefill.p16", prompt(3, (1, 2, 3, 4, 5), 2)).lanes,
        run(runtime, "decode.b2", step(0, 4), step(3, 5, 2)).lanes,
    ]


def shifted(content: bytes) -> bytes:
    """Other weights: each token gives what another one gave."""
    packed = np.frombuffer(content, np.float32).reshape(4, 8, 16)
    return np.roll(packed, 1, axis=2).tobytes()


# ---------------------------------------------------------------- in step


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_two_ranks_say_what_one_says(core: OpenedCore, ranked: WriteCore, target: str) -> None:
    with (
        NativeModel.load(core, target=target, options=ONE_THREAD, capacities=SMALL) as one,
        NativeModel.load(ranked(), target=target, options=ONE_THREAD, capacities=SMALL) as two,
    ):
        assert isinstance(two.runtime, RankGroup)
        assert told(two.runtime) == told(one.runtime)
        for rank in two.ranks:
            for name in ("request_state", "page_table", "logits", "in.tokens"):
                expected = one.runtime.read_buffer(name)
                assert np.array_equal(rank.read_buffer(name), expected), name
        assert two.runtime.launches() == 2 * one.runtime.launches()
        assert two.runtime.memory == {k: 2 * n for k, n in one.runtime.memory.items()}


@pytest.mark.clause("BOOT-1")
def test_each_rank_loads_its_own_resources_into_memory_of_its_own(ranked: WriteCore) -> None:
    core = ranked(weights={1: shifted})
    first, second = core.targets["cpu"].ranks
    assert first.weight_resources != second.weight_resources
    with NativeModel.load(core, options=ONE_THREAD, capacities=SMALL) as model:
        assert [geometry.cache_pages for geometry in model.manifests] == [24, 24]
        assert model.runtime.geometry.cache_nbytes == 2 * 24 * 64
        answers = []
        for rank in model.ranks:  # each by itself
            run(rank, "initialize.b4", admitted(0))
            answers.append(run(rank, "prefill.p8", prompt(0, (4,))).lanes[0].tokens)
        assert answers[0] == (next_token(4),)
        assert answers[1] != answers[0]
        page = model.ranks[1].cache_content.page_nbytes
        model.ranks[1].cache_content.write_page(2, b"\1" * page)
        assert bytes(model.ranks[0].cache_content.read_page(2)) == bytes(page)


def test_two_rounds_are_in_flight_on_both(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(), options=ONE_THREAD) as model:
        runtime = model.runtime
        run(runtime, "initialize.b4", admitted(0), admitted(1))
        first = runtime.submit(Round(1, (prompt(0, (4,)),)))
        second = runtime.submit(Round(1, (prompt(1, (5,)),)))
        assert not runtime.can_submit()
        with pytest.raises(ExecutionError, match=r"rank 0, round 4: frame 0 is in use"):
            runtime.submit(Round(0, (admitted(2),)))
        assert runtime.wait(second, SECOND_MS)
        assert runtime.completed(first)
        assert runtime.read(second).lanes[0].tokens == (next_token(5),)
        answer = runtime.read(first)
        assert answer.lanes[0].tokens == (next_token(4),)
        assert (answer.started_ns, answer.completed_ns) == runtime.timing(first)
        starts, ends = zip(*(rank.timing(first) for rank in model.ranks), strict=True)
        assert runtime.timing(first) == (min(starts), max(ends))
        with pytest.raises(ExecutionError, match=r"rank 0, round 2: is not in flight"):
            runtime.read(first)
        assert runtime.can_submit()


def test_what_is_refused_is_submitted_nowhere(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(), options=ONE_THREAD) as model:
        with pytest.raises(ExecutionError, match=r"rank 0, .*not distinct"):
            model.runtime.submit(Round(0, (admitted(0), admitted(0))))
        assert model.runtime.submit(Round(0, (admitted(0),))) == 1


def test_pages_and_snapshots_are_those_of_every_rank(ranked: WriteCore, core: OpenedCore) -> None:
    with (
        NativeModel.load(ranked(), options=ONE_THREAD, capacities=SMALL) as model,
        NativeModel.load(core, options=ONE_THREAD, capacities=SMALL) as alone,
    ):
        content, own = model.runtime.cache_content, [r.cache_content for r in model.ranks]
        nbytes = own[0].page_nbytes
        assert content.page_nbytes == 2 * nbytes
        assert content.layout_digest != alone.runtime.cache_content.layout_digest
        page = bytes(range(2 * nbytes))
        content.write_page(5, page)
        assert bytes(own[0].read_page(5)) == page[:nbytes]
        assert bytes(own[1].read_page(5)) == page[nbytes:]
        assert bytes(content.read_page(5)) == page
        for wrong in (page[:-1], page + b"\0"):
            with pytest.raises(ExecutionError, match=rf"page 5: {len(wrong)} bytes of content"):
                content.write_page(5, wrong)
        assert bytes(content.read_page(5)) == page
        with pytest.raises(ExecutionError, match="rank 0, page 24: there are 24"):
            content.read_page(24)


# ---------------------------------------------------------------- what a rank commits differently


def test_ranks_that_commit_other_tokens_end_the_whole(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(weights={1: shifted}), options=ONE_THREAD) as model:
        runtime = model.runtime
        run(runtime, "initialize.b4", admitted(0), admitted(2))
        message = r"^rank 1, round 2: commits something else than rank 0: tokens of lane 0 \(slot 2"
        with pytest.raises(ExecutionError, match=message) as caught:
            run(runtime, "prefill.p8", prompt(2, (4,)))
        assert str(next_token(4)) not in str(caught.value).partition("slot 2")[2]
        for call in (
            lambda: runtime.submit(Round(0, (admitted(1),))),
            lambda: runtime.wait(2, 0),
            lambda: runtime.completed(2),
            lambda: runtime.read(2),
        ):
            with pytest.raises(ExecutionError, match=message):
                call()


LANE = LaneCompletion(3, 1, 9, (5,), (-0.5,), DeviceFinish.RUNNING, LaneError.NONE, -1, -1)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"slot": 2}, "slot"),
        ({"generation": 2}, "generation"),
        ({"consumed": 8}, "consumed"),
        ({"tokens": (6,)}, "tokens"),
        ({"tokens": (5, 5), "consumed": 10}, "consumed, tokens"),
        ({"finish": DeviceFinish.EOS}, "finish"),
        ({"error": LaneError.IMPOSSIBLE}, "error"),
        ({"draft_cursor": 0}, "draft_cursor"),
        ({"model_reserved": 0}, "model_reserved"),
    ],
)
def test_everything_that_is_committed_is_compared(changed: dict[str, object], what: str) -> None:
    other = LANE._replace(**changed)  # type: ignore[arg-type]
    assert difference((LANE, LANE), (LANE, other)) == f"{what} of lane 1 (slot 3)"
    assert difference((LANE, LANE), (LANE,)) == "1 lanes, not 2"
    assert not difference((LANE,), (LANE._replace(logprobs=(float("nan"),)),))


# ---------------------------------------------------------------- what a rank doesn't do


class _Failing(NullDevice):
    """Runs nothing, and fails where it is told to."""

    def __init__(self, fails: str = "", *, completes: bool = True, free: int = 1 << 30) -> None:
        super().__init__()
        self._fails = fails
        self._completes = completes
        self._free = free
        self.closed = False

    def available_memory(self) -> AvailableMemory:
        return AvailableMemory(self._free)

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        super().allocate(plan, weights)
        self._fail("allocate")

    def submit(self, program: int, frame: int, sequence: int) -> None:
        self._fail("submit")
        super().submit(program, frame, sequence)

    def completed(self) -> int:
        return super().completed() if self._completes else 0

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        self._fail("wait")
        return self._completes

    def close(self) -> None:
        self.closed = True

    def _fail(self, what: str) -> None:
        if self._fails == what:
            raise ExecutionError("is lost", where=f"device, {what}", remedy="Start again")


def load_on(core: OpenedCore, *devices: NullDevice, **capacities: int) -> NativeModel:
    return NativeModel.load(core, devices=devices, capacities=Capacities(**capacities))


@pytest.mark.parametrize("stuck", [0, 1])
def test_a_round_has_run_once_it_has_on_every_rank(ranked: WriteCore, stuck: int) -> None:
    devices = [_Failing(completes=rank != stuck) for rank in range(2)]
    with load_on(ranked(), *devices) as model:
        runtime = model.runtime
        sequence = runtime.submit(Round(0, (admitted(0),)))
        assert not runtime.completed(sequence)
        assert not runtime.wait(sequence, 1)
        with pytest.raises(ExecutionError, match="round 1: has not completed"):
            runtime.read(sequence)
        devices[stuck]._completes = True
        assert runtime.wait(sequence, 1)
        assert runtime.read(sequence).lanes == ()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_s_failure_is_everybody_s_however_the_others_are(
    ranked: WriteCore, rank: int
) -> None:
    """The other one never completes, as if it waited for the one that has failed."""
    devices = [_Failing(completes=False), _Failing(completes=False)]
    with load_on(ranked(), *devices) as model:
        runtime = model.runtime
        runtime.submit(Round(0, (admitted(0),)))
        devices[rank]._fails = "wait"
        message = rf"^rank {rank}, device, wait: is lost\. Start again"
        with pytest.raises(ExecutionError, match=message):
            runtime.wait(1, SECOND_MS)
        devices[rank]._fails = ""
        for call in (lambda: runtime.wait(1, 0), lambda: runtime.submit(Round(0, (admitted(1),)))):
            with pytest.raises(ExecutionError, match=message):
                call()
    assert all(device.closed for device in devices)


def test_a_round_that_one_rank_refused_is_the_last(ranked: WriteCore) -> None:
    with load_on(ranked(), _Failing(), _Failing("submit")) as model:
        for _ in range(2):
            with pytest.raises(
                ExecutionError, match=r"^rank 1, round 1: the device refused a round .*is lost"
            ):
                model.runtime.submit(Round(0, (admitted(0),)))


# ---------------------------------------------------------------- loading


def test_three_ranks(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(ranks=3), options=ONE_THREAD) as model:
        assert len(model.manifests) == 3
        run(model.runtime, "initialize.b4", admitted(0))
        answer = run(model.runtime, "prefill.p8", prompt(0, (4,)))
        assert answer.lanes[0].tokens == (next_token(4),)


def test_a_rank_that_can_t_load_is_named_and_leaves_nothing(ranked: WriteCore) -> None:
    devices = [_Failing(), _Failing("allocate")]
    with pytest.raises(ExecutionError, match=r"^rank 1, device, allocate: is lost"):
        load_on(ranked(), *devices)
    assert all(device.closed for device in devices)


def test_a_rank_s_damaged_weights_are_named(ranked: WriteCore) -> None:
    core = ranked(weights={1: shifted})
    path = core.find_resource(core.targets["cpu"].ranks[1].weight_resources[0])
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    with pytest.raises(CoreError, match=r"^rank 1, .*not what was signed"):
        NativeModel.load(core, options=ONE_THREAD)


def test_all_ranks_have_the_pages_of_the_one_with_least_room(ranked: WriteCore) -> None:
    core, half = ranked(), Capacities(cache_share=0.5)

    def pages(*free: int) -> list[int]:
        devices = [_Failing(free=nbytes) for nbytes in free]
        with NativeModel.load(core, devices=devices, capacities=half) as model:
            return [geometry.cache_pages for geometry in model.manifests]

    least = pages(100_000, 100_000)
    assert least[0] > 24
    assert pages(100_000, 1 << 20) == pages(1 << 20, 100_000) == least
    assert pages(1 << 20, 1 << 20)[0] > least[0]
    devices = (_Failing(), _Failing(free=1000))
    with pytest.raises(ContractError, match=r"^rank 1, cache size: 0 B hold 0 pages"):
        NativeModel.load(core, devices=devices, capacities=half)
    assert all(device.closed for device in devices)


def test_ranks_share_the_host_s_memory_and_threads(
    ranked: WriteCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 64 << 10
    monkeypatch.setattr("helios.runtime.capacities.available_nbytes", lambda: free)
    with NativeModel.load(ranked(), capacities=Capacities(cache_share=1.0)) as model:
        taken = {k: n for k, n in model.runtime.memory.items() if k not in ("weight", "scratch")}
        weights = model.runtime.memory["weight"]
        assert free - 4 * 64 < sum(taken.values()) + weights <= free
    asked = DeviceOptions(threads=5, ordinal=2)
    own = [asked.of_rank(rank, 3) for rank in range(3)]
    assert [(one.threads, one.ordinal) for one in own] == [(2, 2), (2, 3), (1, 4)]
    assert DeviceOptions(threads=1).of_rank(1, 2).threads == 1


def _other_batch(message: execution_pb2.ExecutionManifest) -> None:
    message.programs[0].batch_capacity = 3


def _other_name(message: execution_pb2.ExecutionManifest) -> None:
    message.programs[3].name = "decode.b9"


def _one_program_less(message: execution_pb2.ExecutionManifest) -> None:
    del message.programs[-1]


def _other_order(message: execution_pb2.ExecutionManifest) -> None:
    first, second = (execution_pb2.Program.FromString(message.programs[i].SerializeToString())
                     for i in (1, 2))  # fmt: skip
    message.programs[1].CopyFrom(second)
    message.programs[2].CopyFrom(first)


def _other_target(message: execution_pb2.ExecutionManifest) -> None:
    message.target = "cuda:sm_90"
    message.cuda.SetInParent()


def _wider_staging(message: execution_pb2.ExecutionManifest) -> None:
    buffer = next(buffer for buffer in message.buffers if buffer.name == "in.tokens")
    buffer.shape[0] *= 2
    buffer.nbytes *= 2


def _wider_page_table(message: execution_pb2.ExecutionManifest) -> None:
    buffer = next(buffer for buffer in message.buffers if buffer.name == "page_table")
    buffer.shape[0] += 1
    buffer.nbytes += 4


def _one_input_less(message: execution_pb2.ExecutionManifest) -> None:
    del message.programs[1].inputs[0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_other_batch, r"programs\[0\]\.batch_capacity: is 3, and rank 0 has 4"),
        (_other_name, r"programs\[3\]\.name: is 'decode\.b9', and rank 0 has 'decode\.b1'"),
        (_one_program_less, r"programs: is 5, and rank 0 has 6"),
        (_other_order, r"programs\[1\]\.name"),
        (_wider_staging, r"destinations\['tokens'\]\.buffer\.shape: is \(32,\), and rank 0"),
        (_wider_page_table, r"destinations\['page_table'\]\.target\.shape"),
        (_one_input_less, r"programs\[1\]\.inputs"),
    ],
)
def test_manifests_that_contradict_each_other_are_refused(
    ranked: WriteCore, change: ChangeManifest, field: str
) -> None:
    core = ranked(manifests={1: change})
    with pytest.raises(ContractError, match=rf"^rank 1, {field}.*Prepare all ranks"):
        NativeModel.load(core, options=ONE_THREAD)
