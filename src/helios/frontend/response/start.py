"""Where in its syntax a response starts, which the prompt's end decides."""

from __future__ import annotations

from enum import Enum


class Start(Enum):
    """ANSWER: where an assistant's turn begins, before any header or tag. REASONING and CONTENT:
    inside them, since the prompt has opened them already."""

    ANSWER = "answer"
    REASONING = "reasoning"
    CONTENT = "content"
