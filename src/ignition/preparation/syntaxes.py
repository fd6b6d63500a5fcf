"""How model families write calls and reasoning, as the data that contracts carry.

A recipe names the ones of its family. What the fields mean is `contract.proto`'s, what is done
with them the frontend's; families that write alike share an entry.
"""

from __future__ import annotations

from typing import Final

from helios.schema.contract_pb2 import EnvelopeSyntax, ReasoningSyntax, ToolSyntax

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

# GLM-4.5 and 4.6: tool parser ARGUMENT_TAGS. From GLM-4.7 on there is nothing between the tags.
ARGUMENT_TAGS_ON_LINES: Final = ToolSyntax(
    open="<tool_call>",
    close="</tool_call>",
    separator="\n",
    argument_open="<arg_key>",
    argument_name_close="</arg_key>",
    value_open="<arg_value>",
    argument_close="</arg_value>",
)
ARGUMENT_TAGS: Final = ToolSyntax(
    open="<tool_call>",
    close="</tool_call>",
    argument_open="<arg_key>",
    argument_name_close="</arg_key>",
    value_open="<arg_value>",
    argument_close="</arg_value>",
)


def _dsml(block: str, space: str = "") -> ToolSyntax:
    """A dialect of DSML: the block's name, and what stands before each name in a tag."""
    tag = f"\uff5cDSML\uff5c{space}"
    return ToolSyntax(
        open=f"<{tag}{block}>",
        close=f"</{tag}{block}>",
        separator="\n",
        call_open=f'<{tag}invoke name="',
        name_close='">',
        call_close=f"</{tag}invoke>",
        argument_open=f'<{tag}parameter name="',
        argument_name_close='"',
        value_open=">",
        argument_close=f"</{tag}parameter>",
    )


# DeepSeek V3.2, V4 and V4.1: tool parser DSML.
DSML_FUNCTION_CALLS: Final = _dsml("function_calls")
DSML_TOOL_CALLS: Final = _dsml("tool_calls")
DSML_CALLS: Final = _dsml("calls", " ")

# Hermes, Qwen2.5, Qwen3, Qwen3-VL: tool parser TAGGED_JSON.
TAGGED_JSON: Final = ToolSyntax(
    open="<tool_call>", close="</tool_call>", separator="\n", wrapping_newlines=True
)

# Llama 3.x: tool parser BARE_JSON.
BARE_JSON: Final = ToolSyntax(
    open="<|python_tag|>",
    separator=";",
    name_keys=["name"],
    arguments_keys=["parameters", "arguments"],
)

# Mistral, Magistral, Devstral, old layout and new: tool parser CALL_LIST_JSON.
CALL_LIST: Final = ToolSyntax(open="[TOOL_CALLS]", name_close="[ARGS]", call_id_open="[CALL_ID]")

# Kimi K2 and K2.5: tool parser SECTIONS.
CALL_SECTIONS: Final = ToolSyntax(
    open="<|tool_calls_section_begin|>",
    close="<|tool_calls_section_end|>",
    call_open="<|tool_call_begin|>",
    name_close="<|tool_call_argument_begin|>",
    call_close="<|tool_call_end|>",
    name_prefix="functions.",
)

# Kimi K3: tool parser XTML, with reasoning parser XTML_THINK where it reasons.
XTML: Final = ToolSyntax(open="<|open|>", close="<|close|>", separator="<|sep|>")
XTML_ENVELOPE: Final = EnvelopeSyntax(
    assistant_start='<|open|>message role="assistant"<|sep|>', message_end="<|end_of_msg|>"
)

# Muse Glimmer: tool parser ATEM with reasoning parser RECIPIENT_HEADERS.
ATEM: Final = ToolSyntax(
    open="<atem:function_calls>",
    close="</atem:function_calls>",
    separator="\n",
    call_open='<atem:invoke name="',
    name_close='">',
    call_close="</atem:invoke>",
    argument_open='<atem:parameter name="',
    argument_name_close='"',
    value_open=">",
    argument_close="</atem:parameter>",
)
RECIPIENT_ENVELOPE: Final = EnvelopeSyntax(
    assistant_start="<|start|>assistant",
    message_end="<|eot|>",
    header_open="<|start|>",
    header_close="<|message|>",
    body_closes=["<|eom|>"],
    generic_recipients=["atem:function_calls"],
)

# gpt-oss: tool parser CHANNELS with reasoning parser CHANNELS.
CHANNEL_CALLS: Final = ToolSyntax(name_prefix="functions.")
CHANNEL_ENVELOPE: Final = EnvelopeSyntax(
    assistant_start="<|start|>assistant",
    message_end="<|end|>",
    header_open="<|start|>",
    header_close="<|message|>",
    body_closes=["<|end|>", "<|call|>", "<|return|>"],
    channel_open="<|channel|>",
    format_open="<|constrain|>",
)

THINK_TAGS: Final = ReasoningSyntax(open="<think>", close="</think>", wrapping_newlines=True)
THINK_TAGS_BARE: Final = ReasoningSyntax(open="<think>", close="</think>")


def think_tags_ended_by(tools: ToolSyntax, *, newlines: bool = False) -> ReasoningSyntax:
    """Think tags that a call ends, too."""
    return ReasoningSyntax(
        open="<think>", close="</think>", wrapping_newlines=newlines, terminal_marker=tools.open
    )


# Magistral and newer Mistral models.
THINK_BRACKETS: Final = ReasoningSyntax(open="[THINK]", close="[/THINK]")
