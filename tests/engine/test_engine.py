"""The engine on a real core: what requests get doesn't depend on company, chunks, frames or
memory; prompts of every kind; ends of every kind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helios.engine import Engine, Generation
from helios.errors import AdmissionError, CoreError, ExecutionError, RequestError
from helios.frontend.prepare import GenerationOptions
from helios.scheduler import Finish, SchedulerOptions

# Lengths on both sides of a page (32 tokens) and of the largest prefill program (32).
PROMPTS = [[(11 * i + 5 * k) % 300 for k in range(n)] for i, n in enumerate([1, 7, 31, 32, 33, 90])]
GREEDY = GenerationOptions(max_tokens=40, temperature=0.0)
SEEDED = GenerationOptions(max_tokens=40, temperature=1.0, top_k=50, top_p=0.9, seed=2**63 + 5)

OpenEngine = Callable[..., Engine]


@pytest.fixture
def open_engine(tiny_core: Path) -> Iterator[OpenEngine]:
    engines: list[Engine] = []

    def opened(**options: object) -> Engine:
        engines.append(Engine.open(tiny_core, accept="tests", threads=1, **options))  # type: ignore[arg-type]
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def alone(tiny_core: Path) -> dict[str, list[Generation]]:
    """What every prompt gets by itself, one frame at a time."""
    scheduler = SchedulerOptions(frames_in_flight=1)
    with Engine.open(tiny_core, accept="tests", threads=1, scheduler=scheduler) as engine:
        return {
            name: [engine.generate([prompt], options)[0] for prompt in PROMPTS]
            for name, options in (("greedy", GREEDY), ("seeded", SEEDED))
        }


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("chunk", [None, 5])
def test_company_chunks_and_frames_change_no_bit(
    open_engine: OpenEngine, alone: dict[str, list[Generation]], frames: int, chunk: int | None
) -> None:
    scheduler = SchedulerOptions(prefill_chunk_tokens=chunk, frames_in_flight=frames)
    engine = open_engine(scheduler=scheduler)
    assert engine.generate(PROMPTS, GREEDY) == alone["greedy"]
    assert engine.generate(PROMPTS, SEEDED) == alone["seeded"]


def test_preemption_changes_no_bit(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    roomy = open_engine()
    page_nbytes = roomy._model.runtime.memory["cache"] // roomy.info.cache_pages
    engine = open_engine(cache_nbytes=9 * page_nbytes)
    assert engine.info.cache_pages == 9
    assert engine.generate(PROMPTS[::-1], SEEDED)[::-1] == alone["seeded"]
    assert engine.statistics().counters["preemptions"] > 0


def test_outputs_differ_between_prompts_and_seeds(alone: dict[str, list[Generation]]) -> None:
    """Else the comparisons above would prove little."""
    tokens = [one.tokens for kind in alone.values() for one in kind]
    assert len(set(tokens)) == len(tokens)


def test_a_stream_adds_up_to_the_generation(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine()
    deltas = list(engine.stream(PROMPTS[1], GREEDY))
    expected = alone["greedy"][1]
    assert tuple(token for delta in deltas for token in delta.tokens) == expected.tokens
    assert "".join(delta.text for delta in deltas) == expected.text
    assert [delta.finish for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish is expected.finish


@pytest.mark.clause("STOP-2", "STOP-5")
def test_a_stop_ends_its_request_and_no_other(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine()
    whole = alone["greedy"][1]
    stop = whole.text[5:8]
    stopping = replace(GREEDY, stop=stop)
    results: dict[str, list[Generation]] = {}

    def generate(name: str, prompts: list[list[int]], options: GenerationOptions) -> None:
        results[name] = engine.generate(prompts, options)

    threads = [
        threading.Thread(target=generate, args=("stopped", PROMPTS[1:2], stopping)),
        threading.Thread(target=generate, args=("others", PROMPTS[2:], GREEDY)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (stopped,) = results["stopped"]
    assert stopped.finish is Finish.STOP
    assert stopped.text == whole.text[: whole.text.index(stop)]
    assert stopped.tokens == whole.tokens[: len(stopped.tokens)]
    assert len(stopped.tokens) < len(whole.tokens)
    assert results["others"] == alone["greedy"][2:]


def test_text_and_chat_prompts(open_engine: OpenEngine) -> None:
    engine = open_engine()
    short = GenerationOptions(max_tokens=4, temperature=0.0)
    (text,) = engine.generate(["hello world"], short)
    (tokens,) = engine.generate([engine.frontend.tokenizer.encode("hello world")], short)
    assert text == tokens
    messages = [{"role": "user", "content": "hello"}]
    chat = engine.chat(messages, short)
    assert chat.prompt_tokens != text.prompt_tokens
    assert "".join(delta.text for delta in engine.stream_chat(messages, short)) == chat.text


def test_threads_share_the_engine(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine()
    got: dict[int, Generation] = {}

    def generate(index: int) -> None:
        got[index] = engine.generate([PROMPTS[index]], GREEDY)[0]

    threads = [threading.Thread(target=generate, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(len(PROMPTS))] == alone["greedy"]


def test_dropping_a_stream_cancels(open_engine: OpenEngine) -> None:
    engine = open_engine()
    long = GenerationOptions(max_tokens=200, temperature=0.0)
    stream = engine.stream(PROMPTS[0], long)
    next(stream)
    del stream
    gc.collect()
    finished = engine.statistics().finished
    assert finished["cancelled"] + finished["limit"] + finished["eos"] == 1
    assert not engine._worker._pending


def test_a_bad_prompt_is_refused_before_any_runs(open_engine: OpenEngine) -> None:
    engine = open_engine()
    with pytest.raises(RequestError, match="prompt"):
        engine.generate([[1, 2], [10**6]], GREEDY)
    with pytest.raises(RequestError, match="256"):
        engine.generate([[1] * 300], GREEDY)
    assert engine.statistics().counters["requests_submitted"] == 0


def test_more_prompts_than_the_queue_takes(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine(scheduler=SchedulerOptions(queue_capacity=2), request_slots=1)
    assert engine.generate(PROMPTS, GREEDY) == alone["greedy"]


def test_a_request_that_isnt_admitted_says_so(open_engine: OpenEngine) -> None:
    engine = open_engine(scheduler=SchedulerOptions(queue_capacity=1), request_slots=1)
    prepared = engine.frontend.preparer.prepare_completion(PROMPTS[0], GREEDY)
    # One runs, one waits in the scheduler's queue, one before it.
    *admitted, refused = engine._worker.submit([prepared] * 4)
    with pytest.raises(AdmissionError, match="have arrived and wait already"):
        list(engine._deltas(refused))
    assert all(list(engine._deltas(one))[-1].finish is not None for one in admitted)


def test_closing_fails_what_waits_and_what_comes(open_engine: OpenEngine) -> None:
    engine = open_engine()
    stream = engine.stream(PROMPTS[0], GenerationOptions(max_tokens=250, temperature=0.0))
    next(stream)
    engine.close()
    engine.close()
    assert list(stream)[-1].finish is not None
    with pytest.raises(ExecutionError, match="closed"):
        engine.generate([[1]], GREEDY)
    with pytest.raises(ExecutionError, match="closed"):
        engine.statistics()


def test_the_reference_target_gives_the_same_greedy_tokens(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine(target="reference")
    short = GenerationOptions(max_tokens=6, temperature=0.0)
    (got,) = engine.generate([PROMPTS[1]], short)
    assert got.tokens == alone["greedy"][1].tokens[:6]


def test_a_wrong_namespace_is_refused(tiny_core: Path) -> None:
    with pytest.raises(CoreError, match="tests"):
        Engine.open(tiny_core, accept="somebody")


IN_A_FORK = """
import os, sys
from helios.engine import Engine, GenerationOptions
from helios.errors import ExecutionError

options = GenerationOptions(max_tokens=3, temperature=0.0)
engine = Engine.open(sys.argv[1], accept="tests", threads=1)
before = engine.generate([[5, 6]], options)
stream = engine.stream([5, 6], options)
next(stream)
child = os.fork()
if child == 0:
    message = [{"role": "user", "content": "hi"}]
    for call in (lambda: engine.generate([[5]], options), lambda: engine.chat(message, options),
                 lambda: list(engine.stream([5], options)), lambda: next(stream),
                 engine.statistics):
        try:
            call()
        except ExecutionError as error:
            assert error.where == "engine" and "is a fork" in error.what, error
        else:
            raise AssertionError("worked in a fork")
    engine.close()
    raise SystemExit(7)
_, status = os.waitpid(child, 0)
list(stream)
print(os.waitstatus_to_exitcode(status), engine.generate([[5, 6]], options) == before)
engine.close()
"""


def test_a_fork_cannot_use_its_parents_engine(tiny_core: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FORK, str(tiny_core)],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "7 True\n", "")
