"""What schemathesis is told about this server: a model that it has, and answers of bounded length.

Loaded by name (`SCHEMATHESIS_HOOKS`). Only values that are valid already are replaced, so what was
made invalid on purpose stays so.
"""

from __future__ import annotations

from typing import Any

import schemathesis

LIMIT = 8  # tokens of an answer
LIMITS = ("max_tokens", "max_completion_tokens")


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """Sends bodies to the model that is there."""
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str):
        body["model"] = "tiny"
    for name in LIMITS:
        if type(body.get(name)) is int:
            body[name] = min(body[name], LIMIT)
    if all(body.get(name) is None for name in LIMITS):
        body["max_tokens"] = LIMIT
