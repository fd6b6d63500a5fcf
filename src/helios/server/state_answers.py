"""Answers about the server itself, as types: health, readiness, version.

Their descriptions become `/openapi.json`. Answers to requests for text are in `answers`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class Health(msgspec.Struct, frozen=True):
    """Whether the server works."""

    status: Annotated[
        Literal["ok", "failed", "stalled", "unsound"],
        Meta(
            description="`failed` with status 500: the model can't serve any more. `stalled` with"
            " 503: the device makes no progress although there is work, and may do so again."
            " `unsound` with 500: it answers, but its own bookkeeping has been found wrong."
        ),
    ]
    message: Annotated[str, Meta(description="What is wrong.")] = ""


class Readiness(msgspec.Struct, frozen=True):
    """Whether requests are answered now."""

    ready: Annotated[bool, Meta(description="False with status 503.")]
    reason: Annotated[
        Literal["loading_core", "loading_model", "draining", "stalled", "failed"] | None,
        Meta(description="Why not, where it isn't."),
    ] = None
    message: Annotated[str, Meta(description="The same for readers.")] = ""
    startup_ms: Annotated[
        dict[str, float], Meta(description="Durations of the start-up phases so far.")
    ] = {}


class Version(msgspec.Struct, frozen=True):
    """What runs here."""

    version: Annotated[str, Meta(description="Version of Helios.")]
    core: Annotated[str | None, Meta(description="SHA-256 of the core's signed body.")] = None
    kernel_path: Annotated[
        str | None, Meta(description="Target and instruction set of the kernels.")
    ] = None
