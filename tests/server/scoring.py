"""A frontend of a core that scores prompts, and a worker's script that makes scores up.

The logprob of a prompt's token is a function of its place and of the token, so that a test can say
what must come back; its rank too, and the likeliest tokens are the same everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PreparedContract, ValueBinding
from helios.frontend.bootstrap import Frontend, assemble
from helios.server.lifecycle import RequestEvent
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.frontend.sampling_cores import SOURCES, feeding
from tests.frontend.vocabularies import CHAT_TEMPLATE, EOS_ID, byte_level, prepared_contract

_WANTED: Final = ValueBinding(
    "scored_top_logprobs", ValueSource.SCORED_TOP_LOGPROBS, Indexing.PACKED_TOKEN, 0, 0, 0, ""
)


def scoring(contract: PreparedContract, *, likeliest: bool = True) -> PreparedContract:
    """The contract with a graph that scores prompts, and is told how many of the likeliest tokens
    are wanted if they can be."""
    graphs = list(contract.model.graphs)
    plain = next(graph for graph in graphs if graph.operation is Operation.PREFILL)
    bindings = (*plain.bindings, _WANTED) if likeliest else plain.bindings
    graphs.append(
        replace(plain, name="scored", operation=Operation.SCORED_PREFILL, bindings=bindings)
    )
    return replace(contract, model=replace(contract.model, graphs=tuple(graphs)))


def frontend(*, likeliest: bool = True) -> Frontend:
    contract = scoring(feeding(prepared_contract({}), *SOURCES), likeliest=likeliest)
    return assemble(contract, byte_level(), CHAT_TEMPLATE)


FRONTEND: Final = frontend()
ENCODE: Final = FRONTEND.tokenizer.encode
LIKELIEST: Final = tuple(ENCODE("wxyz"))


def score(place: int, token: int) -> float:
    """Half-integers and quarters, which any JSON number holds."""
    return -(place % 7) / 2 - (token % 3) / 4


def rank(place: int, token: int) -> int:
    return 1 + (place + token) % 50


def likeliest(wanted: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return LIKELIEST[:wanted], tuple(-0.25 * (1 + i) for i in range(min(wanted, len(LIKELIEST))))


def first_event(submit: Submit, tokens: tuple[int, ...], finish: int = 0) -> TokensEvent:
    """A request's first tokens, with its prompt's scores if they are wanted."""
    wanted = submit.sampling.top_logprobs
    told: tuple[tuple[float, ...], tuple[int, ...], tuple[object, ...]] = ((), (), ())
    if submit.score_prompt:
        places = list(enumerate(submit.prompt_tokens))[1:]
        tops = submit.prompt_top_logprobs
        told = (
            tuple(score(place, token) for place, token in places),
            tuple(rank(place, token) for place, token in places),
            tuple(likeliest(tops) for _ in places) if tops else (),
        )
    return TokensEvent(
        submit.request_id,
        tokens,  # type: ignore[arg-type]
        tuple(-0.5 for _ in tokens),  # type: ignore[arg-type]
        finish,
        told[0],  # type: ignore[arg-type]
        0,
        tuple(likeliest(wanted) for _ in tokens) if wanted else (),  # type: ignore[arg-type]
        0,
        told[1],  # type: ignore[arg-type]
        told[2],  # type: ignore[arg-type]
    )


async def repeats(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    """Says the prompt's last token as often as the seed says, then ends; a request whose limit is
    1 says it once. Requests with higher seeds are slower to begin."""
    for _ in range(submit.sampling.seed % 5):
        await asyncio.sleep(0)
    token = submit.prompt_tokens[-1]
    if submit.output_limit == 1:
        yield first_event(submit, (token,), Finish.LIMIT)
        return
    tokens = [token] * (submit.sampling.seed % 5) + [EOS_ID]
    yield first_event(submit, (tokens[0],), Finish.EOS if len(tokens) == 1 else 0)
    for index, token in enumerate(tokens[1:], 2):
        await asyncio.sleep(0)
        plain = replace_prompt(submit)
        yield first_event(plain, (token,), Finish.EOS if index == len(tokens) else 0)


def replace_prompt(submit: Submit) -> Submit:
    """The request as one whose prompt isn't scored (any more)."""
    import msgspec

    return msgspec.structs.replace(submit, score_prompt=False)
