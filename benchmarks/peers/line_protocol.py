"""Requests and answers, a line of JSON each: how benchmarks/versus.py drives an engine that lives
in a process and an environment of its own.

A request is an object whose `do` names a handler and whose other fields are its arguments. What a
handler returns goes back, or `{"error": …}`. Libraries print what they like: standard output is
theirs no more once `answer` runs, only the answers go there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[..., dict[str, Any]]


def silence() -> Any:
    """Turns standard output over to standard error; the file for the answers."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def answer(handlers: Mapping[str, Handler], answers: Any) -> None:
    """Says that it is ready, then answers until the input ends."""
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = handlers[request.pop("do")](**request)
        except Exception as error:  # the caller decides what to make of it
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(result) + "\n")
