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

_WAIT_MS: Final = 1000


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
    sequences 1, 2, …; returns the last sequence. Raises ExecutionError naming the producer."""
    sequence = 0
    for offset, producer in enumerate(producers):
        sequence += 1
        try:
            device.submit(first_index + offset, sequence % FRAMES, sequence)
            while not device.wait(sequence, _WAIT_MS):
                pass
        except Exception as error:
            raise ExecutionError(
                f"startup tuning failed ({error})",
                where=f"tuning program {producer.name}",
                remedy="Start again, or prepare the core without tuning",
            ) from error
    return sequence
