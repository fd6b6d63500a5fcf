"""LangChain's `ChatOpenAI`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.clients.adapters.openai_python import KINDS, Balls
from tests.clients.sessions import DEADLINE_S, NO_KEY, Answer, Ask, At, Refusal
from tests.clients.tool_sessions import OPTIONS, QUESTION, RESULT, TOOL, Session


class LangChain:
    """Errors are those of OpenAI's SDK, which it uses, and kinds of them."""

    lacks: Mapping[str, str] = {"models": "ChatOpenAI lists no models"}
    kinds: Mapping[int, str] = KINDS
    too_long = "ContextOverflowError"

    def models(self, at: At) -> list[str]:
        raise NotImplementedError

    def chat(self, at: At, ask: Ask) -> Answer:
        return _answer(_model(at, ask).generate([_messages(ask)]))

    def stream(self, at: At, ask: Ask) -> Answer:
        whole: AIMessageChunk | None = None
        for piece in _model(at, ask).stream(_messages(ask)):
            assert isinstance(piece, AIMessageChunk)
            whole = piece if whole is None else whole + piece
        assert whole is not None
        usage = whole.usage_metadata
        assert usage is not None
        return Answer(
            (str(whole.content),),
            usage["input_tokens"],
            usage["output_tokens"],
            (whole.response_metadata["finish_reason"],),
        )

    def abandon(self, at: At, ask: Ask, pieces: int) -> None:
        stream = _model(at, ask).stream(_messages(ask))
        for _ in range(pieces):
            next(stream)
        stream.close()  # type: ignore[attr-defined]

    def together(self, at: At, asks: Sequence[Ask]) -> list[Answer]:
        async def ask_all() -> list[Any]:
            return await asyncio.gather(
                *(_model(at, ask).agenerate([_messages(ask)]) for ask in asks)
            )

        return [_answer(result) for result in asyncio.run(ask_all())]

    def refusal(self, at: At, ask: Ask) -> Refusal:
        try:
            self.chat(at, ask)
        except openai.APIStatusError as error:
            kinds = type(error).__mro__
            if ContextOverflowError in kinds:
                name = ContextOverflowError.__name__
            else:
                name = next(kind.__name__ for kind in kinds if kind.__module__ == "openai")
            return Refusal(name, error.status_code, error.code, error.param)
        raise AssertionError("the request was not refused")

    def tool_session(self, at: At) -> Session:
        model = _model(at, _ASKED)
        said = _calling(at).invoke([HumanMessage(QUESTION)])
        assert isinstance(said, AIMessage)
        (call,) = said.tool_calls
        result = ToolMessage(RESULT, tool_call_id=call["id"])
        answer = model.bind_tools([TOOL]).invoke([HumanMessage(QUESTION), said, result])
        return Session(call["name"], call["args"], str(answer.content))

    def streamed_call(self, at: At) -> tuple[str, dict[str, Any]]:
        whole: Any = None
        for piece in _calling(at).stream([HumanMessage(QUESTION)]):
            whole = piece if whole is None else whole + piece
        (call,) = whole.tool_calls
        return call["name"], call["args"]

    def structured(self, at: At) -> list[dict[str, Any]]:
        found = []
        for method in ("json_schema", "function_calling"):
            asking = _model(at, _ASKED).with_structured_output(Balls, method=method)
            balls = asking.invoke("Which balls are there?")
            assert isinstance(balls, Balls)
            found.append(balls.model_dump())
        return found


_ASKED = Ask(max_tokens=OPTIONS["max_tokens"], temperature=OPTIONS["temperature"])


def _calling(at: At) -> Any:
    return _model(at, _ASKED).bind_tools([TOOL], tool_choice="required", parallel_tool_calls=False)


def _model(at: At, ask: Ask) -> ChatOpenAI:
    options = ask.options()
    if "stop" in options:
        options["stop"] = [options["stop"]]
    return ChatOpenAI(
        base_url=at.api,
        api_key=NO_KEY if at.key is None else at.key,  # type: ignore[arg-type]
        model=ask.model,
        max_retries=0,
        timeout=DEADLINE_S,
        stream_usage=True,
        **options,
    )


def _messages(ask: Ask) -> list[Any]:
    return [HumanMessage(ask.text)]


def _answer(result: Any) -> Answer:
    (generations,) = result.generations
    metadata = [generation.message.response_metadata for generation in generations]
    usage = result.llm_output["token_usage"]
    entries = (metadata[0].get("logprobs") or {}).get("content", [])
    return Answer(
        tuple(generation.text for generation in generations),
        usage["prompt_tokens"],
        usage["completion_tokens"],
        tuple(one["finish_reason"] for one in metadata),
        tuple(entry["logprob"] for entry in entries),
        tuple(tuple(top["logprob"] for top in entry["top_logprobs"]) for entry in entries),
    )
