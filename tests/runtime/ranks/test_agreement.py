"""What several ranks commit has to be the same."""

from __future__ import annotations

import pytest

from helios.errors import ExecutionError
from helios.runtime import NativeModel
from helios.runtime.rank_group import difference
from helios.runtime.rounds import DeviceFinish, LaneCompletion, LaneError, Round
from tests.runtime.ranks.ranked import (
    ONE_THREAD,
    WriteCore,
    run,
    shifted,
)
from tests.runtime.test_model_runtime import (
    admitted,
    next_token,
    prompt,
)


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
