"""A request's tokens and log-probabilities don't depend on what else is in the batch, on the
batch's capacity, on pages and slots, or on how its prompt was cut: bit for bit, greedy and seeded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from helios import _native
from helios.runtime.geometry import Operation
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import DeviceFinish, SamplingParameters
from ignition.preparation.quantisation import WeightStorage
from tests.batch_invariance.driving import Answer, Crowd, Request
from tests.checkpoints import TOKENS
from tests.model_parts import capture_tiny

REQUESTS = 32
WHOLE_PROMPT = 512
SAMPLING = (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.DECODE, Operation.MIXED)


# Each kernel path has its own kernels to prove; the last two take the machine's widest.
MODELS = [
    ("llama", WeightStorage.BF16, "avx512"),
    ("llama", WeightStorage.BF16, "avx2"),
    ("llama", WeightStorage.BF16, "portable"),
    ("mistral", WeightStorage.INT8, "avx512"),
    ("mistral", WeightStorage.INT8, "avx2"),
    ("mistral", WeightStorage.INT8, "portable"),
    ("qwen3", WeightStorage.BF16, None),
    ("smollm", WeightStorage.INT4, None),
]


@pytest.fixture(
    scope="module",
    params=MODELS,
    ids=lambda param: f"{param[0]}-{param[1].value}-{param[2] or 'widest'}",
)
def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelRuntime]:
    variant, storage, instruction_set = request.param
    if instruction_set not in (None, *_native.instruction_sets()):
        pytest.skip(f"this machine doesn't run {instruction_set}")
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), variant, storage)
    runtime = parts.load(
        "cpu", threads=2, instruction_set=instruction_set, cache_tokens=REQUESTS * 96
    )
    yield runtime
    runtime.close()


def random_requests(seed: int) -> list[Request]:
    """Half greedy, half seeded with every sampling parameter in use; of each half some have
    penalties, biases, masks, bad words and alternatives; some end with EOS."""
    source = random.Random(seed)
    requests = []
    for index in range(REQUESTS):
        sampling = SamplingParameters(temperature=0.0)
        if index % 2:
            sampling = SamplingParameters(
                temperature=source.uniform(0.5, 1.5),
                top_k=source.choice([0, 0, 5, 40]),
                top_p=source.choice([1.0, 0.95, 0.7]),
                min_p=source.choice([0.0, 0.0, 0.02]),
                seed=source.getrandbits(64),
            )
        output_limit = source.randint(1, 20)
        if index % 4 > 1:
            sampling = processed(source, sampling, output_limit)
        requests.append(
            Request(
                prompt=tuple(source.randrange(3, TOKENS) for _ in range(source.randint(1, 72))),
                sampling=sampling,
                output_limit=output_limit,
                eos_ids=tuple(source.sample(range(TOKENS), source.choice([0, 1, 16]))),
            )
        )
    return requests


def processed(
    source: random.Random, sampling: SamplingParameters, output_limit: int
) -> SamplingParameters:
    """The parameters and most of what a request may ask of its logits."""
    few = source.sample(range(TOKENS), 30)
    return replace(
        sampling,
        repetition_penalty=source.choice([1.0, 1.3, 0.8]),
        presence_penalty=source.choice([0.0, 0.5, -0.5]),
        frequency_penalty=source.choice([0.0, 0.5, -0.5]),
        min_tokens=source.randint(0, output_limit),
        logit_bias=tuple((token, source.uniform(-3, 3)) for token in few[:20]),
        allowed_tokens=tuple(source.sample(range(TOKENS), 60)) if source.random() < 0.3 else None,
        bad_words=(*((few[i], few[i + 1]) for i in range(20, 26)), (few[28],), (few[29],)),
        stop_ids=tuple(few[:3]),
        top_logprobs=source.choice([0, 3, 20]),
    )


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return random_requests(7)


@pytest.fixture(scope="module")
def alone(runtime: ModelRuntime, requests: list[Request]) -> list[Answer]:
    crowd = Crowd(runtime, seed=1)
    return [crowd.alone(request, WHOLE_PROMPT) for request in requests]


def test_requests_are_of_all_kinds(requests: list[Request], alone: list[Answer]) -> None:
    """The comparison below means something: outputs differ, some end early, some at the limit."""
    assert len({answer.tokens for answer in alone}) > REQUESTS * 3 // 4
    assert {answer.finish for answer in alone} == {DeviceFinish.EOS, DeviceFinish.LIMIT}
    for request, answer in zip(requests, alone, strict=True):
        assert len(answer.logprobs) == len(answer.tokens) <= request.output_limit
        assert (answer.tokens[-1] in request.eos_ids) == (answer.finish is DeviceFinish.EOS)


@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_chunks_of_the_prompt_do_not_matter(
    runtime: ModelRuntime, requests: list[Request], alone: list[Answer], chunk: int
) -> None:
    crowd = Crowd(runtime, seed=chunk)
    assert [crowd.alone(request, chunk) for request in requests[:8]] == alone[:8]


@pytest.mark.parametrize("seed", [2, 3])
def test_a_crowd_does_not_matter(
    runtime: ModelRuntime, requests: list[Request], alone: list[Answer], seed: int
) -> None:
    sizes = random.Random(seed)
    crowd = Crowd(runtime, seed)
    together = crowd.together(requests, lambda: sizes.choice([1, 3, 16, 33, 128]), at_once=REQUESTS)
    assert all(crowd.rounds[operation] for operation in SAMPLING)
    for index, (one, other) in enumerate(zip(together, alone, strict=True)):
        assert one == other, f"request {index} differs"
