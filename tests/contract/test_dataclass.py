"""`helios.dataclass` beside the standard library's: what a class made by either can do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

import helios.dataclass


class Shapes:
    """Classes of every kind that Helios has, made by one decorator."""

    def __init__(self, dataclass: Callable[..., Any]) -> None:
        @dataclass(frozen=True, slots=True)
        class Frozen:
            """Some fields."""

            number: int
            text: str = "a"
            items: list[int] = field(default_factory=list)
            hidden: bytes = field(default=b"k", repr=False)
            ignored: float = field(default=0.0, compare=False)

        @dataclass(frozen=True, slots=True)
        class Derived(Frozen):
            """One more."""

            more: int = 7

        @dataclass(frozen=True)
        class Checked:
            """Refuses, and has a dictionary."""

            number: int

            def __post_init__(self) -> None:
                if self.number < 0:
                    raise ValueError("negative")

        @dataclass(slots=True)
        class Mutable:
            """Counts."""

            count: int = 0
            doubled: int = field(init=False)
            names: dict[str, int] = field(default_factory=dict)
            late: list[int] = field(init=False, default_factory=list)

            def __post_init__(self) -> None:
                self.doubled = 2 * self.count

        @dataclass(slots=True, eq=False)
        class Identity:
            """Equal to itself alone."""

            number: int

        @dataclass(frozen=True, slots=True)
        class Own:
            """Has its own words."""

            number: int

            def __repr__(self) -> str:
                return "own"

            def __hash__(self) -> int:
                return 5

        @dataclass(frozen=True, slots=True)
        class Empty:
            """Nothing."""

        self.frozen, self.derived, self.checked = Frozen, Derived, Checked
        self.mutable, self.identity, self.own, self.empty = Mutable, Identity, Own, Empty


OURS, THEIRS = Shapes(helios.dataclass.dataclass), Shapes(dataclasses.dataclass)


def outcome(action: Callable[[Shapes], Any], shapes: Shapes) -> Any:
    """What an action gives, or the error that it ends with."""
    try:
        return action(shapes)
    except Exception as error:
        return type(error), str(error).rpartition(".")[2]


def changed(one: Any, name: str) -> Any:
    setattr(one, name, 9)
    return one


def deleted(one: Any, name: str) -> None:
    delattr(one, name)


ACTIONS: list[Callable[[Shapes], Any]] = [
    lambda s: repr(s.frozen(1)),
    lambda s: repr(s.frozen(1, "b", [2], b"x", 2.5)),
    lambda s: repr(s.derived(number=1, more=2)),
    lambda s: repr(s.own(1)),
    lambda s: repr(s.empty()),
    lambda s: s.frozen(),
    lambda s: s.frozen(1, other=2),
    lambda s: s.empty(1),
    lambda s: s.frozen(1) == s.frozen(1),
    lambda s: s.frozen(1) == s.frozen(2),
    lambda s: s.frozen(1, ignored=1.0) == s.frozen(1),
    lambda s: s.frozen(1) == s.derived(1),
    lambda s: s.frozen(1) == (1, "a", [], b"k"),
    lambda s: s.empty() == s.empty(),
    lambda s: s.identity(1) == s.identity(1),
    lambda s: hash(s.frozen(1, items=(2,))) == hash((1, "a", (2,), b"k")),
    lambda s: hash(s.checked(3)) == hash((3,)),
    lambda s: hash(s.frozen(1)),
    lambda s: hash(s.own(1)),
    lambda s: hash(s.empty()),
    lambda s: hash(s.mutable()),
    lambda s: hash(s.identity(1)) == hash(s.identity(1)),
    lambda s: changed(s.frozen(1), "number"),
    lambda s: changed(s.checked(1), "another"),
    lambda s: deleted(s.derived(1), "more"),
    lambda s: repr(changed(s.mutable(1), "count")),
    lambda s: changed(s.mutable(1), "another"),
    lambda s: s.checked(-1),
    lambda s: (s.mutable(3).doubled, s.mutable(3).late),
    lambda s: s.mutable().names is s.mutable().names,
    lambda s: repr(dataclasses.replace(s.frozen(1, "b"), number=2)),
    lambda s: dataclasses.replace(s.mutable(1), doubled=2),
    lambda s: dataclasses.asdict(s.derived(1)),
    lambda s: [(one.name, one.type, one.init) for one in dataclasses.fields(s.mutable)],
    lambda s: s.derived.__match_args__,
    lambda s: s.frozen.__slots__,
    lambda s: s.frozen.__doc__,
    lambda s: list(inspect.signature(s.frozen).parameters),
    lambda s: inspect.get_annotations(s.frozen.__init__),
    lambda s: repr(copy.copy(s.frozen(1, "c"))),
    lambda s: repr(copy.deepcopy(s.derived(1, items=[3]))),
    lambda s: hasattr(s.frozen(1), "__dict__"),
]


@pytest.mark.parametrize("number", range(len(ACTIONS)))
def test_both_do_the_same(number: int) -> None:
    action = ACTIONS[number]
    expected = outcome(action, THEIRS)
    assert outcome(action, OURS) == expected


@helios.dataclass.dataclass(frozen=True, slots=True)
class Travelling:
    """One that pickle finds by its name."""

    number: int
    inner: Travelling | None = None


def test_frozen_objects_travel() -> None:
    sent = Travelling(1, Travelling(2))
    received = pickle.loads(pickle.dumps(sent))
    assert received == sent
    assert received.inner == Travelling(2)


def test_an_object_that_holds_itself_can_be_shown() -> None:
    @helios.dataclass.dataclass(slots=True)
    class Ring:
        """Round."""

        next: Any = None

    ring = Ring()
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")
