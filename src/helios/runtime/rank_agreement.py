"""What the ranks of a target must have in common, since one loop plans and drives all their rounds.

Ranks may differ in what they compute: launches, weights, the shapes of their part of the cache.
What a round is made of, and what comes back of it, is the same everywhere. Pure functions over
decoded data; `rank_loading` and inspection call them before any memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helios.errors import ContractError
from helios.runtime.geometry import Geometry
from helios.runtime.manifest import (
    Buffer,
    CompletionRecord,
    DeltaDestination,
    Manifest,
    Program,
)

_REMEDY = "Prepare all ranks of the target anew, together"
_OF_PROGRAMS = (
    *("name", "operation", "batch_capacity", "draft_tokens", "token_capacity"),
    *("packed_token_capacity", "inputs", "completion", "tuned"),
)
_OF_RECORDS = tuple(name for name in CompletionRecord.__slots__ if name != "name")
# A rank's own: the bytes of its part.
_OWN = ("cache_nbytes", "snapshot_nbytes", "programs")


def check_ranks_agree(manifests: Sequence[Manifest]) -> None:
    """Raises ContractError naming the first rank and the field that isn't as rank 0 has it."""
    first, *others = manifests
    for rank, manifest in enumerate(others, 1):
        if manifest is not first:
            _compare(rank, _facts(first), _facts(manifest))


def check_geometries_agree(geometries: Sequence[Geometry]) -> None:
    """As `check_ranks_agree`, of what was selected."""
    first, *others = geometries
    for rank, geometry in enumerate(others, 1):
        _compare(rank, _selected(first), _selected(geometry))


def _compare(
    rank: int, first: Iterator[tuple[str, object]], own: Iterator[tuple[str, object]]
) -> None:
    # Counts come before what is counted, so the fields of both are the same as long as they agree.
    for (field, expected), (_, found) in zip(first, own, strict=True):
        if found != expected:
            raise ContractError(
                f"is {_shown(found)}, and rank 0 has {_shown(expected)}",
                where=f"rank {rank}, {field}",
                remedy=_REMEDY,
            )


def _shown(value: object) -> str:
    return getattr(value, "name", None) or repr(value)


def _facts(manifest: Manifest) -> Iterator[tuple[str, object]]:
    """Fields and values that all ranks have in common."""
    yield "target", manifest.target
    yield from _programs("programs", manifest.programs)
    yield from _programs("tuning", manifest.tuning)
    yield "destinations", sorted(manifest.destinations)
    for name, destination in sorted(manifest.destinations.items()):
        at = f"destinations[{name!r}]"
        yield at, "delta" if isinstance(destination, DeltaDestination) else "staged"
        for part in destination.__slots__:
            if part != "name":
                yield from _buffer(f"{at}.{part}", manifest.buffers[getattr(destination, part)])
    yield "completions", sorted(manifest.completions)
    for name, record in sorted(manifest.completions.items()):
        for part in _OF_RECORDS:
            at, buffer = f"completions[{name!r}].{part}", getattr(record, part)
            yield at, "absent" if buffer is None else "present"
            if buffer is not None:
                yield from _buffer(at, manifest.buffers[buffer])


def _programs(catalog: str, programs: Sequence[Program]) -> Iterator[tuple[str, object]]:
    yield catalog, len(programs)
    for index, program in enumerate(programs):
        for field in _OF_PROGRAMS:
            yield f"{catalog}[{index}].{field}", getattr(program, field)


def _buffer(at: str, buffer: Buffer) -> Iterator[tuple[str, object]]:
    for field in ("dtype", "leading", "shape"):
        yield f"{at}.{field}", getattr(buffer, field)


def _selected(geometry: Geometry) -> Iterator[tuple[str, object]]:
    for field in Geometry.__slots__:
        if field not in _OWN:
            yield field, getattr(geometry, field)
    yield "programs", [program.name for program in geometry.programs]
