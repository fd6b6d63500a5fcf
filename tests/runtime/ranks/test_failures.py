"""What a rank that fails, or never completes, makes of all."""

from __future__ import annotations

import pytest

from helios.errors import ExecutionError
from helios.runtime.rounds import Round
from tests.runtime.ranks.ranked import (
    FailingDevice,
    WriteCore,
    load_on,
)
from tests.runtime.test_model_runtime import (
    SECOND_MS,
    admitted,
)


@pytest.mark.parametrize("stuck", [0, 1])
def test_a_round_has_run_once_it_has_on_every_rank(ranked: WriteCore, stuck: int) -> None:
    devices = [FailingDevice(completes=rank != stuck) for rank in range(2)]
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
    devices = [FailingDevice(completes=False), FailingDevice(completes=False)]
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
    with load_on(ranked(), FailingDevice(), FailingDevice("submit")) as model:
        for _ in range(2):
            with pytest.raises(
                ExecutionError, match=r"^rank 1, round 1: the device refused a round .*is lost"
            ):
                model.runtime.submit(Round(0, (admitted(0),)))
