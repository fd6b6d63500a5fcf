"""Whether a response begins inside reasoning, for prompts that real templates make."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from helios.contract.frontend_decoder import decode_frontend
from helios.contract.model import FrontendContract
from helios.frontend.prompts import PromptMaker
from helios.frontend.response.marked_text import MarkedReader
from helios.frontend.responses import ResponseReading
from helios.frontend.tools import NO_TOOLS
from helios.schema import contract_pb2
from ignition.preparation import chat, syntaxes
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from tests.frontend.chat_styles import reference
from tests.frontend.chat_styles.styles import STYLES
from tests.frontend.response.reading import Response, put_together


@functools.cache
def _contract(style: str) -> FrontendContract:
    """As a recipe would declare it: the envelope is found by rendering."""
    tokens = STYLES[style].tokens
    message = contract_pb2.FrontendContract(
        tool_parser=contract_pb2.TOOL_PARSER_NONE,
        reasoning_parser=contract_pb2.REASONING_PARSER_THINK_TAGS,
        reasoning_syntax=syntaxes.THINK_TAGS,
        image_preparation=contract_pb2.IMAGE_PREPARATION_NONE,
        image_layout=contract_pb2.IMAGE_LAYOUT_NONE,
        envelope=chat.envelope(
            STYLES[style].template,
            TemplateTokens(
                tokens.get("bos_token"), tokens.get("eos_token"), None, None, add_bos_token=False
            ),
        ),
    )
    return decode_frontend(message, "frontend", 1000)


@functools.cache
def _maker(style: str) -> PromptMaker:
    return reference.maker(STYLES[style], "bytes")


def _after(
    style: str,
    messages: list[dict[str, Any]],
    answer: str,
    *,
    opaque: bool = False,
    **options: Any,
) -> Response:
    """What is read of an answer to a prompt."""
    prompts = _maker(style)
    prompt = prompts.of_messages(messages, **options)
    tokenizer = prompts.tokenizer
    reading = ResponseReading(_contract(style), tokenizer, tokenizer.id_extent)
    start = reading.start(prompt.tokens, NO_TOOLS, opaque=opaque)
    parser = reading.parser(start)
    deltas = parser.prime(start.opened)
    reader = MarkedReader(tokenizer, reading.signs, continues=False)
    for token in tokenizer.encode(answer):
        deltas += parser.push(reader.push(token))
    return put_together([*deltas, *parser.push(reader.finish()), *parser.finish()])


ASK = {"role": "user", "content": "hi </think> <think>"}
OLD = {"role": "assistant", "content": "A", "reasoning_content": "old"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": "", "reasoning_content": "why", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "</think> r <think>"}
ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}

OPENED, CLOSED = "r\n</think>\n\nA", "A"


@pytest.mark.clause("FRONT-7")
@pytest.mark.parametrize(
    ("style", "variables", "answer", "reasoning"),
    [
        ("think_json", ON, f"<think>\n{OPENED}", "r"),
        ("think_json", ON, CLOSED, ""),  # the model may skip it
        ("think_json", OFF, CLOSED, ""),
        ("function_tags", {}, OPENED, "r"),
        ("function_tags", OFF, CLOSED, ""),
        ("argument_tags", {}, OPENED, "r"),
        ("argument_tags", OFF, CLOSED, ""),
        ("call_blocks", {"thinking": True}, OPENED, "r"),
        ("call_blocks", {"thinking": False}, CLOSED, ""),
        ("turns", {}, CLOSED, ""),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize(
    "history", [[], [ASK, OLD], [ASK, CALLED, RESULT, OLD]], ids=["first", "later", "tools"]
)
def test_the_generation_prompt_decides(
    style: str,
    variables: dict[str, Any],
    answer: str,
    reasoning: str,
    history: list[dict[str, Any]],
) -> None:
    response = _after(style, [*history, ASK], answer, variables=variables)
    assert (response.reasoning, response.content) == (reasoning, "A")


@pytest.mark.clause("FRONT-7")
@pytest.mark.parametrize(
    ("style", "variables", "answer", "expected"),
    [
        ("think_json", ON, f"<think>\n{OPENED}", ("r", "A")),
        ("function_tags", {}, OPENED, ("r", "A")),
        ("function_tags", OFF, CLOSED, ("", "A")),
        ("argument_tags", {}, OPENED, ("r", "A")),
        ("call_blocks", {"thinking": True}, CLOSED, ("", "A")),  # the turn goes on unopened
    ],
    ids=lambda value: str(value)[:20],
)
def test_f11_after_a_tools_answer(
    style: str, variables: dict[str, Any], answer: str, expected: tuple[str, str]
) -> None:
    """F11: tags of earlier turns, and spelled ones in results, are none of this turn's."""
    response = _after(style, [ASK, CALLED, RESULT], answer, variables=variables)
    assert (response.reasoning, response.content) == expected


@pytest.mark.clause("FRONT-7")
@pytest.mark.parametrize(
    ("begun", "answer", "expected"),
    [
        ("<think>\nso far", " r\n</think>\n\nA", (" r", "A")),
        ("<think>\nr\n</think>\n\nIt is", " A", ("", " A")),
        ("It is", " A", ("", " A")),
    ],
)
def test_a_message_that_goes_on(begun: str, answer: str, expected: tuple[str, str]) -> None:
    messages = [ASK, {"role": "assistant", "content": begun}]
    response = _after("function_tags", messages, answer, continue_last=True)
    assert (response.reasoning, response.content) == expected


@pytest.mark.clause("FRONT-7")
@pytest.mark.parametrize(("style", "variables"), [("think_json", ON), ("argument_tags", {})])
def test_reasoning_that_goes_on(style: str, variables: dict[str, Any]) -> None:
    messages = [ASK, {"role": "assistant", "content": None, "reasoning_content": "so far"}]
    answer = " r\n</think>\n\nA"
    response = _after(style, messages, answer, continue_last=True, variables=variables)
    assert (response.reasoning.strip("\n"), response.content.strip("\n")) == (" r", "A")


@pytest.mark.clause("FRONT-7")
@pytest.mark.parametrize(("style", "variables"), [("function_tags", OFF), ("argument_tags", OFF)])
def test_i03_a_structured_answer_without_thinking(style: str, variables: dict[str, Any]) -> None:
    """I03: thinking is off, and the form is the answer's from its first token."""
    answer = '{"x": "</think>"}'
    response = _after(style, [ASK], answer, opaque=True, variables=variables)
    assert (response.reasoning, response.content) == ("", answer)


@pytest.mark.parametrize("style", ["think_json", "function_tags", "argument_tags", "call_blocks"])
def test_the_envelope_that_rendering_finds_holds_no_reasoning(style: str) -> None:
    envelope = _contract(style).envelope
    assert "think" not in envelope.assistant_start
    assert "ssistant" in envelope.assistant_start
