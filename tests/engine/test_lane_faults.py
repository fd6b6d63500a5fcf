"""A row of a real completion record that can't be true: whose request fails, and who goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helios.engine import Engine
from helios.errors import ExecutionError
from helios.frontend.prepare import GenerationOptions
from helios.generations import whole
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS
from helios.runtime.device import FRAMES
from helios.runtime.rounds import Completion
from helios.worker.worker_thread import PendingRequest

OPTIONS = GenerationOptions(max_tokens=24, temperature=0.0)
_EMITTED, _CONSUMED, _FINISH = 2, 3, 4


def damage_once(engine: Engine, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Damages the second lane's row of the first record that has three lanes with tokens."""
    runtime = engine._model.runtime
    index, device, read = runtime._manifest.buffer_index, runtime._device, runtime.read
    left = [1]

    def damaged(sequence: int) -> Completion:
        frame = sequence % FRAMES
        flight = runtime._frames[frame]
        assert flight is not None
        lanes = device.view(index["completion.lanes"], frame).view(np.int32)
        lanes = lanes.reshape(-1, COMPLETION_LANE_COLUMNS)
        tokens = device.view(index["completion.tokens"], frame).view(np.int32)
        sampled = runtime._completions[flight.program] is not None
        if left[0] and sampled and flight.lanes == 3 and lanes[:3, _EMITTED].all():
            left[0] -= 1
            match what:
                case "token":
                    tokens[1] = 1 << 20
                case "count":
                    lanes[1, _EMITTED] = 9
                case "endpoint":
                    lanes[1, _CONSUMED] += 1
                case "finish":
                    lanes[1, _FINISH] = 77
        return read(sequence)

    monkeypatch.setattr(runtime, "read", damaged)


def answer(engine: Engine, pending: PendingRequest) -> tuple[int, ...] | str:
    """A request's tokens, or why it failed."""
    try:
        return whole(pending.prepared.prompt_tokens, engine._deltas(pending)).tokens
    except ExecutionError as error:
        return str(error)


@pytest.mark.clause("CACHE-6")
@pytest.mark.parametrize("what", ["token", "count", "endpoint", "finish"])
def test_a_row_that_cant_be_true_fails_its_request_alone(
    tiny_core: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    prompts = [[5 + number] * 4 for number in range(3)]
    with Engine.open(
        tiny_core, accept="tests", allow_unknown_publisher=True, threads=1, oracle=False
    ) as engine:
        alone = [engine.generate([prompt], OPTIONS)[0].tokens for prompt in prompts]
        damage_once(engine, monkeypatch, what)

        # In one message, so that all three share their rounds.
        prepare = engine.frontend.preparer.prepare_completion
        pending = engine._worker.submit([prepare(prompt, OPTIONS) for prompt in prompts])
        together = [answer(engine, one) for one in pending]
        failed = [got for got in together if isinstance(got, str)]
        assert len(failed) == 1, together
        for got, expected in zip(together, alone, strict=True):
            assert got == expected or got in failed
        again = [engine.generate([prompt], OPTIONS)[0].tokens for prompt in prompts]
        assert again == alone
