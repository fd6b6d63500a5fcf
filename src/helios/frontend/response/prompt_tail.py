"""What of a response stands in its prompt already: the text after the open assistant header.

Only the prompt's own end counts. Completed messages hold the same tags, whoever wrote them, and
an assistant's turn may have begun long before: where a template goes on with it after a tool's
answer, what follows the last message's end is all that is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helios.contract.model import EnvelopeSyntax
from helios.frontend.response.marked_text import MarkedReader, MarkerSigns
from helios.frontend.tokenizer import Tokenizer

# Tokens from the end that are looked at where the envelope's marks are no tokens of their own.
_TAIL_TOKENS: Final = 4096


def opened_text(
    prompt: Sequence[int], envelope: EnvelopeSyntax, tokenizer: Tokenizer, signs: MarkerSigns
) -> str:
    """The marked text of the response that the prompt has begun; empty where it has begun none."""
    start, end = signs.sign(envelope.assistant_start), signs.sign(envelope.message_end)
    token = signs.token_of(envelope.message_end)
    last = _last(prompt, token)
    tokens = prompt[-_TAIL_TOKENS:] if last is None else prompt[last + 1 :]
    text = _marked(tokens, tokenizer, signs)
    ended = last is not None
    if token is None and end and end in text:
        ended = True
        text = text[text.rfind(end) + len(end) :]
    if start and start in text:
        return text[text.rfind(start) + len(start) :]
    return text if ended else ""


def _last(prompt: Sequence[int], token: int | None) -> int | None:
    """Where a token stands last."""
    if token is None:
        return None
    return next((i for i in range(len(prompt) - 1, -1, -1) if prompt[i] == token), None)


def _marked(tokens: Sequence[int], tokenizer: Tokenizer, signs: MarkerSigns) -> str:
    reader = MarkedReader(tokenizer, signs, continues=True)
    return "".join(map(reader.push, tokens)) + reader.finish()
