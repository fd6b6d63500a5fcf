"""What clients may ask of stops: limits and combinations, as the API states them.

Takes the request fields `stop`, `stop_token_ids` and `stop_token_sequences`, of the right types
(`options.check_types`), and gives `StopConditions`. Each refusal names the field and what to send
instead.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from helios.errors import RequestError
from helios.frontend.stops import StopConditions

STOP_STRINGS: Final = 4
STOP_NBYTES: Final = 4096  # of all strings together, as UTF-8
STOP_SEQUENCES: Final = 16
STOP_SEQUENCE_TOKENS: Final = 64


def stop_conditions(
    stop: str | Sequence[str] | None,
    stop_token_ids: Sequence[int] | None,
    stop_token_sequences: Sequence[Sequence[int]] | None,
    *,
    sampled_tokens: int,
) -> StopConditions:
    """What ends a request's answer. Token ids must be below `sampled_tokens`. Raises
    RequestError."""
    strings = _strings(stop)
    ids = _ids(stop_token_ids, "stop_token_ids", sampled_tokens)
    sequences = _sequences(stop_token_sequences, sampled_tokens)
    for field, given in (("stop_token_ids", ids), ("stop_token_sequences", sequences)):
        if strings and given:
            raise RequestError(
                f"strings can't be combined with {field}",
                where="stop",
                remedy=f"Leave out stop or {field}",
            )
    # A sequence given twice would only be looked for twice.
    return StopConditions(strings, tuple(dict.fromkeys((*((one,) for one in ids), *sequences))))


def _strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > STOP_STRINGS:
        raise RequestError(
            f"has {len(strings)} strings", where="stop", remedy=f"Give at most {STOP_STRINGS}"
        )
    nbytes = 0
    for index, string in enumerate(strings):
        where = "stop" if isinstance(stop, str) else f"stop[{index}]"
        if not string:
            raise RequestError(
                "is empty", where=where, remedy="Give some text, or null for no stop strings"
            )
        try:
            nbytes += len(string.encode())
        except UnicodeEncodeError as error:
            raise RequestError(
                f"character {error.start} is half of a surrogate pair",
                where=where,
                remedy="Send valid Unicode text",
            ) from None
    if nbytes > STOP_NBYTES:
        raise RequestError(
            f"has {nbytes} bytes of UTF-8",
            where="stop",
            remedy=f"Give at most {STOP_NBYTES} in all strings together",
        )
    return strings


def _sequences(
    given: Sequence[Sequence[int]] | None, sampled_tokens: int
) -> tuple[tuple[int, ...], ...]:
    if given is not None and len(given) > STOP_SEQUENCES:
        raise RequestError(
            f"has {len(given)} sequences",
            where="stop_token_sequences",
            remedy=f"Give at most {STOP_SEQUENCES}",
        )
    sequences = []
    for index, sequence in enumerate(given or ()):
        where = f"stop_token_sequences[{index}]"
        ids = _ids(sequence, where, sampled_tokens)
        if not ids:
            raise RequestError("is empty", where=where, remedy="Give token ids, or leave it out")
        if len(ids) > STOP_SEQUENCE_TOKENS:
            raise RequestError(
                f"has {len(ids)} tokens",
                where=where,
                remedy=f"Give at most {STOP_SEQUENCE_TOKENS} a sequence",
            )
        sequences.append(ids)
    return tuple(sequences)


def _ids(given: Sequence[int] | None, where: str, sampled_tokens: int) -> tuple[int, ...]:
    for index, token in enumerate(given or ()):
        if not 0 <= token < sampled_tokens:
            raise RequestError(
                f"token id {token} is not in the model's vocabulary",
                where=f"{where}[{index}]",
                remedy=f"Ids are from 0 to {sampled_tokens - 1}",
            )
    return tuple(map(operator.index, given or ()))
