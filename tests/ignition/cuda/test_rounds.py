"""Fused launches at a round's beginning and end: the bits of the launches by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ignition.preparation.checkpoints import open_checkpoint
from tests.ignition import lowered as fakes
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, fused, resources, run, run_fused
from tests.ignition.lowered import Recorded
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing
from tests.native.round_cases import decode, ending, mixed, prefill, weighing

pytest.importorskip("triton", reason=WITHOUT_TRITON)

SEEDS = range(6)


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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "width"), [(1, 64), (5, 160), (9, 576)])
def test_decode_begins(capacity, width, seed):
    rng = np.random.default_rng([seed, width])
    packing = [Packing.ROWS_BF16, Packing.ROWS_Q8][seed // 2 % 2]
    check(decode(rng, capacity, width, [BF16_FORMAT, F32_FORMAT][seed % 2], packing))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "width"), [(4, 64), (70, 96)])
def test_mixed_begins(capacity, width, seed):
    packing = [Packing.ROWS_BF16, Packing.ROWS_Q8][seed % 2]
    check(mixed(np.random.default_rng([seed, width]), capacity, width, packing))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "width"), [(1, 64), (70, 96)])
def test_prefill_begins(capacity, width, seed):
    packing = [Packing.ROWS_BF16, Packing.ROWS_Q8][seed % 2]
    check(prefill(np.random.default_rng([seed, width]), capacity, width, packing))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("begin", [decode, mixed, prefill])
def test_weighed_rows_begin(begin, whole):
    rng = np.random.default_rng(whole)
    check(weighing(begin(rng, 5, 160), rng, whole=whole))


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
    # A round changes few entries of a page table, however many it has.
    assert not unfused([scatter.with_integers(capacity=100_000), pending, embed, norm])
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
    rounds += [weighing(decode(rng, 3, 4096), rng, whole=False)]
    rounds += [ending(rng, 3, prompt=prompt) for prompt in (True, False)]
    for cases in rounds:
        for kernel in fused(cases):
            taken = resources(compile(kernel.request))
            assert taken["STACK"] == 0
            assert taken["REG"] <= 128
