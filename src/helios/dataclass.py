"""`dataclass` as the standard library's, but made in a third of the time.

A process of a server makes a hundred and more before it is ready. The standard library writes and
compiles six functions for each, 0.3 ms in all; here only `__init__`, which runs often, is compiled,
and the others are closures over the fields' names. What can be told of a class afterwards is the
same: fields, equality, hash, representation, freezing, pickling.
`tests/contract/test_dataclass.py` holds both against each other. What hardly anybody asks for isn't
here: ordering, keyword-only and init-only fields; classes that derive from one need this decorator
too.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True):
        """As the standard library's decorator with these arguments."""

        def made(cls: type) -> type:
            # This finds the fields and makes the slots, and compiles nothing.
            bare = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            _complete(bare, frozen=frozen, slots=slots, eq=eq)
            return bare

        return made


def _complete(cls: type, *, frozen: bool, slots: bool, eq: bool) -> None:
    """Adds the methods that the class doesn't define itself."""
    fields = dataclasses.fields(cls)
    own = cls.__dict__
    methods: dict[str, Any] = {"__init__": _init(cls, fields, frozen), "__repr__": _repr(fields)}
    # Python itself sets `__hash__` to None in classes that define `__eq__`.
    hashes = own.get("__hash__") is not None
    if eq:
        compared = _values([one.name for one in fields if one.compare])
        methods["__eq__"] = _eq(compared)
        if not hashes:
            hashed = [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
            cls.__hash__ = _hash(_values(hashed)) if frozen else None  # type: ignore[assignment]
    for name, method in methods.items():
        if name not in own:
            method.__name__ = name
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
    if frozen:
        _freeze(cls, frozenset(one.name for one in fields))
        if slots:
            _pickle_by_values(cls, tuple(one.name for one in fields))


Fields = tuple[dataclasses.Field[Any], ...]


def _init(cls: type, fields: Fields, frozen: bool) -> Callable[..., None]:
    """`__init__`, compiled: it sets the fields in their order, then calls `__post_init__`."""
    names: dict[str, Any] = {"_missing": dataclasses.MISSING, "_set": object.__setattr__}
    parameters, lines = ["self"], []
    for one in fields:
        assert not one.kw_only, f"{cls.__qualname__}: keyword-only fields aren't supported"
        name = one.name
        value = name
        has_factory = one.default_factory is not dataclasses.MISSING
        if has_factory:
            names[f"_new_{name}"] = one.default_factory
            new = f"_new_{name}()"
            value = f"{new} if {name} is _missing else {name}" if one.init else new
        elif one.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = one.default
            if not one.init:
                value = f"_default_{name}"
        elif not one.init:
            continue  # whoever declares it sets it
        if one.init:
            default = "_missing" if has_factory else f"_default_{name}"
            optional = has_factory or one.default is not dataclasses.MISSING
            parameters.append(f"{name}={default}" if optional else name)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n  ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n  {body}", names)
    init: Callable[..., None] = names["__init__"]
    init.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return init


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the tuple of some attributes of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _repr(fields: Fields) -> Callable[[Any], str]:
    names = [one.name for one in fields if one.repr]

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return reprlib.recursive_repr("...")(__repr__)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    def __eq__(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _freeze(cls: Any, names: frozenset[str]) -> None:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__ = __setattr__
    cls.__delattr__ = __delattr__


def _pickle_by_values(cls: Any, names: tuple[str, ...]) -> None:
    """Pickle would set the attributes, which a frozen object refuses."""

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    cls.__getstate__ = __getstate__
    cls.__setstate__ = __setstate__
