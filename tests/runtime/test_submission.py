"""Submitting a round: what it costs in calls, which frame and sequence it has, what is kept."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np
import pytest

from helios.contract import decode
from helios.errors import ExecutionError
from helios.runtime.capacities import Capacities
from helios.runtime.device import Device, DeviceOptions
from helios.runtime.devices.cpu import CpuDevice
from helios.runtime.devices.null import NullDevice
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import Round
from helios.schema import execution_pb2
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest, sample_weights
from tests.runtime.test_model_runtime import SECOND_MS, admitted, index, prompt, run, step

EMBED = 2  # launch of a decode program that may run any number of times


def with_launches(count: int) -> execution_pb2.ExecutionManifest:
    """The sample manifest, decode.b1 with so many launches and the same answers."""
    manifest = sample_manifest()
    program = next(one for one in manifest.programs if one.name == "decode.b1")
    launches = list(program.launches)
    embed = launches[EMBED]
    del program.launches[:]
    program.launches.extend(launches[:EMBED])
    program.launches.extend([embed] * (count - len(launches) + 1))
    program.launches.extend(launches[EMBED + 1 :])
    assert len(program.launches) == count
    return manifest


def load(device: Device, launches: int = 10) -> ModelRuntime:
    return ModelRuntime.from_parts(
        decode(sample_contract()),
        with_launches(launches),
        sample_weights(),
        capacities=Capacities(),
        device=device,
    )


def cpu() -> CpuDevice:
    return CpuDevice(DeviceOptions(threads=1))


def ready(device: Device, launches: int) -> ModelRuntime:
    """A runtime whose slot 0 decodes."""
    runtime = load(device, launches)
    run(runtime, "initialize.b4", admitted(0, limit=20))
    run(runtime, "prefill.p8", prompt(0, (4, 5)))
    return runtime


def calls_of_a_submission(runtime: ModelRuntime, consumed: int) -> Counter[str]:
    """What Python called while a decode round was submitted, native functions included."""
    calls: Counter[str] = Counter()
    work = Round(index(runtime, "decode.b1"), (step(0, consumed),))

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[f"native {argument.__qualname__}"] += 1

    sys.setprofile(note)
    try:
        sequence = runtime.submit(work)
    finally:
        sys.setprofile(None)
    assert runtime.wait(sequence, SECOND_MS)
    runtime.read(sequence)
    return calls


@pytest.mark.clause("BOOT-5")
@pytest.mark.parametrize("device", [NullDevice, cpu], ids=["null", "cpu"])
def test_a_submission_takes_as_many_calls_whatever_it_launches(device: Any) -> None:
    counts = {}
    for launches in (10, 1000):
        runtime = ready(device(), launches)
        before = runtime.launches()
        calls_of_a_submission(runtime, 2)  # the page list is new
        counts[launches] = calls_of_a_submission(runtime, 3)
        assert runtime.launches() - before == 2 * launches
        runtime.close()
    assert counts[10] == counts[1000]
    assert counts[10]["ModelRuntime.submit"] == 1


class _Counting:
    """Passes everything on to a replayer and counts the calls."""

    def __init__(self, replayer: Any) -> None:
        self._replayer = replayer
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._replayer, name)


@pytest.mark.clause("BOOT-5")
def test_a_round_is_one_native_call() -> None:
    device = cpu()
    runtime = ready(device, 1000)
    native = _Counting(device._replayer)
    device._replayer = native
    sequence = runtime.submit(Round(index(runtime, "decode.b1"), (step(0, 2),)))
    assert native.calls == {"submit": 1}
    assert runtime.wait(sequence, SECOND_MS)
    runtime.close()


@pytest.mark.clause("BOOT-5")
def test_waiting_for_a_round_lets_other_python_run() -> None:
    runtime = ready(cpu(), 10)
    waiting = threading.Event()
    work = Round(index(runtime, "decode.b1"), (step(0, 2),))

    def submit() -> None:
        waiting.wait()
        runtime.submit(work)

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_qualname == "CpuDevice.wait":
            waiting.set()

    other = threading.Thread(target=submit)
    other.start()
    # Were the interpreter kept while waiting, the other thread could never submit this round.
    sys.setprofile(note)
    try:
        assert runtime.wait(3, SECOND_MS)
    finally:
        sys.setprofile(None)
        waiting.set()
        other.join()
    runtime.close()


# ---------------------------------------------------------------- frame and sequence


class _Noting(NullDevice):
    def __init__(self) -> None:
        super().__init__()
        self.submissions: list[tuple[int, int]] = []

    def submit(self, program: int, frame: int, sequence: int) -> None:
        self.submissions.append((sequence, frame))
        super().submit(program, frame, sequence)


@pytest.mark.clause("BIND-9")
def test_the_transport_counts_submissions_and_takes_frames_in_turn() -> None:
    device = _Noting()
    runtime = load(device)
    for sequence in range(1, 6):
        assert runtime.submit(Round(0, (admitted(0, sequence),))) == sequence
        with pytest.raises(ExecutionError, match="not distinct"):  # takes neither
            runtime.submit(Round(0, (admitted(0), admitted(0))))
        runtime.read(sequence)
    assert device.submissions == [(1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]


# ---------------------------------------------------------------- what outlives a round


class _Weights:
    """Stands for a mapped weight resource; notes whether the device had drained when it closed."""

    def __init__(self, device: _Watched) -> None:
        self._device = device
        self.drained: bool | None = None

    def close(self) -> None:
        self.drained = self._device.closed


class _Watched(CpuDevice):
    closed = False

    def close(self) -> None:
        super().close()
        self.closed = True


@pytest.mark.clause("BOOT-4")
def test_closing_waits_for_rounds_in_flight_and_then_lets_go() -> None:
    device = _Watched(DeviceOptions(threads=1))
    runtime = ready(device, 20_000)
    weights = _Weights(device)
    runtime._maps = (weights,)  # type: ignore[assignment]
    records = {
        frame: device.view(runtime._manifest.buffer_index["completion.lanes"], frame)
        for frame in (0, 1)
    }
    for consumed in (2, 3):  # sequences 3 and 4
        runtime.submit(Round(index(runtime, "decode.b1"), (step(0, consumed),)))
    runtime.close()
    # Both have run to their end: the records say where their lanes stand.
    consumed_column = {f: int(record.view(np.int32)[3]) for f, record in records.items()}
    assert consumed_column == {1: 3, 0: 4}
    assert weights.drained is True
    assert device._views == []
