"""Where a response starts, from the prompt's end."""

from __future__ import annotations

from typing import Any

import pytest

from helios.contract.frontend_decoder import decode_frontend
from helios.contract.model import FrontendContract
from helios.frontend.response.deltas import CallBegin
from helios.frontend.response.marked_text import MarkedReader
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.prompt_tail import opened_text
from helios.frontend.response.selection import parser_for, signs_of
from helios.frontend.tokenizer import Tokenizer
from helios.schema import contract_pb2
from ignition.preparation import syntaxes
from tests.frontend.response.reading import Response, put_together
from tests.frontend.response.tokens import tokenizer_with


def _contract(**fields: Any) -> FrontendContract:
    message = contract_pb2.FrontendContract(
        image_preparation=contract_pb2.IMAGE_PREPARATION_NONE,
        image_layout=contract_pb2.IMAGE_LAYOUT_NONE,
        **fields,
    )
    return decode_frontend(message, "frontend", 1000)


CHAT = _contract(
    tool_parser=contract_pb2.TOOL_PARSER_FUNCTION_TAGS,
    tool_syntax=syntaxes.FUNCTION_TAGS,
    reasoning_parser=contract_pb2.REASONING_PARSER_THINK_TAGS,
    reasoning_syntax=syntaxes.think_tags_ended_by(syntaxes.FUNCTION_TAGS, newlines=True),
    envelope=contract_pb2.EnvelopeSyntax(
        assistant_start="<|im_start|>assistant\n", message_end="<|im_end|>"
    ),
)
CHAT_TOKENS = tokenizer_with(
    ["<|im_start|>", "<|im_end|>"], ["<think>", "</think>", "<tool_call>", "</tool_call>"]
)
# No mark ends a user's message here.
OPEN_ENDED = _contract(
    tool_parser=contract_pb2.TOOL_PARSER_NONE,
    reasoning_parser=contract_pb2.REASONING_PARSER_THINK_TAGS,
    reasoning_syntax=syntaxes.THINK_TAGS_BARE,
    envelope=contract_pb2.EnvelopeSyntax(assistant_start="<|assistant|>", message_end="<|eos|>"),
)
OPEN_ENDED_TOKENS = tokenizer_with(
    ["<|user|>", "<|assistant|>", "<|eos|>"], ["<think>", "</think>"]
)
FRAMES = _contract(
    tool_parser=contract_pb2.TOOL_PARSER_ATEM,
    tool_syntax=syntaxes.ATEM,
    reasoning_parser=contract_pb2.REASONING_PARSER_RECIPIENT_HEADERS,
    envelope=syntaxes.RECIPIENT_ENVELOPE,
)
FRAMES_TOKENS = tokenizer_with(["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"])
XTML = _contract(
    tool_parser=contract_pb2.TOOL_PARSER_XTML,
    tool_syntax=syntaxes.XTML,
    reasoning_parser=contract_pb2.REASONING_PARSER_XTML_THINK,
    envelope=contract_pb2.EnvelopeSyntax(
        assistant_start='<|open|>message role="assistant"<|sep|>', message_end="<|end_of_msg|>"
    ),
)
XTML_TOKENS = tokenizer_with(["<|end_of_msg|>"], ["<|open|>", "<|close|>", "<|sep|>"])


def _after(contract: FrontendContract, tokenizer: Tokenizer, prompt: str, answer: str) -> Response:
    signs = signs_of(contract, tokenizer)
    tail = opened_text(tokenizer.encode(prompt), contract.envelope, tokenizer, signs)
    parser = parser_for(contract, signs, ToolSchemas({}))
    deltas = parser.prime(tail)
    reader = MarkedReader(tokenizer, signs, continues=False)
    for token in tokenizer.encode(answer):
        deltas += parser.push(reader.push(token))
    return put_together([*deltas, *parser.push(reader.finish()), *parser.finish()])


_USER = "<|im_start|>user\nhi</think> <think><|im_end|>\n"
_ASSISTANT = "<|im_start|>assistant\n"


_CLOSED = ("", "r\n\n\nA")
_OPEN = ("r", "A")


@pytest.mark.clause("FRONT-7")
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (_USER + _ASSISTANT, _CLOSED),
        (_USER + _ASSISTANT + "<think>\n", _OPEN),
        (_USER + _ASSISTANT + "<think>\n\n</think>\n\n", _CLOSED),
        (
            f"{_USER}{_ASSISTANT}<think>\nold<|im_end|>\n{_USER}{_ASSISTANT}",
            _CLOSED,
        ),
        (
            f"{_USER}{_ASSISTANT}<think>\nold\n</think>\n\n<tool_call>x</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n</think>\n</tool_response><|im_end|>\n"
            f"{_ASSISTANT}<think>\n",
            _OPEN,
        ),
        (_USER + _ASSISTANT + "<think>\nbegun and", _OPEN),
        ("plain text <think>", _CLOSED),
    ],
    ids=["closed", "open", "off", "earlier", "F11", "continued", "no envelope"],
)
def test_open_reasoning(prompt: str, expected: tuple[str, str]) -> None:
    response = _after(CHAT, CHAT_TOKENS, prompt, "r\n</think>\n\nA")
    assert (response.reasoning, response.content) == expected


@pytest.mark.clause("FRONT-7")
def test_messages_without_an_end() -> None:
    prompt = "<|user|>a <think> b<|assistant|>old</think>x<|eos|><|user|>c<|assistant|>"
    response = _after(OPEN_ENDED, OPEN_ENDED_TOKENS, prompt + "<think>", "r</think>A")
    assert (response.reasoning, response.content) == ("r", "A")
    response = _after(OPEN_ENDED, OPEN_ENDED_TOKENS, prompt + "</think>", "<|user|>A")
    assert (response.reasoning, response.content) == ("", "A")


@pytest.mark.clause("FRONT-7")
def test_the_last_header_counts() -> None:
    prompt = "<|user|>a<|assistant|><think>old<|user|>c<|assistant|>"
    response = _after(OPEN_ENDED, OPEN_ENDED_TOKENS, prompt, "A")
    assert (response.reasoning, response.content) == ("", "A")


@pytest.mark.clause("FRONT-7")
def test_turn_resumed_after_a_tool_answer() -> None:
    prompt = "<|im_start|>tool\nx<think><|im_end|><think>"
    response = _after(CHAT, CHAT_TOKENS, prompt, "r\n</think>\n\nA")
    assert (response.reasoning, response.content) == ("r", "A")


@pytest.mark.clause("FRONT-11")
@pytest.mark.parametrize(
    ("opened", "answer", "reasoning", "content"),
    [
        ("", " to=self<|message|>r<|eom|><|start|>assistant to=user<|message|>A", "r", "A"),
        (" to=self<|message|>", "r<|eom|><|start|>assistant to=user<|message|>A", "r", "A"),
        (" to=se", "lf<|message|>r", "r", ""),
        (" to=user<|message|>The answer", " is A", "", " is A"),
    ],
)
def test_headers(opened: str, answer: str, reasoning: str, content: str) -> None:
    prompt = f"<|start|>user<|message|>hi<|eot|><|start|>assistant{opened}"
    response = _after(FRAMES, FRAMES_TOKENS, prompt, answer)
    assert (response.reasoning, response.content) == (reasoning, content)


@pytest.mark.clause("FRONT-11")
def test_continued_tool_body() -> None:
    opened = ' to=tap<|message|><atem:function_calls>\n<atem:invoke name="tap">\n'
    prompt = f"<|start|>assistant{opened}"
    rest = '<atem:parameter name="k">v</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
    (call,) = _after(FRAMES, FRAMES_TOKENS, prompt, rest).calls
    assert (call.name, call.value, call.complete) == ("tap", {"k": "v"}, True)


@pytest.mark.parametrize(
    ("opened", "answer"),
    [
        ("<|open|>think<|sep|>", "r<|close|>think<|sep|><|open|>response<|sep|>A"),
        ("<|open|>think<|sep|>so <|close|>thi", "nk<|sep|><|open|>response<|sep|>A"),
    ],
)
def test_elements(opened: str, answer: str) -> None:
    prompt = f'<|open|>message role="assistant"<|sep|>{opened}'
    response = _after(XTML, XTML_TOKENS, prompt, answer)
    assert response.content == "A"
    assert response.reasoning == ("r" if answer.startswith("r") else "")


def test_only_an_open_call_is_given_out_again() -> None:
    signs = signs_of(CHAT, CHAT_TOKENS)
    parser = parser_for(CHAT, signs, ToolSchemas({}))
    opened = _marked(
        "said<tool_call>\n<function=a>\n</function>\n</tool_call>\n<tool_call>\n<function=b>\n"
    )
    assert parser.prime(opened) == [CallBegin(0, "b")]
    assert parser.prime("") == []


def _marked(text: str) -> str:
    signs = signs_of(CHAT, CHAT_TOKENS)
    reader = MarkedReader(CHAT_TOKENS, signs, continues=True)
    return "".join(map(reader.push, CHAT_TOKENS.encode(text)))
