"""Batch invariance at real sizes: the demo core's programs on SmolLM2-135M as its GGUF stores it.
Its head, attention and feed-forward take the paths that tiny models are too narrow for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from helios.runtime.model_runtime import ModelRuntime
from ignition.preparation.paged_text import Extents
from tests.batch_invariance.driving import Crowd, Request
from tests.batch_invariance.test_batch_invariance import REQUESTS, random_requests
from tests.model_parts import capture
from tests.smollm2 import require_gguf

OUTPUT_TOKENS = 5


@pytest.fixture(scope="module")
def runtime() -> Iterator[ModelRuntime]:
    extents = Extents(32, (32, 128), (1, 2, 4, 8, 16, 32), 256, mixed=(128,), scored_prefill=(128,))
    parts = capture(require_gguf(), extents=extents)
    runtime = parts.load("cpu", threads=2, cache_tokens=REQUESTS * 96)
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return [
        replace(request, output_limit=min(request.output_limit, OUTPUT_TOKENS))
        for request in random_requests(31)
    ]


def test_a_crowd_does_not_matter(runtime: ModelRuntime, requests: list[Request]) -> None:
    crowd, sizes = Crowd(runtime, seed=5), random.Random(6)
    alone = [crowd.alone(request, 128) for request in requests]
    together = crowd.together(requests, lambda: sizes.choice([7, 32, 65]), at_once=REQUESTS)
    for index, (one, other) in enumerate(zip(together, alone, strict=True)):
        assert one == other, f"request {index} differs"
    assert len({answer.tokens for answer in alone}) > REQUESTS * 3 // 4
