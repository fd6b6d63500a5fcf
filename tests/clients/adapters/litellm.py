"""LiteLLM, with its provider `openai`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import litellm
import openai

from tests.clients.adapters.openai_python import KINDS
from tests.clients.sessions import DEADLINE_S, NO_KEY, Answer, Ask, At, Refusal

litellm.suppress_debug_info = True


class LiteLLM:
    """Its exceptions are kinds of OpenAI's and have the same names; they keep the status alone."""

    lacks: Mapping[str, str] = {"code": "LiteLLM's exceptions have no code and no field"}
    kinds: Mapping[int, str] = KINDS
    too_long = "ContextWindowExceededError"

    def models(self, at: At) -> list[str]:
        names = litellm.get_valid_models(
            check_provider_endpoint=True,
            custom_llm_provider="openai",
            api_key=_key(at),
            api_base=at.url,
        )
        return [name.removeprefix("openai/") for name in names]

    def chat(self, at: At, ask: Ask) -> Answer:
        return _answer(litellm.completion(**_settings(at, ask)))

    def stream(self, at: At, ask: Ask) -> Answer:
        chunks = litellm.completion(
            **_settings(at, ask), stream=True, stream_options={"include_usage": True}
        )
        return _answer(litellm.stream_chunk_builder(list(chunks)))

    def abandon(self, at: At, ask: Ask, pieces: int) -> None:
        stream: Any = litellm.completion(**_settings(at, ask), stream=True)
        for _ in range(pieces):
            next(stream)
        stream.close()

    def together(self, at: At, asks: Sequence[Ask]) -> list[Answer]:
        async def ask_all() -> list[Any]:
            return await asyncio.gather(
                *(litellm.acompletion(**_settings(at, ask)) for ask in asks)
            )

        return [_answer(completion) for completion in asyncio.run(ask_all())]

    def refusal(self, at: At, ask: Ask) -> Refusal:
        try:
            self.chat(at, ask)
        except openai.APIStatusError as error:
            return Refusal(type(error).__name__, error.status_code)
        raise AssertionError("the request was not refused")


def _key(at: At) -> str:
    return NO_KEY if at.key is None else at.key


def _settings(at: At, ask: Ask) -> dict[str, Any]:
    return {
        "model": f"openai/{ask.model}",
        "messages": ask.messages(),
        "api_base": at.api,
        "api_key": _key(at),
        "max_retries": 0,
        "timeout": DEADLINE_S,
        **ask.options(),
    }


def _answer(completion: Any) -> Answer:
    choices = completion.choices
    logprobs = getattr(choices[0], "logprobs", None)
    entries = logprobs.content if logprobs else []
    return Answer(
        tuple(choice.message.content for choice in choices),
        completion.usage.prompt_tokens,
        completion.usage.completion_tokens,
        tuple(choice.finish_reason for choice in choices),
        tuple(entry.logprob for entry in entries),
        tuple(tuple(top.logprob for top in entry.top_logprobs) for entry in entries),
    )
