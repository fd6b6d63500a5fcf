"""What a slot keeps for sampling: its kernels, interpreted, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from helios.runtime.reference.sampling_rows import SAMPLING_ROW
from tests.ignition.cuda.checked import check, check_compiles
from tests.ignition.cuda.interpreted import WITHOUT_TRITON
from tests.native import sampling
from tests.native.launches import Case
from tests.native.random_lanes import counted, distinct_slots, live
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

SEEDS = range(8)
# Below a word of a mask, whole words, and more than a block of them.
VOCABULARIES = [1, 31, 64, 333, 33_100]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_admission(vocab, seed):
    rng = np.random.default_rng([seed, vocab])
    capacity = int(rng.choice([1, 3, 6]))
    case = sampling.initialize_sampling(rng, capacity=capacity, vocab=vocab)
    if rng.random() < 0.5:
        # Anything in a row's first elements, whatever it is taken for.
        for name in ("stop_ids", "bias_tokens", "bad_words", "recent"):
            case.operands[name][:, :12] = rng.integers(-2, 40, (capacity, 12))
    case.operands["bias"].view(np.uint32)[0, 0] = 0x7FA00001  # a NaN keeps its bits
    case.operands["repetition_penalty"][-1] = rng.choice([0.0, -0.0, 1.0, np.nan])
    check(live(rng, distinct_slots(rng, case, capacity)))


@pytest.mark.parametrize("vocab", [31, 32, 33, 1056])
def test_a_mask_is_kept_where_it_excludes_one_token(vocab):
    rng = np.random.default_rng(vocab)
    case = sampling.initialize_sampling(rng, capacity=4, vocab=vocab)
    bits = np.ones((4, 32 * -(-vocab // 32)), np.bool_)
    bits[0, vocab:] = False  # bits past the vocabulary exclude nothing
    bits[1, vocab - 1] = False
    bits[2, 0] = False
    words = np.stack([np.packbits(row, bitorder="little").view("<u4") for row in bits])
    case = case.with_operands(mask=words, slot=i32(3, 2, 1, 0))
    after = check(case)
    masked = after["sampling"].view(SAMPLING_ROW).reshape(-1)["masked"]
    assert masked.tolist() == [0, 1, 1, 0]
    assert (after["token_mask"][[0, 3]] == 7).all()


@pytest.mark.parametrize(
    "words",
    [
        [2, 5, 6, 1, 7, 0, 9],
        [1023, *range(1023)],
        [1024, *range(1023)],
        [1, 5] * 512,
        [1, 5] * 511 + [2, 5],
        [-1, 5, 6],
        [2**31 - 1, 5],
        [2, 5, 6, -(2**31), 5],
    ],
)
def test_bad_words_end_where_a_length_says_so(words):
    case = sampling.initialize_sampling(np.random.default_rng(3), capacity=1, vocab=40)
    case.operands["bad_words"][:] = 0
    case.operands["bad_words"][0, : len(words)] = words
    check(case)


@pytest.mark.parametrize("short", ["state", "sampling", "token_counts", "output_counts",
                                   "token_mask"])  # fmt: skip
@pytest.mark.parametrize("kernel", ["initialize_sampling", "count_sampled"])
def test_each_buffer_has_its_own_number_of_slots(kernel, short):
    case = getattr(sampling, kernel)(np.random.default_rng(4), capacity=4, vocab=40)
    if short in case.operands:
        check(case.with_operands(**{short: case.operands[short][:2].copy()}))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", [1, 5, 32, 70])
def test_counts(capacity, seed):
    rng = np.random.default_rng([seed, capacity])
    check(live(rng, counted(rng, capacity, 40)))


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_where_all_lanes_sample(seed):
    case = counted(np.random.default_rng(seed), 40, 50)
    operands = {name: array for name, array in case.operands.items() if name != "sampled"}
    check(Case("count_sampled", operands, case.integers))


def test_kernels_compile():
    rng = np.random.default_rng(0)
    case = counted(rng, 3, 40)
    check_compiles(case, registers=128)
    operands = {name: array for name, array in case.operands.items() if name != "sampled"}
    check_compiles(Case("count_sampled", operands, case.integers), registers=128)
    check_compiles(sampling.initialize_sampling(rng, capacity=3, vocab=40))
