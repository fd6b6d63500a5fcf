"""Responses of nested elements between control tokens, reasoning included (XTML).

    why<|close|>think<|sep|><|open|>response<|sep|>Looking.<|close|>response<|sep|>
    <|open|>tools<|sep|><|open|>call tool="stock" index="1"<|sep|>
    <|open|>argument key="sku" type="string"<|sep|>A7<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>

without the line breaks. An element that is expected where it stands is structure; anything else
between the control tokens is text. Elements that were left open end where their neighbours begin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from helios.contract.model import ToolSyntax
from helios.frontend.response.arguments import ArgumentWriter
from helios.frontend.response.deltas import Sink
from helios.frontend.response.json_calls import ArgumentsStream
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.response.matching import Markers, Source
from helios.frontend.response.names import is_name
from helios.frontend.response.parameter_types import ToolSchemas, is_json
from helios.frontend.response.start import Start

_TAG_LIMIT: Final = 4096  # characters
_ATTRIBUTE: Final = re.compile(r'([\w.-]+)="([^"]*)"')


class _Tag(NamedTuple):
    """An opening or closing tag: what stands before it in the text, and where it ends."""

    start: int
    end: int
    opens: bool
    name: str
    attributes: dict[str, str]

    @property
    def what(self) -> str:
        """The name, with a slash for a closing tag."""
        return self.name if self.opens else f"/{self.name}"


class XtmlMachine:
    """`tools` is None where calls aren't looked for: their element is then read over."""

    def __init__(
        self, syntax: ToolSyntax, signs: MarkerSigns, tools: ToolSchemas | None, start: Start
    ) -> None:
        self._plain = signs.plain
        self._tools = tools
        self._open, self._close = signs.sign(syntax.open), signs.sign(syntax.close)
        self._sep = signs.sign(syntax.separator)
        self._controls = Markers([self._open, self._close])
        self._in_tag = Markers([self._open, self._close, self._sep])
        starts = {
            Start.ANSWER: self._between,
            Start.REASONING: self._think,
            Start.CONTENT: self._response,
        }
        self._state: Callable[[Source, Sink], bool] = starts[start]
        self._writer: ArgumentWriter | None = None
        self._json: ArgumentsStream | None = None
        self._json_sink: Callable[[str], None] = _discard
        self._key = ""
        self._is_string = True
        self._value: list[str] = []
        self._in_argument = False

    def step(self, source: Source, sink: Sink) -> bool:
        """As `Machine` says."""
        return self._state(source, sink)

    def finish(self, source: Source, sink: Sink) -> None:
        """Closes a call that was cut."""
        if self._json is not None:
            self._end_json(sink)
        elif self._writer is not None:
            self._end_call(complete=False)

    def primed(self, source: Source) -> None:
        """As `Machine` says."""
        if not source.text.startswith((self._open, self._close)):
            source.text = ""

    # ------------------------------------------------------------ states

    def _think(self, source: Source, sink: Sink) -> bool:
        return self._text(
            source,
            sink.reasoning,
            {
                "/think": self._between,
                "response": self._response,
                "tools": self._calls,
                "/message": self._over,
            },
        )

    def _response(self, source: Source, sink: Sink) -> bool:
        return self._text(
            source,
            sink.content,
            {"/response": self._between, "tools": self._calls, "/message": self._over},
        )

    def _between(self, source: Source, sink: Sink) -> bool:
        return self._text(
            source,
            _discard,
            {
                "think": self._think,
                "response": self._response,
                "tools": self._calls,
                "/message": self._over,
            },
        )

    def _over(self, source: Source, sink: Sink) -> bool:
        """After the calls, and after the message: nothing counts."""
        source.text = ""
        return False

    def _calls(self, source: Source, sink: Sink) -> bool:
        if self._tools is None:
            return self._text(source, _discard, {"/tools": self._over, "/message": self._over})
        tag = self._tag(source, _discard, ("call", "/tools", "/message"))
        if tag is None:
            return False
        if tag.what != "call":
            self._state = self._over
            return True
        name = tag.attributes.get("tool", "")
        if is_name(name):
            self._writer = ArgumentWriter(sink)
            self._writer.begin(name)
            self._state = self._call
        return True

    def _call(self, source: Source, sink: Sink) -> bool:
        assert self._writer is not None
        expected = ("argument", "json", "/call", "call", "/tools", "/message")
        before = len(source.text)
        tag = self._tag(source, _discard, expected, keep=("call", "/tools", "/message"))
        if tag is None:
            return len(source.text) != before and False
        if tag.what == "argument":
            self._begin_argument(tag)
            return True
        if tag.what == "json" and not self._writer.begun:
            self._json = ArgumentsStream(self._plain)
            self._json_sink = sink.arguments
            self._state = self._json_body
            return True
        if tag.what != "json":
            self._end_call(complete=True)
            self._state = self._calls
        return True

    def _begin_argument(self, tag: _Tag) -> None:
        assert self._writer is not None
        self._key = tag.attributes.get("key", "")
        self._is_string = tag.attributes.get("type", "string") == "string"
        self._value = []
        self._in_argument = True
        if self._is_string:
            self._writer.string(self._key)
        self._state = self._argument

    def _argument(self, source: Source, sink: Sink) -> bool:
        assert self._writer is not None
        ends = ("/argument", "/call", "/tools", "/message")
        give = self._writer.text if self._is_string else self._value.append
        tag = self._tag(source, give, ends, keep=ends[1:])
        if tag is None:
            return False
        self._in_argument = False
        if self._is_string:
            self._writer.end_string()
        else:
            value = "".join(self._value)
            typed = value.strip() if is_json(value.strip()) else None
            self._writer.value(self._key, typed or json.dumps(value, ensure_ascii=False))
        self._state = self._call
        return True

    def _json_body(self, source: Source, sink: Sink) -> bool:
        assert self._json is not None
        if not self._json.step(source, sink.arguments):
            return False
        self._end_json(sink)
        self._state = self._after_json
        return True

    def _after_json(self, source: Source, sink: Sink) -> bool:
        return self._text(
            source,
            _discard,
            {"/call": self._calls, "/tools": self._over, "/message": self._over},
        )

    # ------------------------------------------------------------ parts

    def _text(
        self,
        source: Source,
        give: Callable[[str], None],
        follows: dict[str, Callable[[Source, Sink], bool]],
    ) -> bool:
        """Text up to one of some tags, each with the state that it leads to."""
        tag = self._tag(source, give, tuple(follows))
        if tag is None:
            return False
        self._state = follows[tag.what]
        return True

    def _tag(
        self,
        source: Source,
        give: Callable[[str], None],
        expected: tuple[str, ...],
        *,
        keep: tuple[str, ...] = (),
    ) -> _Tag | None:
        """The next tag that is expected, with the text before it given out; None until it is
        there. The tag is consumed, unless it is one to `keep`."""
        while True:
            before, marker = self._controls.find(source.text, final=False)
            if marker is None:
                if source.final:
                    # What could only become a control token is none, and no text either.
                    source.text = source.text[: len(before)]
                source.drop(len(before))
                if before:
                    give(self._plain(before))
                return None
            if before:
                source.drop(len(before))
                give(self._plain(before))
            tag = self._complete_tag(source, marker)
            if tag is None:
                if source.final:
                    source.text = ""
                return None
            if tag.what in expected:
                if tag.what not in keep:
                    source.drop(tag.end)
                return tag
            give(self._plain(source.text[: tag.end]))
            source.drop(tag.end)

    def _complete_tag(self, source: Source, marker: str) -> _Tag | None:
        """The tag that begins here, once its end is known; one without a name where it is none."""
        inside, end = self._in_tag.find(source.text[len(marker) :], final=False)
        opens = marker == self._open
        if end == self._sep and len(inside) <= _TAG_LIMIT:
            name, _, attributes = inside.strip().partition(" ")
            found = {
                key: value.replace("&quot;", '"').replace("&amp;", "&")
                for key, value in _ATTRIBUTE.findall(self._plain(attributes))
            }
            length = len(marker) + len(inside) + len(self._sep)
            return _Tag(0, length, opens, name, found)
        if end is None and len(inside) <= _TAG_LIMIT:
            return None
        return _Tag(0, len(marker), opens, "", {})

    def _end_json(self, sink: Sink) -> None:
        assert self._json is not None
        sink.end_call(complete=self._json.finish(sink.arguments))
        self._json = None
        self._writer = None

    def _end_call(self, *, complete: bool) -> None:
        assert self._writer is not None
        self._writer.end(complete=complete and not self._in_argument)
        self._writer = None
        self._in_argument = False


def _discard(text: str) -> None:
    """Takes noise."""
