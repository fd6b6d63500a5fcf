"""What the scheduler reports about requests: scores, tokens, ends and failures.

Data only, made by `Scheduler.complete`, `cancel` and `fail`; the worker maps it to wire messages.
Structs, because one is made for each lane of each round and they cost least.
A request's events end with one that has a finish, or with a failure; nothing follows it.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from helios.runtime.rounds import Alternatives


class Finish(IntEnum):
    """Why a request ended; `GRAMMAR` where its own grammar couldn't be followed any further."""

    EOS = 1
    LIMIT = 2
    STOP = 3
    CANCELLED = 4
    FAILED = 5
    GRAMMAR = 6


class PromptScored(msgspec.Struct, gc=False):
    """The logprobs in nats of a prompt's tokens from the second on; comes once, before the first
    token, for a request that asked for them. `ranks` are their places among all tokens, likeliest
    first and from 1, where the core's programs report them; `alternatives` has the likeliest tokens
    in each one's place for a request that asked for some."""

    request_id: int
    logprobs: tuple[float, ...]
    ranks: tuple[int, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()


class TokensEmitted(msgspec.Struct, gc=False):
    """Tokens of a request in order with their logprobs in nats; `finish` is None while it runs.
    `reused_prompt_tokens` counts those that it began with from the prefix cache; it is the same in
    all events of a request that has been admitted, and 0 before. `alternatives` has an entry for
    each token of a request that asked for the likeliest ones."""

    request_id: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish | None
    reused_prompt_tokens: int = 0
    alternatives: tuple[Alternatives, ...] = ()


class RequestFailed(msgspec.Struct, gc=False):
    """A request ended because its execution failed; `message` says why."""

    request_id: int
    message: str


Event = PromptScored | TokensEmitted | RequestFailed
