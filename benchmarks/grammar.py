"""What grammars of JSON schemas cost with a core's vocabulary.

    PYTHONPATH=src:benchmarks python benchmarks/grammar.py CORE --accept NAMESPACE
        [--schemas 200] [--lanes 8,32] [--slowest 5]

For each schema: compiling and trying it as the HTTP process does, making the matcher and its first
mask as the worker does, then an answer drawn at random, of which forced tokens are fed and the
others chosen by a mask. Times of single masks are processor time, of a step what a token costs the
worker (it is consumed, forced ones are looked for, the mask is filled), without the choice; batches
are filled by as many threads as the worker uses, wall time. Memory is what the process has grown by
with all matchers alive. Nothing of the model is run.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer

from grammar_parts.schemas import Schema, schemas
from helios.core import open_core
from helios.errors import RequestError
from helios.frontend.bootstrap import Bootstrap
from helios.frontend.grammar.compiler import GrammarCompiler, parser_limits
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.structure import json_schema
from helios.frontend.tools import NO_TOOLS

TOKENS = 300  # of an answer, at most
HURRY = 80  # tokens after which an answer comes to its end as soon as it may
CLOSES = 0.25  # how likely a text, list or object ends where it may
THREADS = 8


@dataclass
class Cost:
    """A schema's figures, in milliseconds, and its answer's tokens."""

    name: str
    compile_ms: float
    matcher_ms: float
    first_mask_ms: float
    mask_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    chosen: int = 0
    forced: int = 0
    rounds: int = 0


class Answers:
    """Draws answers that grammars allow."""

    def __init__(self, vocabulary: LLTokenizer) -> None:
        self.vocabulary = vocabulary
        tokens = range(vocabulary.vocab_size)
        self._blank = {token for token in tokens if vocabulary.decode_bytes([token]).isspace()}
        self._ends = set(vocabulary.eos_tokens)
        self._hurried = [vocabulary.tokenize_bytes(text)[0] for text in (b'"', b"}", b"]", b",")]

    def choose(self, mask: bytes, count: int, choice: random.Random) -> int | None:
        """A token of a mask; None where the answer may end and does."""
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits[: self.vocabulary.vocab_size])
        rest = [int(token) for token in allowed if int(token) not in self._ends]
        if len(rest) < len(allowed) and (count > HURRY or not rest or choice.random() < 0.2):
            return None
        rest = [token for token in rest if token not in self._blank] or rest
        if count > HURRY or choice.random() < CLOSES:
            quick = [token for token in self._hurried if bits[token]]
            if quick:
                return choice.choice(quick)
        return choice.choice(rest)


def cpu_ms(began: int) -> float:
    """Milliseconds of processor time since."""
    return (time.process_time_ns() - began) / 1e6


def measure(compiler: GrammarCompiler, answers: Answers, name: str, schema: Schema) -> Cost:
    """A schema's cost."""
    began = time.process_time_ns()
    grammar = compiler.compile(Constraint(json_schema(schema, "schema"), NO_TOOLS), None)
    compile_ms = cpu_ms(began)
    began = time.process_time_ns()
    matcher = LLMatcher(compiler.vocabulary, grammar, log_level=0, limits=parser_limits())
    matcher_ms = cpu_ms(began)
    began = time.process_time_ns()
    matcher.compute_ff_tokens()
    matcher.compute_bitmask()
    cost = Cost(name, compile_ms, matcher_ms, cpu_ms(began))
    choice = random.Random(name)
    spent = 0.0
    while cost.chosen + cost.forced < TOKENS and not matcher.is_stopped():
        began = time.process_time_ns()
        following = matcher.compute_ff_tokens()
        spent += cpu_ms(began)
        forced = [token for token in following if token not in answers.vocabulary.eos_tokens]
        if forced:
            cost.forced += len(forced)
            # As the worker does it: three tokens and more are fed in a round of their own.
            cost.rounds += 1 if len(forced) >= 3 else len(forced)
            began = time.process_time_ns()
            assert matcher.consume_tokens(forced)
            spent += cpu_ms(began)
            continue
        began = time.process_time_ns()
        mask = matcher.compute_bitmask()
        cost.mask_ms.append(cpu_ms(began))
        cost.step_ms.append(spent + cost.mask_ms[-1])
        token = answers.choose(mask, cost.chosen, choice)
        if token is None:
            break
        cost.chosen += 1
        cost.rounds += 1
        began = time.process_time_ns()
        if not matcher.consume_token(token):
            break
        spent = cpu_ms(began)
    return cost


def batches(
    compiler: GrammarCompiler, answers: Answers, grammars: Sequence[str], lanes: int, steps: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of filling the masks of so many lanes together, each step: by the clock, and of
    all threads' processor time. Answers begin with copies of matchers whose first mask is there, as
    the worker's do."""
    vocabulary = compiler.vocabulary
    choice = random.Random(lanes)
    prepared = []
    for text in choice.sample(list(grammars), min(lanes, len(grammars))):
        matcher = LLMatcher(vocabulary, text, log_level=0, limits=parser_limits())
        matcher.compute_bitmask()
        prepared.append(matcher)

    def fresh() -> LLMatcher:
        return choice.choice(prepared).deep_copy()

    words = -(-vocabulary.vocab_size // 32)
    masks = np.zeros((lanes, words), np.uint32)
    executor = LLExecutor(min(os.cpu_count() or 1, THREADS))
    matchers, counts = [fresh() for _ in range(lanes)], [0] * lanes
    clock, processor = [], []
    for _ in range(steps):
        for lane in range(lanes):
            matcher = matchers[lane]
            while not matcher.is_stopped() and (forced := matcher.compute_ff_tokens()):
                if not matcher.consume_tokens(forced):
                    break
            if matcher.is_stopped():
                matchers[lane], counts[lane] = fresh(), 0
        began, spent = time.perf_counter_ns(), time.process_time_ns()
        executor.unsafe_compute_mask_ptr(
            list(zip(matchers, range(lanes), strict=True)), masks.ctypes.data, words * 4, lanes
        )
        clock.append((time.perf_counter_ns() - began) / 1e6)
        processor.append(cpu_ms(spent))
        for lane, matcher in enumerate(matchers):
            token = answers.choose(masks[lane].tobytes(), counts[lane], choice)
            counts[lane] += 1
            if token is None or not matcher.consume_token(token):
                matchers[lane], counts[lane] = fresh(), 0
    return clock, processor


def spread(values: Sequence[float], unit: str) -> str:
    """Median, 99th percentile and largest."""
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.3f}, p99 {high:.3f}, max {ordered[-1]:.3f} {unit}"


def grown_mib(compiler: GrammarCompiler, grammars: Sequence[str]) -> float:
    """MiB that the process grows by with all matchers alive, each at its first mask."""
    before = _resident_mib()
    kept = []
    for text in grammars:
        matcher = LLMatcher(compiler.vocabulary, text, log_level=0, limits=parser_limits())
        matcher.compute_bitmask()
        kept.append(matcher)
    return _resident_mib() - before


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Prints the figures."""
    options = argparse.ArgumentParser()
    options.add_argument("core")
    options.add_argument("--accept", required=True)
    options.add_argument("--schemas", type=int, default=200)
    options.add_argument("--lanes", default="8,32")
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--slowest", type=int, default=5)
    asked = options.parse_args()
    core = open_core(asked.core, accept=asked.accept, allow_unknown_publisher=True)
    frontend = Bootstrap.load(core)
    model = core.contract.model
    compiler = GrammarCompiler(
        model.frontend,
        frontend.tokenizer,
        frontend.preparer.reading.signs,
        model.vocabulary.sampled_tokens,
    )
    began = time.process_time_ns()
    answers = Answers(compiler.vocabulary)
    print(f"{compiler.vocabulary.vocab_size} tokens; vocabulary made in {cpu_ms(began):.0f} ms")

    costs, grammars, refused = [], [], []
    for name, schema in schemas(asked.schemas).items():
        try:
            grammar = compiler.compile(Constraint(json_schema(schema, "schema"), NO_TOOLS), None)
        except RequestError as error:
            refused.append(f"{name}: {error}")
            continue
        grammars.append(grammar)
        costs.append(measure(compiler, answers, name, schema))
    print(f"{len(costs)} schemas, {len(refused)} refused {refused[:3]}")
    print("compiled and tried:", spread([cost.compile_ms for cost in costs], "ms"))
    print("time to first mask:", spread([c.matcher_ms + c.first_mask_ms for c in costs], "ms"))
    masks = [ms for cost in costs for ms in cost.mask_ms]
    print(f"a mask, {len(masks)} of them:", spread(masks, "ms"))
    print("a step:", spread([ms for cost in costs for ms in cost.step_ms], "ms"))
    for lanes in map(int, asked.lanes.split(",")):
        clock, processor = batches(compiler, answers, grammars, lanes, asked.steps)
        print(f"masks of {lanes} lanes, {os.cpu_count()} cores, by the clock:", spread(clock, "ms"))
        print(f"masks of {lanes} lanes, processor time:", spread(processor, "ms"))
    chosen, forced = (sum(getattr(c, kind) for c in costs) for kind in ("chosen", "forced"))
    rounds = sum(cost.rounds for cost in costs)
    print(
        f"tokens: {forced} of {chosen + forced} forced, a schema"
        f" {spread([cost.forced for cost in costs], '')}; rounds: {rounds} for"
        f" {chosen + forced} tokens, {100 * (1 - rounds / (chosen + forced)):.0f} % saved"
    )
    print(f"memory: {grown_mib(compiler, grammars) / len(grammars):.2f} MiB a grammar")
    for cost in sorted(costs, key=lambda one: -max(one.mask_ms, default=0))[: asked.slowest]:
        print(f"slowest masks: {cost.name}: {spread(cost.mask_ms, 'ms')}")


if __name__ == "__main__":
    main()
