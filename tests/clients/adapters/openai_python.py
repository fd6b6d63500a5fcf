"""OpenAI's Python SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, ConfigDict

from tests.clients.sessions import DEADLINE_S, NO_KEY, Answer, Ask, At, Refusal
from tests.clients.tool_sessions import CALLING, OPTIONS, QUESTION, RESULT, TOOL, Session

KINDS: Final = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    429: "RateLimitError",
}


class OpenAIPython:
    """`OpenAI` and, for requests at once, `AsyncOpenAI`."""

    lacks: Mapping[str, str] = {}
    kinds: Mapping[int, str] = KINDS
    too_long = "BadRequestError"

    def models(self, at: At) -> list[str]:
        client = OpenAI(**_settings(at))
        listed = [model.id for model in client.models.list()]
        assert [client.models.retrieve(name).id for name in listed] == listed
        return listed

    def chat(self, at: At, ask: Ask) -> Answer:
        return _answer(OpenAI(**_settings(at)).chat.completions.create(**_body(ask)))

    def stream(self, at: At, ask: Ask) -> Answer:
        chunks = list(
            OpenAI(**_settings(at)).chat.completions.create(
                **_body(ask), stream=True, stream_options={"include_usage": True}
            )
        )
        (*pieces, last), counts = chunks[:-1], chunks[-1]
        text = "".join(piece.choices[0].delta.content or "" for piece in (*pieces, last))
        assert counts.choices == []
        return Answer(
            (text,),
            counts.usage.prompt_tokens,
            counts.usage.completion_tokens,
            (last.choices[0].finish_reason,),
        )

    def abandon(self, at: At, ask: Ask, pieces: int) -> None:
        stream = OpenAI(**_settings(at)).chat.completions.create(**_body(ask), stream=True)
        for _ in range(pieces):
            next(stream)
        stream.close()

    def together(self, at: At, asks: Sequence[Ask]) -> list[Answer]:
        async def ask_all() -> list[Any]:
            async with AsyncOpenAI(**_settings(at)) as client:
                create = client.chat.completions.create
                return await asyncio.gather(*(create(**_body(ask)) for ask in asks))

        return [_answer(completion) for completion in asyncio.run(ask_all())]

    def refusal(self, at: At, ask: Ask) -> Refusal:
        try:
            self.chat(at, ask)
        except openai.APIStatusError as error:
            return Refusal(type(error).__name__, error.status_code, error.code, error.param)
        raise AssertionError("the request was not refused")

    def tool_session(self, at: At) -> Session:
        create = OpenAI(**_settings(at)).chat.completions.create
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        said = create(messages=messages, **OPTIONS, **CALLING).choices[0].message
        (call,) = said.tool_calls
        messages += [said, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
        answer = create(messages=messages, tools=[TOOL], **OPTIONS).choices[0].message
        return Session(call.function.name, json.loads(call.function.arguments), answer.content)

    def streamed_call(self, at: At) -> tuple[str, dict[str, Any]]:
        messages: Any = [{"role": "user", "content": QUESTION}]
        with OpenAI(**_settings(at)).chat.completions.stream(
            messages=messages, **OPTIONS, **CALLING
        ) as stream:
            (call,) = stream.get_final_completion().choices[0].message.tool_calls or []
        return call.function.name, json.loads(call.function.arguments)

    def structured(self, at: At) -> list[dict[str, Any]]:
        messages: Any = [{"role": "user", "content": "Which balls are there?"}]
        parsed = OpenAI(**_settings(at)).chat.completions.parse(
            messages=messages, response_format=Balls, **OPTIONS
        )
        found = parsed.choices[0].message.parsed
        assert isinstance(found, Balls)
        return [found.model_dump()]


class Balls(BaseModel):
    """Some balls of a colour."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green", "blue"]
    count: int


def _settings(at: At) -> dict[str, Any]:
    key = NO_KEY if at.key is None else at.key
    return {"base_url": at.api, "api_key": key, "max_retries": 0, "timeout": DEADLINE_S}


def _body(ask: Ask) -> Any:
    return ask.body()


def _answer(completion: Any) -> Answer:
    choices = completion.choices
    entries = choices[0].logprobs.content if choices[0].logprobs else []
    return Answer(
        tuple(choice.message.content for choice in choices),
        completion.usage.prompt_tokens,
        completion.usage.completion_tokens,
        tuple(choice.finish_reason for choice in choices),
        tuple(entry.logprob for entry in entries),
        tuple(tuple(top.logprob for top in entry.top_logprobs) for entry in entries),
    )
