"""The soak, for some seconds; and that its judges can say no."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.soak_parts.books import NOTHING, MemorySample, slope_kib, unbalanced
from benchmarks.soak_parts.cases import content
from benchmarks.soak_parts.traffic import Tally
from benchmarks.soak_parts.wire import Answer

ROOT = Path(__file__).parents[2]


def test_a_soak_of_some_seconds_balances() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/soak.py"), "--minutes", "0.15"]
    ended = subprocess.run(
        [*command, "--cases", "12", "--clients", "12"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all books balanced" in ended.stdout
    assert "KiB per 1,000 requests" in ended.stdout


BALANCED = {
    **dict.fromkeys(NOTHING, 0.0),
    "flare_integrity_violations_total": 0.0,
    'flare_requests_finished_total{reason="failed"}': 0.0,
    "flare_requests_rejected_total": 0.0,
    "flare_pages_cached": 4.0,
    "flare_pages_free": 6.0,
    "flare_cache_pages": 10.0,
    "flare_snapshots_cached": 1.0,
    "flare_snapshots_free": 1.0,
    "flare_snapshot_rows": 2.0,
    "flare_slots_free": 8.0,
    "flare_request_slots": 8.0,
}


def test_balanced_books_are_that() -> None:
    assert unbalanced(BALANCED) == []


@pytest.mark.parametrize("name", BALANCED)
def test_each_book_can_be_found_wrong(name: str) -> None:
    assert unbalanced(BALANCED | {name: BALANCED[name] + 1})


def test_memory_that_grows_with_requests_has_a_slope() -> None:
    lazy = [MemorySample(100 * i, 1000.0 * i) for i in range(5)]
    flat = [MemorySample(500 + 100 * i, 5000 + i % 2) for i in range(20)]
    leaky = [MemorySample(500 + 100 * i, 5000 + 10 * i) for i in range(20)]
    assert abs(slope_kib([*lazy, *flat])) < 1
    assert slope_kib([*lazy, *leaky]) == pytest.approx(100)


def test_streams_and_whole_answers_have_one_content() -> None:
    choice = {"index": 0, "finish_reason": "length"}
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    whole = {"choices": [choice | {"text": "ab", "logprobs": logprobs}], "usage": usage}
    parts = [
        {"index": 0, "text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-1.0]}},
        choice | {"text": "b", "logprobs": {"tokens": ["b"], "token_logprobs": [-2.0]}},
    ]
    events = [{"choices": [part], "usage": None} for part in parts]
    events.append({"choices": [], "usage": usage})
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    got = content(Answer(200, (stream + "data: [DONE]\n\n").encode()), stream=True)
    assert got == content(Answer(200, json.dumps(whole).encode()), stream=False)
    with pytest.raises(ValueError, match="ended with"):
        content(Answer(200, stream.encode()), stream=True)


def test_problems_are_kept() -> None:
    tally = Tally()
    tally.blame("something")
    assert tally.problems == ["something"]
