"""What an HTTP process counts for `/metrics`, and its snapshot.

How it is shown is said by `http_families`; labels hold routes, status codes and the like, never
request ids, text or token ids.
"""

from __future__ import annotations

import time
from collections import Counter

from helios.process_usage import process_usage
from helios.server.answer_watch import AnswerHistograms, AnswerWatch
from helios.server.http_snapshot import HttpSnapshot
from helios.server.lifecycle import ServedModel
from helios.server.preparations import Preparations
from helios.worker.messages import Submit


class HttpMetrics:
    """Counts of the HTTP process. Only touched by the event loop's thread."""

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, int]] = Counter()
        self.disconnects = 0
        self.preparations = Preparations()
        self._answers = AnswerHistograms()

    @staticmethod
    def clock() -> float:
        """Seconds on the clock of the latency metrics."""
        return time.monotonic()

    def watch(self, request: Submit, began: float) -> AnswerWatch:
        """What is to be told when the request's events arrive; the client's request had been read
        when it `began`."""
        return AnswerWatch(self._answers, request, began)

    def snapshot(self, model: ServedModel | None) -> HttpSnapshot:
        """What this process has counted until now, and holds now of the model's permits."""
        responses: dict[str, dict[int, int]] = {}
        for (route, status), count in self.responses.items():
            responses.setdefault(route, {})[status] = count
        return HttpSnapshot(
            processes=1,
            responses=responses,
            disconnects=self.disconnects,
            refused=model.admission.refused if model else 0,
            permits_held=model.admission.held if model else 0,
            preparing=self.preparations.running,
            preparation_waiting=self.preparations.waiting,
            preparation_slots=model.preparation_slots if model else 0,
            usage=process_usage(),
            histograms={
                "http_preparation_seconds": self.preparations.seconds(),
                **self._answers.counts(),
            },
        )
