"""Structural tags as clients ask for them: structures with their triggers, or one format.

Both say the same: `structures` are tags in free text. Whatever isn't known, a kind of format or
a key of it, is refused by its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.grammar.lark import GrammarWriter
from helios.frontend.grammar.structure import (
    GbnfAnswer,
    GrammarAnswer,
    RegexAnswer,
    Structure,
    json_schema,
    text_of,
)
from helios.frontend.grammar.tag_formats import (
    AnyText,
    Fixed,
    Format,
    OneOf,
    Pattern,
    SeparatedTags,
    Sequence,
    Structured,
    Tag,
    TriggeredTags,
)
from helios.frontend.grammar.tag_values import TagValues, refuse
from helios.frontend.sampling import UnsupportedParameterError

FORMATS_LIMIT: Final = 1000  # in all of a structural tag
LEVELS_LIMIT: Final = 32  # of formats in formats
_FLAGS: Final = ("at_least_one", "stop_after_first")
TRIGGERS_LIMIT: Final = 32  # of one format; all of them are looked for at once


@dataclass(frozen=True, slots=True)
class StructuralTag:
    """An answer of a format. `texts` are all that have to come as they are, with their places."""

    format: Format
    texts: tuple[tuple[str, str], ...]
    where: str

    def expression(self, writer: GrammarWriter, end: str = "") -> str:
        """The answer in a grammar, and the text that follows it at once."""
        for text, where in self.texts:
            if writer.holds_reserved(text):
                raise RequestError(
                    "a token in it stands around answers and can't be part of one",
                    where=where,
                    remedy="Leave it out",
                )
        return self.format.write(writer, (end,))

    def writes(self, text: str) -> bool:
        """Whether a text, such as what opens a call, is in one that has to come as it is."""
        return bool(text) and any(text in one for one, _ in self.texts)


AnswerForm = Structure | StructuralTag


def structural_tag(value: object, where: str) -> StructuralTag:
    """A structural tag as clients send it: an object, or text that holds one. Raises RequestError
    naming the place of what can't be kept to."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RequestError(
                f"is no JSON: {error}", where=where, remedy="Send an object, or its text"
            ) from None
    reader = _Reader()
    said = reader.mapping(value, where)
    if "type" in said and said["type"] != "structural_tag":
        refuse(f"{where}.type", f"{said['type']!r:.80} is none", "Send structural_tag")
    if "structures" in said or "triggers" in said:
        reader.known(said, ("type", "structures", "triggers"), where)
        read: Format = reader.structures(said, where)
    else:
        reader.known(said, ("type", "format"), where)
        read = reader.format(said.get("format"), f"{where}.format")
    return StructuralTag(read, tuple(reader.texts), where)


class _Reader(TagValues):
    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._depth = 0

    def format(self, value: object, where: str) -> Format:
        said = self.mapping(value, where)
        kind = said.get("type")
        make = _KINDS.get(kind) if isinstance(kind, str) else None
        if make is None:
            raise UnsupportedParameterError(
                f"{kind!r:.80} is no kind of format that can be kept to",
                where=f"{where}.type",
                remedy=f"Use {', '.join(_KINDS)}",
            )
        self._count += 1
        self._depth += 1
        if self._count > FORMATS_LIMIT or self._depth > LEVELS_LIMIT:
            refuse(
                where,
                "there are too many formats, or levels of them",
                f"Send {FORMATS_LIMIT} at most, on {LEVELS_LIMIT} levels",
            )
        read = make(self, said, where)
        self._depth -= 1
        return read

    def const_string(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "value"), where)
        return Fixed(self.fixed(said.get("value"), f"{where}.value"))

    def json_schema(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "json_schema", "style"), where)
        if said.get("style", "json") != "json":
            raise UnsupportedParameterError(
                f"{said['style']!r:.80} isn't supported", where=f"{where}.style", remedy="Use json"
            )
        return self._schema(said, "json_schema", where)

    def _schema(self, said: Mapping[str, Any], key: str, where: str) -> Format:
        if key not in said:
            refuse(f"{where}.{key}", "is missing", "Add it")
        return Structured(json_schema(said[key], f"{where}.{key}"))

    def grammar(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "grammar"), where)
        at = f"{where}.grammar"
        text = text_of(said.get("grammar"), at)
        return Structured(GbnfAnswer(text, at) if "::=" in text else GrammarAnswer(text, at))

    def regex(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "pattern"), where)
        at = f"{where}.pattern"
        return Pattern(RegexAnswer(text_of(said.get("pattern"), at), at))

    def any_text(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "excludes"), where)
        return AnyText(self.excluded(said, "excludes", where))

    def sequence(self, said: Mapping[str, Any], where: str) -> Format:
        return Sequence(self._elements(said, where), f"{where}.elements")

    def one_of(self, said: Mapping[str, Any], where: str) -> Format:
        return OneOf(self._elements(said, where))

    def _elements(self, said: Mapping[str, Any], where: str) -> tuple[Format, ...]:
        self.known(said, ("type", "elements"), where)
        elements = self.items(said.get("elements"), f"{where}.elements")
        return tuple(
            self.format(element, f"{where}.elements[{index}]")
            for index, element in enumerate(elements)
        )

    def tag(self, value: object, where: str, content: str = "content") -> Tag:
        said = self.mapping(value, where)
        self.known(said, ("type", "begin", content, "end"), where)
        if said.get("type", "tag") != "tag":
            refuse(f"{where}.type", f"{said['type']!r:.80} is no tag", "Send tags")
        begin = self.fixed(said.get("begin"), f"{where}.begin", empty=True)
        ends = said.get("end")
        if isinstance(ends, list):
            listed = self.items(ends, f"{where}.end")
            end = tuple(
                self.fixed(text, f"{where}.end[{index}]") for index, text in enumerate(listed)
            )
        else:
            end = (self.fixed(ends, f"{where}.end", empty=True),)
        if content == "schema":
            return Tag(begin, self._schema(said, content, where), end, where)
        return Tag(begin, self.format(said.get(content), f"{where}.{content}"), end, where)

    def structures(self, said: Mapping[str, Any], where: str) -> Format:
        listed = self.items(said.get("structures"), f"{where}.structures")
        tags = [
            self.tag(item, f"{where}.structures[{index}]", "schema")
            for index, item in enumerate(listed)
        ]
        return TriggeredTags(self._triggered(said, tags, where))

    def triggered_tags(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "triggers", "tags", "excludes", *_FLAGS), where)
        return TriggeredTags(
            self._triggered(said, self._tags(said, where), where),
            certain=self.flag(said, "at_least_one", where),
            once=self.flag(said, "stop_after_first", where),
            excluded=self.excluded(said, "excludes", where),
        )

    def tags_with_separator(self, said: Mapping[str, Any], where: str) -> Format:
        self.known(said, ("type", "tags", "separator", *_FLAGS), where)
        tags = tuple(self._tags(said, where))
        separator = self.fixed(said.get("separator"), f"{where}.separator", empty=True)
        return SeparatedTags(
            tags,
            separator,
            certain=self.flag(said, "at_least_one", where),
            once=self.flag(said, "stop_after_first", where),
        )

    def _tags(self, said: Mapping[str, Any], where: str) -> list[Tag]:
        listed = self.items(said.get("tags"), f"{where}.tags")
        return [self.tag(item, f"{where}.tags[{index}]") for index, item in enumerate(listed)]

    def _triggered(
        self, said: Mapping[str, Any], tags: list[Tag], where: str
    ) -> tuple[tuple[str, Tag], ...]:
        """Each tag with its trigger."""
        at = f"{where}.triggers"
        triggers: list[str] = []
        for index, item in enumerate(self.items(said.get("triggers"), at)):
            trigger = self.fixed(item, f"{at}[{index}]")
            for other in triggers:
                if trigger in other or other in trigger:
                    refuse(
                        f"{at}[{index}]",
                        f"{trigger!r:.80} and {other!r:.80} can't be told apart",
                        "Send triggers of which none is in another",
                    )
            if not any(tag.begin.startswith(trigger) for tag in tags):
                refuse(f"{at}[{index}]", "no tag begins with it", "Leave it out")
            triggers.append(trigger)
        if len(triggers) > TRIGGERS_LIMIT:
            refuse(at, f"{len(triggers)} are too many", f"Send {TRIGGERS_LIMIT} at most")
        found = []
        for tag in tags:
            its = [trigger for trigger in triggers if tag.begin.startswith(trigger)]
            if not its:
                refuse(f"{tag.where}.begin", "no trigger begins it", "Add one")
            found.append((its[0], tag))
        return tuple(found)


_KINDS: Final[dict[str, Callable[[_Reader, Mapping[str, Any], str], Format]]] = {
    "const_string": _Reader.const_string,
    "json_schema": _Reader.json_schema,
    "grammar": _Reader.grammar,
    "regex": _Reader.regex,
    "any_text": _Reader.any_text,
    "sequence": _Reader.sequence,
    "or": _Reader.one_of,
    "tag": _Reader.tag,
    "triggered_tags": _Reader.triggered_tags,
    "tags_with_separator": _Reader.tags_with_separator,
}
