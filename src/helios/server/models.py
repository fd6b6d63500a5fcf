"""`/v1/models` as types: OpenAI's fields, those that vLLM's clients read, and capabilities."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from helios.server.capabilities import Capabilities

_CONTEXT = "Most tokens of prompt and output together."


class Model(msgspec.Struct, frozen=True):
    """A model that requests may name."""

    id: Annotated[str, Meta(description="What to send as `model`.")]
    created: Annotated[int, Meta(description="When this server started, Unix time in seconds.")]
    owned_by: Annotated[str, Meta(description="The namespace of the core's publisher.")]
    root: Annotated[str, Meta(description="The served id; another than `id` for an alias.")]
    max_model_len: Annotated[int, Meta(description=_CONTEXT)]
    max_context_tokens: Annotated[int, Meta(description=f"{_CONTEXT} The same.")]
    capabilities: Annotated[Capabilities, Meta(description="What can be asked of it.")]
    parent: Annotated[None, Meta(description="Always null.")] = None
    object: Annotated[Literal["model"], Meta(description="Always `model`.")] = "model"


class ModelList(msgspec.Struct, frozen=True):
    """The models of this server."""

    data: Annotated[list[Model], Meta(description="The served id first, then its aliases.")]
    object: Annotated[Literal["list"], Meta(description="Always `list`.")] = "list"
