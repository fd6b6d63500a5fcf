"""Does a stream notice what others send? Gaps between its tokens, alone and beside grammars that
try to hurt.

    PYTHONPATH=src:. python benchmarks/hostile_streams.py URL [--tokens 400] [--rounds 3]
        [--senders 2] [--each SLOWEST]

URL is a server that runs, of a core whose programs take grammar masks. In turn, `--rounds` times
each: a stream alone, a stream beside `--senders` threads that send one ordinary constrained request
after the other, and a stream beside as many that send every case of
`tests/frontend/grammar/hostile_cases.py`, again and again; what is accepted of those generates a
few tokens. Figures are milliseconds between two events of the stream. With `--each` every case has
a stream of its own beside it instead, and the slowest are shown. At the end the server has to be
ready still.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from tests.frontend.grammar.hostile_cases import CASES

from helios.errors import RequestError
from helios.frontend.grammar.structural_tags import AnswerForm
from helios.frontend.grammar.structure import (
    ChoiceAnswer,
    GbnfAnswer,
    GrammarAnswer,
    JsonAnswer,
    RegexAnswer,
)

TIMEOUT_S = 300


def field_of(form: AnswerForm) -> dict[str, Any] | None:
    """The field of a body that asks for it; None for structural tags, which a case has made
    already."""
    match form:
        case JsonAnswer():
            return {"guided_json": form.schema}
        case RegexAnswer():
            return {"guided_regex": form.pattern}
        case ChoiceAnswer():
            return {"guided_choice": list(form.options)}
        case GrammarAnswer() | GbnfAnswer():
            return {"guided_grammar": form.text}
    return None


def constrained(**field: Any) -> bytes:
    """A short constrained chat's body."""
    messages = [{"role": "user", "content": "Go."}]
    return json.dumps({"messages": messages, "max_tokens": 24, **field}).encode()


ORDINARY = constrained(response_format={"type": "json_object"})


def hostile_bodies() -> dict[str, bytes]:
    """The hostile cases as bodies; those that can't even be written are left out, and structural
    tags."""
    bodies = {}
    for name, case in CASES.items():
        try:
            field = field_of(case.make())
            if field is not None:
                bodies[name] = constrained(**field)
        except (RequestError, RecursionError):
            continue
    return bodies


class Server:
    """A server under test."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S)
        self.model = self._http.get("/v1/models").json()["data"][0]["id"]

    def ready(self) -> bool:
        """Whether it says so."""
        return self._http.get("/ready").status_code == httpx.codes.OK

    def post(self, body: bytes) -> int:
        """Sends a chat; its status."""
        filled = b'{"model": ' + json.dumps(self.model).encode() + b", " + body[1:]
        headers = {"content-type": "application/json"}
        return self._http.post("/v1/chat/completions", content=filled, headers=headers).status_code

    def gaps_ms(self, tokens: int) -> Iterator[float]:
        """Milliseconds between the events of a stream."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "Write a long story about the sea."}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        last = 0
        with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    now = time.perf_counter_ns()
                    if last:
                        yield (now - last) / 1e6
                    last = now


def beside(server: Server, tokens: int, senders: int, send: Callable[[], None]) -> list[float]:
    """A stream's gaps while `senders` threads send."""
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            send()

    threads = [threading.Thread(target=work) for _ in range(senders)]
    for thread in threads:
        thread.start()
    gaps = list(server.gaps_ms(tokens))
    stopped.set()
    for thread in threads:
        thread.join()
    return gaps


def show(name: str, gaps: list[float]) -> None:
    """A line of figures."""
    ordered = sorted(gaps)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    print(f"{name:34} p50 {p50:7.1f}  p99 {p99:7.1f}  max {ordered[-1]:7.1f} ms, {len(gaps)} gaps")


def case_by_case(server: Server, bodies: dict[str, bytes], tokens: int, slowest: int) -> None:
    """A stream beside each case alone; the slowest by their largest gap."""
    found = {}
    for name, body in bodies.items():
        statuses: Counter[int] = Counter()

        def send(body: bytes = body, statuses: Counter[int] = statuses) -> None:
            statuses[server.post(body)] += 1

        found[f"{name[:50]!r}"] = (beside(server, tokens, 1, send), statuses)
    ranked = sorted(found.items(), key=lambda one: -max(one[1][0]))
    for name, (gaps, statuses) in ranked[:slowest]:
        show(name, gaps)
        print(f"    answers by status: {dict(statuses)}")


def main() -> None:
    """Prints the figures."""
    options = argparse.ArgumentParser()
    options.add_argument("url")
    options.add_argument("--tokens", type=int, default=400)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--senders", type=int, default=2)
    options.add_argument("--each", type=int, default=0, metavar="SLOWEST")
    asked = options.parse_args()
    server = Server(asked.url)
    status = server.post(ORDINARY)
    if status != httpx.codes.OK:
        raise SystemExit(f"{asked.url} answers a constrained request with status {status}")
    bodies = hostile_bodies()
    if asked.each:
        case_by_case(server, bodies, asked.tokens, asked.each)
        return
    statuses: Counter[int] = Counter()
    turns = itertools.cycle(bodies.values())

    def send_ordinary() -> None:
        server.post(ORDINARY)

    def send_hostile() -> None:
        statuses[server.post(next(turns))] += 1

    kinds: dict[str, tuple[int, Callable[[], None]]] = {
        "alone": (0, send_ordinary),
        "beside ordinary constrained ones": (asked.senders, send_ordinary),
        "beside hostile ones": (asked.senders, send_hostile),
    }
    gaps: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(asked.rounds):
        for kind, (senders, send) in kinds.items():
            gaps[kind] += beside(server, asked.tokens, senders, send)
    for kind, gap in gaps.items():
        show(kind, gap)
    print(f"{len(bodies)} hostile bodies, answers by status: {dict(sorted(statuses.items()))}")
    print("ready" if server.ready() else "NOT READY")


if __name__ == "__main__":
    main()
