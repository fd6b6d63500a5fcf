"""Loading several ranks: memory that is shared, manifests that agree, and who is named."""

from __future__ import annotations

import pytest

from helios.errors import ContractError, CoreError, ExecutionError
from helios.runtime import Capacities, DeviceOptions, NativeModel
from helios.schema import execution_pb2
from tests.ranked_cores import ChangeManifest
from tests.runtime.ranks.ranked import (
    ONE_THREAD,
    FailingDevice,
    WriteCore,
    load_on,
    run,
    shifted,
)
from tests.runtime.test_model_runtime import (
    admitted,
    next_token,
    prompt,
)


def test_three_ranks(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(ranks=3), options=ONE_THREAD) as model:
        assert len(model.manifests) == 3
        run(model.runtime, "initialize.b4", admitted(0))
        answer = run(model.runtime, "prefill.p8", prompt(0, (4,)))
        assert answer.lanes[0].tokens == (next_token(4),)


def test_a_rank_that_can_t_load_is_named_and_leaves_nothing(ranked: WriteCore) -> None:
    devices = [FailingDevice(), FailingDevice("allocate")]
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
        devices = [FailingDevice(free=nbytes) for nbytes in free]
        with NativeModel.load(core, devices=devices, capacities=half) as model:
            return [geometry.cache_pages for geometry in model.manifests]

    least = pages(100_000, 100_000)
    assert least[0] > 24
    assert pages(100_000, 1 << 20) == pages(1 << 20, 100_000) == least
    assert pages(1 << 20, 1 << 20)[0] > least[0]
    devices = (FailingDevice(), FailingDevice(free=1000))
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
