"""The geometry that a loaded model exposes to the scheduler: capacities and programs.

Data only; `selection` fills it in after the graphs are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.contract.enums import Operation

__all__ = ["Geometry", "Operation", "ProgramInfo"]


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A selected program: its index is what `Round.program` holds."""

    index: int
    name: str
    operation: Operation
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    launches: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """Capacities after load-time selection. `pages_per_request` bounds a page list;
    `speculative_width` is 0 without speculation."""

    target: str
    kernel_path: str
    request_slots: int
    cache_pages: int
    page_tokens: int
    pages_per_request: int
    max_context_tokens: int
    vocabulary_tokens: int
    input_tokens: int
    frames: int
    programs: tuple[ProgramInfo, ...]
    cache_nbytes: int = 0
    speculative_width: int = 0

    def of(self, operation: Operation) -> tuple[ProgramInfo, ...]:
        """The selected programs of an operation, smallest capacity first."""
        found = [program for program in self.programs if program.operation is operation]
        return tuple(sorted(found, key=lambda p: (p.packed_token_capacity, p.batch_capacity)))
