"""Conversations that a style's template can render: made by hand, and generated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.frontend.chat_styles.styles import Style


@dataclass(frozen=True)
class Conversation:
    """What a template is asked to render. `continued`: the last message goes on."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    generation_prompt: bool = True
    continued: bool = False


def _tool(name: str, about: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    _tool(
        "find_part",
        "Finds a part by its code (Größe, 'quotes' & <angles>).",
        code={"type": "string", "description": "Like AB-12"},
        limit={"type": ["integer", "null"], "minimum": 1, "default": None},
        kinds={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    ),
    _tool("ping", ""),
]


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call{number:05d}", "type": "function", "function": function}


def _with_calls(style: Style) -> list[dict[str, Any]]:
    arguments = {"code": 'AB-<12>&"x"\n', "limit": 5, "deep": {"é": [1.5, True, None]}}
    calls = [_call(1, "find_part", arguments), _call(2, "ping", {})]
    if not style.several:
        calls = calls[:1]
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"{number} found\n"}
        for number, call in enumerate(calls)
    ]
    return [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": "", "tool_calls": calls},
        *answers,
    ]


def by_hand(style: Style) -> Iterator[tuple[str, Conversation]]:
    """Named conversations for a style."""
    ask = {"role": "user", "content": " Hello, wörld!\n\n"}
    answer = {"role": "assistant", "content": "Hello to you. "}
    again = {"role": "user", "content": "\tand 🦜?"}
    system = {"role": "system", "content": "Be kind: é < 'x' & \"y\"\n"}
    for number, variables in enumerate(style.variables):
        yield f"one{number}", Conversation([ask], variables=variables)
    yield "system", Conversation([system, ask])
    yield "turns", Conversation([system, ask, answer, again])
    yield "ended", Conversation([ask, answer], generation_prompt=False)
    yield (
        "continued",
        Conversation(
            [ask, {"role": "assistant", "content": "It begins "}],
            generation_prompt=False,
            continued=True,
        ),
    )
    if "tools" in style.speaks:
        for number, variables in enumerate(style.variables):
            yield f"tools{number}", Conversation([system, ask], tools=TOOLS, variables=variables)
    if "results" in style.speaks:
        calls = _with_calls(style)
        yield "results", Conversation(calls, tools=TOOLS)
        done = {"role": "assistant", "content": "There are 2."}
        yield "after", Conversation([system, *calls, done, again], tools=TOOLS)
    if "reasoning" in style.speaks:
        thought = {**answer, "reasoning_content": "They greet me.\n\nSo do I."}
        for number, variables in enumerate(style.variables):
            found = Conversation([ask, thought, again], variables=variables)
            yield f"reasoning{number}", found
        yield "reasoned", Conversation([ask, thought], generation_prompt=False)
    if "parts" in style.speaks:
        parts = [{"type": "text", "text": " What is "}, {"type": "text", "text": "this?"}]
        yield "parts", Conversation([{"role": "user", "content": parts}])
    if "documents" in style.speaks:
        documents = [{"title": "A", "text": "Text.\n"}, {"doc_id": 7, "text": "More <b>"}]
        yield "documents", Conversation([system, ask], documents=documents)
    if "names" in style.speaks:
        yield "names", Conversation([{**ask, "name": "Ann"}, answer, again])


def generated(style: Style, text: st.SearchStrategy[str]) -> st.SearchStrategy[Conversation]:
    """Conversations with texts of clients in all places that the style has for them. Every text
    begins with a letter: what a template makes of empty ones, or of a tool's answer in a user's
    message, are other tests' business."""
    said = text.map(lambda t: "w" + t)
    answers = st.sampled_from(["A short answer.", "é, 7", "Two\nlines"])
    return st.composite(_conversation)(style, said, answers)


def _conversation(
    draw: st.DrawFn, style: Style, said: st.SearchStrategy[str], answers: st.SearchStrategy[str]
) -> Conversation:
    messages: list[dict[str, Any]] = []
    if "system" in style.speaks and draw(st.booleans()):
        messages.append({"role": "system", "content": draw(said)})
    turns = draw(st.integers(1, 3))
    for turn in range(turns):
        question: dict[str, Any] = {"role": "user", "content": draw(said)}
        if "parts" in style.speaks and draw(st.booleans()):
            texts = draw(st.lists(said, min_size=1, max_size=3))
            question["content"] = [{"type": "text", "text": t} for t in texts]
        if "names" in style.speaks and draw(st.booleans()):
            question["name"] = draw(said)
        messages.append(question)
        if "results" in style.speaks and draw(st.booleans()):
            messages += _drawn_calls(draw, style, said, turn)
            messages.append({"role": "assistant", "content": draw(answers)})
        elif turn < turns - 1:
            messages.append({"role": "assistant", "content": draw(answers)})
        if messages[-1]["role"] == "assistant" and "reasoning" in style.speaks:
            messages[-1]["reasoning_content"] = draw(said)
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": draw(said)})
    tools = []
    if "tools" in style.speaks and draw(st.booleans()):
        schema = {"type": "string", "description": draw(said), draw(said): draw(said)}
        tools = [_tool("find", draw(said), **{draw(said): schema})]
    documents = []
    if "documents" in style.speaks and draw(st.booleans()):
        documents = [{"title": draw(said), "text": draw(said), "doc_id": draw(said)}]
    variables = dict(draw(st.sampled_from(style.variables)))
    if "date_string" in variables:
        variables["date_string"] = draw(said)
    if "reasoning_effort" in variables:
        variables["reasoning_effort"] = draw(said)
    if "controls" in variables:
        variables["controls"] = {draw(said): draw(said)}
    return Conversation(messages, tools, documents, variables)


def _drawn_calls(
    draw: st.DrawFn, style: Style, said: st.SearchStrategy[str], turn: int
) -> list[dict[str, Any]]:
    count = draw(st.integers(1, 2)) if style.several else 1
    calls = [
        _call(10 * turn + number, draw(said), {draw(said): draw(said), "n": [draw(said)]})
        for number in range(count)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": draw(said)} for call in calls
    ]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]
