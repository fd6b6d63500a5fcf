"""Startup tuning: which producers of the tuning catalog the selected programs need, and running
them.

What a producer measures and picks is captured in its launches; here they are only put in order and
run, once, before any program that waits for them can be submitted. Called by `selection` and by
`ModelRuntime`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.errors import ExecutionError
from helios.runtime.device import FRAMES, Device
from helios.runtime.manifest import Manifest, Program

# Waited for in steps, so that a signal is noticed between two of them.
_STEP_MS: Final = 1000
# As long as a round of the oracle may take: no measurement on any machine comes near.
_LIMIT_STEPS: Final = 600


class StalledError(ExecutionError):
    """A device doesn't complete what it was given. It can't be closed either: that would wait for
    the same."""


def required_producers(manifest: Manifest, programs: Sequence[Program]) -> tuple[Program, ...]:
    """The producers that the programs' tuned bindings name, and those that these build on, in the
    catalog's order. A producer only builds on earlier ones."""
    needed = {producer for program in programs for _, producer in program.tuned}
    required = []
    for program in reversed(manifest.tuning):
        if program.name in needed:
            required.append(program)
            needed.update(producer for _, producer in program.tuned)
    return tuple(reversed(required))


def run_producers(device: Device, producers: Sequence[Program], first_index: int) -> int:
    """Runs producers, which the device has loaded from `first_index` on, one after the other as
    sequences 1, 2, …; returns the last sequence. Raises ExecutionError naming the producer, or
    StalledError if it takes longer than ten minutes."""
    sequence = 0
    for offset, producer in enumerate(producers):
        sequence += 1
        where = f"tuning program {producer.name}"
        try:
            device.submit(first_index + offset, sequence % FRAMES, sequence)
            completed = _completes(device, sequence)
        except Exception as error:
            raise ExecutionError(
                f"startup tuning failed ({error})",
                where=where,
                remedy="Start again, or prepare the core without tuning",
            ) from error
        if not completed:
            raise StalledError(
                f"didn't complete within {_LIMIT_STEPS * _STEP_MS // 1000} s",
                where=where,
                remedy="Check that the machine isn't stalled, or prepare the core without tuning",
            )
    return sequence


def _completes(device: Device, sequence: int) -> bool:
    return any(device.wait(sequence, _STEP_MS) for _ in range(_LIMIT_STEPS))
