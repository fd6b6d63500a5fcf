"""No kernel reaches outside its operands, and load-time checks know every operand's extent."""

from __future__ import annotations

import re

import numpy as np
import pytest

from helios import _native
from helios.kernels.catalogue import BY_NAME
from tests.native.cases import EVERY_KERNEL
from tests.native.harness import (
    INSTRUCTION_SETS,
    GuardedArray,
    Placement,
    add_program,
    run,
)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_operands_beside_guard_pages(name: str, instruction_set: str) -> None:
    # An access outside an operand ends the process; equal bytes show that both runs did the work.
    case = EVERY_KERNEL[name](np.random.default_rng(7))
    before = run(case, instruction_set, placement=Placement.BEFORE_GUARD)
    after = run(case, instruction_set, placement=Placement.AFTER_GUARD)
    for operand in before:
        assert before[operand].tobytes() == after[operand].tobytes(), operand
    written = [spec.name for spec in BY_NAME[case.kernel].operands if "w" in spec.access]
    assert any(before[o].tobytes() != case.operands[o].tobytes() for o in written if o in before)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_rows_past_the_live_ones_are_not_written(name: str, instruction_set: str) -> None:
    case = EVERY_KERNEL[name](np.random.default_rng(8))
    capacity = case.integers["capacity"]
    case = case.with_operands(rows=np.array([capacity - 1], np.int32))
    result = run(case, instruction_set)
    for operand in (
        "out",
        "tokens",
        "logprobs",
        "positions",
        "lanes",
        "out_tokens",
        "out_positions",
        "top_tokens",
        "top_logprobs",
        "rank",
    ):
        if operand in result and len(result[operand]) == capacity:
            assert result[operand][-1].tobytes() == case.operands[operand][-1].tobytes(), operand


@pytest.mark.parametrize("live", [-3, 0, 10**9])
@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_row_counts_are_clamped(name: str, live: int) -> None:
    case = EVERY_KERNEL[name](np.random.default_rng(9))
    result = run(case.with_operands(rows=np.array([live], np.int32)), INSTRUCTION_SETS[0])
    expected = case.integers["capacity"] if live > 0 else 0
    reference = run(case.with_operands(rows=np.array([expected], np.int32)), INSTRUCTION_SETS[0])
    for operand in result.keys() - {"rows"}:
        assert result[operand].tobytes() == reference[operand].tobytes(), operand


# Operands whose extent follows from their own size (slots, targets), so a shorter one is simply
# smaller, and those that must hold at least one row (page, slot, saved row).
SYMBOLIC = {"state", "target", "sampling", "token_counts", "output_counts", "token_mask"}
ONE_ROW = {"k_plane", "v_plane", "page_table", "plane", "saved", "buffer"}


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_a_short_operand_is_refused_by_name(name: str) -> None:
    case = EVERY_KERNEL[name](np.random.default_rng(10))
    memory = {
        operand: GuardedArray(array, Placement.BEFORE_GUARD)
        for operand, array in case.operands.items()
    }
    replayer = _native.Replayer(1, INSTRUCTION_SETS[0])
    symbolic = SYMBOLIC if case.kernel == "scatter_i32" else SYMBOLIC - {"target"}
    for short in case.operands.keys() - symbolic:
        spans = {o: (guarded.address, guarded.nbytes) for o, guarded in memory.items()}
        given = spans[short][1] - 1
        if short in ONE_ROW:
            rows = len(case.operands[short])
            given = spans[short][1] // rows - 1
        spans[short] = (spans[short][0], given)
        pattern = (
            rf'launch 0 \({case.kernel}\): operand "{short}\??" needs (\d+) bytes, {given} given'
        )
        with pytest.raises(ValueError, match=pattern) as caught:
            add_program(replayer, [(case.kernel, spans, case.integers, case.floats)])
        found = re.search(pattern, str(caught.value))
        assert found is not None
        assert int(found[1]) == given + 1
    replayer.close()


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_an_absent_operand_is_refused_unless_optional(name: str) -> None:
    case = EVERY_KERNEL[name](np.random.default_rng(11))
    memory = {
        operand: GuardedArray(array, Placement.BEFORE_GUARD)
        for operand, array in case.operands.items()
    }
    replayer = _native.Replayer(1, INSTRUCTION_SETS[0])
    for spec in BY_NAME[case.kernel].operands:
        spans = {
            o: (guarded.address, guarded.nbytes) for o, guarded in memory.items() if o != spec.name
        }
        launch = (case.kernel, spans, case.integers, case.floats)
        if spec.optional:
            add_program(replayer, [launch])
        else:
            with pytest.raises(ValueError, match=f'"{spec.name}" is absent but needed'):
                add_program(replayer, [launch])
    replayer.close()


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        ("linear_TILE16_Q4_1_2", {"width": 48}, '"width" is 48, must be a multiple of 32'),
        ("linear_TILE16_Q4_1_2", {"format": 1}, '"format" is 1, doesn\'t go with the packing'),
        ("linear_TILE16_Q4_PAIRS_4", {"width": 96}, '"width" is 96, must be a multiple of 64'),
        ("linear_TILE16_Q4_PAIRS_4", {"format": 2}, '"format" is 2, doesn\'t go with the packing'),
        ("linear_TILE16_Q4_1_2", {"format": 4}, '"format" is 4, doesn\'t go with the packing'),
        ("linear_TILE16_BF16_1", {"width": 37}, '"width" is 37, must be a multiple of 2'),
        ("linear_TILE16_BF16_1", {"packing": 1}, '"packing" is 1, must lie between 2 and 9'),
        ("linear_TILE16_BF16_1", {"capacity": 0}, '"capacity" is 0, must lie between 1'),
        ("linear_TILE16_BF16_1", {"outputs": 2**31}, '"outputs" is 2147483648, must lie'),
        ("linear_TILE16_BF16_1", {"accumulate": 2}, '"accumulate" is 2, must lie between 0 and 1'),
        ("silu_TILE16_F32_0_0", {"outputs": 24}, '"outputs" is 24, must be a multiple of 16'),
        ("attention_64_32_0", {"kv_heads": 4}, '"q_heads" is 6, must be a multiple of kv_heads'),
        ("attention_64_32_0", {"head_dim": 63}, '"head_dim" is 63, must be a multiple of 2'),
        ("attention_64_32_0", {"window": -1}, '"window" is -1, must lie between 0'),
        ("attention_38_20_0", {"format": 2}, '"head_dim" is 38, times the query heads'),
        (
            "attention_38_20_0",
            {"format": 4},
            '"head_dim" is 38, times the query heads of a key head'
            " must be a multiple of 64 for q8 pairs",
        ),
        ("sample_greedy", {"stride": 1042}, '"stride" is 1042, must be at least vocab'),
        ("score", {"stride": 1042}, '"stride" is 1042, must be at least vocab'),
        ("score_ranked", {"stride": 1042}, '"stride" is 1042, must be at least vocab'),
        ("merge_pending", {"lanes": 0}, '"lanes" is 0, must lie between 1'),
        ("slice_rows", {"start": -1}, '"start" is -1, must lie between 0'),
        ("slice_rows", {"limit": 0}, '"limit" is 0, must lie between 1'),
        ("save_page", {"page_tokens": 0}, '"page_tokens" is 0, must lie between 1'),
        ("save_page", {"table_pages": 0}, '"table_pages" is 0, must lie between 1'),
        ("load_page", {"elements": 0}, '"elements" is 0, must lie between 1'),
        ("load_page", {"dtype": 10}, '"dtype" is 10, must lie between 1 and 9'),
        ("copy_rows", {"dtype": 0}, '"dtype" is 0, must lie between 1 and 9'),
        ("select_attending_7", {"dtype": 10}, '"dtype" is 10, must lie between 1 and 9'),
        ("select_attending_7", {"elements": 0}, '"elements" is 0, must lie between 1'),
        ("sample_processed", {"stride": 1042}, '"stride" is 1042, must be at least vocab'),
        ("initialize_sampling", {"vocab": 0}, '"vocab" is 0, must lie between 1'),
        ("count_sampled", {"vocab": 0}, '"vocab" is 0, must lie between 1'),
    ],
)
def test_impossible_attributes_are_refused(
    name: str, attributes: dict[str, int], message: str
) -> None:
    case = EVERY_KERNEL[name](np.random.default_rng(12)).with_integers(**attributes)
    with pytest.raises(ValueError, match=re.escape(message)):
        run(case, INSTRUCTION_SETS[0])


def test_a_misaligned_operand_is_refused() -> None:
    case = EVERY_KERNEL["select_last"](np.random.default_rng(13))
    memory = {o: GuardedArray(a, Placement.AFTER_GUARD) for o, a in case.operands.items()}
    spans = {o: (guarded.address, guarded.nbytes) for o, guarded in memory.items()}
    spans["x"] = (spans["x"][0] + 2, spans["x"][1])
    replayer = _native.Replayer(1, INSTRUCTION_SETS[0])
    with pytest.raises(ValueError, match='operand "x" must be aligned to 4 bytes'):
        add_program(replayer, [(case.kernel, spans, case.integers, case.floats)])
    replayer.close()


def test_scratch_beyond_the_limit_is_refused() -> None:
    # Nothing runs, so the operands' extents may be claimed.
    case = EVERY_KERNEL["attention_64_32_0"](np.random.default_rng(14))
    spans = dict.fromkeys(case.operands, (4096, 2**48))
    floats = case.floats
    replayer = _native.Replayer(3, INSTRUCTION_SETS[0])
    many = {**case.integers, "q_heads": 1 << 22, "kv_heads": 1}
    with pytest.raises(ValueError, match=r"launch 0 \(attention\): needs \d{10} bytes of scratch"):
        add_program(replayer, [(case.kernel, spans, many, floats)])
    assert replayer.scratch_nbytes() == 0
    # A vocabulary as large as any model's is not refused.
    sample = EVERY_KERNEL["sample_greedy"](np.random.default_rng(15))
    spans = dict.fromkeys(sample.operands, (4096, 2**48))
    large = {**sample.integers, "vocab": 1 << 22, "stride": 1 << 22}
    add_program(replayer, [(sample.kernel, spans, large, sample.floats)])
    assert 3 * (64 << 20) < replayer.scratch_nbytes() <= 3 * (128 << 20)
    replayer.close()
