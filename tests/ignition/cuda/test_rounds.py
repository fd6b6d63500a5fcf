"""Fused launches at a round's beginning and end: the bits of the launches by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ignition.preparation.checkpoints import open_checkpoint
from tests.ignition import lowered as fakes
from tests.ignition.cuda.checked import distinct_slots
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, fused, resources, run, run_fused
from tests.ignition.lowered import Recorded
from tests.native import layer_cases, request_cases, sampling
from tests.native.harness import Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing
from tests.native.states import STATE, i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

SEEDS = range(6)
VOCABULARY = 43


def one_by_one(cases):
    """Operands of each launch after all of them have run, one after the other."""
    arrays = {id(array): array for case in cases for array in case.operands.values()}
    for case in cases:
        operands = {name: arrays[id(array)] for name, array in case.operands.items()}
        after = run(replace(case, operands=operands))
        arrays |= {id(array): after[name] for name, array in case.operands.items()}
    return [{n: arrays[id(a)] for n, a in case.operands.items()} for case in cases]


def check(cases):
    expected = one_by_one(cases)
    for descending in (False, True):
        got = run_fused(cases, descending=descending)
        for case, after, wanted in zip(cases, got, expected, strict=True):
            for name, array in wanted.items():
                assert after[name].tobytes() == array.tobytes(), (case.kernel, name)


def page_deltas(rng, entries):
    case = request_cases.scatter_i32(rng, rows=entries, capacity=70, size=90)
    return case.with_operands(index=rng.integers(-1, 92, 70).astype(np.int32))


def forward(rng, tokens, rows, capacity, width, format_):
    """The embedding of `tokens` and its norm."""
    extents = {"rows": 0, "capacity": capacity, "width": width}
    embed = layer_cases.embed(rng, Packing.ROWS_BF16, vocab=VOCABULARY, **extents)[0]
    embed = embed.with_operands(tokens=tokens, rows=rows)
    norm = layer_cases.rms_norm(rng, format_=format_, **extents)
    return embed, norm.with_operands(x=embed.operands["out"], rows=rows)


def live(rng, capacity):
    return i32(int(rng.choice([-1, 0, 1, capacity // 2, capacity])))


def running(rng, case):
    """The launch over lanes that run, have finished or are stale."""
    state = case.operands["state"].view(STATE).reshape(-1)
    count = len(state)
    state["finished"] = rng.choice([0, 0, 0, 1], count)
    state["pending_token"] = rng.integers(-1, VOCABULARY + 1, count)
    case = distinct_slots(rng, case, count)
    held = np.clip(case.operands["slot"], 0, count - 1)
    generation = state["generation"][held] + rng.choice([0, 0, 0, 1], count)
    return case.with_operands(generation=generation.astype(np.int32))


def decode(rng, capacity, width, format_=BF16_FORMAT):
    pending = running(rng, request_cases.load_pending(rng, rows=0, capacity=capacity))
    pending = pending.with_operands(rows=live(rng, capacity))
    tokens, rows = pending.operands["tokens"], pending.operands["rows"]
    entries = int(rng.choice([0, 1, 40, 70]))
    return [
        page_deltas(rng, entries), pending, *forward(rng, tokens, rows, capacity, width, format_)
    ]  # fmt: skip


def mixed(rng, capacity, width):
    merge = request_cases.merge_pending(
        rng, rows=0, capacity=capacity, lanes=3, decode_lanes=int(rng.choice([-1, 0, 2, 3, 9]))
    )
    merge = running(rng, merge).with_operands(
        rows=live(rng, capacity), tokens=rng.integers(-1, VOCABULARY + 1, capacity).astype("i4")
    )
    tokens, rows = merge.operands["out_tokens"], merge.operands["rows"]
    return [page_deltas(rng, 5), merge, *forward(rng, tokens, rows, capacity, width, BF16_FORMAT)]


def prefill(rng, capacity, width):
    tokens = rng.integers(-1, VOCABULARY + 1, capacity).astype(np.int32)
    rows = live(rng, capacity)
    return [page_deltas(rng, 5), *forward(rng, tokens, rows, capacity, width, BF16_FORMAT)]


def ending(rng, capacity, *, prompt):
    """`count_sampled` and `commit` of lanes whose penalties, bad words and ends differ."""
    count = sampling.count_sampled(rng, capacity=capacity, vocab=VOCABULARY)
    count = running(rng, count).with_operands(
        rows=live(rng, capacity), sampled=rng.choice([0, 1, 1], capacity).astype(np.int32)
    )
    state = count.operands["state"].view(STATE).reshape(-1)
    state["output_limit"], state["emitted"] = 3, rng.integers(0, 3, capacity)
    state["eos_ids"] = rng.integers(-1, VOCABULARY, (capacity, 16))
    commit = request_cases.commit(rng, rows=0, capacity=capacity)
    shared = ("rows", "slot", "generation", "sampled", "tokens", "state")
    commit = commit.with_operands(**{name: count.operands[name] for name in shared})
    if prompt:
        return [count, commit]
    absent = ("sampled", "query_length")
    return [
        Case(c.kernel, {n: a for n, a in c.operands.items() if n not in absent}, c.integers)
        for c in (count, commit)
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "width"), [(1, 64), (5, 160), (9, 576)])
def test_decode_begins(capacity, width, seed):
    rng = np.random.default_rng([seed, width])
    check(decode(rng, capacity, width, [BF16_FORMAT, F32_FORMAT][seed % 2]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "width"), [(4, 64), (70, 96)])
def test_mixed_begins(capacity, width, seed):
    check(mixed(np.random.default_rng([seed, width]), capacity, width))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "width"), [(1, 64), (70, 96)])
def test_prefill_begins(capacity, width, seed):
    check(prefill(np.random.default_rng([seed, width]), capacity, width))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", [1, 5, 70])
@pytest.mark.parametrize("prompt", [True, False])
def test_a_round_ends(prompt, capacity, seed):
    check(ending(np.random.default_rng([seed, capacity]), capacity, prompt=prompt))


def unfused(cases):
    return fused(cases) is None


def test_launches_that_do_not_belong_together_stay_apart():
    rng = np.random.default_rng(1)
    scatter, pending, embed, norm = decode(rng, 3, 64)
    assert not unfused([scatter, pending, embed, norm])
    other = embed.with_operands(tokens=embed.operands["tokens"].copy())
    assert unfused([scatter, pending, other, norm])
    other = norm.with_operands(x=norm.operands["x"].copy())
    assert unfused([scatter, pending, embed, other])
    other = pending.with_operands(rows=pending.operands["rows"].copy())
    assert unfused([scatter, other, embed, norm])
    # What the scatter writes is looked at.
    other = scatter.with_operands(target=pending.operands["slot"])
    assert unfused([other, pending, embed, norm])
    assert unfused([scatter.with_integers(capacity=100_000), pending, embed, norm])
    count, commit = ending(rng, 3, prompt=True)
    assert not unfused([count, commit])
    for name in ("state", "slot", "sampled", "tokens"):
        other = commit.with_operands(**{name: commit.operands[name].copy()})
        assert unfused([count, other]), name
    without = {n: a for n, a in commit.operands.items() if n != "sampled"}
    assert unfused([count, replace(commit, operands=without)])


BEGINNINGS = {"decode": "begin_decode", "mixed": "begin_mixed", "prefill": "begin_prefill",
              "scored_prefill": "begin_prefill"}  # fmt: skip


def test_programs_of_a_model_begin_and_end_with_one_kernel(checkpoint_folder):
    from ignition.kernels.cuda.lowerings import FUSIONS, LOWERINGS

    recorded = Recorded(open_checkpoint(checkpoint_folder("llama")))
    lowered = recorded.lower(FUSIONS, {**fakes.LOWERINGS, **LOWERINGS})
    seen = set()
    for program, parts in lowered.programs:
        kind = program.message.name.partition(".")[0]
        if kind in BEGINNINGS:
            names = [[k.request.function.__name__ for k in part.kernels] for part in parts]
            assert names[0] == [BEGINNINGS[kind]]
            assert names[-1] == ["end_round"]
            seen.add(kind)
    assert seen == BEGINNINGS.keys()


def test_kernels_compile():
    from ignition.kernels.cuda.compile import compile

    rng = np.random.default_rng(0)
    rounds = [decode(rng, 3, 576), decode(rng, 3, 4096), mixed(rng, 3, 1024), prefill(rng, 3, 64)]
    rounds += [ending(rng, 3, prompt=prompt) for prompt in (True, False)]
    for cases in rounds:
        for kernel in fused(cases):
            taken = resources(compile(kernel.request))
            assert taken["STACK"] == 0
            assert taken["REG"] <= 128
