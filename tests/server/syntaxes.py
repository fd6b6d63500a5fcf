"""Frontends of every syntax, for a scripted worker whose tokens are a test's.

A syntax of `tests.frontend.response` gets a tokenizer in which its markers are tokens, a template
that opens an assistant's turn, with reasoning where the variable `thinks` says so, and programs
that take grammars.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import EnvelopeSyntax, FrontendContract, PreparedContract, ValueBinding
from helios.frontend.bootstrap import Frontend, assemble
from helios.frontend.tokenizer import Tokenizer
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.frontend.response.reading import QUOTE, Syntax
from tests.frontend.response.tokens import tokenizer_data
from tests.frontend.vocabularies import prepared_contract
from tests.server.scripted import Script

CONTEXT_TOKENS = 4096
_EOS = "<|eos|>"
_START, _END = "<|assistant|>", "<|over|>"
_SAMPLING = (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.DECODE, Operation.MIXED)


@dataclass(frozen=True)
class Core:
    """A syntax's frontend and the way from text to its tokens."""

    syntax: Syntax
    frontend: Frontend
    eos: int

    @property
    def tokenizer(self) -> Tokenizer:
        return self.frontend.tokenizer

    def tokens(self, text: str) -> list[int]:
        """A response's tokens; a marker with a QUOTE inside stays text."""
        pieces = filter(None, text.split(QUOTE))
        return [token for piece in pieces for token in self.tokenizer.encode(piece)]


def opening(contract: FrontendContract) -> str:
    """What opens reasoning in a prompt; empty where the syntax has none."""
    reasoning = contract.reasoning_syntax
    return {
        "THINK_TAGS": reasoning.open + "\n" * reasoning.wrapping_newlines,
        "XTML_THINK": "<|open|>think<|sep|>",
        "RECIPIENT_HEADERS": " to=self<|message|>",
        "CHANNELS": "<|channel|>analysis<|message|>",
    }.get(contract.reasoning_parser.name, "")


@functools.cache
def core(by: Syntax, *, masks: bool = True) -> Core:
    """The core of a syntax; without `masks` its programs take no grammars."""
    envelope = by.contract.envelope
    if not envelope.assistant_start:
        envelope = EnvelopeSyntax(assistant_start=_START, message_end=_END)
    end = envelope.message_end or _END
    template = (
        f"{{% for message in messages %}}[{{{{ message.role }}}}]{{{{ message.content }}}}"
        f"{{{{ message.reasoning_content or '' }}}}"
        f"{{% for call in message.tool_calls or [] %}}{{{{ call.function.name }}}}"
        f"{{{{ call.function.arguments | tojson }}}}{{% endfor %}}"
        f"{{{{ {end!r} }}}}{{% endfor %}}{{% for tool in tools or [] %}}{{{{ tool | tojson }}}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{{{{ {envelope.assistant_start!r} }}}}"
        f"{{% if thinks %}}{{{{ {opening(by.contract)!r} }}}}{{% endif %}}{{% endif %}}"
    )
    special = [_EOS, *(text for text in (_START, _END) if text not in by.tokens)]
    data = tokenizer_data(special, by.tokens)
    tokenizer = Tokenizer(data)
    (eos,) = tokenizer.encode(_EOS)
    contract = replace(by.contract, envelope=envelope, eos_ids=(eos,))
    frontend = assemble(_prepared(contract, tokenizer.id_extent, masks), data, template)
    return Core(by, frontend, eos)


def _prepared(frontend: FrontendContract, tokens: int, masks: bool) -> PreparedContract:
    prepared = prepared_contract({})
    model = prepared.model
    mask = ValueBinding("grammar_mask", ValueSource.GRAMMAR_MASK, Indexing.ACTIVE_ROW, 0, 0, 0, "")
    graphs = tuple(
        replace(graph, bindings=(*graph.bindings, mask))
        if masks and graph.operation in _SAMPLING
        else graph
        for graph in model.graphs
    )
    return replace(
        prepared,
        max_context_tokens=CONTEXT_TOKENS,
        model=replace(
            model,
            graphs=graphs,
            frontend=frontend,
            vocabulary=replace(model.vocabulary, sampled_tokens=tokens),
            input_vocabulary=replace(model.input_vocabulary, input_tokens=tokens),
        ),
    )


@dataclass
class Playing:
    """A script whose answers are exchanged between requests: the tokens of each event, one list of
    events a choice, and how they end."""

    choices: Sequence[Sequence[Sequence[int]]] = ()
    finish: Finish = Finish.EOS
    eos: int = 0
    _first: int = field(default=0, init=False)

    def play(self, choices: Iterable[Sequence[Sequence[int]]], finish: Finish = Finish.EOS) -> None:
        """What the next requests are answered with; choices have seeds from 0 on."""
        self.choices, self.finish = list(choices), finish

    @property
    def script(self) -> Script:
        async def script(submit: Submit) -> AsyncGenerator[TokensEvent, None]:
            events = [*self.choices[submit.sampling.seed]]
            if self.finish is Finish.EOS:
                events.append([self.eos])
            for index, tokens in enumerate(events):
                end = self.finish if index == len(events) - 1 else 0
                logprobs = [-0.5] * len(tokens)
                yield TokensEvent(submit.request_id, list(tokens), logprobs, end)
                await asyncio.sleep(0)  # what comes together is sent together

        return script


def chat(**more: Any) -> dict[str, Any]:
    """A chat body whose choices have seeds from 0 on."""
    messages = [{"role": "user", "content": "go"}]
    return {"model": "sample", "messages": messages, "seed": 0} | more


def functions(tools: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Tools by name with their properties' schemas, as a body has them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", "properties": properties},
                **more,
            },
        }
        for name, properties in tools.items()
    ]
