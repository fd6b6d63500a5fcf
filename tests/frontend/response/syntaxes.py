"""Every syntax with the fragments that its responses are made of, for tests that hold for all."""

from __future__ import annotations

from typing import Any, Final

from tests.frontend.response import test_argument_tags as argument_tags
from tests.frontend.response import test_frames as frames
from tests.frontend.response import test_function_tags as function_tags
from tests.frontend.response import test_invocation_tags as invocation_tags
from tests.frontend.response import test_json_calls as json_calls
from tests.frontend.response import test_xtml as xtml
from tests.frontend.response.reading import Syntax

TOOLS: Final[dict[str, Any]] = {
    "tick": {},
    "add": {"a": {"type": "integer"}, "b": {"type": ["number", "null"]}},
    "say": {"text": {"type": "string"}, "rows": {"type": "array"}},
}
_FUNCTION_TAGS: Final = (
    "<tool_call>",
    "</tool_call>",
    "<tool_call>\n<function=add>\n",
    "<function=say>\n",
    "<function=tick>",
    "<function=",
    "</function>",
    "\n</function>\n</tool_call>",
    "<parameter=a>\n5\n</parameter>\n",
    "<parameter=text>\n",
    '<parameter=rows>\n[1, {"k": "v"}]',
    '<parameter=rows>\n["</parameter></function>',
    '"]\n</parameter>\n',
    "<parameter=",
    "\n</parameter>\n",
    "</parameter>",
    "<think>",
    "</think>",
    "\n</think>\n\n",
)
_ARGUMENT_TAGS: Final = (
    "<tool_call>",
    "</tool_call>",
    "<tool_call>add",
    "<tool_call>say\n",
    "tick",
    "<arg_key>a</arg_key>",
    "<arg_key>text</arg_key>\n",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<arg_value>5</arg_value>",
    '<arg_value>{"k": [1]}</arg_value>\n',
    '<arg_key>rows</arg_key><arg_value>["</arg_value>',
    '"]</arg_value>',
    "<think>",
    "</think>",
)
_INVOCATIONS: Final = (
    "[calls]",
    "[/calls]",
    '[calls]\n[invoke say">\n',
    '[invoke add">\n',
    '[invoke tick">\n\n[/invoke]\n',
    "[invoke ",
    "[/invoke]",
    '[parameter text" string="true">',
    '[parameter a" string="false">5[/parameter]\n',
    '[parameter b">',
    '[parameter rows">["[/parameter][/invoke]',
    '[parameter a" string="false">{"k": "[/parameter]',
    '"]',
    '"}[/parameter]',
    "[parameter ",
    "[/parameter]",
    "<think>",
    "</think>",
)
_JSON: Final = (
    "<tool_call>",
    "</tool_call>",
    '{"name": "say", "arguments": {',
    '{"name": "add", "parameters": {"a": 5}}',
    '{"arguments": {"b": null}, "name": "tick"}',
    '{"arguments": "{\\"b\\": 1}", "name": "tick"}',
    '"text": "',
    '\\"',
    "\\u00e9",
    "\\ud83d\\ude80",
    "[",
    "]",
    ":",
    ",",
    ";",
    "-1.5e3",
    "tick",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS]say[ARGS]",
    "[ARGS]",
    "[CALL_ID]abcdefghi",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>functions.say:0",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
)
_XTML: Final = (
    *map(
        xtml.written,
        (
            "[think]",
            "[/think]",
            "[response]",
            "[/response]",
            "[tools]",
            "[/tools]",
            '[tools][call tool="say"]',
            '[call tool="add" index="1"]',
            "[call]",
            "[/call]",
            '[argument key="text" type="string"]',
            '[argument key="a" type="number"]5[/argument]',
            '[argument key="b"]',
            "[/argument]",
            '[json type="object"]',
            '{"a": [1',
            "[/json]",
            "[/message]",
        ),
    ),
    "<|open|>",
    "<|close|>",
    "<|sep|>",
)
_FRAMES: Final = (
    "<|start|>",
    "<|start|>assistant",
    "<|message|>",
    "<|eom|>",
    "<|end|>",
    "<|call|>",
    "<|channel|>",
    "<|channel|>analysis",
    "<|channel|>final",
    "<|constrain|>json",
    " to=self<|message|>",
    " to=user<|message|>",
    " to=tick<|message|>",
    " to=functions.say",
    " to=atem:function_calls",
    " to",
    "assistant",
    frames.atem("tick"),
    frames.atem("say", '<atem:parameter name="text">a</atem:parameter>'),
    "<atem:function_calls>",
    '<atem:invoke name="say">',
    '<atem:parameter name="text">',
    '<atem:parameter name="rows">["</atem:parameter>',
    '"]</atem:parameter>',
    "</atem:parameter>",
    '{"a": 1',
)


def _written(by: Syntax) -> tuple[str, ...]:
    return tuple(invocation_tags.written(by, fragment) for fragment in _INVOCATIONS)


EVERY: Final[list[tuple[Syntax, tuple[str, ...]]]] = [
    (function_tags.QWEN, _FUNCTION_TAGS),
    (function_tags.SPELLED, _FUNCTION_TAGS),
    *((by, _ARGUMENT_TAGS) for by in argument_tags.EVERY),
    *((by, _XTML) for by in xtml.EVERY),
    *((by, _FRAMES) for by in frames.EVERY),
    *((by, _JSON) for by in json_calls.EVERY),
    *((by, _written(by)) for by in invocation_tags.EVERY),
]
