"""What is tried on a GPU: launches, and which rows must have the same bits in several of them.

Data, and how a launch is repeated with some of its rows. Trials are made from their names, here
where they are compiled and there where they run, so that nothing but their kernels has to travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from helios.kernels.catalogue import BY_NAME
from tests.native.company import rows_of
from tests.native.launches import Array, Case

# Of every byte of a float it makes a NaN, of an integer −1.
POISON: Final = 0xFF
# The run that others are compared with.
WHOLE: Final = "whole"


@dataclass(frozen=True)
class Run:
    """Launches one after the other, in one program. One array that is several operands is one
    buffer. `fused` takes them through the fusions that fit; nobody looks at the arrays `unread`,
    which these needn't write. With `reference`, numpy says what comes out; without `early` no
    kernel begins before the one before it has ended."""

    cases: tuple[Case, ...]
    fused: bool = False
    reference: bool = True
    early: bool = True
    unread: tuple[Array, ...] = ()

    @property
    def unread_ids(self) -> frozenset[int]:
        """Of the arrays that nobody looks at."""
        return frozenset(map(id, self.unread))


@dataclass(frozen=True)
class SameBits:
    """What an operand of launch `launch` holds at `index` after a run, it holds at `base_index`
    after the base."""

    run: str
    operand: str
    index: Any
    base_index: Any
    base: str = WHOLE
    launch: int = -1


@dataclass(frozen=True)
class Trial:
    """Runs by their names, and what is equal between them."""

    runs: Mapping[str, Run]
    same: Sequence[SameBits] = field(default_factory=tuple)


Build = Callable[[np.random.Generator], Trial]


def alone(case: Case) -> Trial:
    """One launch against the reference."""
    return Trial({WHOLE: Run((case,))})


def only(build: Callable[[np.random.Generator], Case]) -> Build:
    """A trial of a random launch by itself."""
    return lambda rng: alone(build(rng))


@dataclass(frozen=True)
class Company:
    """Rows of a launch, in this order, in a program of `capacity`."""

    rows: Sequence[int]
    capacity: int

    @property
    def name(self) -> str:
        """Of the run."""
        first = f", first {self.rows[0]}" if self.rows else ""
        return f"{len(self.rows)} rows of {self.capacity}{first}"


def in_company(
    case: Case, outputs: Sequence[str], companies: Sequence[Company], *, reference: bool = True
) -> Trial:
    """A launch against the reference, and its rows in other company: the same bits. `reference`
    holds those launches against numpy, too."""
    runs = {WHOLE: Run((case,))}
    same = []
    for one in companies:
        part = rows_of(case, one.rows, one.capacity, beyond=POISON)
        runs[one.name] = Run((part,), reference=reference)
        live = np.arange(len(one.rows))
        rows = np.asarray(one.rows, np.intp)
        same += [SameBits(one.name, operand, live, rows) for operand in outputs]
    return Trial(runs, same)


def companies(
    rng: np.random.Generator, rows: int, capacities: Sequence[int], *, repeated: bool = True
) -> list[Company]:
    """Random rows for programs of these capacities: some full, some with room left. `repeated` lets
    a row come several times, where a program has more than there are."""
    found = [Company([0], 1), Company([rows - 1], 1)]
    for capacity in capacities:
        live = capacity if rng.random() < 0.5 else int(rng.integers(1, capacity + 1))
        if not repeated:
            live = min(live, rows)
        picked = rng.choice(rows, live, replace=live > rows or (repeated and rng.random() < 0.5))
        found.append(Company(picked.tolist(), capacity))
    return found


def rows_of_all(cases: Sequence[Case], picked: Sequence[int], capacity: int) -> list[Case]:
    """`rows_of` for consecutive launches over the same rows; what is one array stays one."""
    made: dict[int, Array] = {}
    parts = []
    for case in cases:
        part = rows_of(case, picked, capacity, beyond=POISON)
        operands = {
            name: made.setdefault(id(case.operands[name]), array)
            for name, array in part.operands.items()
        }
        parts.append(part.with_operands(**operands))
    return parts


def written(cases: Sequence[Case], unread: Sequence[Array] = ()) -> list[tuple[int, str]]:
    """The launch and name of every operand that is written, but for arrays that nobody looks at."""
    unseen = set(map(id, unread))
    return [
        (number, operand.name)
        for number, case in enumerate(cases)
        for operand in BY_NAME[case.kernel].operands
        if "w" in operand.access and id(case.operands[operand.name]) not in unseen
    ]
