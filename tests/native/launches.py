"""One launch of the catalogue as tests describe it, before anything runs it.

What generators of random launches make. Runs nowhere by itself: `harness` gives launches to the
native library, `reference` to numpy, `tests.gpu` to a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One launch. Optional operands that are absent are left out of `operands`."""

    kernel: str
    operands: Mapping[str, Array]
    integers: Mapping[str, int]
    floats: Mapping[str, float] = field(default_factory=dict)

    def with_operands(self, **changed: Array) -> Case:
        return replace(self, operands={**self.operands, **changed})

    def with_integers(self, **changed: int) -> Case:
        return replace(self, integers={**self.integers, **changed})
