"""What the latency histograms are made of, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from helios.server.answer_watch import AnswerHistograms, AnswerWatch
from helios.worker.messages import FailedEvent, Finish, RejectedEvent, Submit, TokensEvent

BEGAN = 100.0


@dataclass
class Watched:
    """A request and what is observed of it: (count, sum) by histogram."""

    histograms: AnswerHistograms = field(default_factory=AnswerHistograms)
    sibling_of: int | None = None

    def __post_init__(self) -> None:
        submit = Submit(1, [7] * 12, 30, None, [], sibling_of=self.sibling_of)  # type: ignore[arg-type]
        self.watch = AnswerWatch(self.histograms, submit, BEGAN)

    def at(self, seconds: float, tokens: int, finish: Finish | int = 0) -> None:
        """So many tokens arrive, so long after the request came."""
        event = TokensEvent(1, [5] * tokens, [-1.0] * tokens, finish)
        self.watch.arrived_at(event, BEGAN + seconds)

    def observed(self) -> dict[str, tuple[int, float]]:
        """Histograms with observations."""
        counts = self.histograms.counts()
        return {n: (c.count, round(c.sum, 9)) for n, c in counts.items() if c.count}


@pytest.mark.parametrize("finish", [Finish.EOS, Finish.LIMIT, Finish.STOP])
def test_an_answer_token_by_token(finish: Finish) -> None:
    one = Watched()
    one.at(2.0, 1)
    one.at(2.5, 1)
    one.at(3.25, 1, finish)
    assert one.observed() == {
        "request_first_token_seconds": (1, 2.0),
        "inter_token_seconds": (2, 1.25),
        "request_decode_seconds": (1, 1.25),
        "request_end_to_end_seconds": (1, 3.25),
        "request_prompt_tokens": (1, 12),
        "request_output_tokens": (1, 3),
        "request_output_limit_tokens": (1, 30),
    }


def test_tokens_that_come_together_waited_once() -> None:
    """In one event or in one batch: the histograms can't tell, and there is a gap for each token
    but the first."""
    together, batched = Watched(), Watched()
    together.at(1.0, 1)
    together.at(3.0, 4, Finish.EOS)
    batched.at(1.0, 1)
    for finish in (0, 0, 0, Finish.EOS):
        batched.at(3.0, 1, finish)
    assert together.observed() == batched.observed()
    assert together.observed()["inter_token_seconds"] == (4, 2.0)
    assert together.histograms.inter_token.counts() == batched.histograms.inter_token.counts()
    assert together.histograms.inter_token.counts().counts[0] == 3


def test_first_tokens_that_come_together() -> None:
    one = Watched()
    one.at(1.5, 3, Finish.EOS)
    found = one.observed()
    assert found["request_first_token_seconds"] == (1, 1.5)
    assert found["inter_token_seconds"] == (2, 0.0)
    assert found["request_decode_seconds"] == (1, 0.0)
    assert found["request_output_tokens"] == (1, 3)


def test_one_token_has_no_gap_and_no_decoding() -> None:
    one = Watched()
    one.at(1.5, 1, Finish.LIMIT)
    assert one.observed().keys().isdisjoint({"inter_token_seconds", "request_decode_seconds"})


def test_an_end_without_tokens_is_no_gap() -> None:
    one = Watched()
    one.at(1.0, 1)
    one.at(9.0, 0, Finish.EOS)
    found = one.observed()
    assert "inter_token_seconds" not in found
    assert found["request_end_to_end_seconds"] == (1, 9.0)
    assert found["request_output_tokens"] == (1, 1)


@pytest.mark.parametrize("finish", [Finish.CANCELLED, Finish.FAILED])
def test_who_gets_no_whole_answer_has_no_end(finish: Finish) -> None:
    one = Watched()
    one.at(1.0, 1)
    one.at(2.0, 0, finish)
    assert one.observed().keys() == {
        "request_first_token_seconds",
        "request_prompt_tokens",
        "request_output_limit_tokens",
    }


def test_who_gets_no_token_isnt_measured() -> None:
    for event in (RejectedEvent(1, "full"), FailedEvent(1, "broken")):
        one = Watched()
        one.watch.arrived(event)
        one.at(1.0, 0, Finish.CANCELLED)
        assert one.observed() == {}


def test_a_prompt_counts_once_for_all_its_choices() -> None:
    histograms = AnswerHistograms()
    for sibling_of in (None, 1, 1):
        Watched(histograms, sibling_of).at(1.0, 1, Finish.EOS)
    counts = histograms.counts()
    assert counts["request_prompt_tokens"].count == 1
    assert counts["request_output_tokens"].count == 3
