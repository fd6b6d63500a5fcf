"""Every syntax with the fragments that its responses are made of, for tests that hold for all."""

from __future__ import annotations

from typing import Any, Final

from tests.frontend.response.reading import Syntax
from tests.frontend.response.test_function_tags import QWEN, SPELLED

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
    "<parameter=",
    "\n</parameter>\n",
    "</parameter>",
    "<think>",
    "</think>",
    "\n</think>\n\n",
)
EVERY: Final[list[tuple[Syntax, tuple[str, ...]]]] = [
    (QWEN, _FUNCTION_TAGS),
    (SPELLED, _FUNCTION_TAGS),
]
