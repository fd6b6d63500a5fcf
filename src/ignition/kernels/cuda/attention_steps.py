"""The arithmetic of `attention_warps`: pages and splits for the 64 rows of a group of warps.

Sums have the order of `attention_blocks`. Every result of the tensor cores is waited for before a
loop's end: one that is on its way there would make the compiler wait after each instruction.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def begin_products(queries, key_blocks, stage, INDEX: gl.constexpr, PAGE: gl.constexpr):
    """Begins the products of a group's queries and a page's keys."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PAGE, 16])
    keys = key_blocks.index(stage).permute((1, 0))
    nothing = gl.zeros([64, PAGE], gl.float32, SCORES)
    return warpgroup_mma(queries.index(INDEX), keys, nothing, use_acc=False, is_async=True)


@gluon.jit
def attend_split(first, scores, shared, scale_log2, INDEX: gl.constexpr, SIZES: gl.constexpr):
    """A split of which every row sees everything, from its page `first` on: maximum, sum and
    weighted values, and the scores of the page after it. `scores` are those of its first page.

    While a page's scores become weights, the tensor cores have the values of the page before it
    and the keys of the page after it."""
    queries, key_blocks, value_blocks, keys_there, values_there, read = shared
    D: gl.constexpr = SIZES[2]
    PAGE: gl.constexpr = SIZES[3]
    TOGETHER: gl.constexpr = SIZES[4] // PAGE
    STAGES: gl.constexpr = SIZES[5]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PAGE, 16])
    MIXED: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    maximum = gl.full([64], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
    total = gl.zeros([64], gl.float32, gl.SliceLayout(1, SCORES))
    mixed = gl.zeros([64, D], gl.float32, MIXED)
    weights = gl.zeros([64, PAGE], gl.float16, gl.DotOperandLayout(0, MIXED, 2))
    for i in gl.static_range(TOGETHER):
        page = first + i
        stage = (page + 1) % STAGES
        phase = ((page + 1) // STAGES) & 1
        mbarrier.wait(keys_there.index(stage), phase)
        following = begin_products(queries, key_blocks, stage, INDEX, PAGE)
        maximum, total, decay, new_weights = weighed(scores, maximum, total, scale_log2)
        new_weights = gl.convert_layout(
            new_weights.to(gl.float16), gl.DotOperandLayout(0, MIXED, 2)
        )
        if i > 0:
            total = _computed(total)
            mixed, weights = warpgroup_mma_wait(1, deps=[mixed, weights])
            mixed = mixed * gl.convert_layout(decay, gl.SliceLayout(1, MIXED))[:, None]
        mbarrier.arrive(read.index(page % STAGES), count=1)
        weights = new_weights
        mbarrier.wait(values_there.index(stage), phase)
        block = value_blocks.index(stage)
        mixed = warpgroup_mma(weights, block, mixed, use_acc=i > 0, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[following])
    mixed, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
    return scores, maximum, total, mixed


@gluon.jit
def attend_page(
    page, shared, position, scale_log2, maximum, total, mixed, weights, all_maximum,
    all_total, all_mixed, INDEX: gl.constexpr, SIZES: gl.constexpr,
):  # fmt: skip
    """Scores and weights of `page` beside the values of the page before it, whose weights are
    given; rows see keys up to their position."""
    queries, key_blocks, value_blocks, keys_there, values_there, read = shared
    D: gl.constexpr = SIZES[2]
    PAGE: gl.constexpr = SIZES[3]
    SPLIT: gl.constexpr = SIZES[4]
    STAGES: gl.constexpr = SIZES[5]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PAGE, 16])
    MIXED: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    stage = page % STAGES
    phase = (page // STAGES) & 1
    mbarrier.wait(keys_there.index(stage), phase)
    scores = begin_products(queries, key_blocks, stage, INDEX, PAGE)
    mbarrier.wait(values_there.index(stage), phase)
    mixed = warpgroup_mma(weights, value_blocks.index(stage), mixed, is_async=True)
    scores = warpgroup_mma_wait(1, deps=[scores])
    scores = visible(scores, page * PAGE, position, PAGE, SCORES)
    begins = page % (SPLIT // PAGE) == 0
    prior = gl.where(begins, float("-inf"), maximum)
    prior_total = gl.where(begins, 0.0, total)
    new_maximum, new_total, decay, new_weights = weighed(scores, prior, prior_total, scale_log2)
    new_weights = gl.convert_layout(new_weights.to(gl.float16), gl.DotOperandLayout(0, MIXED, 2))
    new_total = _computed(new_total)
    mixed, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
    mbarrier.arrive(read.index(stage), count=1)
    if begins:
        all_maximum, all_total, all_mixed = fold(
            all_maximum, all_total, all_mixed, maximum, total, mixed, MIXED
        )
        mixed = gl.zeros_like(mixed)
    mixed = mixed * gl.convert_layout(decay, gl.SliceLayout(1, MIXED))[:, None]
    return new_maximum, new_total, mixed, new_weights, all_maximum, all_total, all_mixed


@gluon.jit
def visible(scores, key, position, PAGE: gl.constexpr, SCORES: gl.constexpr):
    """Scores of the keys that a row sees, minus infinity elsewhere."""
    at = key + gl.arange(0, PAGE, layout=gl.SliceLayout(0, SCORES))
    return gl.where(at[None, :] <= position[:, None], scores, float("-inf"))


@gluon.jit
def weighed(scores, maximum, total, scale_log2):
    """A page's new maximum and sum, what sums before it are multiplied by, and its weights."""
    new_maximum = gl.maximum(maximum, gl.max(scores, 1) * scale_log2)
    # A row that has seen nothing yet has no maximum to subtract.
    shift = gl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    decay = gl.exp2(maximum - shift)
    scale = gl.full_like(scores, scale_log2)
    below = gl.zeros_like(scores) - shift[:, None]
    weights = gl.exp2(gl.fma(scores, scale, below))
    return new_maximum, total * decay + gl.sum(weights, 1), decay, weights


@gluon.jit
def fold(maximum, total, mixed, split_maximum, split_total, split_mixed, MIXED: gl.constexpr):
    """A split's result folded into those of the splits before it."""
    new_maximum = gl.maximum(maximum, split_maximum)
    shift = gl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    old = gl.exp2(maximum - shift)
    new = gl.exp2(split_maximum - shift)
    total = total * old + split_total * new
    old = gl.convert_layout(old, gl.SliceLayout(1, MIXED))[:, None]
    new = gl.convert_layout(new, gl.SliceLayout(1, MIXED))[:, None]
    return new_maximum, total, mixed * old + split_mixed * new


@gluon.jit
def _computed(sums):
    """`sums`, for the assembler to compute here: it would move their operations behind the next
    wait, whose time they are to fill. A sum of weights is never negative."""
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.lt.f32 p, $1, 0f00000000; @p trap; mov.b32 $0, $1; }",
        "=f,f", [sums], dtype=gl.float32, is_pure=False, pack=1,
    )  # fmt: skip
