"""The tools that a request declares, and which of them an answer may call."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from helios.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared function. `parameters` is the JSON schema of its arguments, which is an object's;
    with `strict` a call has arguments that fit it."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False


class Calling(Enum):
    """Whether an answer calls tools: never, as the model decides, or certainly."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Tools:
    """What of a request concerns tools. `named` is the one that has to be called, where a client
    names it; `allowed` are the names of those that may be called, None for all of them; without
    `parallel` at most one call is made."""

    declared: tuple[Tool, ...] = ()
    calling: Calling = Calling.AUTO
    named: str | None = None
    parallel: bool = True
    allowed: frozenset[str] | None = None

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that an answer may call."""
        if self.calling is Calling.NONE:
            return ()
        return tuple(
            tool
            for tool in self.declared
            if self.named in (None, tool.name)
            and (self.allowed is None or tool.name in self.allowed)
        )

    @property
    def restricts(self) -> bool:
        """Whether there are tools that the model sees and may not call."""
        return self.calling is not Calling.NONE and len(self.callable) < len(self.declared)

    @property
    def constrains(self) -> bool:
        """Whether calls have to be kept to their schemas, or to one, or made at all."""
        callable_tools = self.callable
        if self.calling is Calling.REQUIRED or self.restricts:
            return True
        if callable_tools and not self.parallel:
            return True
        return any(tool.strict for tool in callable_tools)


NO_TOOLS: Final = Tools()
