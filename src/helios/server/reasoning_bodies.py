"""Reasoning in a chat body: whether the model thinks, how much, and whether clients see it.

Several clients' names for the same; `reasoning_of` makes one thing of them, or an error that names
the field. Templates know thinking by different names, too, so both usual ones are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from helios.dataclass import dataclass
from helios.frontend.grammar.constraint import ThinkingBudget
from helios.server.failures import invalid


class Thinking(msgspec.Struct, frozen=True):
    """Whether the model thinks, as Anthropic's clients say it."""

    type: Annotated[
        str,
        Meta(
            description="`enabled` or `disabled`: the template's `enable_thinking` and `thinking`.",
            extra_json_schema={"enum": ["enabled", "disabled"]},
        ),
    ]
    budget_tokens: Annotated[
        int | None,
        Meta(
            description="Another name of `thinking_token_budget`.", extra_json_schema={"minimum": 0}
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """`variables` are the template's; `budget` is None without a limit."""

    variables: Mapping[str, Any]
    budget: ThinkingBudget | None


def reasoning_of(
    effort: str | None, thinking: Thinking | None, budget_tokens: int | None
) -> Reasoning:
    """What a body says of reasoning. Raises ApiError 400 where it says two things."""
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    thinks = False if effort == "none" else None
    if thinking is not None:
        if thinking.type not in ("enabled", "disabled"):
            raise invalid(
                "thinking.type",
                f"thinking.type: {thinking.type!r:.80} is none. Send enabled or disabled",
            )
        enabled = thinking.type == "enabled"
        if thinks is False and enabled:
            raise invalid("thinking", "thinking: reasoning_effort says none. Leave out one of them")
        thinks = enabled
    if thinks is not None:
        variables |= {"enable_thinking": thinks, "thinking": thinks}
    return Reasoning(variables, _budget(thinking, budget_tokens))


def _budget(thinking: Thinking | None, tokens: int | None) -> ThinkingBudget | None:
    where = "thinking_token_budget"
    if tokens == -1:  # vLLM's word for none
        tokens = None
    if thinking is not None and thinking.budget_tokens is not None:
        if tokens is not None:
            raise invalid(
                where, f"{where} and thinking.budget_tokens are one setting. Give one of them"
            )
        where, tokens = "thinking.budget_tokens", thinking.budget_tokens
        if thinking.type == "disabled":
            raise invalid(where, f"{where}: thinking is disabled. Leave out the budget")
    if tokens is None:
        return None
    if not 0 <= tokens < 1 << 31:
        raise invalid(where, f"{where}: {tokens} is out of range. Give a number of tokens, or none")
    return ThinkingBudget(tokens, where)
