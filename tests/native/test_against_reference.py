"""Kernels of requests, rows and copies: the native library and the reference do the same, bit for
bit, whatever the operands hold. Kernels of a model's arithmetic are compared inside whole programs
(tests/numerics)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.runtime.reference.sampling_rows import SAMPLING_ROW
from tests.native import layer_cases, request_cases, sampling
from tests.native.harness import INSTRUCTION_SETS, Array, Case, run
from tests.native.reference import by_reference

ISA = INSTRUCTION_SETS[0]
# The sanitizers' run has no profile that says so.
no_deadline = settings(deadline=None)
# Numbers that are indices into something small, and some that aren't.
INDEX = st.one_of(st.integers(-2, 12), st.sampled_from([-(2**31), 2**31 - 1]))


def check(case: Case, *, threads: int = 2) -> None:
    got, expected = run(case, ISA, threads=threads), by_reference(case)
    for name, array in expected.items():
        assert got[name].tobytes() == array.tobytes(), name


def integers(draw: st.DrawFn, count: int) -> Array:
    return np.array(draw(st.lists(INDEX, min_size=count, max_size=count)), np.int32)


def fill(draw: st.DrawFn, case: Case, *names: str) -> Case:
    """The case with drawn numbers in these operands."""
    drawn = {n: integers(draw, case.operands[n].size).reshape(case.operands[n].shape)
             for n in names}  # fmt: skip
    return case.with_operands(**drawn)


@st.composite
def request_kernels(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    capacity, lanes = draw(st.integers(1, 9)), draw(st.integers(1, 6))
    rows = draw(st.integers(-1, 10))
    kernel = draw(st.sampled_from(["set_pending", "load_pending", "merge_pending"]))
    if kernel == "merge_pending":
        case = request_cases.merge_pending(
            rng, rows=rows, capacity=capacity, lanes=lanes, decode_lanes=draw(INDEX)
        )
    else:
        case = getattr(request_cases, kernel)(rng, rows=rows, capacity=capacity)
    return fill(draw, case, "slot") if draw(st.booleans()) else case


@st.composite
def copying_kernels(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    extents: dict[str, Any] = {
        "rows": draw(st.integers(-1, 6)),
        "capacity": draw(st.integers(1, 5)),
        "elements": draw(st.integers(1, 40)),
        "dtype": draw(st.sampled_from(sorted(request_cases.ELEMENTS))),
    }
    kernel = draw(st.sampled_from(["save_page", "load_page", "copy_rows"]))
    if kernel == "copy_rows":
        return request_cases.copy_rows(rng, count=draw(st.integers(1, 6)), **extents)
    case = request_cases.page_copy(
        rng, kernel, page_tokens=draw(st.integers(2, 5)), table_pages=draw(st.integers(1, 3)),
        **extents,
    )  # fmt: skip
    names = draw(st.sets(st.sampled_from(["slot", "endpoint", "row", "page_table"])))
    return fill(draw, case, *sorted(names))


@st.composite
def selecting_kernels(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    extents: dict[str, Any] = {
        "rows": draw(st.integers(-1, 6)),
        "capacity": draw(st.integers(1, 5)),
        "packed_capacity": draw(st.integers(1, 12)),
        "width": draw(st.integers(1, 9)),
    }
    if draw(st.booleans()):
        case = layer_cases.select_last(rng, **extents)
    else:
        dtype = draw(st.sampled_from(sorted(request_cases.ELEMENTS)))
        elements = draw(st.integers(1, 40))
        case = layer_cases.select_attending(rng, elements=elements, dtype=dtype, **extents)
    return fill(draw, case, *draw(st.sets(st.sampled_from(["query_length", "sample"]))))


@no_deadline
@given(case=selecting_kernels(), threads=st.integers(1, 3))
def test_selected_rows(case: Case, threads: int) -> None:
    check(case, threads=threads)


@st.composite
def sampling_row_kernels(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    extents = {"capacity": draw(st.integers(1, 5)), "vocab": draw(st.integers(1, 90))}
    rows = np.array([draw(st.integers(-1, 6))], np.int32)
    if draw(st.booleans()):
        case = sampling.count_sampled(rng, **extents).with_operands(rows=rows)
        names = draw(st.sets(st.sampled_from(["slot", "generation", "sampled", "tokens"])))
        return fill(draw, case, *sorted(names))
    case = sampling.initialize_sampling(rng, **extents).with_operands(rows=rows)
    for name in draw(st.sets(st.sampled_from(["stop_ids", "bias_tokens", "bad_words", "recent"]))):
        # Anything in a row's first elements, whatever it is taken for.
        start = integers(draw, 12)
        case.operands[name][:, :12] = start
    return fill(draw, case, "slot") if draw(st.booleans()) else case


@no_deadline
@given(case=sampling_row_kernels(), threads=st.integers(1, 3))
def test_sampling_rows(case: Case, threads: int) -> None:
    check(case, threads=threads)


@no_deadline
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@given(
    seed=st.integers(0, 2**32),
    vocab=st.integers(1, 700),
    padding=st.integers(0, 9),
    grammar=st.booleans(),
    hostile=st.booleans(),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([1.0, 0.8]),
)
def test_processed_logits(
    instruction_set: str,
    seed: int,
    vocab: int,
    padding: int,
    grammar: bool,
    hostile: bool,
    temperature: float,
    top_k: int,
    top_p: float,
) -> None:
    rng = np.random.default_rng(seed)
    case = sampling.sample_processed(
        rng, capacity=5, vocab=vocab, stride=vocab + padding, grammar=grammar,
        temperature=temperature, top_k=top_k, top_p=top_p,
    )  # fmt: skip
    if hostile:
        rows = case.operands["sampling"].view(SAMPLING_ROW).reshape(-1)
        for name in ("top_logprobs", "stops", "biases", "bad_tokens"):
            rows[name] = rng.choice([-(2**31), -1, 0, 3, 2**31 - 1], 5)
        rows["bias_tokens"][:, ::2] = rng.integers(-5, vocab + 5, 256)
        rows["bad_words"][:, :30] = rng.integers(-2, 9, 30)
        case.operands["slot"][:2] = [-1, 5]
    got, expected = run(case, instruction_set), by_reference(case)
    for name in ("tokens", "top_tokens"):
        np.testing.assert_array_equal(got[name], expected[name], name)
    for name in ("logprobs", "top_logprobs"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5)


@no_deadline
@given(case=request_kernels())
def test_request_state(case: Case) -> None:
    check(case)


@no_deadline
@given(case=copying_kernels(), threads=st.integers(1, 3))
def test_copies(case: Case, threads: int) -> None:
    check(case, threads=threads)


@no_deadline
@given(rows=st.integers(-3, 40), start=st.integers(0, 40), limit=st.integers(1, 40))
def test_slice_rows(rows: int, start: int, limit: int) -> None:
    check(request_cases.slice_rows(rows=rows, capacity=32, start=start, limit=limit), threads=1)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@no_deadline
@given(seed=st.integers(0, 2**32), vocab=st.integers(1, 700), padding=st.integers(0, 9))
def test_scores(instruction_set: str, seed: int, vocab: int, padding: int) -> None:
    case = request_cases.score(
        np.random.default_rng(seed), rows=4, capacity=5, vocab=vocab, stride=vocab + padding
    )
    got = run(case, instruction_set)["out"]
    np.testing.assert_allclose(got, by_reference(case)["out"], rtol=1e-5, atol=1e-5)


def hostile(rng: np.random.Generator, case: Case) -> Case:
    """With counts that nobody may ask for, equal logits, infinities and NaN."""
    capacity, vocab = case.integers["capacity"], case.integers["vocab"]
    case.operands["wanted"][:] = rng.choice([-(2**31), -1, 3, 21, 2**31 - 1], capacity)
    logits = case.operands["logits"]
    logits[0, :vocab] = rng.choice(logits[0, :3], vocab)
    logits[1] = -np.inf
    logits[2, rng.integers(0, vocab)] = np.nan
    return case


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@no_deadline
@given(
    seed=st.integers(0, 2**32),
    vocab=st.integers(1, 700),
    padding=st.integers(0, 9),
    spoiled=st.booleans(),
)
def test_ranked_scores(
    instruction_set: str, seed: int, vocab: int, padding: int, spoiled: bool
) -> None:
    rng = np.random.default_rng(seed)
    case = request_cases.score_ranked(rng, rows=4, capacity=5, vocab=vocab, stride=vocab + padding)
    if spoiled:
        case = hostile(rng, case)
    with np.errstate(invalid="ignore"):
        got, expected = run(case, instruction_set), by_reference(case)
    for name in ("rank", "top_tokens"):
        np.testing.assert_array_equal(got[name], expected[name], name)
    for name in ("out", "top_logprobs"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_ranked_scores_have_the_bits_of_plain_ones(instruction_set: str) -> None:
    case = request_cases.score_ranked(np.random.default_rng(6), rows=60, capacity=60, vocab=3001)
    order = np.argsort(-case.operands["logits"], kind="stable")
    case.operands["target"][::2] = order[::2, 4]
    plain = Case("score", {n: case.operands[n] for n in ("rows", "target", "logits", "out")},
                 case.integers)  # fmt: skip
    got = run(case, instruction_set)
    assert set(got["rank"][::2]) == {5}
    assert got["out"].tobytes() == run(plain, instruction_set)["out"].tobytes()
    # A token among the likeliest has the same logprob there, at the place that its rank says.
    found = 0
    for row, target in enumerate(case.operands["target"]):
        place = int(got["rank"][row]) - 1
        if 0 <= place < case.operands["wanted"][row]:
            assert got["top_tokens"][row, place] == target
            assert got["top_logprobs"][row, place] == got["out"][row]
            found += 1
    assert found
