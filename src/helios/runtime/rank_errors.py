"""Errors of one of several ranks: of the same kind, and naming the rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from helios.errors import ContractError, CoreError, ExecutionError, HeliosError

# Those that loading and rounds raise; what derives from one becomes that one.
_KINDS: Final = (CoreError, ContractError, ExecutionError)
Kind = TypeVar("Kind", bound=HeliosError)


def of_rank(error: HeliosError, rank: int, kind: type[Kind]) -> Kind:
    """The error as that rank's."""
    where = f"rank {rank}, {error.where}" if error.where else f"rank {rank}"
    return kind(error.what, where=where, remedy=error.remedy)


@contextmanager
def naming_rank(rank: int) -> Iterator[None]:
    """Lets what the block raises name the rank."""
    try:
        yield
    except _KINDS as error:
        kind = next(kind for kind in _KINDS if isinstance(error, kind))
        raise of_rank(error, rank, kind) from error
