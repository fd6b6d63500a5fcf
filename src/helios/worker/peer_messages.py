"""What HTTP processes ask each other by way of the model worker's process, and all that goes over
their connections to it.

Wire types as in `messages`. The worker's process relays them, its loop never sees one.
"""

from __future__ import annotations

import msgspec

from helios.worker.messages import FromWorker, ToWorker


class Ask(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """Something to ask every other HTTP process, which `AskResult` answers. `ask` is the asker's
    number for it, `kind` says what `payload` is."""

    ask: int
    kind: str
    payload: bytes


class AskedAnswer(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """Answers `Asked`; `asker` and `ask` are from there."""

    asker: int
    ask: int
    payload: bytes


class Asked(msgspec.Struct, frozen=True, tag=30, array_like=True):
    """Process `asker` asks (`Ask`)."""

    asker: int
    ask: int
    kind: str
    payload: bytes


class AskResult(msgspec.Struct, frozen=True, tag=31, array_like=True):
    """What all others answered to `Ask`, in any order; those that have gone meanwhile are left
    out."""

    ask: int
    answers: list[bytes]


FromProcess = ToWorker | Ask | AskedAnswer
ToProcess = FromWorker | Asked | AskResult
