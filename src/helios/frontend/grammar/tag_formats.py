"""Formats of structural tags in a grammar: fixed texts, structures, free text, tags, and what is
put together of them.

Each writes itself with what follows it, its *end*: some texts, one of which comes at once and is
part of what is written; an empty one is nothing more. Only so does free text know where it ends.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from enum import IntEnum
from typing import Final, Protocol

from helios.dataclass import dataclass
from helios.frontend.grammar.free_text import FreeText, up_to_sign
from helios.frontend.grammar.lark import GrammarWriter
from helios.frontend.grammar.patterns import UnsupportedPatternError, whole
from helios.frontend.grammar.structure import GbnfAnswer, GrammarAnswer, JsonAnswer, RegexAnswer
from helios.frontend.grammar.tag_values import refuse

End = tuple[str, ...]
NO_END: Final[End] = ("",)


class Reach(IntEnum):
    """How far a format goes: as its own text says; as far as its characters do; or without end,
    where nothing is known of what follows."""

    FIXED = 0
    GREEDY = 1
    ENDLESS = 2


class Format(Protocol):
    """A part of an answer."""

    @property
    def reach(self) -> Reach:
        """How far it goes."""

    @property
    def head(self) -> str:
        """The text that it begins with, if that is always the same one."""

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """Its expression, `end` included; once it has `begun`, without its head."""


def _closed(writer: GrammarWriter, expression: str, end: End) -> str:
    if end == NO_END:
        return expression
    return f"{expression} {writer.choice([writer.literal(text) for text in end])}"


@dataclass(frozen=True, slots=True)
class Fixed:
    """One text."""

    head: str
    reach: Reach = Reach.FIXED

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        return _closed(writer, '""' if begun else writer.literal(self.head), end)


@dataclass(frozen=True, slots=True)
class Structured:
    """JSON, or a text of a grammar."""

    structure: JsonAnswer | GrammarAnswer | GbnfAnswer
    head: str = ""
    reach: Reach = Reach.FIXED

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        return _closed(writer, self.structure.expression(writer), end)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A match of a regular expression: the shortest one that the end follows."""

    structure: RegexAnswer
    head: str = ""
    reach: Reach = Reach.GREEDY

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        try:
            regex = whole(self.structure.pattern).regex
        except UnsupportedPatternError as error:
            refuse(self.structure.where, f"can't be used: {error}", "Write it another way")
        ways = [writer.text_up_to(text, regex) for text in end if text]
        if "" in end:
            ways.append(self.structure.expression(writer))
        return writer.choice(ways)


@dataclass(frozen=True, slots=True)
class AnyText:
    """Any text without some texts in it."""

    excluded: tuple[str, ...] = ()
    head: str = ""
    reach: Reach = Reach.ENDLESS

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        stops = [writer.sign(text) for text in end if text]
        text = FreeText(writer, stops, self.excluded)
        return writer.choice(_ended(text, stops, end))


def _ended(text: FreeText, stops: Several[str], end: End) -> list[str]:
    """The ways in which free text comes to its end."""
    ways = [text.before(stop) for stop in stops]
    return [*ways, text.whole()] if "" in end else ways


@dataclass(frozen=True, slots=True)
class Tag:
    """Something between a text that begins it and one that ends it. `end` is `NO_END` where
    nothing ends it but what follows."""

    begin: str
    content: Format
    end: End
    where: str

    @property
    def head(self) -> str:
        """As `Format` says."""
        return self.begin

    @property
    def reach(self) -> Reach:
        """As `Format` says."""
        return self.content.reach if self.end == NO_END else Reach.FIXED

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        begin = '""' if begun else writer.literal(self.begin)
        if self.end == NO_END:
            return f"{begin} {self.content.write(writer, end)}"
        return _closed(writer, f"{begin} {self.content.write(writer, self.end)}", end)

    def inside(self, writer: GrammarWriter) -> str:
        """What follows its beginning, where other tags or free text may follow it."""
        if self.end == NO_END and self.content.reach is Reach.ENDLESS:
            refuse(self.where, "nothing ends its text", "Add a text that ends the tag")
        return writer.rule(self.content.write(writer, self.end))


@dataclass(frozen=True, slots=True)
class Sequence:
    """Formats one after another."""

    elements: tuple[Format, ...]
    where: str

    @property
    def head(self) -> str:
        """As `Format` says."""
        return self.elements[0].head

    @property
    def reach(self) -> Reach:
        """As `Format` says."""
        return self.elements[-1].reach

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says. What goes far ends where the fixed text begins that follows it."""
        parts = []
        for index, (element, following) in enumerate(
            zip(self.elements[:-1], self.elements[1:], strict=True)
        ):
            head = following.head if element.reach is not Reach.FIXED else ""
            if element.reach is Reach.ENDLESS and not head:
                refuse(
                    f"{self.where}[{index}]",
                    "nothing says where its text ends",
                    "Let a fixed text or a tag follow it, or put it last",
                )
            parts.append(element.write(writer, (head,), begun=begun))
            begun = bool(head)
        parts.append(self.elements[-1].write(writer, end, begun=begun))
        return writer.rule(" ".join(parts))


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some formats."""

    elements: tuple[Format, ...]
    head: str = ""

    @property
    def reach(self) -> Reach:
        """As `Format` says."""
        return max(element.reach for element in self.elements)

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        return writer.choice([element.write(writer, end) for element in self.elements])


@dataclass(frozen=True, slots=True)
class TriggeredTags:
    """Free text in which each trigger begins one of the tags that begin with it. With `certain` a
    tag comes first; with `once` nothing follows the first one."""

    tags: tuple[tuple[str, Tag], ...]  # each with its trigger
    certain: bool = False
    once: bool = False
    excluded: tuple[str, ...] = ()
    head: str = ""

    @property
    def reach(self) -> Reach:
        """As `Format` says."""
        return Reach.FIXED if self.certain and self.once else Reach.ENDLESS

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        after: dict[str, list[str]] = {}
        whole_tags = []
        for trigger, tag in self.tags:
            begin, inside = writer.sign(tag.begin), tag.inside(writer)
            # A token that the trigger reaches into is met as a whole.
            stop = writer.sign(trigger)
            if not begin.startswith(stop) or writer.is_signed(trigger):
                stop = up_to_sign(begin)
            after.setdefault(stop, []).append(
                f"{writer.marked_literal(begin[len(stop) :])} {inside}"
            )
            whole_tags.append(f"{writer.literal(tag.begin)} {inside}")
        ends = [writer.sign(text) for text in end if text]
        text = FreeText(writer, [*after, *ends], self.excluded)
        first = writer.choice(whole_tags) if self.certain else ""
        if self.certain and self.once:
            return _closed(writer, first, end)
        tags = writer.choice(
            [f"{text.before(stop)} {writer.choice(ways)}" for stop, ways in after.items()]
        )
        rest = writer.choice(_ended(text, ends, end))
        if self.once:
            return writer.choice([rest, _closed(writer, tags, end)])
        return writer.rule(f"{first} ({tags})* {rest}")


@dataclass(frozen=True, slots=True)
class SeparatedTags:
    """Tags with a text between them and no other text. With `certain` there is one at least, with
    `once` one at most."""

    tags: tuple[Tag, ...]
    separator: str
    certain: bool = False
    once: bool = False
    head: str = ""
    reach: Reach = Reach.FIXED

    def write(self, writer: GrammarWriter, end: End, *, begun: bool = False) -> str:
        """As `Format` says."""
        tag = writer.choice(
            [f"{writer.literal(tag.begin)} {tag.inside(writer)}" for tag in self.tags]
        )
        more = "" if self.once else f" ({writer.literal(self.separator)} {tag})*"
        several = writer.rule(f"{tag}{more}")
        return _closed(writer, several if self.certain else f"({several})?", end)
