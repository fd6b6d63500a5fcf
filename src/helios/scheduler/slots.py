"""The slot pool: free request slots and each slot's generation. It doesn't know who holds a slot.

A generation counts the requests that a slot has served, from 1, so that a completion of an
earlier one can be told apart. The device keeps the generation in the slot's state row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

_GENERATIONS = 2**31 - 1  # the state row keeps an i32


class SlotPool:
    """Slots 0 … slots − 1, each free or taken. The longest-free slot is taken first."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = deque(range(slots))
        self._generations = [0] * slots

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    def can_take(self) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    def take(self) -> tuple[int, int]:
        """(slot, its new generation); ask `can_take` first."""
        slot = self._free.popleft()
        generation = self._generations[slot] % _GENERATIONS + 1
        self._generations[slot] = generation
        return slot, generation

    def give_back(self, slot: int) -> None:
        """Makes a taken slot free."""
        self._free.append(slot)

    def check_books(self, held: Iterable[int]) -> None:
        """Asserts that free and `held` slots are all slots, each once."""
        every = sorted([*self._free, *held])
        assert every == list(range(self.slots)), f"slot books don't balance: {every}"
