"""The choices of one request: each a request to the model with a seed of its own.

A request has one prompt or several; choice j of prompt i has the number i · n + j. The first choice
of a prompt computes it for the others, and hears what is to be said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helios.dataclass import dataclass
from helios.frontend.output import OutputPipeline, PromptToken
from helios.frontend.prepare import PreparedRequest
from helios.server.lifecycle import ServedModel
from helios.server.observation import Observation
from helios.server.running import RunningRequest
from helios.worker.messages import Submit, TokensEvent
from helios.worker.recipient import RequestEvent


class ScoredPrompt:
    """The scores of a prompt, which all its choices show: None until its first choice has heard
    them, and none where that was ended before."""

    def __init__(self) -> None:
        self.tokens: tuple[PromptToken, ...] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice on its way: its number, what the model is asked, how its text is made, whose it
    is, the scores of its prompt if they are wanted, and the field that its grammar came by."""

    index: int
    submit: Submit
    pipeline: OutputPipeline
    request: RunningRequest
    scored: ScoredPrompt | None = None
    grammar_where: str = ""

    @property
    def leads(self) -> bool:
        """Whether it is its prompt's first."""
        return self.submit.sibling_of is None

    def hears_scores(self, event: RequestEvent) -> bool:
        """Whether the prompt's scores, which are wanted, are known once this event is there."""
        assert self.scored is not None
        if self.scored.tokens is None and self.leads and isinstance(event, TokensEvent):
            self.scored.tokens = (
                self.pipeline.scored(
                    event.prompt_logprobs, event.prompt_ranks, event.prompt_alternatives
                )
                if event.tokens
                else ()
            )
        return self.scored.tokens is not None


def begin_choices(
    prompts: Sequence[Sequence[PreparedRequest]],
    model: ServedModel,
    request_ids: Iterator[int],
    observation: Observation,
    request: RunningRequest,
) -> list[Choice]:
    """The choices of a request, of each of its prompts in order."""
    found: list[Choice] = []
    for choices in prompts:
        scored = ScoredPrompt() if choices[0].prompt_logprobs is not None else None
        leader = None
        for prepared in choices:
            submit = Submit.of(
                next(request_ids),
                prepared,
                observed=observation.token_ids,
                timed=observation.timed,
                sibling_of=leader,
                score_prompt=leader is None,
            )
            leader = submit.request_id if leader is None else leader
            pipeline = model.frontend.output(prepared)
            where = prepared.grammar_where
            found.append(Choice(len(found), submit, pipeline, request, scored, where))
    return found
