"""How model families write calls and reasoning, as the data that contracts carry.

A recipe names the ones of its family. What the fields mean is `contract.proto`'s, what is done
with them the frontend's; families that write alike share an entry.
"""

from __future__ import annotations

from typing import Final

from helios.schema.contract_pb2 import ReasoningSyntax, ToolSyntax

# Qwen3-Coder, Qwen3.5 and later, Nemotron 3: tool parser FUNCTION_TAGS.
FUNCTION_TAGS: Final = ToolSyntax(
    open="<tool_call>",
    close="</tool_call>",
    separator="\n",
    wrapping_newlines=True,
    call_open="<function=",
    name_close=">",
    call_close="</function>",
    argument_open="<parameter=",
    argument_name_close=">",
    argument_close="</parameter>",
)

THINK_TAGS: Final = ReasoningSyntax(open="<think>", close="</think>", wrapping_newlines=True)
THINK_TAGS_ENDED_BY_CALLS: Final = ReasoningSyntax(
    open="<think>", close="</think>", wrapping_newlines=True, terminal_marker="<tool_call>"
)
