"""The choices of one request: each a request to the model with a seed of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helios.frontend.output import OutputPipeline
from helios.frontend.prepare import PreparedRequest
from helios.server.lifecycle import ServedModel
from helios.server.observation import Observation
from helios.server.running import RunningRequest
from helios.worker.messages import Submit


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice on its way: its number, what the model is asked, how its text is made, and whose
    it is."""

    index: int
    submit: Submit
    pipeline: OutputPipeline
    request: RunningRequest


def begin_choices(
    requests: Sequence[PreparedRequest],
    model: ServedModel,
    request_ids: Iterator[int],
    observation: Observation,
    request: RunningRequest,
) -> list[Choice]:
    """The choices of a request, all with the same prompt; the first one computes it for the
    others."""
    found: list[Choice] = []
    for index, prepared in enumerate(requests):
        submit = Submit.of(
            next(request_ids),
            prepared,
            observed=observation.token_ids,
            timed=observation.timed,
            sibling_of=found[0].submit.request_id if found else None,
        )
        found.append(Choice(index, submit, model.frontend.output(prepared), request))
    return found
