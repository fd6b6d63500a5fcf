"""Which syntax of calls and reasoning a template tells, and tools in templates that show none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helios.errors import ContractError
from helios.frontend.markers import MarkerGuard
from helios.frontend.prompts import PromptMaker
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from helios.schema import contract_pb2 as pb
from ignition.preparation import syntaxes
from ignition.preparation.chat_syntax import REASONING, TOOLS, check_names, choose
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.errors import CheckpointError
from tests.frontend.chat_styles import conversations
from tests.frontend.chat_styles.styles import STYLES, Style

TOKENS = TemplateTokens("<s>", "</s>", None, None, add_bos_token=False)
TOLD = {
    "turns": ("tagged_json", "none"),
    "brackets": ("tagged_json", "none"),
    "headers": ("bare_json", "none"),
    "think_json": ("tagged_json", "think_lines"),
    "function_tags": ("function_tags", "think_lines"),
    "argument_tags": ("argument_tags", "think_tags"),
    "call_blocks": ("none", "think_tags"),  # a syntax that isn't known
    "call_list": ("call_list", "none"),
    "channels": ("channels", "channels"),
    "model_turns": ("tagged_json", "none"),
    "role_tokens": ("tagged_json", "none"),
    "documents": ("tagged_json", "none"),
    "call_sections": ("sections", "none"),
}
TOOLLESS = [style for style in STYLES.values() if "tools" not in style.speaks]


@pytest.mark.parametrize("name", STYLES)
def test_a_template_tells_its_syntax(name: str) -> None:
    style = STYLES[name]
    chosen = choose(style.template, TOKENS)
    assert (chosen.tools, chosen.reasoning) == TOLD[name]
    assert (chosen.template == style.template) == ("tools" in style.speaks)


@pytest.mark.parametrize(
    ("written", "tools", "reasoning"),
    [
        ("{{ tools }}<\uff5cDSML\uff5cfunction_calls>", "dsml_function_calls", "none"),
        ("{{ tools }}<\uff5cDSML\uff5ctool_calls></think>", "dsml_tool_calls", "think_tags"),
        ("{{ tools }}<\uff5cDSML\uff5c calls>", "dsml_calls", "none"),
        (r"{{ tools }}{{ '</arg_key>\n<arg_value>' }}", "argument_tags_on_lines", "none"),
        ("{{ tools }}</arg_key>\n<arg_value>", "argument_tags_on_lines", "none"),
        ("{{ tools }}<arg_key>", "argument_tags", "none"),
        ("{{ tools }}<|python_tag|>", "bare_json", "none"),
        (r"""{{ tools }}{{ "{\"parameters\": " }}""", "bare_json", "none"),
        ("{{ tools }}[TOOL_CALLS][THINK]", "call_list", "think_brackets"),
        ("{{ tools }}<atem:invoke", "atem", "recipient_headers"),
        ("{{ tools }}", "none", "none"),
    ],
)  # fmt: skip
def test_what_is_spelled_tells_the_syntax(written: str, tools: str, reasoning: str) -> None:
    chosen = choose(written, TOKENS)
    assert (chosen.tools, chosen.reasoning) == (tools, reasoning)


def test_a_preparation_may_know_better() -> None:
    chosen = choose(STYLES["function_tags"].template, TOKENS, tools="none", reasoning="none")
    assert (chosen.tools, chosen.reasoning) == ("none", "none")
    assert chosen.tool_entry.parser == pb.TOOL_PARSER_NONE
    plain = choose(STYLES["turns"].template, TOKENS, tools="bare_json", reasoning="think_tags")
    assert plain.template == STYLES["turns"].template, "calls in another form aren't shown so"
    assert plain.tool_entry.syntax == syntaxes.BARE_JSON
    assert choose(None, TOKENS).template is None
    assert choose(None, TOKENS).tools == "none"


@pytest.mark.parametrize(
    ("tools", "reasoning", "option"),
    [("brackets", "auto", "--tools"), ("auto", "thinking", "--reasoning")],
)
def test_names_of_nothing_are_refused(tools: str, reasoning: str, option: str) -> None:
    with pytest.raises(ContractError, match="there is no syntax") as refused:
        check_names(tools, reasoning)
    assert refused.value.where == option
    for name in TOOLS:
        check_names(name, "auto")
    for name in REASONING:
        check_names("auto", name)


@pytest.mark.clause("FRONT-1")
@pytest.mark.parametrize("name", ["think_json", "function_tags", "argument_tags", "call_blocks"])
def test_what_a_template_opens_after_the_header_is_no_header(name: str) -> None:
    """Else a prompt that opens reasoning would look like one that doesn't."""
    style = STYLES[name]
    start = choose(style.template, TOKENS).envelope.assistant_start
    assert start
    assert "think>" not in start
    template = ChatTemplate(style.template, style.tokens)
    for variables in style.variables:
        asked = [{"role": "user", "content": "a"}]
        assert start in template.render(asked, variables=variables)


@pytest.mark.clause("FRONT-4")
def test_calls_end_reasoning_where_models_write_them_there() -> None:
    ended = choose(STYLES["function_tags"].template, TOKENS).reasoning_entry.syntax
    assert ended.terminal_marker == "<tool_call>"
    assert REASONING["think_lines"].syntax.terminal_marker == "", "the table stays as it is"
    between = choose(STYLES["think_json"].template, TOKENS).reasoning_entry.syntax
    assert between.terminal_marker == ""


# ---------------------------------------------------------------- templates that show no tools


def _both(style: Style) -> tuple[ChatTemplate, ChatTemplate]:
    written = choose(style.template, TOKENS).template
    assert written is not None
    return ChatTemplate(style.template, style.tokens), ChatTemplate(written, style.tokens)


@pytest.mark.parametrize("style", TOOLLESS, ids=lambda style: style.name)
def test_conversations_without_tools_read_as_ever(style: Style) -> None:
    own, told = _both(style)
    assert told.reads_tools
    assert told.reads_parts == own.reads_parts
    found = list(conversations.by_hand(style))
    assert found
    for _, asked in found:
        options: dict[str, Any] = {
            "variables": asked.variables,
            "documents": asked.documents or None,
            "generation_prompt": asked.generation_prompt,
        }
        assert told.render(asked.messages, **options) == own.render(asked.messages, **options)


ARGUMENTS = {"code": 'A"<é>', "limit": 2}
CALLED = {"id": "a", "function": {"name": "find_part", "arguments": ARGUMENTS}}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "Yes.", "tool_calls": [CALLED, CALLED]},
    {"role": "tool", "content": "7 found"},
    {"role": "tool", "content": "8 found"},
    {"role": "assistant", "content": "15."},
    {"role": "user", "content": "And now?"},
]


@pytest.mark.parametrize("style", TOOLLESS, ids=lambda style: style.name)
def test_tools_calls_and_results_are_shown(style: Style) -> None:
    _, told = _both(style)
    text = told.render(HISTORY, tools=conversations.TOOLS)
    for tool in conversations.TOOLS:
        assert json.dumps(tool["function"], ensure_ascii=False) in text
    arguments = {"name": "find_part", "arguments": ARGUMENTS}
    call = json.dumps(arguments, ensure_ascii=False)
    assert text.count(f"<tool_call>\n{call}\n</tool_call>") == 2
    answers = (
        "<tool_response>\n7 found\n</tool_response>\n<tool_response>\n8 found\n</tool_response>"
    )
    assert answers in text
    order = ["Look.", "Yes.", "7 found", "15.", "And now?"]
    assert sorted(order, key=text.index) == order
    without = told.render(HISTORY, tools=None)
    assert "You may call" not in without
    assert answers in without


def test_a_system_message_keeps_its_text_and_its_place() -> None:
    _, told = _both(STYLES["turns"])
    messages = [{"role": "system", "content": "Be kind."}, *HISTORY]
    text = told.render(messages, tools=conversations.TOOLS)
    assert text.startswith("<|im_start|>system\nBe kind.\n\nYou may call these tools")
    assert text.count("<|im_start|>system") == 1


def test_parts_are_joined_where_the_prologue_needs_text() -> None:
    _, told = _both(STYLES["model_turns"])
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": parts}, {"role": "user", "content": parts}]
    text = told.render(messages, tools=conversations.TOOLS)
    assert "one\ntwo\n\nYou may call" in text


def test_only_the_template_places_markers() -> None:
    style = STYLES["turns"]
    tokenizer = Tokenizer(style.tokenizer("bytes"))
    _, template = _both(style)
    maker = PromptMaker(
        tokenizer=tokenizer,
        guard=MarkerGuard(tokenizer, []),
        template=template,
        bos_token=None,
        max_context_tokens=4096,
        input_tokens=tokenizer.id_extent,
    )
    quoted = "<|im_end|>"
    tool = {"type": "function", "function": {"name": "f", "description": quoted}}
    history = [*HISTORY, {"role": "tool", "content": quoted}]
    prompt = maker.of_messages(history, tools=[tool])
    assert prompt.tokens.count(tokenizer.token_id(quoted) or 0) == 7
    continued = [*HISTORY, {"role": "assistant", "content": "It is"}]
    text = maker.of_messages(continued, tools=[tool], continue_last=True).text
    assert text is not None
    assert text.endswith("It is")


def test_templates_that_fail_are_refused() -> None:
    with pytest.raises(CheckpointError, match="chat template can't be rendered"):
        choose("{% for %}", TOKENS)
