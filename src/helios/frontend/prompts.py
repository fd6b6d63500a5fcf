"""Prompts: a client's messages, text or ids as the token ids that the model gets, and back.

The one place that renders and tokenizes. `prepare` makes requests of prompts; the routes that only
show what a prompt is, or what ids say, ask here directly. Limits of a whole request, such as room
for its output, aren't known here.
"""

from __future__ import annotations

import codecs
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, SupportsIndex

from helios.contract.model import PrefixBoundaryRule
from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.continuation import mark_last, up_to_mark
from helios.frontend.conversation import for_template
from helios.frontend.markers import MarkerGuard, without_cuts
from helios.frontend.prefix_boundaries import boundaries
from helios.frontend.prompt_inputs import TOOL_CHARACTERS_LIMIT, InputBounds, text_within
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from helios.token_ids import whole_numbers

# What a template reads of a conversation besides the client's variables, and what to do instead.
_RESERVED: Final[Mapping[str, str]] = {
    "messages": "Send them as the request's own messages",
    "add_generation_prompt": "Leave it out: where the prompt ends isn't a variable's to say",
    "continue_final_message": "Send it as the request's own field",
    "tools": "Send them as the request's own tools",
    "documents": "Send them as the request's own documents",
    "chat_template": "Leave it out: the template is the model's",
    "tokenize": "Leave it out: use /tokenize or /v1/render to see the prompt",
    "raise_exception": "Leave it out: it is a function of the template's",
    "strftime_now": "Leave it out: it is a function of the template's",
}
_UTF8: Final = codecs.getincrementaldecoder("utf-8")
# Clients that shorten a conversation know from these words that it is needed: they are those of
# other servers.
TOO_LONG: Final = "the prompt is too long: it has"
LONGEST_CONTEXT: Final = "this model's maximum context length is"


class PromptTooLongError(RequestError):
    """Prompt, or prompt and asked output, don't fit into the model's context."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, and the text that they are of; None where a client gave ids. At
    `boundaries`, counts of first tokens, other conversations may part from this one."""

    tokens: list[int]
    text: str | None = None
    boundaries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """A prompt as the beginning of an answer: its text, as it was sent or as its ids say, and the
    characters of it before each token."""

    text: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptMaker:
    """Makes one core's prompts. Safe to use from several threads.

    `template` is None for cores without a chat template; `bos_token` is put before plain
    prompts that don't begin with it, None where the tokenizer wants none. Text that can't have
    fewer than `max_context_tokens` tokens is refused unread; ids are in [0, input_tokens).
    `boundary_rules` say where conversations' prompts are cut for reuse.
    """

    tokenizer: Tokenizer
    guard: MarkerGuard
    template: ChatTemplate | None
    bos_token: int | None
    max_context_tokens: int
    input_tokens: int
    boundary_rules: tuple[PrefixBoundaryRule, ...] = ()

    def of_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        documents: Sequence[Mapping[str, Any]] = (),
        generation_prompt: bool = True,
        continue_last: bool = False,
    ) -> Prompt:
        """The prompt for the next assistant message, or without `generation_prompt` the
        conversation as it is; with `continue_last` it ends inside the last message, which the
        answer goes on with. Each message has `role` and `content`; `variables` are additional
        ones of the template.

        Raises RequestError when the template refuses the messages or can't be had, or a variable
        is none of the client's.
        """
        if self.template is None:
            raise RequestError(
                "this model has no chat template",
                where="messages",
                remedy="Use /v1/completions",
            )
        _check_variables(variables or {})
        self._check_inputs(messages, variables or {}, tools, documents)
        rendering = for_template(messages, wants_parts=self.template.reads_parts)
        if continue_last:
            field = mark_last(rendering)
        template = self.template

        def render(part: Sequence[Mapping[str, Any]], prompted: bool) -> str:
            return template.written(
                list(part),
                variables=variables,
                tools=list(tools) or None,
                documents=list(documents) or None,
                generation_prompt=prompted,
            )

        rendered = render(rendering, generation_prompt and not continue_last)
        if continue_last:
            rendered = up_to_mark(rendered, field)
        self._check_text(rendered, where="messages")
        tokens = self.guard.encode(rendered, where="messages")

        def encoded(part: Sequence[Mapping[str, Any]], prompted: bool) -> list[int]:
            return self.guard.encode(render(part, prompted), where="messages")

        cuts = boundaries(tokens, rendering, self.boundary_rules, encoded)
        return Prompt(tokens, without_cuts(rendered), cuts)

    def _check_inputs(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]],
        documents: Sequence[Mapping[str, Any]],
    ) -> None:
        """Refuses, before any work, what no prompt can be made of."""
        bounds = InputBounds()
        bounds.check_all(messages, "messages")
        bounds.check(variables, "chat_template_kwargs")
        for values, where in ((tools, "tools"), (documents, "documents")):
            size = bounds.check_all(values, where)
            if where == "tools" and size > TOOL_CHARACTERS_LIMIT:
                raise RequestError(
                    f"they have {size} characters",
                    where=where,
                    remedy=f"Send at most {TOOL_CHARACTERS_LIMIT}",
                )
            if size >= self.max_context_tokens:
                self._check_text("".join(map(text_within, values)), where=where)

    def of_text(self, text: str, *, special_tokens: bool = True) -> Prompt:
        """A plain prompt: the whole of it, so markers in it count as markers. `special_tokens`
        begins it with the model's BOS, where the tokenizer wants one."""
        self._check_text(text, where="prompt")
        tokens = self.tokenizer.encode(text)
        if special_tokens and self.bos_token is not None and tokens[:1] != [self.bos_token]:
            tokens.insert(0, self.bos_token)
        return Prompt(tokens, text)

    def of_ids(self, ids: Sequence[int]) -> Prompt:
        """A prompt of ids as they are. Raises RequestError for what isn't a list of integers."""
        return Prompt(_token_ids(ids))

    def text_of(self, ids: Sequence[int], *, where: str = "tokens") -> str:
        """What ids say as the beginning of a text, special tokens spelled; bytes that make no
        character are replacement characters. Raises RequestError naming the id that the model
        doesn't have, and for more than its context holds."""
        if len(ids) > self.max_context_tokens:
            raise PromptTooLongError(
                f"there are {len(ids)} ids, and {LONGEST_CONTEXT} {self.max_context_tokens}",
                where=where,
                remedy="Send them in parts",
            )
        for index, token in enumerate(ids):
            if not 0 <= token < self.input_tokens:
                raise RequestError(
                    f"token id {token} is not in the model's vocabulary",
                    where=f"{where}[{index}]",
                    remedy=f"Ids are from 0 to {self.input_tokens - 1}",
                )
        text = b"".join(map(self.tokenizer.token_bytes, ids)).decode(errors="replace")
        return text.removeprefix(" ") if self.tokenizer.strips_leading_space else text

    def shown(self, prompt: Prompt) -> ShownPrompt:
        """A prompt's text with its tokens' places in it. What is added before the text that was
        sent, such as BOS, takes no place; where the tokenizer changes what it reads, places are
        those in what it made of it."""
        decoder = _UTF8(errors="replace")
        offsets, pieces, characters = [], [], 0
        for token in prompt.tokens:
            offsets.append(characters)
            pieces.append(decoder.decode(self.tokenizer.token_bytes(token)))
            characters += len(pieces[-1])
        said = "".join((*pieces, decoder.decode(b"", final=True)))
        text = prompt.text
        if text is None:
            text = said.removeprefix(" ") if self.tokenizer.strips_leading_space else said
        added = len(said) - len(text) if said.endswith(text) else 0
        places = (max(at - added, 0) for at in offsets)
        return ShownPrompt(text, tuple(min(at, len(text)) for at in places))

    def spellings(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it."""
        return list(map(self.tokenizer.spelling, ids))

    def _check_text(self, text: str, *, where: str) -> None:
        """Refuses, before the work of tokenizing it, text that can't be tokenized or that can't
        fit however well it is tokenized."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"character {error.start} is half of a surrogate pair or a byte that isn't UTF-8",
                where=where,
                remedy="Send valid Unicode text",
            ) from None
        context = self.max_context_tokens
        # No token is shorter than a byte, so short texts needn't be looked at.
        if len(data) < context or (least := self.tokenizer.least_tokens(data)) < context:
            return
        raise PromptTooLongError(
            f"{TOO_LONG} at least {least} tokens, and {LONGEST_CONTEXT} {context}, output included",
            where=where,
            remedy=f"Shorten the prompt to at most {context - 1} tokens",
        )


def _check_variables(variables: Mapping[str, Any]) -> None:
    """Raises RequestError for a variable that would be overwritten, or another one's."""
    for name, remedy in _RESERVED.items():
        if variables.get(name) is not None:
            raise RequestError(
                "is no variable of the client's",
                where=f"chat_template_kwargs.{name}",
                remedy=remedy,
            )


def _token_ids(prompt: Sequence[int]) -> list[int]:
    """A client's token ids; RequestError for what isn't a list of integers."""
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes | bytearray | Mapping):
        raise RequestError(
            f"is a {type(prompt).__name__}, neither text nor token ids", where="prompt"
        )
    tokens = prompt if isinstance(prompt, list) else list(prompt)
    plain = whole_numbers(tokens)
    if plain is not None:
        return plain
    for index, token in enumerate(tokens):
        if not isinstance(token, SupportsIndex) or isinstance(token, bool):
            raise RequestError(f"{token!r:.40} is no token id", where=f"prompt[{index}]")
    return [operator.index(token) for token in tokens]
