"""Records a core's oracle: prompts with the answers of the float32 reference replay.

Only tokens that lead the second best clearly are kept, so that they hold on every kernel path.
Replaying is `helios.runtime.oracle`'s; here are the prompts and the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final

from tokenizers import Tokenizer

from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import ReplayedToken, greedy_steps
from helios.schema import core_pb2
from ignition.preparation import chat
from ignition.preparation.checkpoints.checkpoint import Checkpoint

SMALLEST_LEAD_NATS: Final = 0.5
# An error of half the lead can't change a token.
LOGPROB_TOLERANCE: Final = SMALLEST_LEAD_NATS / 2
FEWEST_TOKENS: Final = 4
MOST_TOKENS: Final = 16
# Stored to this many decimals, far inside the tolerance: the last bits of a replay in float32
# differ between machines, a core's bytes shouldn't.
_DECIMALS: Final = 3

# Continuations that even small models are sure of.
_QUESTIONS: Final = (
    "What is the capital of France?",
    "Name the days of the week.",
)
_BEGINNINGS: Final = (
    "1, 2, 3, 4, 5, 6, 7,",
    "Monday, Tuesday, Wednesday,",
    "A B C D E F G H I J",
)


def prompts(checkpoint: Checkpoint, template: str | None) -> list[list[int]]:
    """Chat prompts, where there is a template, and plain ones, as token ids; those that the
    vocabulary can spell."""
    tokenizer = Tokenizer.from_buffer(checkpoint.tokenizer_json())
    tokens = checkpoint.template_tokens
    asked = []
    if template is not None:
        turns = [[{"role": "user", "content": text}] for text in _QUESTIONS]
        asked = [chat.render(template, tokens, turn, generation_prompt=True) for turn in turns]
    start = tokens.bos_token if tokens.add_bos_token and tokens.bos_token is not None else ""
    texts = [*asked, *(start + text for text in _BEGINNINGS)]
    return [ids for text in texts if (ids := _encoded(tokenizer, text))]


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids; none where the vocabulary lacks a character and has no unknown token."""
    try:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    except Exception:  # the library raises bare Exception
        return []
    return ids


def record(
    runtime: ModelRuntime, prompts: Sequence[Sequence[int]], progress: Callable[[int], None]
) -> core_pb2.Oracle:
    """Replays each prompt and keeps the cases that qualify, the shortest first, since it is the
    one that servers replay; there may be none. `progress` gets the number of prompts replayed."""
    oracle = core_pb2.Oracle(logprob_tolerance=LOGPROB_TOLERANCE)
    for number, prompt in enumerate(prompts, start=1):
        count = min(MOST_TOKENS, runtime.geometry.max_context_tokens - len(prompt))
        if count >= FEWEST_TOKENS:
            case = clear_case(prompt, greedy_steps(runtime, prompt, count))
            if case is not None:
                oracle.cases.append(case)
        progress(number)
    oracle.cases.sort(key=lambda case: (len(case.expected_tokens), len(case.prompt_tokens)))
    return oracle


def clear_case(
    prompt: Sequence[int], replayed: Iterable[ReplayedToken]
) -> core_pb2.OracleCase | None:
    """The tokens before the first that doesn't lead clearly; None where they are too few. Nothing
    of `replayed` is asked for after that."""
    clear = list(takewhile(lambda token: token.lead >= SMALLEST_LEAD_NATS, replayed))
    if len(clear) < FEWEST_TOKENS:
        return None
    return core_pb2.OracleCase(
        prompt_tokens=prompt,
        expected_tokens=[token.token for token in clear],
        expected_logprobs=[round(token.logprob, _DECIMALS) for token in clear],
        smallest_lead=round(min(token.lead for token in clear), _DECIMALS),
    )
