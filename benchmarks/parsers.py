"""What reading responses costs a token, for every syntax that the tests know.

    PYTHONPATH=src:. python benchmarks/parsers.py [--tokens 4000] [--profile NAME]

Each response comes token by token, as it does from a model: plain text, a text as a call's
argument, and rows of numbers as another. Figures are microseconds of processor time a token: the
parser alone, the median of `--repeats` passes. `--profile` shows where the time goes for the
syntaxes with that name, in calls. The marks are 5 us for plain text and 15 us inside of a call.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import re
import statistics
import time
from collections.abc import Callable

from tests.frontend.response.reading import Syntax
from tests.frontend.response.syntaxes import EVERY, TOOLS

from helios.contract.enums import ToolParser

TEXT = (
    "The sea is calm to-night. The tide is full, the moon lies fair upon the straits; on the"
    " French coast the light gleams and is gone (at 9:30), and the cliffs of England stand,"
    ' glimmering and vast, out in the tranquil bay: "Come to the window, sweet is the night'
    "-air!\"\nOnly, from the long line of spray where the sea meets the moon-blanch'd land,"
    " Listen! you hear the grating roar of 1,024 pebbles < waves, x = [1, 2], {a: b} & more.\n\n"
)
TEXT_LIMIT_US, CALL_LIMIT_US = 5, 15
_PIECES = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s+")


def pieces(text: str, count: int) -> list[str]:
    """So many tokens of a text, as tokenizers cut it, over and over."""
    found = _PIECES.findall(text)
    return (found * (count // len(found) + 1))[:count]


def frames_of(by: Syntax, name: str) -> tuple[str, str, bool]:
    """What stands before and behind a call's argument, and whether the argument is in JSON."""
    s, parser = by.contract.tool_syntax, by.contract.tool_parser
    line = s.separator
    wrap = "\n" if s.wrapping_newlines else ""
    as_json = f'{{"{name}": '
    match parser:
        case ToolParser.FUNCTION_TAGS:
            head = f"{s.open}{line}{s.call_open}say{s.name_close}{line}"
            argument = f"{s.argument_open}{name}{s.argument_name_close}{wrap}"
            return f"{head}{argument}", f"{wrap}{s.argument_close}{s.call_close}{s.close}", False
        case ToolParser.ARGUMENT_TAGS:
            argument = f"{s.argument_open}{name}{s.argument_name_close}{line}{s.value_open}"
            return f"{s.open}say{line}{argument}", f"{s.argument_close}{s.close}", False
        case ToolParser.DSML | ToolParser.ATEM:
            head = f"{s.open}{line}{s.call_open}say{s.name_close}{line}"
            flag = "" if parser is ToolParser.ATEM else ' string="true"' * (name == "text")
            if parser is ToolParser.ATEM:
                head = f" to=say{by.contract.envelope.header_close}{head}"
            argument = f"{s.argument_open}{name}{s.argument_name_close}{flag}{s.value_open}"
            return f"{head}{argument}", f"{s.argument_close}{s.call_close}{s.close}", False
        case ToolParser.XTML:
            kind = "string" if name == "text" else "array"
            head = f'{s.close}response{line}{s.open}tools{line}{s.open}call tool="say" index="1"'
            argument = f'{line}{s.open}argument key="{name}" type="{kind}"{line}'
            return f"{head}{argument}", f"{s.close}argument{line}{s.close}call{line}", False
        case ToolParser.TAGGED_JSON:
            head = f'{s.open}{wrap}{{"name": "say", "arguments": '
            return f"{head}{as_json}", f"}}}}{wrap}{s.close}", True
        case ToolParser.BARE_JSON:
            return f'{{"name": "say", "parameters": {as_json}', "}}", True
        case ToolParser.CALL_LIST_JSON:
            return f"{s.open}say{s.name_close}{as_json}", "}", True
        case ToolParser.SECTIONS:
            head = f"{s.open}{s.call_open}{s.name_prefix}say:0{s.name_close}"
            return f"{head}{as_json}", f"}}{s.call_close}{s.close}", True
        case ToolParser.CHANNELS:
            e = by.contract.envelope
            to = f"commentary to={s.name_prefix}say {e.format_open}json"
            return f"{e.channel_open}{to}{e.header_close}{as_json}", "}", True
    raise AssertionError(parser)


def in_call(by: Syntax, name: str, count: int) -> list[str]:
    """A response that is a call with one long argument."""
    before, after, is_json = frames_of(by, name)
    if name == "rows":
        body = [piece for i in range(count // 2) for piece in (str(i), ", ")]
        inner = ["[", *body[:-1], "]"]
    elif is_json:
        written = json.dumps("".join(pieces(TEXT, count)))[1:-1]
        inner = ['"', *re.findall(r"\\.|\s?\w{1,6}|\s?[^\w\s\\]|\s+", written), '"']
    else:
        inner = pieces(TEXT, count)
    return [by.marked(before), *inner, by.marked(after)]


def plain(by: Syntax, count: int) -> list[str]:
    """A response of text alone."""
    envelope = by.contract.envelope
    start = {
        ToolParser.ATEM: f" to=user{envelope.header_close}",
        ToolParser.CHANNELS: f"{envelope.channel_open}final{envelope.header_close}",
    }.get(by.contract.tool_parser, "")
    return [by.marked(start), *pieces(TEXT, count)]


def reader(by: Syntax, tokens: list[str]) -> Callable[[], None]:
    """Reads a response once."""

    def read() -> None:
        parser = by.parser(TOOLS, by.start)
        for token in tokens:
            parser.push(token)
        parser.finish()

    return read


def check(by: Syntax, tokens: list[str], name: str | None) -> None:
    """What is measured has to be what was meant."""
    read = by.read(tokens, TOOLS)
    if name is None:
        assert not read.calls, by.name
        assert read.content, by.name
    else:
        assert [(c.name, list(c.value)) for c in read.calls] == [("say", [name])], (by.name, read)
        assert len(read.calls[0].arguments) > len(tokens), by.name


def microseconds(read: Callable[[], None], tokens: int, repeats: int) -> float:
    """The median processor time a token."""
    passes = []
    for _ in range(repeats):
        began = time.process_time_ns()
        read()
        passes.append((time.process_time_ns() - began) / 1e3 / tokens)
    return statistics.median(passes)


def main() -> None:
    """Prints a line for each syntax."""
    options = argparse.ArgumentParser()
    options.add_argument("--tokens", type=int, default=4000)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--profile")
    asked = options.parse_args()
    missed = []
    print(
        f"{'syntax':32} {'plain text':>12} {'text in call':>14} {'rows in call':>14}   us a token"
    )
    for by, _ in EVERY:
        kinds = {
            None: plain(by, asked.tokens),
            "text": in_call(by, "text", asked.tokens),
            "rows": in_call(by, "rows", asked.tokens),
        }
        if asked.profile is not None and asked.profile not in by.name:
            continue
        figures = {}
        for name, tokens in kinds.items():
            check(by, tokens, name)
            figures[name] = microseconds(reader(by, tokens), len(tokens), asked.repeats)
            if figures[name] > (TEXT_LIMIT_US if name is None else CALL_LIMIT_US):
                missed.append(f"{by.name}, {name or 'plain'}")
        print(f"{by.name:32} {figures[None]:12.2f} {figures['text']:14.2f} {figures['rows']:14.2f}")
        if asked.profile is not None:
            for tokens in kinds.values():
                profile = cProfile.Profile()
                profile.runcall(reader(by, tokens))
                pstats.Stats(profile).sort_stats("tottime").print_stats(14)
    print("over the marks:", ", ".join(missed) or "none")


if __name__ == "__main__":
    main()
