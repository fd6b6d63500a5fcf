"""Objects and arrays as values between tags that text can spell: their strings may spell them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.response import test_argument_tags as argument_tags
from tests.frontend.response import test_frames as frames
from tests.frontend.response import test_function_tags as function_tags
from tests.frontend.response import test_invocation_tags as invocation_tags
from tests.frontend.response.reading import QUOTE, Syntax, read_every_way

ATEM = frames.MUSE
GLM = argument_tags.SPELLED
DSML = invocation_tags.SPELLED
SPELLED = [function_tags.QWEN, function_tags.SPELLED, GLM, ATEM, *invocation_tags.EVERY]
TOOLS: dict[str, Any] = {
    "t": {
        "v": {"type": "object"},
        "rows": {"type": ["array", "null"]},
        "n": {"type": "number"},
        "text": {"type": "string"},
    }
}


def call(by: Syntax, *arguments: tuple[str, str]) -> str:
    """A call of `t` with values as they are written."""
    if by is ATEM:
        parts = [f'<atem:parameter name="{k}">{v}</atem:parameter>\n' for k, v in arguments]
        return f" to=t<|message|>{frames.atem('t', ''.join(parts))}"
    match by.contract.tool_parser.name:
        case "FUNCTION_TAGS":
            parts = [f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments]
            return f"<tool_call>\n<function=t>\n{''.join(parts)}</function>\n</tool_call>"
        case "ARGUMENT_TAGS":
            parts = [f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in arguments]
            return f"<tool_call>t{''.join(parts)}</tool_call>"
    parts = [f'[parameter {k}">{v}[/parameter]\n' for k, v in arguments]
    text = f'[calls]\n[invoke t">\n{"".join(parts)}[/invoke]\n[/calls]'
    return invocation_tags.written(by, text)


def spelled(by: Syntax, text: str) -> str:
    """The text with all markers in it spelled, none as its token."""
    for token in by.tokens:
        text = text.replace(token, token[:1] + QUOTE + token[1:])
    return text


def tags(by: Syntax) -> str:
    """What closes an argument and all that follows it, spelled on one line."""
    text = call(by, ("text", "x"), ("text", "y")).partition("x")[2]
    return spelled(by, text.replace("\n", ""))


@pytest.mark.clause("FRONT-5")
@pytest.mark.parametrize("by", SPELLED, ids=lambda by: by.name)
def test_strings_of_structures_may_spell_tags(by: Syntax) -> None:
    close = spelled(by, by.contract.tool_syntax.argument_close)
    everything = tags(by).replace('"', '\\"')
    for value in (f'{{"k": "{everything}"}}', f' {{"a": 1, "b": ["{close}", "\\\\"]}}'):
        text = call(by, ("v", value), ("rows", f'["\\"{close}"]'), ("n", "5"))
        written, rows = value.replace(QUOTE, ""), [f'"{close}'.replace(QUOTE, "")]
        read = read_every_way(by, text, TOOLS)
        assert read.named == [("t", {"v": json.loads(written), "rows": rows, "n": 5})]
        assert written.strip() in read.calls[0].arguments, "as it was written"


@pytest.mark.parametrize("by", [GLM, ATEM, *invocation_tags.EVERY], ids=lambda by: by.name)
def test_values_that_no_schema_knows_may_be_structures(by: Syntax) -> None:
    value = f'{{"k": "{spelled(by, by.contract.tool_syntax.argument_close)}"}}'
    assert read_every_way(by, call(by, ("other", value)), TOOLS).named == [
        ("t", {"other": json.loads(value.replace(QUOTE, ""))})
    ]


@pytest.mark.clause("FRONT-5")
@pytest.mark.parametrize("by", invocation_tags.EVERY[:3], ids=lambda by: by.name)
def test_a_tag_with_its_token_ends_any_value(by: Syntax) -> None:
    value = f'{{"k": "{by.contract.tool_syntax.argument_close}"}}'
    text = call(by, ("v", value), ("n", "5"))
    assert read_every_way(by, text, TOOLS).named == [("t", {"v": '{"k": "', "n": 5})]


@pytest.mark.parametrize("by", SPELLED, ids=lambda by: by.name)
@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('{"k": "a', None),
        ('["a\\', None),
        ('{"k" "v"}', None),
        ('[1] "', None),
        ("{'k': 'it\"s'}", {"k": 'it"s'}),
        ('["a\nb"]', None),
        ('see {"', None),
        ("{", None),
    ],
)
def test_what_is_no_json_ends_at_the_first_tag(by: Syntax, value: str, read: Any) -> None:
    text = call(by, ("v", value), ("text", 'a "quoted" word'), ("n", "5"))
    assert read_every_way(by, text, TOOLS).named == [
        ("t", {"v": value if read is None else read, "text": 'a "quoted" word', "n": 5})
    ]


@pytest.mark.parametrize("by", SPELLED, ids=lambda by: by.name)
def test_an_open_string_at_the_end_of_the_response(by: Syntax) -> None:
    close = by.contract.tool_syntax.argument_close
    for cut, arguments in (('{"k": "v', {}), (f'{{"k": "v{close}', {"v": '{"k": "v'})):
        text = call(by, ("n", "5"), ("v", cut))
        text = text[: text.index(cut) + len(cut)]
        (made,) = read_every_way(by, text, TOOLS).calls
        assert made.value == {"n": 5, **arguments}


@pytest.mark.parametrize("by", SPELLED, ids=lambda by: by.name)
@pytest.mark.parametrize("number", ["9e999", "-1E+400", "1.50", "12345678901234567890123"])
def test_numbers_stay_as_the_model_wrote_them(by: Syntax, number: str) -> None:
    text = call(by, ("v", f'{{"x": {number}}}'), ("rows", f"[{number}]"), ("n", number))
    (made,) = read_every_way(by, text, TOOLS).calls
    assert made.arguments == f'{{"v":{{"x": {number}}},"rows":[{number}],"n":{number}}}'


@pytest.mark.parametrize("by", SPELLED, ids=lambda by: by.name)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_cut_of_a_structure_reads_the_same(by: Syntax, data: st.DataObject) -> None:
    """As for whole responses, but almost always in a structure."""
    whole = call(by, ("v", "VALUE"), ("text", "so"))
    before, _, after = by.marked(whole).partition("VALUE")
    close = by.contract.tool_syntax.argument_close
    parts = ['{"k": "', '"', '["', '"]', "}", "\\", '\\"', "'", "\n", "a", "1e999", " ", ",", "["]
    parts += [by.marked(close), by.marked(spelled(by, close)), by.marked(tags(by)), after, before]
    chosen = data.draw(st.lists(st.sampled_from(parts), max_size=12))
    text = before + "".join(chosen) + after * data.draw(st.integers(0, 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    read = by.read(text, TOOLS)
    assert by.read(pieces, TOOLS) == read
    assert by.read(list(text), TOOLS) == read
    assert all(isinstance(made.value, dict) for made in read.calls)
