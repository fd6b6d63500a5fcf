"""Captured capacities: how many requests, lanes and tokens the programs of a core take.

Data only. `options` resolves what the command was asked for into an `Extents`, `paged_text`
records the programs that it lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helios.contract.fields import INT32_MAX
from helios.errors import ContractError
from helios.runtime.program_decoder import BATCH_LIMIT
from ignition.capture.target import CPU, Target

SCORED_ROWS: Final = 32  # rows of logits that SCORED_PREFILL computes at a time


@dataclass(frozen=True)
class Defaults:
    """What a target's programs take where nothing else is asked for; `mixed` None follows from
    the other two. `prefill_lanes` is the most that a PREFILL program takes, whatever is asked."""

    max_active: int
    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    scored_prefill: tuple[int, ...]
    mixed: tuple[int, ...] | None = None
    prefill_lanes: int = 32


# One MIXED and SCORED_PREFILL program: a program's time follows from the rows that live in it, not
# from its capacity.
_CPU: Final = Defaults(32, (32, 128, 512), (1, 2, 4, 8, 16, 32), (128,))
# There a launch has CTAs for its capacity, and those without a row take time too.
_CUDA: Final = Defaults(
    128,
    (128, 512, 2048, 8192),
    (1, 2, 4, 8, 16, 32, 64, 128),
    (512,),
    mixed=(512, 2048),
    # Many short prompts that come together take one round: a head of more rows costs little.
    prefill_lanes=128,
)


def defaults(target: Target) -> Defaults:
    """The defaults of a target."""
    return _CUDA if target.is_cuda else _CPU


@dataclass(frozen=True)
class Extents:
    """Request slots, packed tokens of each PREFILL program, lanes of each DECODE program, tokens
    of the longest request; packed tokens of each MIXED and SCORED_PREFILL program and lanes of the
    programs that restore and snapshot, of which there may be none; tokens of a page. Impossible
    ones raise ContractError, which names the option of `ignition prepare` that sets them."""

    max_active: int
    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    max_context_tokens: int
    mixed: tuple[int, ...] = ()
    scored_prefill: tuple[int, ...] = ()
    restore: tuple[int, ...] = ()
    page_tokens: int = CPU.page_tokens
    prefill_lanes_limit: int = _CPU.prefill_lanes

    def __post_init__(self) -> None:
        # Before the lists: the default decode list follows from --max-active.
        for option, value in (
            ("--max-active", self.max_active),
            ("--max-context", self.max_context_tokens),
        ):
            if value < 1:
                raise ContractError(f"{value} is too few", where=option, remedy="Give 1 or more")
        if self.max_active > BATCH_LIMIT:
            raise ContractError(
                f"{self.max_active} is too many",
                where="--max-active",
                remedy=f"Give {BATCH_LIMIT} or less",
            )
        for option, values in (("--prefill", self.prefill), ("--decode", self.decode)):
            if not values:
                raise ContractError("is empty", where=option, remedy="Write it like 1,2,4")
            _check_ascending(option, values)
        for option, values in (
            ("--mixed", self.mixed),
            ("--scored-prefill", self.scored_prefill),
            ("--restore", self.restore),
        ):
            _check_ascending(option, values)
        if self.decode[-1] != self.max_active:
            raise ContractError(
                f"the largest program takes {self.decode[-1]} lanes, not all {self.max_active} "
                "requests that may be active",
                where="--decode",
                remedy=f"End the list with {self.max_active}, or change --max-active",
            )
        if self.restore and self.restore[-1] > self.max_active:
            raise ContractError(
                f"{self.restore[-1]} lanes are more than the {self.max_active} requests that may "
                "be active",
                where="--restore",
                remedy=f"End the list with {self.max_active} or less",
            )
        if self.mixed and min(self.max_active, self.mixed[0]) < 2:
            raise ContractError(
                "a program that mixes takes a request that decodes and one that doesn't yet",
                where="--mixed",
                remedy="Leave it out, or allow two active requests and two tokens",
            )

    def prefill_lanes(self, packed: int) -> int:
        """Lanes of the PREFILL or SCORED_PREFILL program with `packed` tokens: each has a token at
        least."""
        return min(self.max_active, packed, self.prefill_lanes_limit)

    def mixed_lanes(self, packed: int) -> int:
        """Lanes of the MIXED program with `packed` tokens."""
        return min(self.max_active, packed)

    @property
    def sampling_lanes(self) -> int:
        """Most lanes that one round samples for."""
        return max(self.decode[-1], self.prefill_lanes(self.prefill[-1]))

    @property
    def packed_tokens(self) -> int:
        """Most tokens that the host sends in one round."""
        return max((*self.prefill, *self.mixed, *self.scored_prefill))

    @property
    def logit_rows(self) -> int:
        """Most rows of logits that there are at a time."""
        scored = min(SCORED_ROWS, self.scored_prefill[-1]) if self.scored_prefill else 0
        return max(self.sampling_lanes, scored)

    @property
    def pages_per_request(self) -> int:
        """Pages of the longest request."""
        return -(-self.max_context_tokens // self.page_tokens)


def default_mixed(default: Defaults, max_active: int, prefill: Sequence[int]) -> tuple[int, ...]:
    """The target's extents that have room for all requests and as many tokens of a prompt. Where
    it has none, a program for all requests, with room for the largest chunk of a prompt, or for as
    many of its tokens as there are requests. None where one request can be active."""
    if max_active < 2 or not prefill:
        return ()
    least = 2 * max_active
    fitting = [packed for packed in default.mixed or () if packed <= prefill[-1]]
    return tuple(sorted({max(packed, least) for packed in fitting or [prefill[-1]]}))


def _check_ascending(option: str, values: Sequence[int]) -> None:
    if values and (min(values) < 1 or list(values) != sorted(set(values))):
        raise ContractError(
            f"capacities must be positive and ascending, got {list(values)}",
            where=option,
            remedy="Write them like 1,2,4",
        )
    if values and values[-1] > INT32_MAX:
        raise ContractError(
            f"no program takes {values[-1]}", where=option, remedy=f"Give {INT32_MAX} or less"
        )
